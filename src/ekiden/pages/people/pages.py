"""`Pages`: where people answer, how they are told, and who may."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from ekiden.errors import UsageError
from ekiden.pages.people.answering import answering_site
from ekiden.pages.people.notifiers import to_log
from ekiden.pages.web.messages import WebRequest
from ekiden.pages.web.site import Site
from ekiden.server.people.people import People
from ekiden.server.people.port import Notifier
from ekiden.wire.principal import Principal

__all__ = ["Identify", "May", "Pages"]

Identify: TypeAlias = Callable[[WebRequest], Awaitable[Principal | None]]
"""Finds out who has sent a request; None if nobody is signed in."""
May: TypeAlias = Callable[[Principal, str], bool]
"""Whether this person may answer a question that names `who`."""


def is_named(principal: Principal, who: str) -> bool:
    """Whether `who` is the subject of a principal, or its verified e-mail address."""
    claims: Mapping[str, Any] = principal.claims
    has_address = claims.get("email") == who and claims.get("email_verified") is True
    return principal.subject == who or has_address


class Pages:
    """Pages of a server for people: `Server(pages=Pages("https://mcp.example"), store=...)`.

    `origin` is how browsers reach the server. `notify` tells people who are asked by name; by default it only
    writes to the log. Without `identify`, a link is all that is needed to answer. With it, whoever opens a
    link must be signed in and be the one who is asked: the caller's own user, or for `who=` whoever `may`
    says, by default the one with that subject or verified address. `sign_in` is where people are sent who are
    not signed in yet; `{url}` in it is the page to come back to.

    A question can be answered for `keep_seconds`, unless it has a deadline. A call that is made again waits
    up to `wait_seconds` for an answer.
    """

    def __init__(
        self,
        origin: str,
        *,
        path: str = "/ask",
        notify: Notifier = to_log,
        identify: Identify | None = None,
        may: May = is_named,
        sign_in: str | None = None,
        keep_seconds: float = 86_400.0,
        wait_seconds: float = 20.0,
    ) -> None:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
            raise UsageError(f"Pages() needs the URL at which browsers reach the server, not {origin!r}")
        is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if parts.scheme == "http" and not is_local:
            raise UsageError("Pages() needs https, except on this machine: links and answers are secrets")
        if not path.startswith("/") or path.endswith("/"):
            raise UsageError(f"the path of pages begins with a slash and does not end with one: {path!r}")
        if sign_in is not None and identify is None:
            raise UsageError("Pages(sign_in=...) needs identify=: who has signed in?")
        self.origin = origin.rstrip("/")
        self.path = path
        self.notify = notify
        self.identify = identify
        self.may = may
        self.sign_in = sign_in
        self.keep_seconds = keep_seconds
        self.wait_seconds = wait_seconds
        self.knows_people = identify is not None
        self.is_secure = parts.scheme == "https"

    def link_to(self, secret: str) -> str:
        """The full link of a question."""
        return f"{self.origin}{self.path}/{secret}"

    def application(self, people: People) -> Site:
        """The ASGI application that shows questions."""
        return answering_site(people, self)
