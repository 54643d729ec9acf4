"""The reference of environment variables."""

import re
from pathlib import Path
from typing import Final

__all__ = ["VARIABLES", "page", "used"]

VARIABLES: Final = {
    "EKIDEN_KEYS": (
        "The keys that seal the state of calls, separated by commas: the first seals, all open. "
        "`ekiden keys new` makes one. `Server(keys=...)` takes their place."
    ),
    "EKIDEN_KEYS_FILE": (
        "A file with one key per line, in place of `EKIDEN_KEYS`. It is read again when it changes."
    ),
    "EKIDEN_STORE": (
        "The store of a server that names none: `sqlite:///path` or `postgresql://...`. "
        "`ekiden run --store` sets it."
    ),
}


def used() -> set[str]:
    """The variables that the source reads."""
    found: set[str] = set()
    for source in Path("src").rglob("*.py"):
        found.update(re.findall(r"\bEKIDEN_[A-Z_]+\b", source.read_text()))
    return found


def page() -> str:
    """All of them."""
    rows = "\n".join(f"| `{name}` | {words} |" for name, words in VARIABLES.items())
    return (
        "# Environment variables\n\n| variable | what it does |\n|---|---|\n"
        + rows
        + "\n\nThose of OpenTelemetry "
        "(`OTEL_...`) and of Postgres (`PG...`) are read by their own libraries.\n"
    )
