"""Publishing: one signed event on the session's stream, reused when it is published again, complete at any length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deedbook.consumers.sessions.generator import ReportInputs
from deedbook.consumers.sessions.report import blob_ref, publish_report
from deedbook.consumers.sessions.report_texts import restored
from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import session
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.limits import data_size_max_bytes
from deedbook.projections.answers.reader import Reader
from deedbook.projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from building import Ledger

    from deedbook.ledger.client.local import LocalClient

FINDINGS = ["The pool is never closed", "It leaks 3 handles a minute", "The limit is 512"]
LONG = ("y " * 30_000).strip()
GIVEN = ReportInputs(task_summary="Found the leak", key_findings=FINDINGS)


@pytest.fixture
def reader(ledger: Ledger, local_client: LocalClient) -> Iterator[Reader]:
    """The views of the ledger."""
    with Reader(local_client, ledger.settings()) as made:
        yield made


@pytest.fixture
def alice(ledger: Ledger, local_client: LocalClient) -> Author:
    """The owner of the sessions."""
    return Author(local_client, "alice", lambda _: ledger.keys["alice"])


def record(ledger: Ledger, name: str = "s1", *, owner: str = "alice", after: bool = True) -> list[Any]:
    """Record a session with its assessments; return the accepted events."""
    stream = f"session/{name}"
    ledger.emit(owner, stream, session.SessionStarted(task="Find the leak", ai_id="minimax"))
    first = session.AssessmentRecorded(phase="PREFLIGHT", vectors=session.Vectors(know=0.5, uncertainty=0.6))
    accepted = [ledger.emit(owner, stream, first)]
    if after:
        last = session.AssessmentRecorded(phase="POSTFLIGHT", vectors=session.Vectors(know=0.9, uncertainty=0.2))
        accepted.append(ledger.emit(owner, stream, last))
    return accepted


def test_a_report_is_an_event_that_follows_from_the_two_assessments(
    ledger: Ledger, reader: Reader, alice: Author
) -> None:
    accepted = record(ledger)
    made = publish_report(alice, reader.answer, "s1", GIVEN)
    event = ledger.event(-1)
    assert event.kind == "report.generated"
    assert (event.id, event.author, event.causes) == (made["report_id"], "alice", [one.id for one in accepted])
    assert event.data.epistemic_deltas.know == 0.4
    shown = reader.answer("reports.show", {"id": "s1"})["report"]
    assert made["status"] == "success"
    assert made["markdown"] == shown["markdown"]
    assert made["token_count"] == count_tokens(shown["compressed_json"])
    assert made["storage_location"] == "ledger:session/s1"


def test_the_same_content_again_is_the_same_report(ledger: Ledger, reader: Reader, alice: Author) -> None:
    record(ledger)
    first = publish_report(alice, reader.answer, "s1", GIVEN)
    before = ledger.head()
    again = publish_report(alice, reader.answer, "s1", GIVEN)
    assert (again["report_id"], again["is_repeat"], first["is_repeat"]) == (first["report_id"], True, False)
    assert ledger.head() == before


def test_an_older_content_becomes_the_latest_again(ledger: Ledger, reader: Reader, alice: Author) -> None:
    record(ledger)
    first = publish_report(alice, reader.answer, "s1", GIVEN)
    publish_report(alice, reader.answer, "s1", ReportInputs(task_summary="Something else", key_findings=FINDINGS))
    third = publish_report(alice, reader.answer, "s1", GIVEN)
    assert third["report_id"] != first["report_id"]
    shown = reader.answer("reports.show", {"id": "s1"})
    assert shown["report"]["task_summary"] == "Found the leak"
    assert len(shown["versions"]) == 3


def test_two_who_publish_the_same_at_once_make_one_report(ledger: Ledger, reader: Reader, alice: Author) -> None:
    record(ledger)
    stale = {
        "sessions.show": reader.answer("sessions.show", {"id": "s1"}),
        "reports.accomplished": {"items": []},
    }

    def before_either(query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if query == "reports.show":
            raise Refused("NOT_FOUND", "no report yet")
        return stale[query]

    one, other = (publish_report(alice, before_either, "s1", GIVEN) for _ in range(2))
    assert one["report_id"] == other["report_id"]
    assert len(reader.answer("reports.show", {"id": "s1"})["versions"]) == 1


def test_a_report_can_be_made_after_the_session_ended(ledger: Ledger, reader: Reader, alice: Author) -> None:
    record(ledger)
    ledger.emit("alice", "session/s1", session.SessionEnded(summary="Over"))
    assert publish_report(alice, reader.answer, "s1", GIVEN)["report_type"] == "complete"


def test_a_session_unknown_or_anothers_is_refused_before_anything_is_stored(
    ledger: Ledger, reader: Reader, alice: Author
) -> None:
    record(ledger, "his", owner="bob")
    before = ledger.head()
    for name, code in (("none", "NOT_FOUND"), ("his", "NOT_AUTHORIZED")):
        with pytest.raises(Refused) as caught:
            publish_report(alice, reader.answer, name, ReportInputs(task_summary="x", key_findings=[LONG]))
        assert caught.value.code == code
    assert ledger.head() == before
    assert ledger.log.blobs.find(blob_ref(LONG)) is None


def test_a_postflight_without_a_preflight_is_a_planning_report_that_nobody_can_assess(
    ledger: Ledger, reader: Reader, alice: Author
) -> None:
    ledger.emit("alice", "session/s1", session.SessionStarted())
    after = session.AssessmentRecorded(phase="POSTFLIGHT", vectors=session.Vectors(know=0.9))
    ledger.emit("alice", "session/s1", after)
    made = publish_report(alice, reader.answer, "s1", GIVEN)
    data = ledger.event(made["event_index"]).data
    assert (data.report_type, data.calibration_status) == ("planning", "not_assessable")


@pytest.mark.parametrize(("count", "warns"), [(1, True), (2, True), (3, False), (5, False), (6, True)])
def test_fewer_than_three_or_more_than_five_findings_are_a_warning(
    ledger: Ledger, reader: Reader, alice: Author, count: int, warns: bool
) -> None:
    record(ledger)
    given = ReportInputs(task_summary="Did it", key_findings=[f"Finding {n}" for n in range(count)])
    assert bool(publish_report(alice, reader.answer, "s1", given)["warnings"]) is warns


def test_findings_of_ten_kilobytes_and_in_chinese_are_kept_whole(
    ledger: Ledger, reader: Reader, alice: Author, local_client: LocalClient
) -> None:
    record(ledger)
    findings = [f"Finding {n}: " + "the pool stays open. " * 520 for n in range(4)]
    findings += ["连接池在超时之后仍然没有关闭。" * 700, "short and whole"]
    made = publish_report(alice, reader.answer, "s1", ReportInputs(task_summary="Did it", key_findings=findings))
    data = ledger.event(made["event_index"]).data
    assert len(encode_canonical(data)) <= data_size_max_bytes
    assert data.key_findings[-1] == "short and whole"
    assert [one.path for one in data.long_texts] == [f"/key_findings/{place}" for place in range(5)]
    for kept, whole in zip(data.key_findings[:4], findings[:4], strict=True):
        assert kept.endswith("…")
        assert whole.startswith(kept.removesuffix("…"))
        assert whole[len(kept) - 1 : len(kept)] in {" ", ""}
    shown = reader.answer("reports.show", {"id": "s1"})["report"]
    whole = restored(shown, local_client.get_blob, below=None)
    assert whole["key_findings"] == [finding.strip() if "pool" in finding else finding for finding in findings]
    assert whole["long_texts"] == []


def test_a_report_that_fits_is_not_shortened_anywhere(ledger: Ledger, reader: Reader, alice: Author) -> None:
    record(ledger)
    findings = ["word " * 2_000, "字" * 3_000]
    made = publish_report(alice, reader.answer, "s1", ReportInputs(task_summary="Did it", key_findings=findings))
    data = ledger.event(made["event_index"]).data
    assert data.long_texts == []
    assert data.key_findings == [text.strip() for text in findings]


def test_too_many_texts_for_an_entry_are_refused(ledger: Ledger, reader: Reader, alice: Author) -> None:
    record(ledger)
    given = ReportInputs(task_summary="Did it", key_findings=[f"finding number {n} of very many" for n in range(3_000)])
    with pytest.raises(Refused) as caught:
        publish_report(alice, reader.answer, "s1", given)
    assert caught.value.code == "TOO_LARGE"


def test_a_session_of_many_findings_is_reported_with_the_weightiest_and_says_so(
    ledger: Ledger, reader: Reader, alice: Author
) -> None:
    record(ledger)
    for number in range(40):
        impact = 0.9 if number == 7 else 0.1
        ledger.emit("alice", "session/s1", session.FindingLogged(finding=f"Finding {number}", impact=impact))
    made = publish_report(alice, reader.answer, "s1")
    assert ledger.event(made["event_index"]).data.key_findings[:2] == ["Finding 7", "Finding 39"]
    assert any("8 more findings" in said for said in made["warnings"])
    learned = made["markdown"].partition("## What I Learned")[2].partition("##")[0]
    assert learned.endswith("\n\n*8 more in the session, not in this report.*\n\n")


@pytest.mark.parametrize("given", [{"key_findings": "one text"}, {"key_findings": [1]}, {"task_summary": 7}])
def test_inputs_of_another_type_are_refused(given: dict[str, Any]) -> None:
    from deedbook.consumers.sessions.generator import inputs_of

    names = ("task_summary", "key_findings", "remaining_unknowns", "next_session_context", "artifacts_created")
    with pytest.raises(Refused) as caught:
        inputs_of(*(dict.fromkeys(names) | given).values())
    assert caught.value.code == "INVALID_FIELD"
