"""Outside of Deedbook an event is a CloudEvent that the official library reads; its data fits the published schema."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from building import SALT, Ledger
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from event_examples import PROTO
from http_double import HttpDouble

from deedbook.consumers.interfaces.cli.program import run
from deedbook.consumers.sdk.cloud_events import binary, cloud_event
from deedbook.ledger.events.body import Event, decode_body, make_event
from deedbook.ledger.events.session import FindingLogged, SessionStarted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = sorted(path.stem for path in (PROTO / "examples").glob("*.json"))


def example(kind: str) -> Event:
    """Return the published example of a kind, as an event of a log."""
    body, content = decode_body((PROTO / "examples" / f"{kind}.json").read_bytes())
    return make_event(
        body, content, index=7, event_id="event:" + "1" * 64, key=b"k" * 32, accepted_ms=1_770_890_400_123
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_cloud_event_in_both_modes_and_says_what_its_author_signed(kind: str) -> None:
    event = example(kind)
    structured = HTTPMessage({"content-type": "application/cloudevents+json"}, json.dumps(cloud_event(event)).encode())
    for message in (structured, HTTPMessage(*binary(event))):
        read = from_http_event(message)
        attributes = read.get_attributes()
        assert {name: attributes[name] for name in ("id", "source", "type", "subject", "specversion", "sequence")} == {
            "id": event.id,
            "source": f"urn:deedbook:ledger:{event.ledger}",
            "type": f"deedbook.{kind}",
            "subject": event.stream,
            "specversion": "1.0",
            "sequence": "0000000000000000007",
        }
        assert attributes["time"] == datetime.fromisoformat(event.at)
        assert attributes["recordedtime"] == "2026-02-12T10:00:00.123Z"
        schema = json.loads((PROTO / "schemas" / f"{kind}.json").read_bytes())
        salted = read.get_data() | {"salt": SALT}
        jsonschema.Draft202012Validator(schema).validate(salted)
        assert decode_body(json.dumps(salted).encode())[1] == event.data


def test_attributes_hold_any_text_a_stream_may_have() -> None:
    event = example("handoff.created")
    strange = Event(
        **{name: getattr(event, name) for name in event.__struct_fields__} | {"stream": 'handoff/缓存 "50%"'}
    )
    headers, body = binary(strange)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert from_http_event(HTTPMessage(headers, body)).get_subject() == 'handoff/缓存 "50%"'


class Sink(HttpDouble):
    """A receiver of events: it answers with the statuses of its script, then 202."""

    def read(self, path: str, headers: dict[str, str], body: bytes) -> Any:
        return from_http_event(HTTPMessage(headers, body))

    def beyond_script(self) -> int:
        return 202

    def send(self, request: Any, reply: int) -> None:
        self.send_head(request, reply, {"content-length": "0"})


@pytest.fixture
def watched(home: Path) -> Path:
    """The folder of a ledger with two findings."""
    with Ledger(home) as ledger:
        ledger.write_keys()
        ledger.emit("alice", "session/s1", SessionStarted())
        for finding in ("first", "第二"):
            ledger.emit("alice", "session/s1", FindingLogged(finding=finding))
    return home


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A receiver."""
    with contextlib.closing(Sink()) as made:
        yield made


def watch(home: Path, *words: str) -> int:
    """Watch findings until there are no more."""
    given = ["--as", "alice", "watch", "--kind", "finding.logged", "--from-start", "--once"]
    return run(["--home", str(home), *given, *words])


def test_watcher_prints_cloud_events_a_line_each(watched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert watch(watched, "--format", "cloudevents") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["type"], line["data"]["data"]["finding"]) for line in lines] == [
        ("deedbook.finding.logged", "first"),
        ("deedbook.finding.logged", "第二"),
    ]


def test_watcher_posts_each_event_until_it_is_taken_with_the_same_id(watched: Path, sink: Sink) -> None:
    sink.script = [503, 500]
    assert watch(watched, "--post", sink.origin) == 0
    findings = [read.get_data()["data"]["finding"] for read in sink.received]
    assert findings == ["first", "first", "first", "第二"]
    assert len({read.get_id() for read in sink.received}) == 2
    assert watch(watched, "--post", sink.origin) == 0
    assert len(sink.received) == 4


def test_event_is_not_both_posted_and_given_to_a_command(watched: Path) -> None:
    assert watch(watched, "--post", "http://127.0.0.1:1", "--exec", "true") == 2
