"""JSON-RPC 2.0 envelopes as MCP restricts them (basic: Messages).

One message per body: batches are refused. Ids are strings or integers, never null, never
fractions. A client of the modern protocol sends requests and notifications, never responses.
"""

from typing import Any, Final, TypeAlias

import msgspec

from ekiden.errors import EnvelopeError, InvalidRequest, ProtocolError
from ekiden.wire.json import ENCODE_ERRORS, MAX_VALUES, Raw, decode, encode, is_array, is_object

__all__ = [
    "LONGEST_ID",
    "MOST_RESULT_BYTES",
    "MOST_VALUES",
    "PROCESS_ENDED",
    "RESTART",
    "Message",
    "RequestId",
    "answered_by",
    "error_response",
    "notification",
    "parse",
    "parse_from_server",
    "read",
    "request",
    "result_response",
    "says_restart",
]

RequestId: TypeAlias = int | str

LONGEST_ID: Final = 1000
"""The characters of a request's id. It is sent back with the response, and held until then."""

_EMPTY: Final[dict[str, Any]] = {}

MOST_RESULT_BYTES: Final = 32 * 1024 * 1024
"""The longest result that is sent, unless the server says otherwise. Ekiden's client takes as much."""
MOST_VALUES: Final = 1_000_000
"""Values of a server's message. Small ones take thirty times their bytes in memory, and to decode them and
pass them on takes about a fifth of a microsecond each, in which everybody else waits. A table of 100,000 rows
and 9 columns fits."""

RESTART: Final = {"ekiden/next": "restart_call"}
"""The `data` of an error after which only one thing helps: the call is started again, without its state.
It does not say why."""
PROCESS_ENDED: Final = (
    "The server process that ran this request has ended. It may have done all or a part of it: "
    "see what was done, and send the request again if it is safe"
)
"""Why a request has no result. How far it came is not known."""


class Message(msgspec.Struct, gc=False):
    """A request, or where `id` is None a notification, whose envelope is in order."""

    id: RequestId | None
    method: str
    params: dict[str, Any]


def parse(data: bytes) -> Message:
    """Read one message of a client; `ParseError` or `EnvelopeError` say what is wrong with it."""
    return read(decode(data, MAX_VALUES))


def read(value: Any) -> Message:
    """Read one message out of a decoded value."""
    if value.__class__ is not dict:
        what = "a batch" if is_array(value) else "not a JSON object"
        raise EnvelopeError(f"Invalid request: the body is {what}; send one JSON-RPC message", None)
    request_id: Any = value.get("id", _EMPTY)
    if type(request_id) is not int and (type(request_id) is not str or len(request_id) > LONGEST_ID):
        if request_id is not _EMPTY:
            raise EnvelopeError(_bad_id(request_id), None)
        request_id = None
    if value.get("jsonrpc") != "2.0":
        raise EnvelopeError('Invalid request: `jsonrpc` must be "2.0"', request_id)
    method = value.get("method")
    if type(method) is not str:
        raise EnvelopeError(_no_method(value), request_id)
    params: Any = value.get("params", _EMPTY)
    if params.__class__ is not dict:
        broken = "Invalid request: `params` must be an object"
        raise EnvelopeError(broken, request_id, notification=request_id is None)
    return Message(request_id, method, params)


def _bad_id(request_id: Any) -> str:
    if type(request_id) is str:
        return f"Invalid request: `id` must have at most {LONGEST_ID:,} characters"
    return "Invalid request: `id` must be a string or an integer"


def _no_method(value: dict[str, Any]) -> str:
    if "result" in value or "error" in value:
        return "Invalid request: clients send requests and notifications, not responses"
    return "Invalid request: `method` must be a string"


def parse_from_server(data: bytes, most_values: int = MOST_VALUES) -> dict[str, Any]:
    """Read one message of a server: a response, a notification or, before 2026, a request."""
    value = decode(data, most_values)
    if not is_object(value) or value.get("jsonrpc") != "2.0":
        raise InvalidRequest("this is not a JSON-RPC message")
    message_id = value.get("id")
    if message_id is not None and type(message_id) is not int and type(message_id) is not str:
        raise InvalidRequest("a message's id must be a string or an integer")
    if "method" in value:
        if type(value["method"]) is not str:
            raise InvalidRequest("a message's method must be a string")
        params = value.get("params")
        if params is not None and not is_object(params):
            raise InvalidRequest("a message's params must be an object")
    elif "result" not in value and "error" not in value:
        raise InvalidRequest("a message needs a method, a result or an error")
    return value


class _Envelope(msgspec.Struct):
    """What is read of a response that is not decoded. The decoder skips the rest, and makes nothing of it."""

    id: RequestId | None = None
    method: msgspec.Raw | None = None


_read_envelope: Final = msgspec.json.Decoder(_Envelope).decode


def answered_by(data: bytes) -> RequestId | None:
    """The id of the request that a message answers which is too much to be decoded; None if there is none."""
    try:
        envelope = _read_envelope(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return envelope.id if envelope.method is None else None


def request(request_id: RequestId, method: str, params: dict[str, Any]) -> bytes:
    """A request as bytes."""
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def result_response(request_id: RequestId, result: bytes) -> bytes:
    """The response that carries an encoded result."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(request_id), result)


def error_response(request_id: RequestId | None, error: ProtocolError) -> bytes:
    """The response that carries an error; the id is left out where it could not be read."""
    envelope: dict[str, Any] = (
        {"jsonrpc": "2.0"} if request_id is None else {"jsonrpc": "2.0", "id": request_id}
    )
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    try:
        return encode({**envelope, "error": body if error.data is None else {**body, "data": error.data}})
    except ENCODE_ERRORS:
        # The error is sent even if its data cannot be JSON, or its message is not valid text.
        body["message"] = error.message.encode(errors="replace").decode()
        return encode({**envelope, "error": body})


def notification(method: str, params: dict[str, Any] | Raw) -> bytes:
    """A notification as bytes."""
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def says_restart(data: Any) -> bool:
    """Whether the `data` of an error is `RESTART`, perhaps among other things."""
    return is_object(data) and RESTART.items() <= data.items()
