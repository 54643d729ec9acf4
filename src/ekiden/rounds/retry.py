"""How often a step that raises is tried again, and when."""

import msgspec

__all__ = ["Retry"]


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A policy for `ctx.step(..., retry=Retry(attempts=5))`.

    The waits grow from `seconds` by `factor` up to `most_seconds`. In a task they are durable: a worker that
    dies does not start the count anew, and a long wait holds nothing in memory.
    """

    attempts: int = 3
    seconds: float = 1.0
    factor: float = 2.0
    most_seconds: float = 60.0
    on: tuple[type[Exception], ...] = (Exception,)
    """The exceptions that are worth another try."""

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures."""
        wait = self.seconds * self.factor ** min(failures - 1, 64)
        return min(wait, self.most_seconds)
