"""The protocol versions by name, and which of them belong to which era.

Versions are an enumerated set, not an ordered one: compare by membership.
"""

from typing import Final

__all__ = [
    "DRAFT",
    "LEGACY",
    "MODERN",
    "SUPPORTED",
    "WITHOUT_HEADER",
    "WITH_BATCHES",
    "WITH_ELICITATION",
    "WITH_TASKS",
]

MODERN: Final = "2026-07-28"
"""Stateless: version, identity and capabilities travel in the `_meta` of every request."""

SUPPORTED: Final = (MODERN,)
"""What a stateless request may name, newest first."""

LEGACY: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions that begin with an `initialize` handshake, newest first."""

WITH_TASKS: Final = frozenset({"2025-11-25", "2026-06-XX"})
"""Handshake versions with tasks of their own, for which the client asks."""

WITH_ELICITATION: Final = frozenset({"2025-11-25", "2025-06-18", "2026-06-XX"})
"""Handshake versions whose servers may ask the user something."""

WITH_BATCHES: Final = frozenset({"2025-03-26"})
"""Versions whose clients may send several messages as one array."""

WITHOUT_HEADER: Final = frozenset({"2025-03-26", "2024-11-05"})
"""Versions whose clients name no version in an HTTP header."""

DRAFT: Final = "2026-06-XX"
"""A draft between the eras: a handshake, and interim results. Spoken only where both sides opted in."""
