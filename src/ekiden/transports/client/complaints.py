"""Warnings about what a server sends: one short line each, and only so many in a minute.

A server decides how often it breaks a rule, and how long the words are that it does it with. The log must
grow by neither.
"""

import logging
import time
from typing import Final

from ekiden.wire.printable import printable

__all__ = ["Complaints"]

_MOST: Final = 20
"""Warnings in a minute: more than a server in order ever causes."""
_SECONDS: Final = 60.0


class Complaints:
    """Logs warnings about one server, or one part of what it does. Each begins with `about`, if given."""

    def __init__(self, log: logging.Logger, about: str = "") -> None:
        self._log = log
        self._before = f"{printable(about)}: ".replace("%", "%%") if about else ""
        self._since = float("-inf")
        self._made = 0

    def __call__(self, message: str, *said: object) -> None:
        """Log a warning. Texts, and whatever else is not a number, are shortened to a part of one line."""
        now = time.monotonic()
        if now - self._since >= _SECONDS:
            self._since, self._made = now, 0
        self._made += 1
        if self._made <= _MOST:
            shown = (each if isinstance(each, int | float) else printable(str(each)) for each in said)
            self._log.warning(self._before + message, *shown)
        if self._made == _MOST:
            self._log.warning(f"{self._before}further warnings of this kind are left out for a minute")
