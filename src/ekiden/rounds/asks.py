"""What can be asked of the other side, and how its answer is read.

An ask knows its question as the wire spells it, the capability it needs, and how to read an
answer. An answer is the client's word, so reading it has three ends: a value; `MalformedAnswer`,
which is no answer to any question of this kind and is an error; `UnfitAnswer`, which is one that
breaks the question's own rules and is asked for again.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ekiden.rounds.journal import fingerprint, framed
from ekiden.wire.json import canonical

__all__ = ["Ask", "declares", "name_of"]

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
LIST_ROOTS: Final = "roots/list"

_PREFIXES: Final = {ELICIT: "elicit", SAMPLE: "sample", LIST_ROOTS: "roots"}
"""The readable part of a name, by method."""


_FORM_MODE: Final[Mapping[str, Any]] = {"form": {}}


_WORDS: Final = 48
"""Characters of a question that a token carries."""


class Ask(msgspec.Struct, frozen=True):
    """One question to the user, to the client's model or to the client."""

    method: str
    params: Mapping[str, Any] | None
    needs: Mapping[str, Any]
    """The client capabilities it needs, spelled as a client would declare them."""
    read: Callable[[Any], Any]
    digest: str
    """Fingerprint of the question as it is rendered: a reworded question is another question."""
    name: str = ""
    """What it is called where the author has no name for it."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "name", f"{_PREFIXES[self.method]}-{self.digest}")

    def label(self) -> str:
        """What a token says of the question: its name and, for the log, how it begins."""
        words = "" if self.params is None else self.params.get("message", "")
        return f"{self.name} {words[:_WORDS]}"

    def request(self) -> dict[str, Any]:
        """The question as an input request."""
        if self.params is None:
            return {"method": self.method}
        return {"method": self.method, "params": {**self.params}}


def digest_of(method: str, params: Mapping[str, Any] | None) -> str:
    """The fingerprint of a question."""
    return fingerprint(framed(method.encode(), canonical(params)))


def declares(declared: Mapping[str, Any], needed: Mapping[str, Any]) -> bool:
    """Whether capabilities include what is needed. `elicitation: {}` means its form mode."""
    for name, wanted in needed.items():
        given: Any = declared.get(name)
        if given.__class__ is not dict:
            return False
        if not given and name == "elicitation":
            given = _FORM_MODE
        if wanted and given != wanted and not declares(given, wanted):
            return False
    return True


def name_of(label: str | None) -> str | None:
    """The name in a question's label."""
    return None if label is None else label.partition(" ")[0]
