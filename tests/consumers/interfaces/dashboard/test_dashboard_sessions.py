from __future__ import annotations

import re
from typing import TYPE_CHECKING

from given_session import VECTORS

from deedbook.consumers.sessions.generator import ReportInputs
from deedbook.consumers.sessions.report import publish_report
from deedbook.ledger.events.handoff import HandoffBlocked
from deedbook.ledger.events.reasoning import ReasoningStarted
from deedbook.ledger.events.session import (
    AssessmentRecorded,
    DeadEndLogged,
    FindingLogged,
    FindingRetracted,
    SessionEnded,
    SessionStarted,
    ToolUsed,
    UnknownLogged,
    Vectors,
)
from deedbook.ledger.events.subject import SubjectErased

if TYPE_CHECKING:
    from looking import Viewer

    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.events.fields import EventData

EVIL = '<b onclick="x()">evil</b> \u202e **bold** [a](javascript:alert(1))'


def log(viewer: Viewer, *events: EventData, name: str = "s1", author: str = "bob") -> list[Accepted]:
    return [viewer.ledger.emit(author, f"session/{name}", data) for data in events]


def assess(viewer: Viewer, *phases: str) -> None:
    for phase in phases:
        log(viewer, AssessmentRecorded(phase=phase, vectors=Vectors(**VECTORS[phase]), reasoning=EVIL))


def report(viewer: Viewer) -> None:
    """Publish the report of s1 as bob."""
    ledger = viewer.dashboard.ledger
    inputs = ReportInputs(task_summary="found it", key_findings=["one", EVIL])
    publish_report(ledger.author("bob"), lambda query, asked: ledger.ask(query, **asked), "s1", inputs)


def test_vectors_before_and_after_with_what_was_assessed_between(viewer: Viewer) -> None:
    log(viewer, SessionStarted(task="Find the leak"))
    assess(viewer, "PREFLIGHT", "CHECK", "POSTFLIGHT")
    data = viewer.data("/s/s1")
    vectors = {one["name"]: one for one in data["vectors"]}
    assert len(vectors) == 13
    know = vectors["know"]
    assert (know["before"], know["between"], know["after"], know["change"]) == (0.7, [0.8], 0.95, 0.25)
    assert (vectors["impact"]["before"], vectors["impact"]["change"]) == (None, None)
    assert [name for name, one in vectors.items() if one["is_inverted"]] == ["uncertainty"]
    page = viewer.page("/s/s1")
    assert "Knowledge grew by 0.25, and uncertainty fell by 0.45. The two agree within 0.20." in page
    assert "dk = +0.25, du = +0.45, |dk − du| = 0.20 ≤ 0.20" in page
    assert page.count("not assessed") >= 18  # nine vectors, in the picture and in the table


def test_a_session_without_a_preflight_or_without_anything_says_so(viewer: Viewer) -> None:
    log(viewer, SessionStarted(task="t"))
    page = viewer.page("/s/s1")
    assert "Nothing was assessed before or after" in page
    assert "There is no report of this session yet" in page
    assess(viewer, "POSTFLIGHT")
    assert "there is no PREFLIGHT to compare with" in viewer.page("/s/s1")
    assert viewer.page("/s/s1").count("no PREFLIGHT<") == 2 * len(VECTORS["POSTFLIGHT"])


def test_a_vector_without_a_change_says_which_assessment_it_lacks(viewer: Viewer) -> None:
    log(viewer, SessionStarted(task="t"))
    assess(viewer, "PREFLIGHT")
    page = viewer.page("/s/s1")
    assert page.count("no POSTFLIGHT yet<") == 2 * len(VECTORS["PREFLIGHT"])  # in the picture and in the table
    assert [f'data-label="{name}"' in page for name in ("before", "between", "after", "change")] == [True] * 4
    log(viewer, AssessmentRecorded(phase="POSTFLIGHT", vectors=Vectors(know=0.9, impact=0.5)))
    missing = {vector["name"]: vector["missing"] for vector in viewer.data("/s/s1")["vectors"]}
    assert (missing["know"], missing["uncertainty"]) == ("", "not assessed after")
    assert (missing["impact"], missing["density"]) == ("not assessed before", "not assessed")


