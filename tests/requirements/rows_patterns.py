"""Demands of the message patterns: requests, progress, cancellation, subscriptions."""

from .rows import Row

_PATTERNS = "basic/patterns/index § "
_PROGRESS = "basic/patterns/progress § "
_CANCEL = "basic/patterns/cancellation § "
_SUBSCRIPTIONS = "basic/patterns/subscriptions § "

PATTERNS = (
    Row("PAT-01", "MUST NOT", _PATTERNS + "Overview", "The server begins no requests."),
    Row("PROG-01", "MUST", _PROGRESS + "Progress Flow", "Each progress is greater than the one before."),
    Row(
        "PROG-02",
        "MUST",
        _PROGRESS + "Behavior Requirements",
        "Progress bears the token of the request that it is about; a request without token gets none.",
    ),
    Row(
        "PROG-03",
        "MUST",
        _PROGRESS + "Behavior Requirements; Implementation Notes",
        "When the request is answered, there is no more progress.",
    ),
    Row(
        "CANCEL-01",
        "MUST",
        _CANCEL + "Cancellation",
        "On a shared channel a server that ends a subscription says so with `notifications/cancelled`, "
        "after the result (decision 1: over HTTP the result ends the stream).",
    ),
    Row(
        "CANCEL-02",
        "MUST NOT",
        _CANCEL + "Cancellation; Behavior Requirements",
        "The server sends `notifications/cancelled` for subscriptions only.",
    ),
    Row(
        "CANCEL-03",
        "MUST",
        _CANCEL + "Transport-Specific Cancellation",
        "Over HTTP, a client that goes away has cancelled its request.",
    ),
    Row(
        "CANCEL-04",
        "SHOULD",
        _CANCEL + "Behavior Requirements",
        "Work on a cancelled request stops, and no response is sent.",
    ),
    Row(
        "CANCEL-05",
        "MUST",
        _CANCEL + "Timing Considerations",
        "A cancellation that comes too late does no harm.",
    ),
    Row(
        "CANCEL-06",
        "SHOULD",
        _CANCEL + "Error Handling",
        "Cancellations of unknown or finished requests, and broken ones, are ignored.",
    ),
    Row(
        "SUB-01",
        "MUST NOT",
        _SUBSCRIPTIONS + "Opening a Stream",
        "Only those kinds of notification are delivered that were asked for.",
    ),
    Row(
        "SUB-02",
        "MUST",
        _SUBSCRIPTIONS + "Acknowledgment",
        "The acknowledgement, with the subscription's id, comes first.",
    ),
    Row(
        "SUB-03",
        "MUST NOT",
        _SUBSCRIPTIONS + "Acknowledgment",
        "No notification of a subscription precedes its acknowledgement.",
    ),
    Row(
        "SUB-04",
        "states",
        _SUBSCRIPTIONS + "Acknowledgment",
        "The acknowledgement lists what will be delivered; what the server does not support is left out.",
    ),
    Row(
        "SUB-05",
        "states",
        _SUBSCRIPTIONS + "Receiving Notifications; Multiple Concurrent Subscriptions",
        "Several subscriptions can be open; each notification bears the id of its own.",
    ),
    Row(
        "SUB-06",
        "SHOULD",
        _SUBSCRIPTIONS + "Graceful Closure",
        "A server that ends a subscription answers it with a result, then closes the stream.",
    ),
    Row(
        "SUB-07",
        "states",
        "basic/transports/streamable-http § Receiving Messages",
        "Progress and log messages of other requests are not delivered on a listening stream.",
    ),
    Row(
        "SUB-08",
        "states",
        _SUBSCRIPTIONS + "Cancellation",
        "A subscription that the client cancelled delivers nothing more; the others go on.",
    ),
)
