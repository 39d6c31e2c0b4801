"""Programs publish and read events of declared kinds, in a folder and behind a server."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from calling import Deed, Place
from deedbook_use import awaited, fresh, opened, refusal
from event_examples import published
from faults import settle, times

from deedbook import AsyncLedger, Event, Ledger, OwnEvent, OwnKind
from deedbook.ledger.events.declared import KindDeclared

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SCHEMA: dict[str, Any] = published("kind.declared")["schema"]
REACTING = """
import os, random, sys, threading, time
from deedbook import Ledger

def end():
    time.sleep(random.random() * 0.5)
    os.kill(os.getpid(), 9)

with Ledger("kuro", home=sys.argv[1]) as ledger:
    @ledger.on("x.kill.done")
    def effect(event, db):
        db.execute("INSERT INTO done VALUES (?)", (event.data["version"],))
    if sys.argv[2] == "killed":
        threading.Thread(target=end, daemon=True).start()
    ledger.run("effects", after=-1, until=ledger.client.head().size, store=sys.argv[3])
"""


class DeployFinished(OwnEvent, frozen=True):
    """The kind that proto/examples declares, as a type in a program."""

    kind = OwnKind("x.deploy.finished")
    service: str
    version: int
    hosts: list[str] = []
    outcome: str = "healthy"
    notes: str = ""


class ServiceOnly(OwnEvent, frozen=True):
    """A type that lacks the optional fields of its kind's schema, and has a field that the schema lacks."""

    kind = OwnKind("x.deploy.finished")
    service: str
    version: int
    mood: str = ""


class DeployStarted(OwnEvent, frozen=True):
    """A kind on other streams."""

    kind = OwnKind("x.start.begun")
    service: str


def declare(place: Place, name: str, type_: str, schema: dict[str, Any] = SCHEMA) -> None:
    """Declare a kind as root; a second call is a repeat."""
    data = KindDeclared(name=name, stream=type_, roles=["agent"], schema=schema, title="deploy finished")
    with opened(place, "root") as root:
        root.publish(f"kind/{name}", data, idem=f"declare {name}")


def test_typed_and_plain_events_are_published_and_read(place: Place, tmp_path: Path) -> None:
    declare(place, "x.deploy.finished", "x.deploy")
    stream = f"x.deploy/{fresh()}"
    seen = list[DeployFinished]()
    with opened(place) as ledger:
        first = ledger.publish(stream, DeployFinished(service="api", version=7, hosts=["a"]))[0]
        ledger.publish(stream, {"service": "web", "version": 3}, causes=[first.id])
        plain, typed = (
            list(ledger.events("x.deploy.finished", stream=stream)),
            list(ledger.events(DeployFinished, stream=stream)),
        )
        assert [event.data["version"] for event in plain] == [7, 3]
        assert [event.data for event in typed] == [
            DeployFinished(service="api", version=7, hosts=["a"]),
            DeployFinished(service="web", version=3),
        ]

        @ledger.on(DeployFinished, where=lambda event: event.stream == stream and event.data.version < 5)
        def note(event: Event[DeployFinished], _db: sqlite3.Connection) -> None:
            seen.append(event.data)

        ledger.run("notes", after=-1, until=ledger.client.head().size, store=tmp_path / "notes.db")
        assert seen == [DeployFinished(service="web", version=3)]
        shown = ledger.kinds.show(id="x.deploy.finished")
        assert (shown.phrase, shown.stream_type, shown.roles) == ("deploy finished", "x.deploy", ["agent"])
        assert [row.name for row in ledger.kinds.list(stream_type="x.deploy").items] == ["x.deploy.finished"]


def test_what_does_not_fit_is_refused_with_its_code(place: Place) -> None:
    declare(place, "x.deploy.finished", "x.deploy")
    declare(place, "x.pair.one", "x.pair")
    declare(place, "x.pair.two", "x.pair")
    fields = {"service": "api", "version": 7}
    with opened(place) as ledger:
        wrong = refusal(lambda: ledger.publish("x.deploy/1", {"service": "api"}))
        assert (wrong.code, wrong.details["field"]) == ("INVALID_FIELD", "version")
        assert refusal(lambda: ledger.publish("x.deploy/1", fields | {"nobody": 1})).code == "UNKNOWN_FIELD"
        assert refusal(lambda: ledger.publish("x.other/1", fields, kind="x.deploy.finished")).code == "INVALID_FIELD"
        assert refusal(lambda: ledger.publish("x.deploy/1", fields, kind="x.deploy.finish")).code == "UNKNOWN_KIND"
        assert refusal(lambda: ledger.publish("x.pair/1", fields)).details["kinds"] == ["x.pair.one", "x.pair.two"]
        assert refusal(lambda: ledger.publish("x.none/1", fields)).code == "USAGE"
        secret = "password = 'correct-horse-battery-9'"
        assert refusal(lambda: ledger.publish("x.deploy/1", fields | {"notes": secret})).code == "SECRET_DETECTED"
        first = ledger.publish("x.deploy/idem", fields, idem="once")[0]
        assert ledger.publish("x.deploy/idem", fields, idem="once")[0].index == first.index
        assert refusal(lambda: ledger.publish("x.deploy/idem", fields, expect=9)).code == "STREAM_CONFLICT"
    with opened(place, "alex") as human:
        assert refusal(lambda: human.publish("x.deploy/1", fields)).code == "NOT_AUTHORIZED"


