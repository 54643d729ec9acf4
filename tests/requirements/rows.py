"""The shape of a row of the requirement table."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Level", "Row"]

Level = Literal["MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "states"]


@dataclass(frozen=True)
class Row:
    """One demand: `section` is the page below the version's folder, or the SEP, and the heading on it."""

    id: str
    level: Level
    section: str
    says: str
    author: bool = False
    why: str = ""
