"""The sections on tasks: how many, how soon, what those that wait cost, and what each writes.

`python -m bench.run --only tasks` measures them all, `--only tasks:sleepers` one of them. With `--quick`
there are fewer turns and fewer rows.
"""

from collections.abc import Callable
from typing import Final

from bench.measure import Plan
from bench.tasks.answers import measure_answers
from bench.tasks.empty import measure_empty
from bench.tasks.rows import measure_rows
from bench.tasks.sleepers import measure_sleepers
from bench.tasks.steps import measure_steps
from bench.tasks.waiting import measure_waiting
from bench.tasks.workers import measure_workers
from bench.tasks.writes import measure_writes
from bench.verdict import Section, Tell

__all__ = ["TASKS"]

TASKS: Final[dict[str, Callable[[Plan, Tell], Section]]] = {
    "tasks:empty": measure_empty,
    "tasks:steps": measure_steps,
    "tasks:workers": measure_workers,
    "tasks:answers": measure_answers,
    "tasks:waiting": measure_waiting,
    "tasks:sleepers": measure_sleepers,
    "tasks:rows": measure_rows,
    "tasks:writes": measure_writes,
}
