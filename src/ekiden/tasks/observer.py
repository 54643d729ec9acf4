"""What a worker tells of the tasks that it runs, for metrics. It never waits, and never fails."""

from typing import Protocol

from ekiden.tasks.states import State

__all__ = ["TaskObserver", "Unobserved"]


class TaskObserver(Protocol):
    """Whoever wants to know what happens to tasks."""

    def claimed(self, tool: str, lag: float, *, taken_over: bool) -> None:
        """A worker has claimed a task that was due for `lag` seconds."""
        ...

    def runs(self, tool: str, change: int) -> None:
        """One task more, or one less, runs in this process."""
        ...

    def moved(self, tool: str, state: State) -> None:
        """A task has come into a state."""
        ...

    def asked_again(self, tool: str, questions: int) -> None:
        """Questions were asked again, because their answers did not fit."""
        ...


class Unobserved:
    """Nobody wants to know."""

    def claimed(self, tool: str, lag: float, *, taken_over: bool) -> None:
        """Nothing is done."""

    def runs(self, tool: str, change: int) -> None:
        """Nothing is done."""

    def moved(self, tool: str, state: State) -> None:
        """Nothing is done."""

    def asked_again(self, tool: str, questions: int) -> None:
        """Nothing is done."""
