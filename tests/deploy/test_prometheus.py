"""Every alert and every query of the board uses metrics that a node exports; alerts name a section of the runbook."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import CAROL, as_carol, begin, make_home, published
from starlette.testclient import TestClient

from deedbook.consumers.interfaces.node.node import Node
from deedbook.consumers.interfaces.web.app import Web
from deedbook.consumers.interfaces.web.tokens import Tokens
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.system.metrics import METRIC_DEFINITIONS

if TYPE_CHECKING:
    from deedbook.ledger.client.author import Author
    from deedbook.ledger.client.remote import RemoteClient

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
OF_PROMETHEUS: Final = {"up"}
LATER_MS: Final = 2**52


def alerts() -> list[dict[str, Any]]:
    """Return the rules of the alerts."""
    groups = msgspec.yaml.decode((DEPLOY / "prometheus" / "alerts.yml").read_bytes())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def refused(_: RemoteClient, author: Author) -> None:
    """Start a session that exists already."""
    with pytest.raises(DeedbookError):
        author.emit(Draft(stream="session/work", data=SessionStarted(task="another")))


@pytest.fixture(scope="module")
def metrics_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of `/metrics` of a node that accepted one submission and refused another."""
    settings = make_home(tmp_path_factory.mktemp("metrics") / ".deedbook")

    async def run() -> str:
        async with Node(settings) as node:
            for act in (begin, refused):
                await asyncio.to_thread(as_carol, settings, node.url, act)
            await published(node)
            _, token = Tokens(settings.home).create(CAROL, "metrics", LATER_MS)
            web = Web(node.client, gauges=node.gauges(), metrics=node.metrics)
            try:
                client = TestClient(web, base_url="http://127.0.0.1", headers={"authorization": f"Bearer {token}"})
                client.get("/metrics")  # this request makes the metrics of requests appear
                return client.get("/metrics").text
            finally:
                web.close()

    return asyncio.run(run())


def samples(text: str) -> dict[tuple[str, str], float]:
    """Return every value, except those of buckets, by its name and its first label."""
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def test_a_node_shows_what_it_accepted_refused_and_published(metrics_text: str) -> None:
    values = samples(metrics_text)
    assert values["deedbook_submissions_total", ""] == 2
    assert values["deedbook_events_accepted_total", ""] == 1
    (code,) = [label for name, label in values if name == "deedbook_refusals_total"]
    assert values["deedbook_refusals_total", code] == 1
    assert values["deedbook_submit_seconds_count", ""] == values["deedbook_commit_events_sum", ""] == 2
    assert values["deedbook_bus_behind_entries", ""] == values["deedbook_submissions_waiting", ""] == 0
    assert values["deedbook_stream_generation", ""] == 1
    assert 0 < values["deedbook_log_map_used_ratio", ""] < 1
    assert values["deedbook_disk_free_bytes", ""] > 0
    assert values["process_open_fds", ""] > 0


def test_every_meter_is_shown_under_a_name_of_prometheus_form(metrics_text: str) -> None:
    for name, definition in METRIC_DEFINITIONS.items():
        kind = re.search(rf"^# TYPE deedbook_{name}(?:_total)? (\w+)$", metrics_text, re.MULTILINE)
        assert kind is not None, name
        assert kind[1] == definition.kind
    for family in text_string_to_metric_families(metrics_text):
        assert re.fullmatch("[a-z][a-z0-9_]*", family.name)
        assert family.documentation, family.name


def test_every_alert_parses_and_asks_for_what_a_node_shows(metrics_text: str) -> None:
    exported = {family.name for family in text_string_to_metric_families(metrics_text)} | OF_PROMETHEUS
    # A metric with labels has no sample before its first value, but its name is in the text. So add the samples' names.
    exported |= {f"{name}{suffix}" for name in exported for suffix in ("_total", "_bucket", "_count", "_sum")}
    for rule in alerts():
        promql_parser.parse(rule["expr"])
        used = set(re.findall(r"\b(?:deedbook|process)_\w+", rule["expr"]))
        assert used <= exported, rule["alert"]
        assert used or "up{" in rule["expr"]


def labels_by_name(text: str) -> dict[str, set[str]]:
    """Return the labels of each exported metric, and those that Prometheus adds when it reads a metric."""
    labels = {"up": set[str]()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    for name, definition in METRIC_DEFINITIONS.items():
        if definition.label:  # has no sample before its first value
            labels[f"deedbook_{name}{'_total' if definition.kind == 'counter' else ''}"] = {definition.label}
    return {name: known | {"job", "instance"} for name, known in labels.items()}


def unknown_in(query: str, legend: str, exported: dict[str, set[str]]) -> set[str]:
    """Return the metrics and labels of a query and its legend that no node exports."""
    selectors: list[promql_parser.VectorSelector] = []
    grouped: set[str] = set(re.findall(r"{{(\w+)}}", legend))

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier:
            grouped.update(node.modifier.labels)
        if isinstance(node, promql_parser.VectorSelector | promql_parser.MatrixSelector):
            selectors.append(getattr(node, "vector_selector", node))

    promql_parser.walk(promql_parser.parse(query), visit)
    assert selectors
    unknown = {str(selector.name) for selector in selectors} - exported.keys()
    labels = set[str]().union(*(exported.get(str(selector.name), ()) for selector in selectors))
    for selector in selectors:
        unknown |= {matcher.name for matcher in selector.matchers.matchers} - exported.get(str(selector.name), set())
    return unknown | grouped - labels


def test_every_query_of_the_board_asks_for_what_a_node_shows(metrics_text: str) -> None:
    board = msgspec.json.decode((DEPLOY / "grafana" / "deedbook.json").read_bytes())
    exported = labels_by_name(metrics_text)
    for panel in board["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "5m")
            assert not unknown_in(query, target["legendFormat"], exported), panel["title"]
    for variable in board["templating"]["list"][1:]:
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
        assert match
        assert not unknown_in(match[1], f"{{{{{match[2]}}}}}", exported), variable["name"]
    assert unknown_in("sum by (x) (rate(deedbook_reads_total{y='1'}[5m])) + no", "{{z}}", exported) == {*"xyz", "no"}


def test_no_panel_of_the_board_covers_another() -> None:
    panels = msgspec.json.decode((DEPLOY / "grafana" / "deedbook.json").read_bytes())["panels"]
    cells = [
        (place["x"] + x, place["y"] + y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["w"])
        for y in range(place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_alert_names_a_section_of_the_runbook() -> None:
    page = (DEPLOY / "runbook.md").read_text("utf-8")
    sections = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall("^## (.*)", page, re.MULTILINE)
    }
    for rule in alerts():
        path, _, section = rule["annotations"]["runbook"].partition("#")
        assert path == "deploy/runbook.md"
        assert section in sections, rule["alert"]
        assert rule["labels"]["severity"] in {"page", "ticket"}


def test_an_expression_that_does_not_parse_would_be_noticed() -> None:
    with pytest.raises(ValueError, match="unexpected"):
        promql_parser.parse("rate(deedbook_log_entries[5m)")
