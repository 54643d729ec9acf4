"""Demands of the base protocol: messages, statelessness, schemas, `_meta`, versioning."""

from .rows import Row

_INDEX = "basic/index § "
_VERSIONING = "basic/versioning § "

BASE = (
    Row(
        "MSG-01",
        "MUST",
        _INDEX + "Messages",
        "Whatever the server sends is a JSON-RPC 2.0 object: a result, an error or a notification.",
    ),
    Row(
        "MSG-02",
        "MUST",
        _INDEX + "Requests",
        "Only a string or an integer serves as the id of a request; null and others are refused.",
    ),
    Row("MSG-03", "MUST", _INDEX + "Result Responses", "A result bears the id of its request, unchanged."),
    Row("MSG-04", "MUST", _INDEX + "Result Responses", "A result response has a `result` member."),
    Row(
        "MSG-05",
        "MUST",
        _INDEX + "Result Responses; ResultType",
        "Each result names its type, and only a type of the core protocol or of an advertised extension.",
    ),
    Row(
        "MSG-06",
        "MUST",
        _INDEX + "Error Responses",
        "An error bears the id of its request; it has none if the id could not be read.",
    ),
    Row(
        "MSG-07",
        "MUST",
        _INDEX + "Error Responses",
        "An error holds an integer code and a message.",
    ),
    Row(
        "MSG-08",
        "MUST",
        _INDEX + "Messages; Error Codes",
        "Broken JSON, objects that are no request, and unknown methods get the codes JSON-RPC has for them.",
    ),
    Row(
        "MSG-09",
        "MUST NOT",
        _INDEX + "Error Codes",
        "Of the codes -32020 to -32099 only those three leave that are defined, each for its own purpose.",
    ),
    Row(
        "MSG-10",
        "MUST NOT",
        _INDEX + "Error Codes",
        "The codes -32002 and -32042 of earlier versions are never sent.",
    ),
    Row(
        "MSG-11",
        "MUST NOT",
        _INDEX + "Error Codes",
        "The library makes up no codes of its own in the legacy range -32000 to -32019.",
    ),
    Row("MSG-12", "MUST NOT", _INDEX + "Notifications", "A notification is never answered."),
    Row(
        "MSG-13", "MUST NOT", _INDEX + "Notifications", "The notifications that the server sends have no id."
    ),
    Row(
        "MSG-14",
        "MUST",
        _INDEX + "Overview",
        "Base protocol, versioning and all message patterns are served, whatever features are offered.",
    ),
    Row(
        "STATE-01",
        "MUST NOT",
        _INDEX + "Statelessness",
        "Nothing is carried over from earlier requests of a connection: version, capabilities, identity.",
    ),
    Row(
        "STATE-02",
        "MUST",
        _INDEX + "Statelessness",
        "State that outlives a request is named by something that the client hands in each time.",
        author=True,
        why="Which handles a server's tools give out is the design of those tools.",
    ),
    Row(
        "SCHEMA-01",
        "MUST",
        _INDEX + "Schema Dialect; Implementation Requirements",
        "A schema that names no dialect is read as JSON Schema 2020-12.",
    ),
    Row(
        "SCHEMA-02",
        "MUST",
        _INDEX + "Implementation Requirements",
        "A schema that names its dialect is applied by the rules of that dialect.",
    ),
    Row(
        "SCHEMA-03",
        "MUST",
        _INDEX + "Implementation Requirements",
        "A dialect that is not supported leads to an error which says so.",
    ),
    Row(
        "SCHEMA-04",
        "MUST",
        _INDEX + "Schema Validation",
        "A schema that is not valid in its dialect is not published.",
    ),
    Row(
        "SCHEMA-05",
        "MUST NOT",
        _INDEX + "`$ref` Resolution",
        "Unless somebody asked for it, no reference is fetched over the network.",
    ),
    Row(
        "SCHEMA-06",
        "SHOULD",
        _INDEX + "`$ref` Resolution",
        "A schema with a foreign reference that nobody resolved refuses, it does not let all pass.",
    ),
    Row(
        "META-01",
        "MUST NOT",
        _INDEX + "`_meta`",
        "Keys in `_meta` that the server does not know, reserved ones too, may hold anything.",
    ),
    Row(
        "META-02",
        "MUST",
        _INDEX + "`_meta`, Prefix",
        "Prefixes of the `_meta` keys that the server writes are dotted labels and a slash.",
    ),
    Row(
        "META-03",
        "MUST",
        _INDEX + "`_meta`, Name",
        "Names of the `_meta` keys that the server writes begin and end with a letter or a digit.",
    ),
    Row(
        "META-04",
        "MUST",
        _INDEX + "`_meta`, Per-request protocol fields",
        "A request without its protocol version or client capabilities is refused with -32602.",
    ),
    Row(
        "META-05",
        "MUST",
        _INDEX + "`_meta`, Per-request protocol fields",
        "Over HTTP such a request is answered with status 400.",
    ),
    Row(
        "META-06",
        "MUST",
        _INDEX + "`_meta`, Per-request protocol fields",
        "If a capability is needed that this request did not declare: -32021, and which ones are missing.",
    ),
    Row(
        "META-07",
        "MUST",
        _INDEX + "`_meta`, Per-request protocol fields",
        "Over HTTP the missing capability is answered with status 400.",
    ),
    Row(
        "META-08",
        "MUST",
        _INDEX + "`_meta`, Per-response protocol fields",
        "What is delivered on a listening stream says which request opened that stream.",
    ),
    Row(
        "META-09",
        "MUST",
        _INDEX + "`_meta`, OpenTelemetry trace context",
        "Trace context that the server writes, if any, has the form that the W3C gave it.",
    ),
    Row(
        "VER-01",
        "MUST",
        _VERSIONING + "Protocol Version Negotiation",
        "A version that is not implemented: -32022, with the versions that are, and the one asked for.",
    ),
    Row(
        "VER-02",
        "MUST",
        _VERSIONING + "Protocol Version Negotiation; server/discover",
        "`server/discover` is answered, by every server.",
    ),
    Row(
        "VER-03",
        "MUST",
        _VERSIONING + "Extension Negotiation",
        "Extensions that the server advertises have a prefix, and names of the form of `_meta` keys.",
    ),
    Row(
        "VER-04",
        "MUST",
        _VERSIONING + "Extension Negotiation",
        "A client that offers an unknown extension is served by the core protocol, or gets an error.",
    ),
    Row(
        "VER-05",
        "states",
        _VERSIONING + "Compatibility Matrix",
        "A server of both eras goes by how a client opens: `initialize` selects the old one.",
    ),
)
