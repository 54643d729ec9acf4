"""The dialect of protocol version 2026-07-28: stateless requests, tagged results.

`accept` turns an envelope into a `Request` that this version allows, in the order of checks that
the spec implies: what the body says about itself, whether the headers agree, whether we speak the
version, whether we know the method. `Modern` spells what goes back.
"""

from collections.abc import Callable, Container, Mapping, MutableMapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ekiden.errors import (
    InternalError,
    InvalidParams,
    MethodNotFound,
    ProtocolError,
    StatusError,
    UnsupportedVersion,
)
from ekiden.wire import tasks, versions
from ekiden.wire.headers import (
    METHOD,
    MODERN,
    NAME,
    VERSION,
    Headers,
    check_method,
    check_name,
    check_version,
    reject_duplicates,
)
from ekiden.wire.incoming import Incoming, Watching
from ekiden.wire.json import Raw, encode
from ekiden.wire.jsonrpc import MOST_RESULT_BYTES, Message, RequestId, error_response, result_response
from ekiden.wire.meta import SERVER_INFO, RequestMeta, read_meta
from ekiden.wire.principal import Principal

__all__ = [
    "Kind",
    "Modern",
    "Request",
    "accept",
    "http_headers",
    "http_status",
    "refusal_status",
    "target_of",
]

_NAMED_BY: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(tasks.METHODS, "taskId"),
}
"""The methods that address one thing, and the parameter that names it; mirrored as `Mcp-Name`."""

_HTTP_STATUS: Final = {
    -32700: 400,
    -32600: 400,
    -32601: 404,
    -32602: 400,
    -32020: 400,
    -32021: 400,
    -32022: 400,
}


_RESERVED: Final = frozenset(range(-32099, -32022)) | {-32002, -32042}
"""Codes without a meaning in this version, and those that had one in earlier versions."""


def http_status(error: ProtocolError) -> int:
    """The HTTP status of an error response. The spec gives -32603 and authors' codes none: 200."""
    return error.status if isinstance(error, StatusError) else _HTTP_STATUS.get(error.code, 200)


def http_headers(error: ProtocolError) -> tuple[tuple[bytes, bytes], ...]:
    """The HTTP headers that an error response has of its own."""
    if not isinstance(error, StatusError):
        return ()
    return tuple((name.lower().encode(), value.encode("latin-1")) for name, value in error.headers.items())


def refusal_status(error: ProtocolError) -> int:
    """The HTTP status for a refused message that has no response: never a success."""
    status = http_status(error)
    return status if status != 200 else 500 if error.code == -32603 else 400


Kind: TypeAlias = Literal["request", "notification", "response", "http"]


class Request(msgspec.Struct, gc=False):
    """A request that may be dispatched. Middleware sees this."""

    id: RequestId
    method: str
    params: dict[str, Any]
    meta: RequestMeta
    name: str | None
    """The tool, prompt or URI it addresses, for the methods that address one."""
    headers: Headers | None
    """The HTTP headers, names in lower case; None on other transports."""
    task: str | None = None
    """The task of which this is a leg; None where a client has sent the request just now."""
    session: str | None = None
    """The session of a client of 2025, or the connection over stdio or memory; None over HTTP in 2026."""
    kind: Kind = "request"
    """What the client sent. A notification has an empty `id`. A response is the answer to a question that was
    pushed: `params` has its `result` or `error`. An `http` is a GET or DELETE in a session of 2025."""
    principal: Principal | None = None
    """The verified identity of who sent it; None if the server verifies none."""
    http: Incoming | None = None
    """The HTTP request that brought it; None on other transports, and in a task."""
    watched: Callable[[Callable[[], None]], Watching] | None = None
    """Watches what a host has admitted it by, and calls a function when that does not count any more."""

    @property
    def address(self) -> str | None:
        """The client's IP address; that of a proxy, unless the proxy is one of `trusted_proxies`."""
        return None if self.http is None else self.http.address

    @property
    def asgi(self) -> MutableMapping[str, Any] | None:
        """The ASGI scope where the server is mounted in another application; else None."""
        return None if self.http is None else self.http.asgi

    def watch(self, end: Callable[[], None]) -> Watching | None:
        """Call `end` when the request would not be admitted any more; None if that cannot come about."""
        if self.watched is not None:
            return self.watched(end)
        if self.http is None or self.http.authority is None:
            return None
        return self.http.authority.watch(self.http, end)

    def header(self, name: str) -> str | None:
        """An HTTP header as text; None if it was not sent, or there is no HTTP."""
        value = None if self.headers is None else self.headers.get(name.lower().encode("latin-1"))
        return None if value is None else value.strip(b" \t").decode("latin-1")


