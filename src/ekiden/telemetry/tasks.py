"""What happens to tasks, as metrics."""

from ekiden.tasks.states import State
from ekiden.telemetry.metrics import (
    QUEUE_LAG,
    REASKS,
    TASK_TAKEOVERS,
    TASK_TRANSITIONS,
    TASKS_RUNNING,
    add,
    of_call,
    record,
)

__all__ = ["TaskMetrics"]


class TaskMetrics:
    """Implements `ekiden.tasks.observer.TaskObserver`."""

    def created(self, tool: str) -> None:
        """A call has become a task."""
        add(TASK_TRANSITIONS, {"gen_ai.tool.name": tool, "ekiden.task.state": "created"})

    def claimed(self, tool: str, lag: float, *, taken_over: bool) -> None:
        """A worker has claimed a task that was due for `lag` seconds."""
        if taken_over:
            add(TASK_TAKEOVERS, {"gen_ai.tool.name": tool})
        else:
            record(QUEUE_LAG, max(0.0, lag), {"gen_ai.tool.name": tool})

    def runs(self, tool: str, change: int) -> None:
        """One task more, or one less, runs in this process."""
        add(TASKS_RUNNING, {"gen_ai.tool.name": tool}, change)

    def moved(self, tool: str, state: State) -> None:
        """A task has come into a state."""
        add(TASK_TRANSITIONS, {"gen_ai.tool.name": tool, "ekiden.task.state": state})

    def asked_again(self, tool: str, questions: int) -> None:
        """Questions were asked again, because their answers did not fit."""
        add(REASKS, of_call("tools/call", tool), questions)
