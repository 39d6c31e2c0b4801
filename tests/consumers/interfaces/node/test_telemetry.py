"""Spans and metrics of a node: one trace from an agent to the stream, in memory and as a collector gets it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from collector import Collector
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from serving import CAROL, ServeProcess, as_carol, begin, make_home, published
from starlette.testclient import TestClient

from deedbook.consumers.interfaces.node.node import Node
from deedbook.consumers.interfaces.node.telemetry import Telemetry
from deedbook.consumers.interfaces.web.app import Web
from deedbook.consumers.interfaces.web.tokens import Tokens
from deedbook.ledger.errors import Refused
from deedbook.ledger.system import traces
from deedbook.ledger.system.metrics import METRIC_DEFINITIONS

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.client.author import Author
    from deedbook.ledger.client.remote import RemoteClient

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = "b7ad6b7169203331"
TRACEPARENT: Final = f"00-{TRACE}-{PARENT}-01"


def parent_of(span: ReadableSpan) -> int:
    """Return the id of the span above; 0: none."""
    return span.parent.span_id if span.parent else 0


def test_a_submission_is_one_trace_from_the_agents_span_to_the_stream(tmp_path: Path) -> None:
    exporter, reader, settings = InMemorySpanExporter(), InMemoryMetricReader(), make_home(tmp_path / ".deedbook")
    telemetry = Telemetry(SimpleSpanProcessor(exporter), reader)
    agent = TracerProvider().get_tracer("agent")

    def act(client: RemoteClient, author: Author) -> int:
        with agent.start_as_current_span("agent") as above:
            begin(client, author)
        return above.get_span_context().span_id

    async def run() -> int:
        async with Node(settings, metrics=telemetry) as node:
            telemetry.send(node.gauges())
            above = await asyncio.to_thread(as_carol, settings, node.url, act)
            await published(node)
            with traces.span("HTTP /v1/entries", {traces.HEADER: TRACEPARENT}):
                assert b'"error"' in await node.submit(CAROL, b"no submission")
            _, token = Tokens(settings.home).create(CAROL, "reader", 2**52)
            web = Web(node.client)
            client = TestClient(web, base_url="http://127.0.0.1", headers={"authorization": f"Bearer {token}"})
            for path in ("/v1/sessions/list", "/v1/nothing"):
                await asyncio.to_thread(client.get, path)
            web.close()
            measured = reader.get_metrics_data()
            assert measured is not None
            names = {
                metric.name
                for resource in measured.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            }
            with_values = {name for name, known in METRIC_DEFINITIONS.items() if not known.label}
            assert {f"deedbook_{name}" for name in with_values | node.gauges().keys()} <= names
            telemetry.close()
            return above

    above = asyncio.run(run())
    spans = exporter.get_finished_spans()
    (submitted,) = [span for span in spans if span.name == "deedbook.submit" and parent_of(span) == above]
    below = {span.name for span in spans if submitted.context and parent_of(span) == submitted.context.span_id}
    assert below == {"deedbook.check", "deedbook.append", "deedbook.publish"}
    (refused,) = [span for span in spans if (span.attributes or {}).get("deedbook.refusal") == "INVALID_FORMAT"]
    (posted,) = [span for span in spans if span.name == "HTTP /v1/entries"]
    assert posted.context
    assert (refused.name, parent_of(refused)) == ("deedbook.submit", posted.context.span_id)
    assert f"{posted.context.trace_id:032x}" == TRACE
    answered = {span.name: dict(span.attributes or {}) for span in spans if span.name.startswith("HTTP")}
    assert answered["HTTP /v1/sessions/list"]["http.response.status_code"] == 200
    assert answered["HTTP other"]["deedbook.refusal"] == "NOT_FOUND"
    folds = [dict(span.attributes or {}) for span in spans if span.name == "deedbook.fold"]
    # A view may begin before the submission is appended.
    assert any({"deedbook.events", "deedbook.entries"} <= fold.keys() for fold in folds)


def test_a_collector_gets_what_a_node_did_until_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_home(tmp_path / ".deedbook")
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        serving = ServeProcess(settings, more=["--otel"])
        monkeypatch.setenv("TRACEPARENT", TRACEPARENT)
        as_carol(settings, serving.url, begin)
        assert serving.stop() == 0
    (submitted,) = [span for span in collector.spans if span.name == "deedbook.submit"]
    assert (submitted.trace_id.hex(), submitted.parent_span_id.hex()) == (TRACE, PARENT)
    assert collector.resource["service.name"] == "deedbook"
    assert collector.metrics["deedbook_events_accepted"].sum.data_points[0].as_double == 1


def test_another_protocol_and_a_missing_package_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(Refused, match="must be http/protobuf"):
        Telemetry()
    settings = make_home(tmp_path / ".deedbook")
    program = (
        "import sys; sys.modules['opentelemetry'] = None; "
        "from deedbook.consumers.interfaces.cli.program import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, "--home", str(settings.home), "serve", "--otel"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (refused.returncode, "pip install 'deedbook[otel]'" in refused.stderr) == (8, True)
