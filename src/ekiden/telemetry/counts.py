"""Counters and durations, if the process has a meter provider at all."""

import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["count", "record"]


def count(name: str, attributes: Mapping[str, str]) -> None:
    """Add one to a counter."""
    if (api := _api()) is not None:
        api.get_meter("ekiden").create_counter(name).add(1, dict(attributes))


def record(name: str, seconds: float, attributes: Mapping[str, str]) -> None:
    """Record a duration."""
    if (api := _api()) is not None:
        api.get_meter("ekiden").create_histogram(name, unit="s").record(seconds, dict(attributes))


def _api() -> Any:
    return sys.modules.get("opentelemetry.metrics")
