"""What the log says of refused states: anybody can send them, so not all of them are worth a line."""

import logging
import time
from typing import Final

__all__ = ["RefusedStates"]

_log = logging.getLogger(__name__)

_MOST: Final = 10
"""Warnings in `_SECONDS`. A metric counts them all."""
_SECONDS: Final = 60.0


class RefusedStates:
    """Warns of the first few refused states of each minute; of the others, how many there were."""

    def __init__(self) -> None:
        self._since = float("-inf")
        self._count = 0

    def warn(self, method: str, target: str, reason: str) -> None:
        """A state was refused."""
        now = time.monotonic()
        if now - self._since >= _SECONDS:
            if self._count > _MOST:
                more = self._count - _MOST
                _log.warning("%d more requestStates were refused in the minute of the last warnings", more)
            self._since, self._count = now, 0
        self._count += 1
        level = logging.WARNING if self._count <= _MOST else logging.DEBUG
        _log.log(level, "requestState refused for %s %s: %s", method, target, reason)
