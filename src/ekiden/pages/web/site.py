"""A small ASGI application: routes, pages, errors that people can read, safe headers."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from ekiden.errors import StatusError, UsageError
from ekiden.pages.web.headers import SAFE
from ekiden.pages.web.messages import Receive, Scope, Send, WebRequest, WebResponse, read_request
from ekiden.pages.web.static import STATIC, serve_static
from ekiden.pages.web.templates import render

__all__ = ["Handler", "Site"]

_log = logging.getLogger(__name__)

_HEADINGS: Final = {
    401: "Sign in first",
    403: "This is not allowed",
    404: "There is nothing here",
    409: "That is not possible now",
    503: "Not available right now",
}
"""What pages about errors say, in plain words, where the words of HTTP are for programs."""

Handler: TypeAlias = Callable[[WebRequest], Awaitable[WebResponse]]
Before: TypeAlias = Callable[[WebRequest], WebResponse | None]

_FORM_BYTES: Final = 256_000
_HSTS: Final = {"strict-transport-security": "max-age=31536000"}


class Site:
    """Pages at paths below one root. Give it to `Server.route(path, app=site)`, or to uvicorn.

    `secure` says that it is served over HTTPS. `hosts` are the names that it may be called by, with ports;
    None if something in front of it checks that. `shared` values are there in every template.
    """

    def __init__(
        self,
        *,
        secure: bool,
        hosts: Collection[str] | None = None,
        form_bytes: int = _FORM_BYTES,
        shared: dict[str, Any] | None = None,
    ) -> None:
        self.secure = secure
        self.shared: dict[str, Any] = {"site_name": "ekiden", "tabs": (), **(shared or {})}
        self.before: Before | None = None
        """Called before every route but static files; a response of its own is sent instead."""
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._form_bytes = form_bytes
        self._routes: list[tuple[re.Pattern[str], dict[str, Handler]]] = []

    def get(self, path: str) -> Callable[[Handler], Handler]:
        """Serve GET and HEAD at a path. `{name}` is one part of it: `request.params["name"]`."""
        return self._register("GET", path)

    def post(self, path: str) -> Callable[[Handler], Handler]:
        """Serve POST of a form at a path."""
        return self._register("POST", path)

    def _register(self, method: str, path: str) -> Callable[[Handler], Handler]:
        if not path.startswith("/"):
            raise UsageError(f"the path of a page begins with a slash: {path!r}")
        # `re.escape` writes the braces as `\{` and `\}`.
        spelled = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path))
        pattern = re.compile(spelled + r"\Z")

        def register(handler: Handler) -> Handler:
            known = next(
                (methods for found, methods in self._routes if found.pattern == pattern.pattern), None
            )
            if known is None:
                known = dict[str, Handler]()
                self._routes.append((pattern, known))
            known[method] = handler
            return handler

        return register

    def page(
        self,
        template: str,
        request: WebRequest,
        *,
        status: int = 200,
        cookies: tuple[tuple[str, str], ...] = (),
        **values: Any,
    ) -> WebResponse:
        """A template as a response."""
        return WebResponse(self.html(template, request, **values).encode(), status=status, cookies=cookies)

    def html(self, template: str, request: WebRequest, **values: Any) -> str:
        """A template, for a fragment or a page."""
        return render(template, {**self.shared, "root": request.root, "request": request, **values})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request (ASGI)."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            raise UsageError(f"pages serve HTTP, not {scope['type']}")
        response = await self._respond(scope, receive)
        await self._send(response, receive, send, has_body=scope["method"] != "HEAD")

    async def _respond(self, scope: Scope, receive: Receive) -> WebResponse:
        root = scope.get("root_path", "")
        bare = WebRequest(
            scope["method"], scope["path"].removeprefix(root) or "/", root, {}, {}, {}, {}, scope
        )
        try:
            request = await read_request(scope, receive, form_bytes=self._form_bytes)
            return await self._answer(request)
        except StatusError as error:
            return self.error(bare, error.status, error.message, error.headers)
        except asyncio.CancelledError:
            raise
        except Exception:
            # Without the path, which may be a link that opens a question.
            _log.exception("A page below %s failed", root or "/")
            return self.error(
                bare, 500, "Something went wrong on the server. The log of the server tells what."
            )

    async def _answer(self, request: WebRequest) -> WebResponse:
        if self._hosts is not None and request.headers.get("host", "").lower() not in self._hosts:
            raise StatusError(421, "This address is not served here.")
        if request.path.startswith(STATIC):
            return serve_static(request.path)
        if self.before is not None and (instead := self.before(request)) is not None:
            return instead
        method = "GET" if request.method == "HEAD" else request.method
        for pattern, methods in self._routes:
            if (found := pattern.match(request.path)) is not None:
                if method not in methods:
                    raise StatusError(405, "This cannot be done here.", headers={"allow": ", ".join(methods)})
                request.params = found.groupdict()
                return await methods[method](request)
        raise StatusError(404, "There is no page at this address.")

    def error(self, request: WebRequest, status: int, message: str, headers: Any = None) -> WebResponse:
        """A page that says what went wrong, and what to do."""
        body = self.html(
            "error.html",
            request,
            status=status,
            phrase=_HEADINGS.get(status) or HTTPStatus(status).phrase,
            message=message,
        )
        return WebResponse(body.encode(), status=status, headers=dict(headers or {}))

    async def _send(self, response: WebResponse, receive: Receive, send: Send, *, has_body: bool) -> None:
        body = response.body
        headers = {
            **SAFE,
            **(_HSTS if self.secure else {}),
            "content-type": response.kind,
            **response.headers,
        }
        if isinstance(body, bytes):
            headers["content-length"] = str(len(body))
        pairs = [
            (name.encode(), value.encode("latin-1")) for name, value in (*headers.items(), *response.cookies)
        ]
        await send({"type": "http.response.start", "status": response.status, "headers": pairs})
        if isinstance(body, bytes):
            await send({"type": "http.response.body", "body": body if has_body else b""})
            return
        if has_body:
            await _stream(body, receive, send)
        await send({"type": "http.response.body", "body": b""})


async def _stream(body: AsyncIterator[bytes], receive: Receive, send: Send) -> None:
    """Send a body piece by piece, until it ends or the browser leaves: a server does not say so by itself."""

    async def send_all() -> None:
        async for piece in body:
            await send({"type": "http.response.body", "body": piece, "more_body": True})

    sending, leaving = asyncio.ensure_future(send_all()), asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        has_left = leaving.done()
        for task in (sending, leaving):
            task.cancel()
        await asyncio.wait({sending, leaving})
    if not has_left:
        sending.result()


async def _left(receive: Receive) -> None:
    """Wait until the browser has left. Before that, the request's empty body may come."""
    for _ in range(2):
        if (await receive())["type"] == "http.disconnect":
            return
    await asyncio.Event().wait()


async def _live(receive: Receive, send: Send) -> None:
    """The lifespan of a site that is served alone: there is nothing to start or to stop."""
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return
