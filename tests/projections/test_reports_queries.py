"""Queries about reports: one, many, by pattern, by agent, over time, and with tasks that were finished since."""

from __future__ import annotations

import pytest
from building import START_MS

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff, session
from deedbook.ledger.events.reasoning import Counts, ReasoningExtended, ReasoningStarted, Step
from deedbook.ledger.events.session import Deltas
from deedbook.projections.reports import trends

TASKS = ["Test the login", "Validation of 登入", "Write the docs", "TESTING the pool", "Review"]


@pytest.fixture
def reports(ledger):
    """Five sessions of bob with a report each, a second apart."""
    for number, task in enumerate(TASKS):
        ledger.record_session(f"s{number}")
        ledger.clock.advance(1)
        ledger.report(f"s{number}", task_summary=task, ai_id="minimax" if number % 2 else "claude")
    return ledger


def tasks(answer):
    """Return the tasks of a page."""
    return [report["task_summary"] for report in answer["reports"]]


def refused(reader, query, arguments):
    """Return the code with which a query is refused."""
    with pytest.raises(Refused) as found:
        reader.answer(query, arguments)
    return found.value.code


def pages(reader, **asked):
    """Return all pages of a list, by following its cursor."""
    found, cursor = [], None
    while True:
        page = reader.answer("reports.list", asked | {"after": cursor})
        found.append(page)
        cursor = page["next"]
        if cursor is None:
            return found


def test_a_list_is_newest_first_and_counts_all(reports, reader):
    page = reader.answer("reports.list", {"limit": 2})
    assert tasks(page) == ["Review", "TESTING the pool"]
    assert page["total_found"] == 5
    assert "markdown" not in page["reports"][0]


def test_a_pattern_filters_before_the_limit_and_ignores_case(reports, reader):
    page = reader.answer("reports.list", {"task_pattern": "test|validation", "limit": 1})
    assert (tasks(page), page["total_found"]) == (["TESTING the pool"], 3)
    assert reader.answer("reports.list", {"task_pattern": "登入$"})["total_found"] == 1
    assert reader.answer("reports.list", {"task_pattern": "^review$"})["total_found"] == 1


def test_a_pattern_looks_into_findings(reports, reader):
    reports.record_session("git")
    reports.report("git", task_summary="Nothing special", key_findings=["Git keeps notes on the one commit there is"])
    page = reader.answer("reports.list", {"task_pattern": "git keeps"})
    assert tasks(page) == ["Nothing special"]


@pytest.mark.parametrize("pattern", [None, "test"])
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_hold_everything_once(reports, reader, pattern, limit):
    found = pages(reader, limit=limit, task_pattern=pattern)
    listed = [task for page in found for task in tasks(page)]
    expected = [task for task in reversed(TASKS) if pattern is None or pattern in task.lower()]
    assert listed == expected
    assert {page["total_found"] for page in found} == {len(expected)}


