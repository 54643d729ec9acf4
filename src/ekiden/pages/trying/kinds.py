"""Which client the page is: of 2026 or of 2025, with or without each capability."""

from collections.abc import Collection, Sequence
from typing import Final, Literal

import msgspec

__all__ = ["CAPABILITIES", "ERAS", "ClientKind", "read_kind"]

Era = Literal["modern", "legacy"]

ERAS: Final[dict[Era, tuple[str, str]]] = {
    "modern": (
        "2026-07-28",
        "Questions come back with the result of a request, and are answered with the next.",
    ),
    "legacy": ("2025-11-25", "A session is opened first, and questions are requests of the server."),
}
"""The versions of the protocol, and how they differ."""

CAPABILITIES: Final[dict[str, tuple[str, str]]] = {
    "forms": ("Forms", "The server may ask the user with a form (elicitation)."),
    "links": ("Links", "The server may ask the user to open a page (elicitation by URL)."),
    "models": ("Model", "The server may ask the client's model to write something (sampling)."),
    "roots": ("Roots", "The server may ask for the folders that the client works in."),
    "tasks": ("Tasks", "A call may go on in the background, after its request was answered."),
}
"""What a client can declare: its short name, and what it means."""


class ClientKind(msgspec.Struct, frozen=True):
    """A client with some capabilities."""

    era: Era = "modern"
    able: frozenset[str] = frozenset(CAPABILITIES)

    @property
    def words(self) -> str:
        """Who calls, in a few words."""
        version = ERAS[self.era][0]
        if self.able >= CAPABILITIES.keys():
            return f"a client of {version} that can do everything"
        named = [title.lower() for name, (title, _) in CAPABILITIES.items() if name in self.able]
        return f"a client of {version} with {', '.join(named) or 'no capabilities'}"


def read_kind(era: str, able: Collection[str] | Sequence[str]) -> ClientKind:
    """The client that a form describes; unknown words are left out."""
    return ClientKind(
        "legacy" if era == "legacy" else "modern", frozenset(name for name in CAPABILITIES if name in able)
    )
