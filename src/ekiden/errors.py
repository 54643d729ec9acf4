"""Every exception that ekiden raises on purpose, split by what the caller does next.

    EkidenError
    ├── UsageError               you misused the library: change the code that calls it
    │   ├── RegistrationError    a tool, prompt, resource or completion cannot be registered as written
    │   ├── NonDeterminismError  a handler took another way than in an earlier round of the same call
    │   ├── WrongAnswer          an answer of yours does not fit its question: it was not sent
    │   ├── NotRecalled          the recorded value of a step does not fit its annotation any more
    │   └── Mistyped             a word of the command line cannot be read as the value that is wanted
    ├── ProtocolError            one JSON-RPC error: what the peer sent cannot be served
    │   ├── ParseError                 -32700  the bytes are not JSON
    │   │   └── TooManyValues          the message has more values than its reader takes
    │   ├── InvalidRequest             -32600  the JSON is not a JSON-RPC request
    │   │   └── EnvelopeError          what is broken is not the method's business: id, method or params
    │   ├── MethodNotFound             -32601
    │   ├── InvalidParams              -32602
    │   │   ├── ResourceNotFound       there is no such resource; for clients of 2025 it is -32002
    │   │   └── UnknownTask            there is no such task, or it belongs to somebody else
    │   ├── InternalError              -32603
    │   ├── HeaderMismatch             -32020  the HTTP headers and the body disagree
    │   ├── MissingCapability          -32021  the client did not declare what the request needs
    │   ├── UnsupportedVersion         -32022
    │   ├── StatusError                over HTTP it is answered with a status and headers of its own
    │   │   └── InsufficientScope      the caller's access token does not grant what this needs: HTTP 403
    │   └── ServerError                what the server answered to a client, with the server's own code
    │       ├── CallLost               the server does not go on with this call: start it again
    │       └── CallFailed             what the server answered to a `ScriptedClient`, in a test
    ├── TransportError           the connection failed: nothing is wrong with the message
    │   ├── TooMuch              the peer sent more than the limits allow
    │   ├── HttpRefused          the server answered with an HTTP status that is not a success
    │   └── CallTimeout          the call took longer than the client allows: it was cancelled
    ├── InvalidResult            the server's result breaks the protocol or the tool's output schema
    │   └── UnverifiedSkill      a file of a skill is not what the skill's entry says: it must not be used
    ├── CannotAnswer             the server asks for something that no callback of the client answers
    ├── TooManyRounds            the call has more rounds than the client allows
    ├── CallCancelled            the task that the call had become was cancelled
    ├── StoreUnavailable         the store cannot be reached or written to right now: nothing was changed
    ├── StoreRefused             the store cannot keep this value, now or later: nothing was changed
    ├── LostClaim                another worker has the task, or it has ended: nothing was changed
    ├── IllegalMove              the state of the task does not allow this: nothing was changed
    ├── StepFailed               a step raised, now or in an earlier round: catch it as you would the original
    ├── ToolError                raised by a tool's author: the text is shown to the model
    │   └── CannotAsk            the client cannot be asked, or gave no fitting answer
    ├── Unanswered               in a test: the script has no answer to a question
    └── ReplayDiffers            in a test: a handler did something else when it was replayed

A `ProtocolError` carries its facts as attributes; its message may reach the wire, so nothing
secret goes into it. Handlers may raise any `ProtocolError` to answer with exactly that error.

Exceptions that never leave the library are in `ekiden.signals`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class EkidenError(Exception):
    """The root: catches everything that ekiden raises on purpose."""


class UsageError(EkidenError):
    """The library was called in a way that cannot work; the message says what to change."""


class RegistrationError(UsageError):
    """A handler cannot be registered as it is written."""


class NonDeterminismError(UsageError):
    """A handler that is run again over its journal did something else than before."""

    def __init__(self, message: str, *, before: str, now: str, effect: str = "") -> None:
        super().__init__(f"{message}: before, {before}; now, {now}")
        self.before = before
        self.now = now
        self.told = f"{message} at {effect!r}" if effect else message
        """What a client may be told: both sides name arguments of steps, and where these are written."""


class WrongAnswer(UsageError):
    """What was given does not answer a question of the server, so it was not sent.

    `key` and `question` say which one; `question` is None if nothing was asked under this key.
    """

    def __init__(self, key: str, question: str | None, problem: str) -> None:
        asked = f"{key!r}" if question is None else f"{key!r} ({question[:100]!r})"
        super().__init__(f"The answer to {asked} was not sent: {problem}")
        self.key = key
        self.question = question
        self.problem = problem


class NotRecalled(UsageError):
    """What the journal holds of a step does not fit the annotation of its function."""


class Mistyped(UsageError):
    """A word cannot be read as the wanted value. The message follows the word's name: "x must be ..."."""


