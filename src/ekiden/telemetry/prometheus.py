"""Metrics for Prometheus: a small HTTP server of its own, beside the one for clients.

It runs in a thread, so that metrics can be fetched while the event loop is busy. It listens on this machine
only: who reads metrics is not who calls tools.
"""

from typing import Any, Final

from ekiden.errors import UsageError
from ekiden.telemetry.metrics import is_metered

__all__ = ["serve_metrics"]

_HOST: Final = "127.0.0.1"


def serve_metrics(port: int) -> None:
    """Set up the metrics of this process, and serve them at `/metrics` until the process ends."""
    try:
        from opentelemetry import metrics
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from prometheus_client import start_http_server
    except ImportError as error:
        raise UsageError("metrics for Prometheus need an extra: pip install 'ekiden[prometheus]'") from error
    if is_metered():
        raise UsageError(
            "this process has set up OpenTelemetry metrics already: give its MeterProvider a "
            "PrometheusMetricReader instead of a metrics port"
        )
    reader: Any = PrometheusMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    try:
        start_http_server(port, addr=_HOST)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"metrics cannot be served at {_HOST}:{port}: {reason}") from error
