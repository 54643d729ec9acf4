"""Structs that hold what no log should show: answers, tokens, headers."""

from typing import Any

import msgspec

__all__ = ["PrivateStruct"]


class PrivateStruct(msgspec.Struct, eq=False):
    """A struct that is one thing and not a value: it equals only itself, and prints only its name."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # What rich asks, in its tracebacks above all.
        return []
