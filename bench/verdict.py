"""What every part of the report is made of: floors that are judged, and tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

Tell = Callable[[str], None]
"""Hears of every figure as it is found."""


@dataclass(frozen=True)
class Verdict:
    """One floor, and whether it holds. `holds` None: it is reported, nothing is demanded."""

    what: str
    measured: str
    floor: str = ""
    holds: bool | None = None

    @property
    def word(self) -> str:
        return {True: "PASS", False: "FAIL", None: ""}[self.holds]


class Section(Protocol):
    """A part of the report besides the cells."""

    def verdicts(self) -> list[Verdict]: ...

    def render(self) -> str: ...


def at_most(what: str, ratios: list[float], of: str, floor: float) -> Verdict:
    """The verdict on ratios whose median must not be above the floor."""
    return Verdict(what, f"{spread(ratios)} of {of}", f"at most {floor:.2f}", median(ratios) <= floor)


def at_least(what: str, ratios: list[float], of: str, floor: float) -> Verdict:
    """The verdict on ratios whose median must not be below the floor; `of` is told with its `x` or `of`."""
    return Verdict(what, f"{spread(ratios)} {of}", f"at least {floor:.4g}", median(ratios) >= floor)


def spread(ratios: list[float]) -> str:
    """The median, and the lowest and the highest."""
    digits = 2 if median(ratios) < 2 else 1
    low, middle, high = (f"{value:.{digits}f}" for value in (min(ratios), median(ratios), max(ratios)))
    return f"{middle} ({low} to {high})"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [_row(head, widths), _row(tuple("-" * width for width in widths), widths)]
    return "\n".join([*lines, *(_row(row, widths) for row in rows)])


def _row(cells: tuple[str, ...], widths: list[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
