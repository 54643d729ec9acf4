"""Who looks at the pages, and what that person may do.

`Everybody` is for a developer's own machine: whoever got in through the door may do all. `ByScope` is for
production: an access token that the server's `Auth` accepts says who it is, and its scopes say what is
allowed. A browser sends no such header by itself, so there is a page to sign in with a token, too; a proxy in
front of the pages may add the header instead.
"""

import re
from collections.abc import Awaitable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

from ekiden.errors import StatusError
from ekiden.pages.web import Csrf, Site, WebRequest, WebResponse, redirect
from ekiden.pages.web.headers import cookie
from ekiden.signals import VerifierUnavailable

__all__ = ["Access", "ByScope", "Everybody", "Verifier", "Viewer"]

SIGN_IN: Final = "/sign-in"
_UNAVAILABLE: Final = "Access tokens cannot be verified right now. Try again in a moment."
_OURS: Final = re.compile(r"/(?!/)[!-\[\]-~]*")
"""Neither a backslash, which browsers take for a slash, nor control characters, which they leave out."""


class Viewer(msgspec.Struct, frozen=True):
    """Somebody who looks at a page."""

    name: str
    values: bool = False
    """May see arguments, answers, results and log lines."""
    acts: bool = False
    """May cancel, wake, answer and run again."""


class Access(Protocol):
    """Decides who a request comes from."""

    async def viewer(self, request: WebRequest) -> Viewer | WebResponse:
        """Who looks; a response if the request is not let in, such as a page to sign in."""
        ...

    def install(self, site: Site) -> None:
        """Add what it needs to the site."""
        ...


class Everybody:
    """All who came in through the door of the site are the same viewer."""

    def __init__(self, viewer: Viewer | None = None) -> None:
        self._viewer = viewer or Viewer("developer", values=True, acts=True)

    async def viewer(self, request: WebRequest) -> Viewer | WebResponse:
        """The one viewer."""
        return self._viewer

    def install(self, site: Site) -> None:
        """Nothing is needed."""


class Verifier(Protocol):
    """Verifies access tokens: a function of the server's `auth=`."""

    def __call__(self, token: str, address: str | None) -> Awaitable[tuple[str, Any] | None]:
        """Who has the token, and its scopes; None if it is not good.

        `address` is where it came from. Raises `VerifierUnavailable` if that cannot be said right now.
        """
        ...


class ByScope:
    """Lets in who has a good access token. `scopes` say which of them are needed to look, see and act."""

    def __init__(self, verify: Verifier, scopes: Mapping[str, str], *, secure: bool, acts: bool) -> None:
        self._verify = verify
        self._scopes = scopes
        self._secure = secure
        self._acts = acts
        self._cookie = "__Host-ekiden-sign-in" if secure else "ekiden-sign-in"
        self._csrf = Csrf(secure=secure)

    async def viewer(self, request: WebRequest) -> Viewer | WebResponse:
        """Who has sent the token, in the header or in the cookie of the sign-in page."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            token = request.cookies.get(self._cookie, "")
        try:
            found = await self._verify(token.strip(), request.address) if token else None
        except VerifierUnavailable:
            raise StatusError(503, _UNAVAILABLE, headers={"retry-after": "5"}) from None
        if found is None:
            if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
                return redirect(f"{request.root}{SIGN_IN}?then={quote(request.path)}")
            raise StatusError(
                401, "Sign in with an access token first.", headers={"www-authenticate": "Bearer"}
            )
        name, granted = found
        if self._scopes["look"] and self._scopes["look"] not in granted:
            raise StatusError(403, f"Your access token does not grant {self._scopes['look']}.")
        return Viewer(
            name,
            values=self._scopes["values"] in granted,
            acts=self._acts and self._scopes["act"] in granted,
        )

    def install(self, site: Site) -> None:
        """Add the page to sign in."""

        def form(request: WebRequest, then: str, problem: str = "") -> WebResponse:
            code, cookies = self._csrf.issue(request, SIGN_IN)
            words = {"problem": problem, "then": then, "form_code": code}
            status = 503 if problem == _UNAVAILABLE else 401 if problem else 200
            return site.page("desk/sign_in.html", request, status=status, cookies=cookies, **words)

        async def problem_of(request: WebRequest, token: str) -> str:
            try:
                found = await self._verify(token, request.address) if token else None
            except VerifierUnavailable:
                return _UNAVAILABLE
            return "This token is not accepted." if found is None else ""

        @site.get(SIGN_IN)
        async def show(request: WebRequest) -> WebResponse:
            return form(request, _local(request.first("then")))

        @site.post(SIGN_IN)
        async def sign_in(request: WebRequest) -> WebResponse:
            # Or a page of somebody else could sign a browser in with a token of theirs.
            self._csrf.check(request, SIGN_IN)
            token, then = request.first("token").strip(), _local(request.first("then"))
            if problem := await problem_of(request, token):
                return form(request, then, problem)
            made = cookie(self._cookie, token, secure=self._secure)
            return redirect(request.root + then, cookies=(made,))


def _local(path: str) -> str:
    """A path of this site: a link to elsewhere is not followed after signing in."""
    return path if _OURS.fullmatch(path) else "/calls"
