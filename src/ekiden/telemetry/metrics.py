"""Every metric of ekiden, in one table, and the two ways to report to them.

Nothing is reported unless the process has imported OpenTelemetry's metrics: until then a report costs one
dictionary lookup. `docs/reference/metrics.md` is this table in words; a test holds one to the other.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from ekiden.telemetry.conventions import NAMED_TARGETS

__all__ = ["METRICS", "Metric", "add", "is_metered", "of_call", "record"]

_API: Final = "opentelemetry.metrics"

_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""As the semantic conventions for MCP have them."""
_BYTES: Final = (256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 262_144, 1_048_576)
_ROUNDS: Final = (1, 2, 3, 4, 5, 7, 10, 15, 20, 50, 100)
"""Clients give up after ten rounds by default."""


class Metric(msgspec.Struct, frozen=True):
    """One metric."""

    name: str
    kind: Literal["counter", "histogram", "up-down counter"]
    unit: str
    meaning: str
    attributes: tuple[str, ...] = ()
    buckets: tuple[float, ...] | None = None


REQUEST_DURATION: Final = Metric(
    "mcp.server.operation.duration",
    "histogram",
    "s",
    "How long a request took to answer",
    (
        *("mcp.method.name", "mcp.protocol.version", "gen_ai.operation.name"),
        *("gen_ai.tool.name", "gen_ai.prompt.name", "error.type"),
    ),
    _SECONDS,
)
CALL_ROUNDS: Final = Metric(
    "ekiden.call.rounds",
    "histogram",
    "{round}",
    "Rounds that a call took, when it ends or becomes a task",
    ("mcp.method.name", "gen_ai.tool.name", "gen_ai.prompt.name", "ekiden.call.ended"),
    _ROUNDS,
)
REASKS: Final = Metric(
    "ekiden.call.reasks",
    "counter",
    "{question}",
    "Questions that were asked again although an answer had come, because it did not fit",
    ("mcp.method.name", "gen_ai.tool.name", "gen_ai.prompt.name"),
)
RERUN_DURATION: Final = Metric(
    "ekiden.round.rerun.duration",
    "histogram",
    "s",
    "How long a later round took to repeat what earlier ones did",
    ("handler",),
    _SECONDS,
)
ROUND_TAKEOVERS: Final = Metric(
    "ekiden.round.takeovers",
    "counter",
    "{round}",
    "Rounds that were taken over from a worker which no longer renewed its lease",
)
STATE_SIZE: Final = Metric(
    "ekiden.state.size",
    "histogram",
    "By",
    "The size of the tokens that clients carry (requestState)",
    ("ekiden.state.stored",),
    _BYTES,
)
STATE_REFUSED: Final = Metric(
    "ekiden.state.refused", "counter", "{token}", "Tokens that were not accepted", ("reason",)
)
LEG_DURATION: Final = Metric(
    "ekiden.task.leg.duration",
    "histogram",
    "s",
    "How long a leg of a task took",
    ("gen_ai.tool.name", "ekiden.task.leg.ended"),
    _SECONDS,
)
TASK_TRANSITIONS: Final = Metric(
    "ekiden.task.transitions",
    "counter",
    "{task}",
    "Tasks that came into a state; a new one comes into `created`",
    ("gen_ai.tool.name", "ekiden.task.state"),
)
TASKS_RUNNING: Final = Metric(
    "ekiden.task.running",
    "up-down counter",
    "{task}",
    "Tasks that this process runs right now",
    ("gen_ai.tool.name",),
)
QUEUE_LAG: Final = Metric(
    "ekiden.task.queue.lag",
    "histogram",
    "s",
    "How long a task that was due waited for a worker",
    ("gen_ai.tool.name",),
    _SECONDS,
)
TASK_TAKEOVERS: Final = Metric(
    "ekiden.task.takeovers",
    "counter",
    "{task}",
    "Tasks that were taken over from a worker which no longer renewed its lease",
    ("gen_ai.tool.name",),
)

RATE_LIMITED: Final = Metric(
    "ekiden.rate_limit.refused",
    "counter",
    "{message}",
    "Messages that `RateLimit` refused",
    ("ekiden.rate_limit.by",),
)

METRICS: Final = (
    *(REQUEST_DURATION, CALL_ROUNDS, REASKS, RERUN_DURATION, ROUND_TAKEOVERS, STATE_SIZE, STATE_REFUSED),
    *(LEG_DURATION, TASK_TRANSITIONS, TASKS_RUNNING, QUEUE_LAG, TASK_TAKEOVERS, RATE_LIMITED),
)
"""All of them, in the order of the reference."""


class _Instruments:
    """The instruments of the process's meter provider."""

    def __init__(self) -> None:
        self._provider: object = None
        self._made: dict[str, Any] = {}

    def get(self, metric: Metric) -> Any:
        """The instrument of a metric."""
        provider = sys.modules[_API].get_meter_provider()
        if provider is not self._provider:
            self._provider, self._made = provider, {}
        made = self._made.get(metric.name)
        if made is None:
            made = self._made[metric.name] = _make(provider.get_meter("ekiden"), metric)
        return made


_instruments: Final = _Instruments()


def _make(meter: Any, metric: Metric) -> Any:
    options: dict[str, Any] = {"unit": metric.unit, "description": metric.meaning}
    if metric.kind == "counter":
        return meter.create_counter(metric.name, **options)
    if metric.kind == "up-down counter":
        return meter.create_up_down_counter(metric.name, **options)
    return meter.create_histogram(metric.name, explicit_bucket_boundaries_advisory=metric.buckets, **options)


def is_metered() -> bool:
    """Whether this process has set up a meter provider."""
    api: Any = sys.modules.get(_API)
    # Those of the API itself measure nothing: they stand in for one that may still be set.
    return api is not None and not type(api.get_meter_provider()).__module__.startswith(_API)


def add(metric: Metric, attributes: Mapping[str, str | bool], by: int = 1) -> None:
    """Add to a counter."""
    if _API in sys.modules:
        _instruments.get(metric).add(by, attributes)


def record(metric: Metric, value: float, attributes: Mapping[str, str | bool]) -> None:
    """Record a value in a histogram."""
    if _API in sys.modules:
        _instruments.get(metric).record(value, attributes)


def of_call(method: str, name: str | None) -> dict[str, str | bool]:
    """The attributes that say which call it is. URIs are left out: there are too many of them."""
    attributes: dict[str, str | bool] = {"mcp.method.name": method}
    if name is not None and (target := NAMED_TARGETS.get(method)) is not None:
        attributes[target] = name
    return attributes
