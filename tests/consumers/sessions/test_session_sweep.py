"""Sweeping over real signed events: open sessions are ended once, and missing reports are made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deedbook.consumers.sessions.open_sessions import SWEPT
from deedbook.consumers.sessions.sweep import Activity, SweepResult, decide, sweep
from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.session import (
    AssessmentRecorded,
    FindingLogged,
    ReportGenerated,
    SessionEnded,
    SessionStarted,
    Vectors,
)
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from building import Ledger

    from deedbook.ledger.client.local import LocalClient
    from deedbook.ledger.events.fields import EventData

    Sweeps = Callable[..., SweepResult]

HOUR_MS = 3_600_000
KNOWN = Vectors(know=0.5, uncertainty=0.4)


@pytest.fixture
def reader(ledger: Ledger, local_client: LocalClient) -> Iterator[Reader]:
    """The views of the ledger."""
    with Reader(local_client, ledger.settings()) as made:
        yield made


@pytest.fixture
def author(ledger: Ledger, local_client: LocalClient) -> Author:
    """Alice, who sweeps."""
    return Author(local_client, "alice", lambda _: ledger.keys["alice"])


@pytest.fixture
def sweeps(ledger: Ledger, reader: Reader, author: Author) -> Sweeps:
    """Sweeps alice's sessions of more than an hour; a report is one sentence about the session."""

    def make_report(name: str) -> dict[str, Any]:
        return {"report_id": reported(ledger, name)}

    def call(make: Callable[[str], dict[str, Any]] = make_report, **more: Any) -> SweepResult:
        return sweep(author, reader.answer, make, now_ms=ledger.clock(), older_than_ms=HOUR_MS, **more)

    return call


def session(ledger: Ledger, name: str, *data: EventData, by: str = "alice") -> None:
    """Record a session with these events."""
    for one in (SessionStarted(task="t"), *data):
        ledger.emit(by, f"session/{name}", one)


def assessed(phase: Any) -> AssessmentRecorded:
    """Return an assessment at a phase."""
    return AssessmentRecorded(phase=phase, vectors=KNOWN)


def reported(ledger: Ledger, name: str) -> str:
    """Publish a report of a session and return its id."""
    data = ReportGenerated(
        report_type="complete",
        ai_id="alice",
        task_summary="t",
        key_findings=["f"],
        recommended_next_steps=["n"],
        calibration_status="not_assessable",
    )
    return ledger.emit("alice", f"session/{name}", data).id


def kinds_after(ledger: Ledger, size: int) -> list[tuple[str, str]]:
    """Return kind and stream of the later entries."""
    events = [ledger.event(index) for index in range(size, ledger.head()[0])]
    return [(event.kind, event.stream) for event in events]


def test_session_that_never_closed_is_ended_and_its_report_made_once(ledger: Ledger, sweeps: Sweeps) -> None:
    session(ledger, "idle", assessed("PREFLIGHT"), assessed("CHECK"))
    ledger.clock.advance(3600)
    size = ledger.head()[0]
    done = sweeps()
    assert (done.ended, [one["session_id"] for one in done.reported], done.unmade) == (["idle"], ["idle"], [])
    assert kinds_after(ledger, size) == [("report.generated", "session/idle"), ("session.ended", "session/idle")]
    ended = ledger.event(-1).data
    assert isinstance(ended, SessionEnded)
    assert ended.summary == SWEPT
    again = sweeps()
    assert (again.ended, again.reported, again.unmade) == ([], [], [])
    assert ledger.head()[0] == size + 2


def test_session_at_work_is_left_alone(ledger: Ledger, sweeps: Sweeps) -> None:
    session(ledger, "busy", assessed("PREFLIGHT"), assessed("CHECK"))
    ledger.clock.advance(3599)
    ledger.emit("alice", "session/busy", FindingLogged(finding="f"))
    ledger.clock.advance(3599)
    done = sweeps()
    assert (done.ended, done.reported) == ([], [])


def test_report_that_failed_after_postflight_is_made_while_the_session_is_open(ledger: Ledger, sweeps: Sweeps) -> None:
    session(ledger, "fresh", assessed("PREFLIGHT"), assessed("POSTFLIGHT"))
    done = sweeps()
    assert (done.ended, [one["session_id"] for one in done.reported]) == ([], ["fresh"])
    ledger.clock.advance(1)
    ledger.emit("alice", "session/fresh", assessed("POSTFLIGHT"))
    assert len(sweeps().reported) == 1, "the second POSTFLIGHT is newer than the report"
    assert sweeps().reported == []


