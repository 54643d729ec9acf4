"""A request for a page, with its form, and the response to it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, quote

import msgspec

from ekiden.errors import StatusError

__all__ = ["Receive", "Scope", "Send", "WebRequest", "WebResponse", "read_request", "redirect"]

Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

Values: TypeAlias = Mapping[str, list[str]]
"""What a query or a form has, by name. A name can come more than once."""

_MOST_FIELDS: Final = 1000
_FORM: Final = "application/x-www-form-urlencoded"


class WebRequest(msgspec.Struct):
    """A request for a page. `path` is that below the site's root."""

    method: str
    path: str
    root: str
    query: Values
    headers: Mapping[str, str]
    """Names in lower case; of a name that comes twice, the last."""
    cookies: Mapping[str, str]
    form: Values
    """What was posted; empty for GET."""
    scope: Scope
    """The ASGI scope, for functions of users that find out who sends this."""
    params: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """What stands in the path for `{name}`."""

    @property
    def address(self) -> str | None:
        """The IP address that it came from; None if that is not known."""
        client = self.scope.get("client")
        return client[0] if client else None

    @property
    def wants_fragment(self) -> bool:
        """Whether `live.js` asks: it needs only the parts of the page that change."""
        return self.headers.get("x-ekiden-live") == "1"

    def first(self, name: str, default: str = "") -> str:
        """The first value of a name in the form, else in the query."""
        found = self.form.get(name) or self.query.get(name)
        return found[0] if found else default


class WebResponse(msgspec.Struct):
    """The response to a request. `body` is all of it, or comes piece by piece."""

    body: bytes | AsyncIterator[bytes] = b""
    status: int = 200
    kind: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] = {}
    """In place of, or beside, those that every response has."""
    cookies: tuple[tuple[str, str], ...] = ()
    """Made by `headers.cookie`."""


def redirect(location: str, *, cookies: tuple[tuple[str, str], ...] = ()) -> WebResponse:
    """Go on there with GET (303). A path of this site begins with `request.root`."""
    safe = quote(location, safe="/:?#[]@!$&'()*+,;=%~")
    return WebResponse(status=303, headers={"location": safe}, cookies=cookies)


async def read_request(scope: Scope, receive: Receive, *, form_bytes: int) -> WebRequest:
    """The request of an ASGI scope. Raises `StatusError` if its form is too large or not a form."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    root = scope.get("root_path", "")
    path = scope["path"]
    form: Values = {}
    if scope["method"] == "POST":
        form = _values(await _form(headers, receive, form_bytes))
    return WebRequest(
        method=scope["method"],
        path=path.removeprefix(root) or "/",
        root=root,
        query=_values(scope.get("query_string", b"")),
        headers=headers,
        cookies=_cookies(headers.get("cookie", "")),
        form=form,
        scope=scope,
    )


async def _form(headers: Mapping[str, str], receive: Receive, most: int) -> bytes:
    if headers.get("content-type", _FORM).partition(";")[0].strip().lower() != _FORM:
        raise StatusError(415, "Only forms can be posted here.")
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise StatusError(400, "The form did not arrive whole.")
        body += event.get("body", b"")
        if len(body) > most:
            raise StatusError(413, f"The form is too large: at most {most // 1000} kB are accepted.")
        if not event.get("more_body"):
            return bytes(body)


def _values(data: bytes) -> Values:
    try:
        return parse_qs(data.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise StatusError(400, "The form or the address cannot be read.") from None


def _cookies(header: str) -> dict[str, str]:
    """The cookies of a request, as they are written: ours need no quotes, and none are taken away.

    Not with `http.cookies`: before Python 3.12.6 it takes a minute for 64 kB of quotes (CVE-2024-7592), and
    one cookie that it cannot read hides all others.
    """
    pairs = (part.partition("=") for part in header.split(";"))
    return {name.strip(): value.strip() for name, is_pair, value in pairs if is_pair}