def test_coroutines_publish_and_follow(place: Place) -> None:
    declare(place, "x.start.begun", "x.start", SCHEMA | {"required": ["service"]})
    stream = f"x.start/{fresh()}"

    async def work(ledger: AsyncLedger) -> list[str]:
        await ledger.publish(stream, DeployStarted(service="api"))
        return [event.data.service async for event in ledger.events(DeployStarted, stream=stream)]

    assert awaited(place, work) == ["api"]


def test_type_that_does_not_fit_the_events_says_which_field(place: Place) -> None:
    declare(place, "x.start.begun", "x.start", SCHEMA | {"required": ["service"]})
    stream = f"x.start/{fresh()}"
    with opened(place) as ledger:
        ledger.publish(stream, {"service": "api", "version": 1}, kind="x.start.begun")
        assert refusal(lambda: list(ledger.events(DeployStarted, stream=stream))).code == "UNKNOWN_FIELD"


def test_subscriber_whose_type_is_not_that_of_the_schema_does_not_start(place: Place, tmp_path: Path) -> None:
    declare(place, "x.deploy.finished", "x.deploy")
    lacking = sorted({*SCHEMA["properties"]} - {"service", "version"})
    assert lacking

    async def react(ledger: AsyncLedger) -> None:
        ledger.on(ServiceOnly)(lambda event, _db: seen.append(event))
        await ledger.run("async", after=-1, until=1, store=tmp_path / "async.db")

    seen = list[Event[ServiceOnly]]()
    with opened(place) as ledger:
        ledger.publish(f"x.deploy/{fresh()}", {"service": "api", "version": 1}, kind="x.deploy.finished")
        ledger.on(ServiceOnly)(lambda event, _db: seen.append(event))
        for start in (
            lambda: ledger.run("notes", after=-1, until=ledger.client.head().size, store=tmp_path / "notes.db"),
            lambda: next(ledger.follow(ServiceOnly, after=-1)),
            lambda: awaited(place, react),
        ):
            refused = refusal(start)
            assert refused.code == "INVALID_FIELD"
            assert (sorted(refused.details["missing"]), refused.details["unknown"]) == (lacking, ["mood"])
            assert all(name in refused.message for name in ["ServiceOnly", "mood", *lacking])
    assert seen == []


def test_subscriber_to_a_kind_that_nobody_declared_is_warned_with_similar_names(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    declare(place, "x.deploy.finished", "x.deploy")
    with opened(place) as ledger:
        ledger.on("x.deploy.finish")(lambda event, _db: None)
        ledger.run("typo", after=-1, until=1, store=tmp_path / "typo.db")
    (warning,) = (record.message for record in caplog.records if record.name == "deedbook")
    assert warning.startswith("nobody has declared the kind x.deploy.finish yet: did you mean x.deploy.finished")


def test_effects_of_own_events_happen_once_across_kills(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "kuro")
    declare(Place(alone.home), "x.kill.done", "x.kill")
    count, store = 200, tmp_path / "effects.db"
    with Ledger("kuro", home=alone.home) as ledger:
        ledger.publish("x.kill/1", *({"service": "api", "version": number + 1} for number in range(count)))
    with sqlite3.connect(store) as db:
        db.execute("CREATE TABLE done (version INTEGER)")
    db.close()

    def react(how: str) -> int:
        command = [sys.executable, "-c", REACTING, str(alone.home), how, str(store)]
        return subprocess.run(command, env=os.environ, check=False).returncode

    kills = [react("killed") for _ in range(times(1, 6))]
    assert {*kills} <= {0, -9}
    assert react("whole") == 0
    with sqlite3.connect(store) as db:
        effects = [str(version) for (version,) in db.execute("SELECT version FROM done ORDER BY 1")]
    db.close()
    wanted = [str(number + 1) for number in range(count)]
    settle("kill -9 of a subscriber to own events", len(kills), events=wanted, published=wanted, effects=effects)
    assert effects == wanted
