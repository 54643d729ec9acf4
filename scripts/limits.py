"""Writes the table of limits in `docs/reference/limits.md` from the docstrings of the code.

python -m scripts.limits            print the page
python -m scripts.limits --write    write it
"""

import ast
import inspect
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec

from ekiden import ClientLimits, HttpLimits, Recording, RoundLimits, SessionLimits, TaskLimits

__all__ = ["PAGE", "page", "reasons"]

PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "limits.md"

_KINDS: Final[dict[type[msgspec.Struct], str]] = {
    HttpLimits: "`Server.run(limits=HttpLimits(...))`, `server.asgi(limits=...)`",
    RoundLimits: "`Server(rounds=RoundLimits(...))`",
    TaskLimits: "`Server(tasks=TaskLimits(...))`",
    SessionLimits: "`Server(sessions=SessionLimits(...))`, for clients of 2025",
    Recording: "`Server(record=Recording(...))`, for what is recorded of calls",
    ClientLimits: "`Client(limits=ClientLimits(...))`",
}

_HEAD: Final = """# Limits

Every limit has a default that suits a server of ordinary tools, and an option to change it. The tables are
made from the code (`python -m scripts.limits --write`): what stands beside a default is its reason.

One limit holds for everything that is sent: `Server(result_bytes=...)`, by default 32 MiB. A larger result of
a tool, prompt or resource is not sent, and not kept where it is the result of a task: the client gets error
-32603, which says how large it was. Ekiden's client takes messages of the same size.

What large bodies and results take of one process has bounds that add up, because they hold different
things: 256 MiB of bodies (`bodies`), 256 MiB of values and results that wait for their turn, of which
texts count as they are and the rest for a quarter of what it is estimated to take, and 256 MiB of
responses that clients have not read (`unread`). For clients of 2025 there are 256 MiB more of streams and
batches that are read, and what is kept for those who come back. If all of them are full at once, that is
about 1.3 GB, and more where much of it is small objects. On stdio there is one client: of its results
that it has not read, 256 MiB wait, and while 32 MiB wait, no further call begins. At most 32 handlers
begin in one pass of the event loop, and 40 plain functions run at once: what these hold themselves is not
counted.

Requests of less than 4 KiB count for nothing, and are begun as they come: where very many connections bring
one at the same moment, others wait for all of them. Sixteen requests on each of 16,000 connections kept
others waiting for three seconds, and took 1 GB. The bound on that is the number of connections
(`connections`).

What an operator sets with `ekiden run`, and limits on how often somebody may ask, are in
[how to operate a server](../how-to/operate.md).
"""


def reasons(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What the docstring below each field of a class says, on one line."""
    module = inspect.getmodule(kind)
    assert isinstance(module, ModuleType)
    tree = ast.parse(inspect.getsource(module))
    body = next(
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    found: dict[str, str] = {}
    for field, after in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            said = after.value if isinstance(after, ast.Expr) else None
            text = said.value if isinstance(said, ast.Constant) and isinstance(said.value, str) else ""
            found[field.target.id] = " ".join(text.split())
    return found


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for kind, where in _KINDS.items():
        told = reasons(kind)
        rows = [
            f"| `{field.name}` | {_shown(field.default)} | {told.get(field.name, '')} |"
            for field in msgspec.structs.fields(kind)
        ]
        head = f"## {kind.__name__}\n\n{kind.__doc__} {where}\n\n| limit | default | why |\n|---|---|---|\n"
        parts.append(head + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value)
    if value is None:
        return "none"
    if isinstance(value, int) and value >= 1024 * 1024 and value % (1024 * 1024) == 0:
        return f"{value // (1024 * 1024)} MiB"
    if isinstance(value, int) and value >= 16 * 1024 and value % 1024 == 0:
        return f"{value // 1024} KiB"
    return (
        f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
    )


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        print(page())
