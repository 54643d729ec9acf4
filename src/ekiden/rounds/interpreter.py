"""What a `Context` needs of whoever interprets its effects."""

from collections.abc import Callable
from typing import Any, Protocol

from ekiden.rounds.asks import Ask
from ekiden.rounds.leg import Step

__all__ = ["Interpreter"]


class Interpreter(Protocol):
    """Decides what an effect means here and now: `Leg` replays, `Push` asks at once."""

    fresh: bool
    """Whether the handler is beyond what earlier rounds did."""

    def clock(self) -> float:
        """What time it is."""
        ...

    async def ask(self, ask: Ask, key: str | None = None) -> Any:
        """The answer to a question."""
        ...

    async def step(self, step: Step, key: str | None = None) -> Any:
        """What a step gave."""
        ...

    def draw(self, what: str, make: Callable[[], Any], key: str | None = None) -> Any:
        """A value that is the same however often the handler is run."""
        ...

    async def pause(self, key: str | None = None) -> None:
        """A checkpoint."""
        ...

    async def background(self, ttl: float | None = None, poll: float | None = None) -> None:
        """Go on as a task, where that can be."""
        ...

    async def sleep(self, seconds: float, key: str | None = None) -> None:
        """Wait until a moment that is the same however often the handler is run."""
        ...

    def afterwards(self, step: Step, key: str | None = None) -> None:
        """Have a step run when the handler has returned."""
        ...

    def use(self, style: str) -> None:
        """Take notice of how the handler asks: with effects, or by itself."""
        ...
