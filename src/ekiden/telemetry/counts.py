"""Counters and durations, if the process has imported OpenTelemetry's metrics."""

import sys
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["count", "record"]

_API: Final = "opentelemetry.metrics"


def count(name: str, attributes: Mapping[str, str]) -> None:
    """Add one to a counter."""
    api: Any = sys.modules.get(_API)
    if api is not None:
        api.get_meter("ekiden").create_counter(name).add(1, dict(attributes))


def record(name: str, seconds: float, attributes: Mapping[str, str]) -> None:
    """Record a duration."""
    api: Any = sys.modules.get(_API)
    if api is not None:
        api.get_meter("ekiden").create_histogram(name, unit="s").record(seconds, dict(attributes))