def accept(
    message: Message, headers: Headers | None, methods: Container[str], incoming: Incoming | None = None
) -> Request:
    """The request in `message`, or the `ProtocolError` that 2026-07-28 wants for it.

    `message.id` must not be None. `headers` and `incoming` are None on transports without a header layer.
    """
    method, params = message.method, message.params
    version: bytes | None = MODERN
    if headers is None:
        if method == "initialize":
            raise MethodNotFound(_not_found(method))
    else:
        if incoming is not None and incoming.repeating is not None:
            reject_duplicates(incoming.repeating)
        if (version := headers.get(VERSION)) is None:
            check_version(headers, None)
    meta = read_meta(params)
    # A header that equals the body byte for byte is in order; any other is looked at closely.
    if version != MODERN or meta.protocol_version != versions.MODERN:
        _check_version(headers, meta.protocol_version)
    if headers is not None and headers.get(METHOD) != method.encode():
        check_method(headers, method)
    if method not in methods:
        raise MethodNotFound(_not_found(method))
    name: Any = None
    if (key := _NAMED_BY.get(method)) is not None:
        name = params.get(key)
        # Most names are so plain that they cannot mean anything else in a header.
        if not (
            type(name) is str
            and headers is not None
            and headers.get(NAME) == name.encode()
            and name.isascii()
            and (name.isidentifier() or name.isalnum())
        ):
            name = _checked_name(method, params, headers)
    assert message.id is not None
    principal = None if incoming is None else incoming.principal
    return Request(
        message.id, method, params, meta, name, headers, None, None, "request", principal, incoming
    )


def _checked_name(method: str, params: dict[str, Any], headers: Headers | None) -> str | None:
    """What a request addresses; a header that names it must say the same."""
    name = target_of(method, params)
    # Clients in use leave `Mcp-Name` out of the methods of tasks; see decision 16.
    if name is not None and headers is not None and (NAME in headers or method not in tasks.METHODS):
        check_name(headers, name)
    return name


def _check_version(headers: Headers | None, version: str) -> None:
    """The header names the version of the body, which is one that we speak."""
    if headers is not None:
        check_version(headers, version)
    if version not in versions.SUPPORTED:
        raise UnsupportedVersion(version, versions.SUPPORTED)


def target_of(method: str, params: dict[str, Any]) -> str | None:
    """What a request addresses: a tool, a prompt or a URI; None for methods that address nothing."""
    key = _NAMED_BY.get(method)
    name: Any = None if key is None else params.get(key)
    if key is not None and type(name) is not str:
        raise InvalidParams(f"Invalid params: `{key}` is required and must be a string")
    return name  # type: ignore[no-any-return]


def _not_found(method: str) -> str:
    text = f"Method not found: {method[:200]}"
    if method == "initialize":
        # The one hint an old client can show its user: it knows no other way forward.
        text += f" (this server speaks protocol version {', '.join(versions.SUPPORTED)})"
    return text


_ID: Final = b'{"jsonrpc":"2.0","id":'
_COMPLETE: Final = b'{"resultType":"complete",'
_RESULT: Final = b',"result":' + _COMPLETE


class Modern:
    """Spells results and errors for 2026-07-28."""

    version: Final = versions.MODERN
    most_bytes = MOST_RESULT_BYTES
    """The longest response that is sent."""

    def __init__(self, server_info: dict[str, Any]) -> None:
        self._server_info = server_info
        self._meta = Raw(encode({SERVER_INFO: server_info}))
        self._signature = b"," + encode({"_meta": self._meta})[1:]

    def result(self, result: dict[str, Any]) -> bytes:
        """A complete result as bytes: tagged, unless it is already, and signed with who we are."""
        meta = result.get("_meta")
        if meta is None and result and "resultType" not in result:
            return b"".join((_COMPLETE, encode(result)[1:-1], self._signature))
        return encode(
            {"resultType": "complete", **result, "_meta": {SERVER_INFO: self._server_info, **(meta or {})}}
        )

    def complete(self, request_id: RequestId, result: dict[str, Any] | bytes) -> bytes:
        """The response for a result; bytes are a result that `result` made before."""
        if isinstance(result, bytes):
            return result_response(request_id, result)
        if "_meta" in result or "resultType" in result or not result:
            return result_response(request_id, self.result(result))
        spelled = (_ID, encode(request_id), _RESULT, encode(result)[1:-1], self._signature, b"}")
        return b"".join(spelled)

    def input_required(self, request_id: RequestId, requests: Mapping[str, Any], state: str | None) -> bytes:
        """The response for an interim result: at least one of questions and state."""
        result: dict[str, Any] = {"resultType": "input_required"}
        if requests:
            result["inputRequests"] = requests
        if state is not None:
            result["requestState"] = state
        result["_meta"] = self._meta
        return encode({"jsonrpc": "2.0", "id": request_id, "result": result})

    def detailed_task(self, task: tasks.TaskView) -> bytes:
        """The result of `tasks/get`."""
        return b"".join((_COMPLETE, encode(task)[1:-1], self._signature))

    def task(self, request_id: RequestId, task: tasks.TaskView) -> bytes:
        """The response for a request that has become a task."""
        spelled = b'{"resultType":"task",' + encode(task)[1:-1] + self._signature
        return result_response(request_id, spelled)

    def typed(self, result_type: str, result: dict[str, Any]) -> bytes:
        """A result of a type that an extension has, as `result` makes complete ones."""
        meta: dict[str, Any] = {SERVER_INFO: self._server_info}
        meta.update(result.get("_meta") or {})
        return encode({**result, "resultType": result_type, "_meta": meta})

    def error(self, request_id: RequestId | None, error: ProtocolError) -> bytes:
        """The response for an error. Codes that the specification keeps to itself never leave."""
        if error.code in _RESERVED:
            error = InternalError(error.message, data=error.data)
        return error_response(request_id, error)
