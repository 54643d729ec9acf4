"""What a server needs of the pages on which people answer."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

__all__ = ["Notice", "NoticeKind", "Notifier", "PeoplePages"]

NoticeKind: TypeAlias = Literal["asked", "reminded"]


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What a notifier has to tell a person."""

    kind: NoticeKind
    person: str
    """Whom to reach: what the handler said with `who=`."""
    link: str
    """The page with the question. Send it to this person only: it may be all that is needed to answer."""
    message: str
    """The question."""
    server: str
    target: str
    """The tool, prompt or resource that asks."""
    until: float | None
    """When the question goes to somebody else, or ends; seconds since the epoch."""


Notifier: TypeAlias = Callable[[Notice], Awaitable[None]]
"""Tells a person. If it raises, it is called again later."""


class PeoplePages(Protocol):
    """What `Server(pages=...)` takes; `ekiden.Pages` is one."""

    path: str
    """Below which path of the server the pages are."""
    notify: Notifier
    keep_seconds: float
    """How long a question can be answered that has no deadline."""
    wait_seconds: float
    """How long a call that is made again waits for an answer, before it is told to come back."""
    knows_people: bool
    """Whether the pages find out who answers."""

    def link_to(self, secret: str) -> str:
        """The full link of a question."""
        ...

    def application(self, people: Any) -> Callable[..., Awaitable[None]]:
        """The ASGI application that shows the questions of `people`."""
        ...