def test_what_was_taken_back_is_struck(viewer: Viewer) -> None:
    log(viewer, SessionStarted(task="t"))
    finding = log(viewer, FindingLogged(finding="the pool leaks", evidence=["src/pool.py:4"]))[0]
    log(viewer, FindingRetracted(target=finding.id, reason="it was the test's own"))
    page = viewer.page("/s/s1")
    assert "the pool leaks</span></del>" in page
    assert "it was the test&#39;s own" in page


def test_markup_stays_text_in_every_field(viewer: Viewer) -> None:
    log(viewer, SessionStarted(task=EVIL, ai_id="x<i>"), FindingLogged(finding=EVIL, topic="a<i>"))
    log(viewer, UnknownLogged(unknown=EVIL), DeadEndLogged(approach=EVIL, why_failed=EVIL))
    log(viewer, ToolUsed(tool="t<i>", purpose=EVIL), FindingLogged(finding="长" * 6000))
    assess(viewer, "PREFLIGHT", "POSTFLIGHT")
    viewer.ledger.write_keys()
    report(viewer)
    for path in ("/s/s1", "/a/bob"):
        page = viewer.page(path)
        assert "<b onclick" not in page
        assert "<i>" not in page
        assert "\u202e" not in page
        assert 'href="javascript:' not in page
    page, data = viewer.page("/s/s1"), viewer.data("/s/s1")
    assert data["report"]["report"]["key_findings"] == ["one", EVIL]
    assert "<h3>Summary</h3>" in page  # nothing was accomplished in a handoff
    # Confidence grows when uncertainty falls.
    assert 'UNCERTAINTY: 0.20</span> <span class="meta">confidence <span class="mono">+0.45</span>' in page
    assert {vector["name"]: vector["change"] for vector in data["vectors"]}["uncertainty"] == -0.45


def test_handoffs_that_came_of_a_session_are_those_created_or_completed_while_it_ran(viewer: Viewer) -> None:
    viewer.ledger.hand_over("before", sender="bob", to="alice")
    log(viewer, SessionStarted(task="t"))
    viewer.ledger.hand_over("within", sender="bob", to="alice")
    viewer.ledger.hand_over("another")
    viewer.ledger.finish("done")
    log(viewer, SessionEnded())
    viewer.ledger.hand_over("after", sender="bob", to="alice")
    assert {one["id"] for one in viewer.data("/s/s1")["handoffs"]} == {"within", "done"}
    assert "within" in viewer.page("/s/s1")
    log(viewer, SessionStarted(task="u"), name="s2")
    viewer.ledger.hand_over("x1", sender="bob", to="alice", title="Close the pool")
    viewer.ledger.emit("bob", "reasoning/r1", ReasoningStarted(task="Why a leak?", session="s2"))
    page = viewer.page("/s/s2")
    assert re.search('href="/h/x1">Close the pool</a>', page)
    assert re.search(r'href="/r/r1">Why a leak\?</a>', page)


def test_who_is_at_work_stands_first(viewer: Viewer) -> None:
    data = viewer.ledger.hand_over("h")
    viewer.ledger.approve("h", data)
    viewer.ledger.claim("h", lease_seconds=600)
    shown = viewer.data("/agents")["agents"]
    assert [(one["name"], one["now"]) for one in shown][:1] == [("bob", "at work")]
    assert [one["id"] for one in shown[0]["handoffs"]] == ["h"]
    assert {one["name"] for one in shown if one["now"] == "at work"} == {"bob"}
    viewer.ledger.clock.advance(3600)
    viewer.ledger.emit("alice", "session/x", SessionStarted())
    assert {one["name"] for one in viewer.data("/agents")["agents"] if one["now"] == "at work"} == {"alice"}
    assert "lease ran out" in viewer.page("/agents")
    other = viewer.ledger.hand_over("without")
    viewer.ledger.approve("without", other)
    viewer.ledger.claim("without")
    viewer.ledger.clock.advance(86_400)
    viewer.enter()
    # An imported claim of yesterday does not count as work.
    assert not any(one["now"] == "at work" for one in viewer.data("/agents")["agents"])


