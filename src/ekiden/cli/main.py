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

__all__ = ["main"]


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

        app(prog_name="ekiden")
    except ProtocolError as error:
        _fail(f"the server answered with error {error.code}: {error.message}", 1)
    except EkidenError as error:
        _fail(str(error), 2 if isinstance(error, UsageError) else 1)


def _fail(message: str, code: int) -> None:
    from ekiden.cli.terminal.screen import say

    say(message)
    sys.exit(code)
