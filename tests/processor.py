"""How long work takes the processor, whatever else the machine does.

Seconds do not say it: on a core that others use, too, the same work takes several times as many. So the work
is compared with a loop that is run right before and right after it.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

__all__ = ["MOMENTS_PER_SECOND", "Took", "measured"]

MOMENTS_PER_SECOND: Final = 100
"""About: a moment is ten milliseconds of the processor on a machine that is quiet and not very fast."""
_PASSES: Final = 200_000


class Took:
    """What `measured` has found out."""

    moments: float
    """The processor's time for the work, in units of the loop's. There is none before the work has ended."""


@contextmanager
def measured() -> Generator[Took, None, None]:
    """Measure the work inside. The processor's time of all threads of this process counts."""
    took = Took()
    before, began = _moment(), time.process_time()
    yield took
    seconds = time.process_time() - began
    took.moments = seconds / max(before, _moment())


def _moment() -> float:
    began, total = time.process_time(), 0
    for number in range(_PASSES):
        total += number % 7
    assert total
    return time.process_time() - began