def test_an_agent_with_work_is_never_called_idle(viewer: Viewer) -> None:
    viewer.ledger.approve("h", viewer.ledger.hand_over("h"))
    viewer.ledger.claim("h")
    viewer.ledger.emit("alice", "session/x", SessionStarted())
    viewer.ledger.clock.advance(3600)
    viewer.enter()
    shown = viewer.data("/agents")
    states = {one["name"]: one["now"] for one in shown["agents"]}
    assert states == {"alice": "quiet", "bob": "quiet", "rita": "idle", "root": "idle"}
    assert (shown["at_work"], shown["agents_total"]) == (0, 2)  # rita is a human, root an admin
    assert "0 of 2 agents at work" in viewer.page("/agents")
    viewer.ledger.emit("bob", "handoff/h", HandoffBlocked(reason="no image"))
    assert {one["name"]: one["now"] for one in viewer.data("/agents")["agents"]} == states | {"bob": "blocked"}


def test_an_agent_with_its_keys_and_calibration_over_its_sessions(viewer: Viewer) -> None:
    viewer.ledger.write_keys()
    log(viewer, SessionStarted(task="t"), FindingLogged(finding="f"))
    assess(viewer, "PREFLIGHT", "POSTFLIGHT")
    report(viewer)
    data = viewer.data("/a/bob")
    (judged,) = data["calibration"]
    assert [point["bias"] for point in judged["points"]] == [-0.2]
    page = viewer.page("/a/bob")
    assert '<circle class="ok"' in page
    assert ">-0.20<" in page  # the same number, as text
    assert data["agent"]["keys"][0]["state"] == "valid"
    assert viewer.data("/a/alice")["calibration"] == []  # reports of another agent do not count as hers


def test_an_agent_that_did_nothing_and_one_that_is_not_there(viewer: Viewer) -> None:
    viewer.ledger.register("carol")
    page = viewer.page("/a/carol")
    assert ("No report yet" in page, "bias of each report" in page) == (True, False)
    assert viewer.data("/a/carol")["events"]["total"] == 0
    assert viewer.get("/a/nobody").status_code == 404


def test_a_session_that_nobody_ended_lasts_until_its_authors_next_one(viewer: Viewer) -> None:
    log(viewer, SessionStarted(task="first"), author="alice")
    viewer.ledger.hand_over("of-first")
    log(viewer, SessionStarted(task="second"), name="s2", author="alice")
    viewer.ledger.hand_over("of-second")
    assert [one["id"] for one in viewer.data("/s/s1")["handoffs"]] == ["of-first"]
    assert [one["id"] for one in viewer.data("/s/s2")["handoffs"]] == ["of-second"]


def test_report_begins_with_the_learnings_and_folds_the_single_tasks(viewer: Viewer) -> None:
    viewer.ledger.write_keys()
    log(viewer, SessionStarted(task="t"))
    viewer.ledger.finish("done", tasks=["one"], criteria=["c"])
    report(viewer)
    assert "<h3>Summary</h3>" not in viewer.page("/s/s1")
    data = viewer.data("/s/s1")
    assert data["ticked"] == ["criterion met: c (handoff done)"]
    page = viewer.page("/s/s1").partition('id="report-title"')[2]
    heads = [
        page.index(text) for text in ("Learned", "Accomplished", "1 ticked by the author: done tasks and met criteria<")
    ]
    assert heads == sorted(heads)
    assert page.index("criterion met: c") > heads[2]
    assert 'criterion met: c (handoff <a href="/h/done" title="done">done</a>)' in page


def test_sealed_texts_are_named_and_then_said_to_be_erased(viewer: Viewer) -> None:
    ref = viewer.ledger.put_blob("bob", b"any bytes")
    log(viewer, SessionStarted(task="x"), FindingLogged(finding=f"sealed:carol:{ref}/0"))
    assert "[sealed for carol]" in viewer.page("/s/s1")
    assert "sealed:carol" not in viewer.page("/s/s1")
    viewer.ledger.emit("root", "subject/carol", SubjectErased(reason="She asked for it"))
    assert "by root: She asked for it]" in viewer.page("/s/s1")