def test_filters_join(reports, reader):
    since = START_MS + 3_000
    assert tasks(reader.answer("reports.list", {"ai_id": "minimax"})) == ["TESTING the pool", "Validation of 登入"]
    assert reader.answer("reports.list", {"since": since})["total_found"] == 3
    page = reader.answer("reports.list", {"since": since, "ai_id": "claude", "task_pattern": "docs"})
    assert tasks(page) == ["Write the docs"]
    assert reader.answer("reports.list", {"author": "alice"})["total_found"] == 0


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)", "(?<!a)b", "(", "a{2000}", "(.{0,1000}){100}", "a{0,1000}" * 9])
def test_what_re2_lacks_or_would_grow_too_large_is_refused(reports, reader, pattern):
    assert refused(reader, "reports.list", {"task_pattern": pattern}) == "PATTERN_NOT_SUPPORTED"


def test_a_pattern_that_is_a_bomb_elsewhere_is_answered(reports, reader):
    reports.report("s0", task_summary="a" * 30_000 + "b")
    for pattern in (r"^(a+)+$", r"^(a|a)*$", r"^(a|aa)+$", r"(x+x+)+y"):
        assert reader.answer("reports.list", {"task_pattern": pattern})["total_found"] == 0


def test_a_pattern_of_more_than_a_thousand_characters_is_refused(reports, reader):
    assert refused(reader, "reports.list", {"task_pattern": "a" * 1001}) == "INVALID_FIELD"


def test_one_report_is_shown_whole_with_all_its_versions(reports, reader):
    reports.report("s0", task_summary="Second")
    shown = reader.answer("reports.show", {"id": "s0"})
    assert shown["report"]["task_summary"] == "Second"
    assert "**Task:** Second" in shown["report"]["markdown"]
    assert '"task":"Second"' in shown["report"]["compressed_json"]
    first, second = shown["versions"]
    assert first["event_index"] < second["event_index"]
    for version in (first["report_id"], first["report_id"][:20], first["report_id"][6:20]):
        assert reader.answer("reports.show", {"id": "s0", "version": version})["report"]["task_summary"] == TASKS[0]
    assert reader.answer("reports.show", {"id": first["report_id"]})["report"]["task_summary"] == TASKS[0]
    assert reader.answer("reports.show", {"id": first["report_id"][6:19]})["report"]["task_summary"] == TASKS[0]


def test_a_report_that_is_not_there_is_refused(reports, reader):
    reports.emit("bob", "session/bare", session.SessionStarted(task="t"))
    other = reader.answer("reports.show", {"id": "s1"})["report"]["report_id"]
    assert refused(reader, "reports.show", {"id": "bare"}) == "NOT_FOUND"
    assert refused(reader, "reports.show", {"id": "nothing"}) == "NOT_FOUND"
    assert refused(reader, "reports.show", {"id": "0" * 12}) == "NOT_FOUND"
    assert refused(reader, "reports.show", {"id": "s"}) == "REF_AMBIGUOUS"
    assert refused(reader, "reports.show", {"id": "s0", "version": other}) == "NOT_FOUND"
    assert refused(reader, "reports.show", {"id": "s0", "version": "latest"}) == "NOT_FOUND"


def test_sessions_to_resume_are_there_without_a_report_too(reports, reader):
    reports.emit("bob", "session/bare", session.SessionStarted(task="Not reported"))
    page = reader.answer("reports.sessions", {"limit": 2})
    assert [(one["session_id"], one["report"] is None) for one in page["items"]] == [("bare", True), ("s4", False)]
    assert page["items"][0]["ai_id"] == "bob"
    assert page["items"][1]["report"]["task_summary"] == "Review"
    assert page["total"] == 6
    assert reader.answer("reports.sessions", {"after": page["next"]})["items"][0]["session_id"] == "s3"
    assert reader.answer("reports.sessions", {"ai_id": "bob"})["total"] == 1
    assert reader.answer("reports.sessions", {"ai_id": "bob-1", "author": "bob"})["total"] == 5
    (found,) = reader.answer("reports.sessions", {"id": "bar"})["items"]
    assert (found["session_id"], found["status"]) == ("bare", "open")


def test_calibration_is_told_per_agent_over_time_with_its_direction(ledger, reader):
    changes = [(0.1, -0.5, "overconfident"), (0.2, -0.5, "overconfident"), (0.3, -0.3, "well_calibrated")]
    for number, (know, uncertainty, status) in enumerate(changes):
        ledger.record_session(f"s{number}")
        deltas = Deltas(know=know, uncertainty=uncertainty)
        ledger.report(f"s{number}", ai_id="minimax", epistemic_deltas=deltas, calibration_status=status)
    ledger.record_session("blind")
    ledger.report("blind", ai_id="other", epistemic_deltas=Deltas(), calibration_status="not_assessable")
    minimax, other = reader.answer("reports.calibration")["items"]
    assert [(one["dk"], one["du"], one["bias"], one["status"]) for one in minimax["points"]] == [
        (0.1, 0.5, -0.4, "overconfident"),
        (0.2, 0.5, -0.3, "overconfident"),
        (0.3, 0.3, 0.0, "well_calibrated"),
    ]
    assert minimax["counts"] == {
        "well_calibrated": 1,
        "overconfident": 2,
        "underconfident": 0,
        "not_assessable": 0,
    }
    assert minimax["bias"] == -0.2333
    assert minimax["meaning"] == (
        "Uncertainty fell by 0.23 more than knowledge grew on average: the agent tends to be overconfident."
    )
    assert (other["bias"], other["assessed"], other["total"]) == (None, 0, 1)
    assert "nothing can be said" in other["meaning"]
    (only,) = reader.answer("reports.calibration", {"ai_id": "minimax", "limit": 1})["items"]
    assert (len(only["points"]), only["points"][0]["session_id"], only["total"]) == (1, "s2", 3)


def test_a_trajectory_follows_each_vector_from_its_last_assessment(ledger, reader):
    assess = [
        ("PREFLIGHT", {"know": 0.2, "uncertainty": 0.8}),
        ("CHECK", {"know": 0.5}),
        ("POSTFLIGHT", {"know": 0.7, "uncertainty": 0.1, "do": 1.0}),
    ]
    data = [session.AssessmentRecorded(phase=phase, vectors=session.Vectors(**vectors)) for phase, vectors in assess]
    ledger.emit_all("bob", "session/s", session.SessionStarted(), *data)
    found = reader.answer("sessions.trajectory", {"id": "s"})
    assert [one["changes"] for one in found["points"]] == [{}, {"know": 0.3}, {"know": 0.2, "uncertainty": -0.7}]
    assert found["deltas"] == {"know": 0.5, "uncertainty": -0.7, "overall_confidence": 0.6}
    assert (found["report_type"], found["calibration_status"], found["bias"]) == ("complete", "well_calibrated", -0.2)


def test_a_trajectory_without_an_end_is_not_assessable(ledger, reader):
    ledger.record_session("s1")
    found = reader.answer("sessions.trajectory", {"id": "s1"})
    assert (found["report_type"], found["calibration_status"], found["bias"]) == (
        "preflight_only",
        "not_assessable",
        None,
    )
    assert found["deltas"] == {}


def work(ledger, name, *, tasks_done):
    """Let bob work through a handoff of two tasks and a criterion."""
    ledger.approve(name, ledger.hand_over(name, tasks=["one", "two"], criteria=["green"]))
    stream = f"handoff/{name}"
    ledger.emit("bob", stream, handoff.HandoffClaimed())
    for position in tasks_done:
        ledger.emit("bob", stream, handoff.HandoffTaskChecked(position=position))


def test_what_was_finished_during_the_session_is_accomplished_and_nothing_else(ledger, reader):
    work(ledger, "before", tasks_done=[0])
    ledger.emit("bob", "session/s", session.SessionStarted(task="t"))
    work(ledger, "h", tasks_done=[0, 1])
    stream = "handoff/h"
    ledger.emit("bob", stream, handoff.HandoffTaskChecked(position=1, checked=False))
    ledger.emit("bob", stream, handoff.HandoffCriterionChecked(position=0, evidence="make test"))
    ledger.emit("bob", stream, handoff.HandoffCriterionChecked(position=0, checked=False))
    open_still = reader.answer("reports.accomplished", {"id": "s"})
    assert open_still["items"] == ["task done: one (handoff h)"]
    ledger.clock.advance(1)  # otherwise it would be the same event again
    ledger.emit("bob", stream, handoff.HandoffCriterionChecked(position=0, evidence="make test"))
    ledger.emit("bob", stream, handoff.HandoffCompleted(summary="all of it"))
    ledger.emit("bob", "session/s", session.SessionEnded())
    ledger.emit("bob", "handoff/before", handoff.HandoffTaskChecked(position=1))
    found = reader.answer("reports.accomplished", {"id": "s"})
    assert found["items"] == [
        "task done: one (handoff h)",
        "criterion met: green (make test) (handoff h)",
        "completed: all of it (handoff h)",
    ]


def test_calibration_says_what_stands_behind_a_session_beside_what_it_says_of_itself(ledger, reader):
    ledger.emit("bob", "session/s", session.SessionStarted(task="t"))
    ledger.clock.advance(1)
    (wrong, right) = (ledger.emit("bob", "session/s", session.FindingLogged(finding=text)).id for text in "fg")
    for tool in ("pytest -q", "grep", "make test", "attestation"):
        ledger.emit("bob", "session/s", session.ToolUsed(tool=tool))
    for name in ("h", "open"):
        work(ledger, name, tasks_done=[0])
        ledger.emit("bob", f"handoff/{name}", handoff.HandoffCriterionChecked(position=0, evidence="make test"))
        ledger.emit("bob", f"handoff/{name}", handoff.HandoffCriterionChecked(position=0, evidence="and make check"))
    ledger.emit("bob", "handoff/h", handoff.HandoffCompleted(summary="all of it"))
    row = reader.answer("handoffs.show", {"id": "h"})
    ledger.emit("rita", "handoff/h", handoff.HandoffVerified(result=row["result"]))
    ledger.emit("bob", "reasoning/r", ReasoningStarted(task="why", session="s"))
    ledger.emit("bob", "reasoning/q", ReasoningStarted(task="why not", session="s"))
    ledger.emit("bob", "reasoning/q", ReasoningExtended(steps=[Step(step_number=1, type="observation", content="c")]))
    ledger.validate("q", reader.answer("reasoning.show", {"id": "q"})["ref"])
    ledger.report("s", ai_id="bob")
    ledger.emit("bob", "session/s", session.FindingRetracted(target=wrong, reason="no"))
    ledger.clock.advance(1)
    ledger.emit("bob", "session/s", session.FindingRetracted(target=wrong, reason="once more"))
    grounds = reader.answer("reports.show", {"id": "s"})["grounds"]
    counts = {"criteria": 2, "verified": 1, "findings": 2, "retracted": 1, "tests": 2, "reasonings": 2, "stand": 1}
    text = (
        "evidence: 1 of 2 met criteria verified by a reviewer, 1 of 2 findings and dead ends retracted, tests used: 2, "
        "1 of 2 reasonings stand"
    )
    assert grounds == counts | {"text": text}
    (agent,) = reader.answer("reports.calibration", {})["items"]
    assert (agent["grounds"], agent["points"][0]["grounds"]) == (grounds, grounds)
    unlinked = Counts(**dict.fromkeys(Counts.__struct_fields__, 0) | {"inferences_unlinked": 1})
    ledger.validate("q", reader.answer("reasoning.show", {"id": "q"})["ref"], counts=unlinked)
    assert reader.answer("reports.show", {"id": "s"})["grounds"]["stand"] == 0
    ledger.record_session("quiet")
    ledger.report("quiet", ai_id="bob")
    (agent,) = reader.answer("reports.calibration", {"limit": 1})["items"]
    assert agent["grounds"]["text"] == "evidence: 0 of 2 findings and dead ends retracted"
    assert right != wrong


def test_grounds_read_of_the_log_only_what_lies_between_a_sessions_start_and_end(reader):
    reader.answer("reports.calibration", {})
    with reader.store.reading() as reading:
        steps = [row["detail"] for row in reading.rows(f"EXPLAIN QUERY PLAN {trends._TICKED}", (0, 9))]
    assert "SEARCH l USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)" in steps
    assert not [step for step in steps if step.startswith("SCAN")]


@pytest.mark.parametrize(
    ("entry", "correct", "field"),
    [
        (session.FindingLogged("the pool leaks"), lambda id_: session.FindingRetracted(id_, "no"), "key_findings"),
        (session.UnknownLogged("who closes it"), lambda id_: session.UnknownResolved(id_, "10"), "remaining_unknowns"),
        (session.DeadEndLogged("a pool", "it leaks"), lambda id_: session.DeadEndRetracted(id_, "no"), "key_findings"),
    ],
)
def test_text_that_is_stated_again_is_not_corrected(ledger, reader, entry, correct, field):
    """The text counts as retracted only after each record with this text was retracted."""
    ledger.emit("bob", "session/s", session.SessionStarted())
    wrong = ledger.emit("bob", "session/s", entry)
    ledger.clock.advance(1)
    right = ledger.emit("bob", "session/s", entry)
    ledger.report("s", **{field: [getattr(entry, entry.__struct_fields__[0])]})

    def corrections():
        return len(reader.answer("reports.show", {"id": "s"})["report"]["corrections"])

    ledger.emit("bob", "session/s", correct(wrong.id))
    assert corrections() == 0
    ledger.emit("bob", "session/s", correct(right.id))
    assert corrections() == 2
