"""Counters and durations, if the process has a meter provider at all."""

import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["count", "record"]


def _meter() -> Any:
    api: Any = sys.modules.get("opentelemetry.metrics")
    return None if api is None else api.get_meter("ekiden")


def count(name: str, attributes: Mapping[str, str]) -> None:
    """Add one to a counter."""
    if (meter := _meter()) is not None:
        meter.create_counter(name).add(1, dict(attributes))


def record(name: str, seconds: float, attributes: Mapping[str, str]) -> None:
    """Record a duration."""
    if (meter := _meter()) is not None:
        meter.create_histogram(name, unit="s").record(seconds, dict(attributes))
