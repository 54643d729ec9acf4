"""Forms that only our own pages can post.

A browser gets a random cookie, and each form a code that is made of that cookie and of what the form is for.
A page of somebody else can make a browser post, and the browser sends the cookie; but it cannot know the
code. Nothing is kept, so any process can check what another has shown.
"""

import hashlib
import hmac
import secrets
from typing import Final

from ekiden.errors import StatusError
from ekiden.pages.web.headers import cookie
from ekiden.pages.web.messages import WebRequest

__all__ = ["Csrf"]

FIELD: Final = "form_code"
_SAME: Final = ("same-origin", "none")


class Csrf:
    """Codes for forms. `secure` says that the site is served over HTTPS."""

    def __init__(self, *, secure: bool) -> None:
        self._secure = secure
        # With this prefix, a browser takes the cookie from this very host and over HTTPS only.
        self._name = "__Host-ekiden-form" if secure else "ekiden-form"

    def issue(self, request: WebRequest, purpose: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The code for a form, and the cookies that its page must set. The form posts it as `form_code`."""
        browser = request.cookies.get(self._name, "")
        if len(browser) >= 32:
            return _code(browser, purpose), ()
        browser = secrets.token_urlsafe(32)
        # Not `Strict`: a link in a mail opens the page without its cookies, and they would be lost with each.
        made = cookie(self._name, browser, secure=self._secure, same_site="Lax")
        return _code(browser, purpose), (made,)

    def check(self, request: WebRequest, purpose: str) -> None:
        """Refuse a form that was not made for this browser and this purpose: status 403."""
        browser = request.cookies.get(self._name, "")
        given = request.first(FIELD)
        is_ours = request.headers.get("sec-fetch-site", "same-origin") in _SAME
        if (
            not browser
            or not is_ours
            or not hmac.compare_digest(given.encode(), _code(browser, purpose).encode())
        ):
            raise StatusError(
                403,
                "This form was opened in another browser, or too long ago. Open the page again and send it.",
            )


def _code(browser: str, purpose: str) -> str:
    return hmac.new(browser.encode(), purpose.encode(), hashlib.sha256).hexdigest()
