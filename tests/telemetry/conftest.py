"""Tracing and metrics as an application sets them up. Tests of this folder do not wait for timers."""

from collections.abc import Generator

import opentelemetry.metrics._internal as metrics_internal
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.simulation.virtual_time import _threads_are_counted, pytest_asyncio_loop_factories

__all__ = ["_threads_are_counted", "pytest_asyncio_loop_factories"]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Generator[InMemorySpanExporter, None, None]:
    """Tracing as an application sets it up, for one test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Generator[InMemoryMetricReader, None, None]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER", provider)
    yield reader
    provider.shutdown()
