"""A browser without a screen, for tests: requests to an ASGI application, with cookies and forms."""

import html
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import msgspec

from ekiden.pages.web.messages import Receive, Scope, Send


class Seen(msgspec.Struct):
    """A response."""

    status: int
    headers: dict[str, str]
    cookies: list[str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def words(self) -> str:
        """The page as somebody reads it."""
        bare = re.sub(r"(?s)<(head|script|style)\b.*?</\1>|<[^>]*>", " ", self.text.replace("<wbr>", ""))
        return " ".join(html.unescape(bare).split())

    def hidden(self, name: str) -> str:
        """The value of a hidden field."""
        reader = _Fields()
        reader.feed(self.text)
        return reader.found[name]


class _Fields(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "input" and named.get("type") == "hidden":
            self.found[named["name"] or ""] = named.get("value") or ""


class Browser:
    """Keeps cookies, as one browser does."""

    def __init__(self, app: Any, *, host: str = "127.0.0.1", root: str = "") -> None:
        self.app = app
        self.cookies: dict[str, str] = {}
        self.headers: dict[str, str] = {"host": host}
        self.root = root

    async def get(self, path: str, **headers: str) -> Seen:
        return await self._send("GET", path, b"", headers)

    async def post(self, path: str, form: Any, **headers: str) -> Seen:
        kind = {"content-type": "application/x-www-form-urlencoded"}
        body = form if isinstance(form, bytes) else urlencode(form, doseq=True).encode()
        return await self._send("POST", path, body, {**kind, **headers})

    async def send(self, method: str, path: str) -> Seen:
        return await self._send(method, path, b"", {})

    async def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Seen:
        path, _, query = path.partition("?")
        named = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.cookies:
            named["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": self.root + path,
            "root_path": self.root,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        }
        events: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(event: dict[str, Any]) -> None:
            events.append(event)

        receive_: Receive = receive
        send_: Send = send
        await self.app(scope, receive_, send_)
        return self._seen(events)

    def _seen(self, events: list[dict[str, Any]]) -> Seen:
        start = events[0]
        pairs = [(name.decode(), value.decode("latin-1")) for name, value in start["headers"]]
        cookies = [value for name, value in pairs if name == "set-cookie"]
        for cookie in cookies:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        body = b"".join(event.get("body", b"") for event in events[1:])
        return Seen(start["status"], dict(pairs), cookies, body)