def test_only_the_agents_own_sessions_are_swept(ledger: Ledger, sweeps: Sweeps) -> None:
    session(ledger, "bobs", assessed("POSTFLIGHT"), by="bob")
    ledger.clock.advance(7200)
    assert sweeps() == SweepResult([], [], [], 0)


def test_dry_run_says_what_would_be_done_and_appends_nothing(ledger: Ledger, sweeps: Sweeps) -> None:
    session(ledger, "idle", assessed("CHECK"))
    ledger.clock.advance(7200)
    before = ledger.head()
    done = sweeps(is_dry=True)
    assert (done.ended, done.reported) == (["idle"], [{"session_id": "idle"}])
    assert ledger.head() == before


def test_report_that_cannot_be_made_is_kept_with_its_reason_and_the_others_go_on(
    ledger: Ledger, sweeps: Sweeps
) -> None:
    for name in ("bad", "good"):
        session(ledger, name, assessed("CHECK"))
    ledger.clock.advance(7200)

    def make(name: str) -> dict[str, Any]:
        if name == "bad":
            raise Unavailable("STORE_FULL", "no room")
        return {"report_id": reported(ledger, name)}

    done = sweeps(make)
    assert sorted(done.ended) == ["bad", "good"]
    assert [one["session_id"] for one in done.reported] == ["good"]
    ((name, what, error),) = done.unmade
    assert (name, what, error.code) == ("bad", "report", "STORE_FULL")
    assert [one["session_id"] for one in sweeps().reported] == ["bad"]


def test_session_written_to_while_it_is_swept_stays_open(ledger: Ledger, sweeps: Sweeps) -> None:
    session(ledger, "back", assessed("CHECK"))
    ledger.clock.advance(7200)

    def make(name: str) -> dict[str, Any]:
        ledger.emit("alice", f"session/{name}", FindingLogged(finding="I am back"))
        return {"report_id": reported(ledger, name)}

    done = sweeps(make)
    assert (done.ended, len(done.reported), done.unmade) == ([], 1, [])
    ledger.emit("alice", "session/back", FindingLogged(finding="and go on"))


def test_report_that_says_the_same_again_is_not_counted_as_made(ledger: Ledger, sweeps: Sweeps) -> None:
    session(ledger, "same", assessed("POSTFLIGHT"))
    ledger.clock.advance(7200)
    done = sweeps(lambda _: {"report_id": "the one that stands", "is_repeat": True})
    assert (done.ended, done.reported, done.unmade) == (["same"], [], [])


def test_end_that_is_refused_is_listed(ledger: Ledger, reader: Reader, local_client: LocalClient) -> None:
    session(ledger, "idle")
    ledger.clock.advance(7200)

    def no_key(_: object) -> Any:
        raise Refused("KEY_OUT_OF_SCOPE", "not this stream")

    sweeping = Author(local_client, "alice", no_key)
    done = sweep(sweeping, reader.answer, lambda _: {}, now_ms=ledger.clock(), older_than_ms=HOUR_MS)
    assert [(one.session_id, one.what, one.error.code) for one in done.unmade] == [("idle", "end", "KEY_OUT_OF_SCOPE")]


@pytest.mark.parametrize(
    ("seen", "end", "report"),
    [
        (Activity("s", True, 0, {}), True, False),
        (Activity("s", True, 1, {"POSTFLIGHT": 3}), False, True),
        (Activity("s", True, 1, {"CHECK": 3}), False, False),
        (Activity("s", True, 0, {"CHECK": 3}), True, True),
        (Activity("s", False, 0, {"CHECK": 3}), False, True),
        (Activity("s", False, 0, {"PREFLIGHT": 3}), False, False),
        (Activity("s", False, 0, {"POSTFLIGHT": 3}, 4), False, False),
        (Activity("s", False, 0, {"POSTFLIGHT": 5}, 4), False, True),
        (Activity("s", False, 0, {"CHECK": 5, "POSTFLIGHT": 3}, 4), False, True),
    ],
)
def test_decision_follows_from_what_was_seen(seen: Activity, *, end: bool, report: bool) -> None:
    assert decide(seen, now_ms=10, older_than_ms=10) == (end, report)