class StepFailed(EkidenError):
    """A step raised. `type` and `message` are those of the exception, in whichever round it was."""

    def __init__(self, type: str, message: str) -> None:  # noqa: A002  the name that reads best at the catch
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message


class ToolError(EkidenError):
    """A tool failed in a way its caller should read: the text becomes the `isError` result."""


class CannotAsk(ToolError):
    """The client cannot be asked, or gave no fitting answer. In a tool this is the text of its result."""


class StoreRefused(EkidenError):
    """The store cannot keep a value, however often it is tried: it is too large, or no column takes it."""


class StoreUnavailable(EkidenError):
    """The store cannot be reached or written to right now. Nothing was changed: try again."""


class LostClaim(EkidenError):
    """Another worker holds the task by now, or it has ended. Nothing was changed."""


class IllegalMove(EkidenError):
    """The task is in a state that does not allow this. Nothing was changed."""

    def __init__(self, state: str, move: str) -> None:
        super().__init__(f"a task that is {state} cannot {move}")
        self.state = state
        self.move = move


class ProtocolError(EkidenError):
    """A JSON-RPC error. `code`, `message` and `data` are what the peer sees."""

    default_code: ClassVar[int] = -32603

    def __init__(self, message: str, *, data: Any = None, code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
        self.code = self.default_code if code is None else code


class ParseError(ProtocolError):
    """The bytes are not JSON, or JSON that no peer may send: too deep, not UTF-8, NaN."""

    default_code = -32700


class TooManyValues(ParseError):
    """The message has more values than its reader takes."""


class InvalidRequest(ProtocolError):
    """The JSON is not one JSON-RPC request or notification."""

    default_code = -32600


class EnvelopeError(InvalidRequest):
    """The envelope is broken; `request_id` is what could be read of it."""

    def __init__(self, message: str, request_id: int | str | None, *, notification: bool = False) -> None:
        super().__init__(message)
        self.request_id = request_id
        self.notification = notification
        """Whether it was a notification, which nobody may answer, not even with an error."""


class MethodNotFound(ProtocolError):
    """The method is not implemented here, or not part of the protocol version in use."""

    default_code = -32601


class InvalidParams(ProtocolError):
    """The parameters are malformed, or name something that does not exist."""

    default_code = -32602


class ResourceNotFound(InvalidParams):
    """There is no resource at this URI. A handler raises it for a URI of its template that does not exist."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"Resource not found: {uri}", data={"uri": uri})
        self.uri = uri


class UnknownTask(InvalidParams):
    """There is no such task, or it belongs to somebody else."""

    def __init__(self) -> None:
        super().__init__("Unknown task")


class InternalError(ProtocolError):
    """The server failed; the reason is in its log, not in the message."""


class HeaderMismatch(ProtocolError):
    """A mirrored HTTP header is missing, malformed, or differs from the body."""

    default_code = -32020


class MissingCapability(ProtocolError):
    """The request needs client capabilities that it does not declare."""

    default_code = -32021

    def __init__(self, required: Mapping[str, Any], message: str | None = None, question: str = "") -> None:
        self.required = dict(required)
        self.question = question
        """The words of the question that could not be asked, or empty. The message leaves them out."""
        named = f"The client did not declare a required capability: {', '.join(sorted(required))}"
        super().__init__(message or named, data={"requiredCapabilities": self.required})


class UnsupportedVersion(ProtocolError):
    """The request's protocol version is not spoken here."""

    default_code = -32022

    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        self.requested = requested
        self.supported = tuple(supported)
        super().__init__(
            "Unsupported protocol version", data={"supported": list(supported), "requested": requested}
        )


class StatusError(ProtocolError):
    """An error that over HTTP is answered with this status and these headers; elsewhere a JSON-RPC error.

    A middleware raises it to answer, for example, with 429 and `Retry-After`.
    """

    default_code = -32600

    def __init__(
        self,
        status: int,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        data: Any = None,
        code: int | None = None,
    ) -> None:
        if not 400 <= status < 600:
            raise UsageError(f"StatusError({status}, ...): the status of an error is from 400 to 599")
        for name, value in (headers or {}).items():
            if not (name + value).isprintable() or not (name + value).isascii():
                raise UsageError(f"StatusError(headers=...): {name!r} must be printable ASCII on one line")
        super().__init__(message, data=data, code=code)
        self.status = status
        self.headers = dict(headers or {})


class InsufficientScope(StatusError):
    """The caller's access token does not grant the scopes that are needed: the client can ask for more."""

    def __init__(self, scopes: Sequence[str], *, headers: Mapping[str, str] | None = None) -> None:
        self.scopes = tuple(scopes)
        needed = " ".join(self.scopes)
        super().__init__(403, f"Insufficient scope: this needs {needed}", headers=headers)


class ServerError(ProtocolError):
    """The server answered with a JSON-RPC error: `code`, `message` and `data` are its own."""


class CallLost(ServerError):
    """The server does not go on with this call: start it again. Why is in the server's log, not here.

    Its state has expired, was sealed by another server or for another user, or the server has changed since.
    """


class TransportError(EkidenError):
    """The connection to the peer failed or was closed."""


class TooMuch(TransportError):
    """The peer sent more than the limits allow: a message, a line, a head or a stream is too large."""


class HttpRefused(TransportError):
    """The server refused on the level of HTTP, with this status and these words."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(f"The server refused the request with HTTP status {status}{text and f': {text}'}")
        self.status = status
        self.text = text


class CallTimeout(TransportError):
    """The call did not end in time; it was cancelled at the server."""


class InvalidResult(EkidenError):
    """The server's result breaks the protocol, or the tool's own output schema."""


class UnverifiedSkill(InvalidResult):
    """A file of a skill is not what the skill's entry says: changed since, or tampered with.

    `client.get_skill` gives the current entry. What a user has approved was the old one.
    """

    def __init__(self, uri: str, reason: str) -> None:
        self.uri = uri
        super().__init__(f"{uri} cannot be used: {reason}. Get the skill's entry again with `get_skill`")


class CannotAnswer(EkidenError):
    """The server asks for something that no callback answers. The user was not asked anything."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        asked = ", ".join(f"{key} ({kind})" for key, kind in kinds.items())
        super().__init__(f"No callback answers {asked}; give the client one")
        self.kinds = dict(kinds)


class TooManyRounds(EkidenError):
    """The call did not end within the rounds that it may have."""


class CallCancelled(EkidenError):
    """The task that the call had become was cancelled, by somebody else or by the server."""


class CallFailed(ServerError):
    """The server answered a scripted client with a JSON-RPC error."""


class Unanswered(EkidenError):
    """A question came up that the script has no answer for."""


class ReplayDiffers(EkidenError):
    """Two runs did different things; `straight` and `replayed` are the first effects that differ."""

    def __init__(self, position: int, straight: str, replayed: str) -> None:
        super().__init__(
            f"Effect {position + 1} differs: in one run it is {straight}, replayed it is {replayed}. "
            "Whatever varies between rounds (time, ids, I/O) belongs into ctx.now, ctx.uuid or ctx.step"
        )
        self.position = position
        self.straight = straight
        self.replayed = replayed
