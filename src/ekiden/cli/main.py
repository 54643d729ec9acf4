"""Runs a command, and turns what it raises into a line and an exit code.

| exit code | meaning |
|---|---|
| 0 | it went well |
| 1 | the server or the tool failed |
| 2 | the command cannot work as it was given: an option, a file, an answer is missing or wrong |
| 130 | Ctrl-C |

An error of ekiden's own is one line on stderr; a traceback means a bug.
"""

import os
import signal
import sys
from typing import Final

__all__ = ["main"]

_EXTRA: Final = ("typer", "rich", "questionary")
"""What `pip install ekiden` leaves out."""


def main() -> None:
    """Run the command that the arguments name."""
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # Only threads and exit handlers are left: Ctrl-C must not print a traceback while they end.
        signal.signal(signal.SIGINT, _exit_at_once)


def _exit_at_once(_signal: int, _frame: object) -> None:
    os._exit(130)


def _run() -> None:
    from ekiden.errors import EkidenError, ProtocolError, UsageError

    try:
        from ekiden.cli.commands import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write("ekiden: the command line needs an extra: pip install 'ekiden[cli]'\n")
        sys.exit(2)
    try:
        _check_encoding(sys.argv[1:])
        app(prog_name="ekiden")
    except ProtocolError as error:
        _fail(f"the server answered with error {error.code}: {error.message}", 1)
    except EkidenError as error:
        _fail(str(error), 2 if isinstance(error, UsageError) else 1)


def _check_encoding(words: list[str]) -> None:
    """Refuse what is not UTF-8: no server could be told of it."""
    from ekiden.errors import UsageError

    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the argument {os.fsencode(word)!r} is not UTF-8") from None


def _fail(message: str, code: int) -> None:
    from ekiden.cli.terminal.screen import say

    say(message)
    sys.exit(code)
