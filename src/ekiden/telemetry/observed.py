"""Whether anybody looks: a process with a tracer or a meter."""

from ekiden.telemetry.context import is_tracing
from ekiden.telemetry.metrics import is_metered

__all__ = ["is_observed"]


def is_observed() -> bool:
    """Whether this process has set up a tracer provider or a meter provider."""
    return is_tracing() or is_metered()
