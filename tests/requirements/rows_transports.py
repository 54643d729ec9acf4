"""Demands of the transports: what all share, Streamable HTTP and its mirrored headers, stdio."""

from .rows import Row

_ALL = "basic/transports/index § "
_HTTP = "basic/transports/streamable-http § "
_STDIO = "basic/transports/stdio § "

TRANSPORTS = (
    Row("TRANS-01", "MUST", _ALL + "Messages", "Messages are UTF-8, in both directions."),
    Row(
        "TRANS-02",
        "MUST",
        _ALL + "Messages",
        "Each transport brings requests and notifications in, responses and notifications out.",
    ),
    Row(
        "TRANS-03",
        "MUST",
        _ALL + "Custom Transports",
        "A transport of one's own keeps message format, patterns and metadata per request.",
    ),
    Row("HTTP-01", "MUST", _HTTP + "Streamable HTTP", "There is one path, and it takes POST."),
    Row("HTTP-02", "MUST", _HTTP + "Security & Endpoint", "`Origin` is checked, whatever the request."),
    Row("HTTP-03", "MUST", _HTTP + "Security & Endpoint", "A foreign `Origin` is answered with status 403."),
    Row(
        "HTTP-04",
        "MUST",
        _HTTP + "Sending Messages",
        "A notification that is accepted is answered with status 202 and an empty body.",
    ),
    Row(
        "HTTP-05",
        "MUST",
        _HTTP + "Sending Messages",
        "A notification that is not accepted is answered with an error status; an error there has no id.",
    ),
    Row(
        "HTTP-06",
        "MUST",
        _HTTP + "Sending Messages",
        "A request is answered with one JSON object or with an event stream, and labelled accordingly.",
    ),
    Row(
        "HTTP-07",
        "MUST",
        _HTTP + "Receiving Messages",
        "Notifications on the stream of a request belong to that request.",
    ),
    Row("HTTP-08", "MUST NOT", _HTTP + "Receiving Messages", "No stream carries requests of the server."),
    Row("HTTP-09", "SHOULD", _HTTP + "Receiving Messages", "The stream ends with the response."),
    Row(
        "HTTP-10",
        "SHOULD",
        _HTTP + "Receiving Messages",
        "Event streams tell proxies not to buffer them.",
    ),
    Row(
        "HTTP-11",
        "states",
        _HTTP + "Receiving Messages",
        "A listening stream on which nothing happens is kept alive with comments.",
    ),
    Row("HTTP-12", "MUST", _HTTP + "Cancellation", "Who closes the stream of a request has cancelled it."),
    Row(
        "HTTP-13",
        "MUST NOT",
        _HTTP + "Cancellation",
        "Nothing more is sent for a request whose stream was closed.",
    ),
    Row(
        "HTTP-14",
        "MUST",
        _HTTP + "Protocol Version Header",
        "If header and body name different protocol versions: status 400, code -32020.",
    ),
    Row(
        "HTTP-15",
        "MUST",
        _HTTP + "Protocol Version Header",
        "A version that is not implemented: status 400, code -32022, with the versions that are.",
    ),
    Row("HTTP-16", "MUST", _HTTP + "Protocol Version Header", "An unknown method: status 404, code -32601."),
    Row(
        "HTTP-17",
        "MUST",
        _HTTP + "Protocol Version Header; Server Validation",
        "Without a version header, a request that no old client would send is refused.",
    ),
    Row(
        "HTTP-18",
        "SHOULD",
        _HTTP + "Earlier Streamable HTTP Revisions",
        "GET and DELETE are answered with status 405.",
    ),
    Row(
        "HTTP-19",
        "SHOULD",
        _HTTP + "Earlier Streamable HTTP Revisions",
        "A session id is neither minded nor given.",
    ),
    Row(
        "HTTP-20",
        "SHOULD",
        _HTTP + "Earlier Streamable HTTP Revisions",
        "A wish to go on after some event is not minded; events bear no ids.",
    ),
    Row("HEAD-01", "MUST", _HTTP + "Standard Request Headers", "No request without `Mcp-Method`."),
    Row(
        "HEAD-02",
        "MUST",
        _HTTP + "Standard Request Headers",
        "Calls of tools, reads of resources and gets of prompts need `Mcp-Name`.",
    ),
    Row(
        "HEAD-03",
        "MUST",
        _HTTP + "Server Validation",
        "A header that says other than the body is refused.",
    ),
    Row(
        "HEAD-04",
        "MUST",
        _HTTP + "Value Encoding; Server Validation",
        "An encoded `Mcp-Name` is decoded before it is compared.",
    ),
    Row(
        "HEAD-05",
        "MUST",
        _HTTP + "Value Encoding",
        "The markers of an encoded value count only in exactly their lower-case form.",
    ),
    Row(
        "HEAD-06",
        "MUST",
        _HTTP + "Case Sensitivity",
        "Names of headers are compared without regard to case; their values with.",
    ),
    Row(
        "HEAD-07",
        "MUST",
        _HTTP + "Server Validation",
        "What fails at the headers gets status 400 and a JSON-RPC error with code -32020.",
    ),
    Row(
        "HEAD-08", "MUST", _HTTP + "Server Validation", "Header values with unlawful characters are refused."
    ),
    Row("PARAM-01", "MUST NOT", _HTTP + "Schema Extension", "`x-mcp-header` is not empty."),
    Row("PARAM-02", "MUST", _HTTP + "Schema Extension", "`x-mcp-header` can be part of a header's name."),
    Row("PARAM-03", "MUST NOT", _HTTP + "Schema Extension", "`x-mcp-header` holds no control characters."),
    Row(
        "PARAM-04",
        "MUST",
        _HTTP + "Schema Extension",
        "No two `x-mcp-header` of a tool are equal, case aside.",
    ),
    Row(
        "PARAM-05",
        "MUST",
        _HTTP + "Schema Extension",
        "Only parameters that are strings, integers or booleans are mirrored.",
    ),
    Row(
        "PARAM-06",
        "MUST",
        _HTTP + "Schema Extension",
        "Mirrored integers are not beyond what a double holds exactly.",
    ),
    Row(
        "PARAM-07",
        "MUST",
        _HTTP + "Schema Extension",
        "From the root of the schema to a mirrored parameter there are only `properties`, nested or not.",
    ),
    Row(
        "PARAM-08",
        "MUST",
        _HTTP + "Server Behavior for Custom Headers",
        "A mirrored parameter with unlawful characters is refused; headers of no parameter are not minded.",
    ),
    Row(
        "PARAM-09",
        "MUST",
        _HTTP + "Server Behavior for Custom Headers",
        "A mirrored parameter that differs from the argument: status 400, code -32020.",
    ),
    Row(
        "PARAM-10",
        "MUST",
        _HTTP + "Value Encoding; Server Behavior for Custom Headers",
        "An encoded parameter is decoded before it is compared.",
    ),
    Row(
        "PARAM-11",
        "MUST NOT",
        _HTTP + "Server Behavior for Custom Headers",
        "No header is expected for an argument that is null.",
    ),
    Row(
        "PARAM-12",
        "MUST NOT",
        _HTTP + "Server Behavior for Custom Headers",
        "No header is expected for an argument that is not given.",
    ),
    Row(
        "PARAM-13",
        "MUST",
        _HTTP + "Server Behavior for Custom Headers",
        "A given argument whose header is missing is refused.",
    ),
    Row("PARAM-14", "SHOULD", _HTTP + "Server Validation", "Integers are compared as numbers."),
    Row("STDIO-01", "MUST NOT", _STDIO + "stdio", "A message is one line."),
    Row("STDIO-02", "MUST NOT", _STDIO + "stdio", "Nothing goes to stdout but messages."),
    Row("STDIO-03", "MUST NOT", _STDIO + "Receiving Messages", "The server writes no requests."),
    Row(
        "STDIO-04",
        "MUST NOT",
        _STDIO + "Cancellation",
        "Nothing more is written for a request that was cancelled.",
    ),
    Row("STDIO-05", "SHOULD", _STDIO + "Shutdown", "When stdin ends, the server soon does too."),
)
