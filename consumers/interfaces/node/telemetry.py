"""Sends spans and metrics of a node with OpenTelemetry (`deed serve --otel`, extra ``otel``).

The variables of OpenTelemetry say where and how: ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_TRACES_SAMPLER``,
``OTEL_SERVICE_NAME``, … Metrics have the names of `/metrics`. Spans name agents, numbers and error codes, and no
content. The SDK's own threads send, so no work waits for the collector; without it, spans are lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from deedbook.ledger.errors import Refused
from deedbook.ledger.system import traces
from deedbook.ledger.system.metrics import METRIC_DEFINITIONS, Metrics

_PROTOCOL: Final = "http/protobuf"
_W3C: Final = TraceContextTextMapPropagator()


class Telemetry(Metrics):
    """The metrics of a process, which also sends them, and its spans. ``close`` sends what is left."""

    def __init__(self, spans: SpanProcessor | None = None, reader: MetricReader | None = None) -> None:
        """Begin to record, by default to the collector of the environment. Raises Refused: ``USAGE``."""
        super().__init__()
        for name in (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
        ):
            if os.environ.get(name, _PROTOCOL) != _PROTOCOL:
                message = f"{name} must be {_PROTOCOL} (port 4318 of a collector): deed serve has no other protocol"
                raise Refused("USAGE", message)
        here = Resource.create({"service.name": "deedbook", "service.version": version("deedbook")})
        resource = here.merge(OTELResourceDetector().detect())
        self._tracing = TracerProvider(resource=resource)
        self._tracing.add_span_processor(spans or BatchSpanProcessor(OTLPSpanExporter()))
        readers = [reader or PeriodicExportingMetricReader(OTLPMetricExporter())]
        self._metering = MeterProvider(readers, resource)
        self._tracer, self._meter = self._tracing.get_tracer("deedbook"), self._metering.get_meter("deedbook")
        self._histograms = {
            name: self._meter.create_histogram(
                f"deedbook_{name}", description=known.help, explicit_bucket_boundaries_advisory=known.bounds
            )
            for name, known in METRIC_DEFINITIONS.items()
            if known.bounds
        }
        for name, known in METRIC_DEFINITIONS.items():
            if not known.bounds:
                is_total = known.kind == "counter"
                create = self._meter.create_observable_counter if is_total else self._meter.create_observable_gauge
                create(f"deedbook_{name}", [partial(self._observe, name)], description=known.help)
        traces.use(self)

    def observe(self, name: str, *values: float) -> None:
        """Add values to a histogram."""
        super().observe(name, *values)
        for value in values:
            self._histograms[name].record(value)

    def send(self, gauges: Mapping[str, Callable[[], float]]) -> None:
        """Send these gauges, too."""

        def observed(read: Callable[[], float], _: CallbackOptions) -> list[Observation]:
            return [Observation(float(read()))]

        for name, read in gauges.items():
            self._meter.create_observable_gauge(f"deedbook_{name}", [partial(observed, read)])

    def begin(
        self, name: str, parent: str, began_ns: int, *, is_request: bool
    ) -> tuple[str, Callable[[traces.Attributes], None]]:
        """Begin a span, as ``traces.Recorder``."""
        parent_context = _W3C.extract({traces.HEADER: parent}, Context())
        kind = SpanKind.SERVER if is_request else SpanKind.INTERNAL
        span = self._tracer.start_span(name, parent_context, kind, start_time=began_ns)
        headers: dict[str, str] = {}
        _W3C.inject(headers, set_span_in_context(span))

        def end(attributes: traces.Attributes) -> None:
            span.set_attributes({name if "." in name else f"deedbook.{name}": attributes[name] for name in attributes})
            if "error.type" in attributes:
                span.set_status(StatusCode.ERROR)
            span.end()

        return headers.get(traces.HEADER, ""), end

    def close(self) -> None:
        """Record no more, and send what is left."""
        traces.use(None)
        self._tracing.shutdown()
        self._metering.shutdown()

    def _observe(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        label = METRIC_DEFINITIONS[name].label
        return [Observation(value, {label: text} if label else {}) for text, value in self.values(name).items()]
