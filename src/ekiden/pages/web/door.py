"""Who may see pages that run on a port of their own: whoever has the link.

The link has a token, which is exchanged for a cookie at once, so that it does not stay in the address bar.
"""

import hmac
import secrets
from typing import Final

from ekiden.errors import StatusError
from ekiden.pages.web.headers import cookie
from ekiden.pages.web.messages import WebRequest, WebResponse, redirect

__all__ = ["Door"]

_PARAMETER: Final = "token"


class Door:
    """Set `site.before = door.check`. Each process has a token of its own, unless one is given."""

    def __init__(self, token: str | None = None, *, secure: bool = False) -> None:
        self._token = token or secrets.token_urlsafe(24)
        self._secure = secure
        self._cookie = "__Host-ekiden-door" if secure else "ekiden-door"

    def link(self, origin: str, path: str = "/") -> str:
        """The link that opens a page: `http://127.0.0.1:8123/?token=...`."""
        return f"{origin}{path}?{_PARAMETER}={self._token}"

    def check(self, request: WebRequest) -> WebResponse | None:
        """Let a request in that has the cookie. The token gets the cookie; the rest is refused with 401."""
        if self._fits(request.cookies.get(self._cookie, "")):
            return None
        if request.method == "GET" and self._fits((request.query.get(_PARAMETER) or [""])[0]):
            made = cookie(self._cookie, self._token, secure=self._secure)
            return redirect(request.root + request.path, cookies=(made,))
        raise StatusError(401, "Open this page with the link that the command has printed: it has a token.")

    def _fits(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())
