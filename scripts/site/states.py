"""The states of a task, drawn from the table in the code. `python -m scripts.site.states` writes them."""

import re
from pathlib import Path
from typing import Final

from ekiden.tasks.states import FINAL, MOVES, Move, State

__all__ = ["PAGE", "diagram", "page"]

PAGE: Final = Path(__file__).parent.parent.parent / "docs" / "why" / "tasks.md"
_DRAWN: Final = re.compile(r"^```mermaid\nstateDiagram-v2\n.*?^```\n", re.MULTILINE | re.DOTALL)


def diagram() -> str:
    """The table as a Mermaid diagram. Moves that lead from a state to itself are left out."""
    moves: dict[tuple[State, State], list[Move]] = {}
    for (before, move), after in MOVES.items():
        if before != after:
            moves.setdefault((before, after), []).append(move)
    arrows = [f"    {before} --> {after}: {', '.join(names)}" for (before, after), names in moves.items()]
    ends = [f"    {state} --> [*]" for state in sorted(FINAL)]
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued", *arrows, *ends, "```"]
    return "".join(f"{line}\n" for line in lines)


def page() -> str:
    """The page with the diagram as it should be."""
    written, count = _DRAWN.subn(diagram(), PAGE.read_text())
    if count != 1:
        raise ValueError(f"{PAGE.name} has {count} diagrams of states, not one")
    return written


if __name__ == "__main__":
    PAGE.write_text(page())
