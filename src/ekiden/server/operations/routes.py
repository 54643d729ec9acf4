"""Pages beside the endpoint: a function with a small request and response, or any ASGI application."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote

import msgspec

from ekiden.errors import InvalidParams, ProtocolError, StatusError, UsageError
from ekiden.transports.server.gate import Route
from ekiden.transports.server.reply import Event, Receive, Scope, Send, respond
from ekiden.wire.headers import Headers
from ekiden.wire.incoming import Incoming
from ekiden.wire.json import ENCODE_ERRORS, MAX_VALUES, decode, encode

__all__ = ["AsgiApp", "HttpRequest", "HttpResponse", "RouteHandler", "asgi_route", "handler_route"]

_log = logging.getLogger(__name__)

AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_MOST_FIELDS: Final = 1000
"""Fields of a query. A head of 64 KiB has room for thirty times as many."""


class HttpRequest(msgspec.Struct, frozen=True):
    """A request for a page. Its body is here as a whole, within `HttpLimits.body`."""

    method: str
    path: str
    query: Mapping[str, str]
    """What follows the `?`. If a name comes twice, the last one counts."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    address: str | None
    """The client's IP address; that of a proxy, unless the proxy is one of `trusted_proxies`."""
    most_values: int = MAX_VALUES
    """Values that the JSON in its body may have: `HttpLimits.values`."""

    def json(self) -> Any:
        """The body as JSON. If it is not JSON, or has too many values, the answer is 400."""
        try:
            return decode(self.body, self.most_values)
        except ProtocolError as error:
            raise StatusError(400, f"The body is not JSON: {error.message}") from None


class HttpResponse(msgspec.Struct, frozen=True):
    """The response to a request for a page. Text, bytes, or anything that JSON can represent."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = {}


RouteHandler: TypeAlias = Callable[[HttpRequest], Awaitable[Any]]
"""Returns an `HttpResponse`, or only its body."""


def handler_route(handler: RouteHandler, methods: Collection[str]) -> Route:
    """A route that calls a function. HEAD is answered where GET is."""
    if isinstance(methods, str) or not methods:
        raise UsageError("methods is a list: write methods=['GET']")
    allowed = [method.upper() for method in methods]
    if "GET" in allowed and "HEAD" not in allowed:
        allowed.append("HEAD")
    return functools.partial(_serve, handler, allowed)


async def _serve(
    handler: RouteHandler, allowed: list[str], incoming: Incoming, receive: Receive, send: Send
) -> None:
    if incoming.method not in allowed:
        allow = (b"allow", ", ".join(allowed).encode())
        await respond(send, 405, b"Method not allowed", allow, (b"content-type", _TEXT.encode()))
        return
    status, headers, body = await _answer(handler, incoming)
    await respond(send, status, body, *headers)


async def _answer(
    handler: RouteHandler, incoming: Incoming
) -> tuple[int, tuple[tuple[bytes, bytes], ...], bytes]:
    """The response of a handler. What it raises is 500, and in the log; `StatusError` is what it says."""
    try:
        given = await handler(_request(incoming))
        response = given if isinstance(given, HttpResponse) else HttpResponse(given)
        kind, body = _spelled(response.body)
        named = {name.lower(): value for name, value in response.headers.items()}
        headers = {"content-type": kind, **named}
        return response.status, tuple(_spelled_header(*pair) for pair in headers.items()), body
    except StatusError as error:
        pairs = {"content-type": _TEXT, **error.headers}
        spelled = tuple(_spelled_header(name.lower(), value) for name, value in pairs.items())
        return error.status, spelled, error.message.encode()
    except asyncio.CancelledError:
        raise
    except Exception:
        _log.exception("The page %s failed", incoming.path)
        phrase = HTTPStatus.INTERNAL_SERVER_ERROR.phrase.encode()
        return 500, ((b"content-type", _TEXT.encode()),), phrase


def _request(incoming: Incoming) -> HttpRequest:
    return HttpRequest(
        incoming.method,
        incoming.path,
        _query(incoming.query),
        {name.decode("latin-1"): value.decode("latin-1") for name, value in incoming.headers.items()},
        incoming.body,
        incoming.address,
        incoming.most_values,
    )


def _query(query: bytes) -> dict[str, str]:
    """The fields of a query. Anybody may call the pages for probes, and thousands of fields take time."""
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise StatusError(400, f"The query has more than {_MOST_FIELDS} fields") from None
    return dict(pairs)


def _spelled(body: Any) -> tuple[str, bytes]:
    if isinstance(body, bytes):
        return _BYTES, body
    if isinstance(body, str):
        return _TEXT, body.encode()
    try:
        return _JSON, encode(body)
    except ENCODE_ERRORS as error:
        raise InvalidParams(f"a page returned what JSON cannot represent: {error}") from error


def _spelled_header(name: str, value: str) -> tuple[bytes, bytes]:
    if not (name + value).isprintable():
        raise UsageError(f"the header {name!r} of a page must be printable, and on one line")
    return name.encode("latin-1"), value.encode("latin-1")


def asgi_route(app: AsgiApp, path: str) -> Route:
    """A route to another ASGI application, for a path and all below it. Its lifespan is not run."""

    async def serve(incoming: Incoming, receive: Receive, send: Send) -> None:
        await app(_scope(incoming, path.rstrip("/")), _Body(incoming.body, receive).receive, send)

    return serve


class _Body:
    """The body as ASGI's first event; then whatever comes."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def receive(self) -> Event:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()


def _scope(incoming: Incoming, root: str) -> Scope:
    if incoming.asgi is not None:
        return {**incoming.asgi, "root_path": incoming.asgi.get("root_path", "") + root}
    headers: Headers = incoming.headers
    pairs = incoming.repeating or list(headers.items())
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": incoming.method,
        "scheme": "http",
        "path": incoming.path,
        "raw_path": quote(incoming.path).encode(),  # The path came unquoted.
        "query_string": incoming.query,
        "root_path": root,
        "headers": pairs,
        "client": None if incoming.address is None else (incoming.address, 0),
        "server": None,
    }
