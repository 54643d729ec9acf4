"""The protocol versions by name, and which of them belong to which era.

Versions are an enumerated set, not an ordered one: compare by membership.
"""

from typing import Final

__all__ = ["MODERN", "SUPPORTED"]

MODERN: Final = "2026-07-28"
"""Stateless: version, identity and capabilities travel in the `_meta` of every request."""

SUPPORTED: Final = (MODERN,)
"""What this release of ekiden speaks, newest first."""
