"""The page of a week, and the lists: events with time and author; imported history at its claimed time."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from given_session import VECTORS

from deedbook.consumers.interfaces.dashboard.pages.lists import LISTS
from deedbook.consumers.interfaces.dashboard.pages.week import rows_max
from deedbook.consumers.sessions.generator import ReportInputs
from deedbook.consumers.sessions.report import publish_report
from deedbook.ledger.events import decision, handoff, reasoning, review, session
from deedbook.ledger.events.imported import RecordImported

if TYPE_CHECKING:
    from looking import Viewer

    from deedbook.ledger.admission.decide import Accepted

SPRING = {"since": "2025-03-02", "until": "2025-03-08"}
OLD_REPORT = {
    "report_type": "complete",
    "ai_id": "ghost",
    "task_summary": "An old report",
    "key_findings": ["old"],
    "calibration_status": "not_assessable",
}
EVIL = '<b onclick="x()">evil</b> \u202e'


def log(viewer: Viewer, name: str, *data: Any, author: str = "bob") -> list[Accepted]:
    return [viewer.ledger.emit(author, f"session/{name}", each) for each in data]


def claim(kind: str, mapped: dict[str, Any], **fields: Any) -> RecordImported:
    """Return an imported record that claims to be ghost's, of 4 March 2025."""
    fields = {"claimed_author": "ghost", "claimed_at": "2025-03-04T05:06:07Z"} | fields
    return RecordImported(
        original="blake3:" + "7" * 64, source="notes", format="notes/1", mapped_kind=kind, mapped=mapped, **fields
    )


def report(viewer: Viewer, name: str, **inputs: Any) -> None:
    """Publish bob's report of a session."""
    ledger = viewer.dashboard.ledger
    publish_report(ledger.author("bob"), lambda query, asked: ledger.ask(query, **asked), name, ReportInputs(**inputs))


def work(viewer: Viewer) -> None:
    """Let bob learn something, fail, ask and answer, decide and report, and hand over two things."""
    log(viewer, "s1", session.SessionStarted(task="Find the leak", ai_id="model"))
    for phase in ("PREFLIGHT", "POSTFLIGHT"):
        log(viewer, "s1", session.AssessmentRecorded(phase=phase, vectors=session.Vectors(**VECTORS[phase])))
    asked, *_ = log(viewer, "s1", session.UnknownLogged(unknown="Who closes the pool?"))
    log(
        viewer,
        "s1",
        session.FindingLogged(finding="The pool is never closed", topic="pool"),
        session.FindingLogged(finding=EVIL),
        session.DeadEndLogged(approach="Close it twice", why_failed="it hangs"),
        session.UnknownLogged(unknown="Does the cache leak?"),
        session.UnknownResolved(target=asked.id, answer="nobody"),
    )
    report(viewer, "s1", task_summary="found it", key_findings=["one"])
    viewer.ledger.emit("bob", "decision/d1", decision.DecisionMade(text="One pool a process", paths=["pool.py"]))
    viewer.ledger.finish("done", title="Close the pool")
    viewer.ledger.hand_over("waiting", title="Close the cache")
    viewer.ledger.emit("bob", "reasoning/r1", reasoning.ReasoningStarted(task="Why a leak?", ai_id="model"))
    viewer.ledger.emit("bob", "review/v1", review.ReviewRequested(question="May it go on?", rule="high_impact"))


def history(viewer: Viewer) -> None:
    """Let bob import ghost's work of March 2025."""
    log(
        viewer,
        "old",
        claim("finding.logged", {"finding": "The old pool leaked"}),
        claim("report.generated", OLD_REPORT),
    )
    content = {"title": "An old handoff", "to": "bob", "reviewer": "rita"}
    viewer.ledger.emit("bob", "handoff/old", claim("handoff.created", content, claims={"status": "done"}))


@pytest.fixture(autouse=True)
def present(viewer: Viewer) -> None:
    """Set the clock of the test to that of this machine, which dates reports."""
    viewer.ledger.clock.now_ms = time.time_ns() // 1_000_000


@pytest.fixture
def lived(viewer: Viewer) -> Viewer:
    work(viewer)
    history(viewer)
    return viewer


def totals(data: dict[str, Any]) -> dict[str, int]:
    return {part["name"]: part["total"] for part in data["totals"] if part["total"]}


def titles(data: dict[str, Any], name: str) -> list[str]:
    (part,) = (part for part in data["sections"] if part["name"] == name)
    return [row["title"] for row in part["rows"]]


def test_the_last_seven_days_have_all_kinds_of_work_and_each_row_leads_to_its_thing(lived: Viewer) -> None:
    data = lived.data("/week")
    assert totals(data) == {
        "learned": 2,
        "failed": 1,
        "open": 1,
        "closed": 1,
        "done": 1,
        "waiting": 1,
        "judged": 1,
        "decided": 1,
        "reported": 1,
    }
    assert titles(data, "learned") == [EVIL, "The pool is never closed"]
    assert titles(data, "open") == ["Does the cache leak?"]
    assert (titles(data, "closed"), titles(data, "done")) == (["Who closes the pool?"], ["Close the pool"])
    today = datetime.fromtimestamp(lived.ledger.clock() / 1000, UTC).date()
    assert data["days"] == [(today - timedelta(days=6)).isoformat(), today.isoformat()]
    rows = [row for part in data["sections"] for row in part["rows"]]
    for row in rows:
        page = lived.page(row["path"])
        assert not row["part"] or f'id="{row["part"]}"' in page, row
    assert {row["agent"] for row in rows} == {"alice", "bob", "rita"}
    (verdict,) = (row for row in rows if row["type"] == "verdict")
    assert (verdict["title"], verdict["agent"], verdict["state"]) == ("Close the pool", "rita", "approved")
    assert verdict["colour"] is None  # as that of an approved handoff
    assert "<b onclick" not in lived.page("/week")


def test_imported_history_is_a_claim_at_its_time_and_under_its_name(lived: Viewer) -> None:
    data = lived.data("/week", **SPRING)
    assert totals(data) == {"learned": 1, "done": 1, "reported": 1}
    rows = [row for part in data["sections"] for row in part["rows"]]
    assert {(row["agent"], row["claim"]["importer"]) for row in rows} == {("ghost", "bob")}
    assert {row["at_ms"] for row in rows} == {1741064767000}
    page = lived.page("/week", **SPRING)
    assert page.count('<li class="claim">') == 3
    assert 'title="claimed by a record that bob imported"' in page
    assert lived.data("/week", **SPRING, agent="bob")["totals"][0]["total"] == 0
    assert totals(lived.data("/week", **SPRING, agent="ghost"))["learned"] == 1
    assert re.search(r'by agent: <a href="/week\?[^"]*agent=ghost">ghost</a> 3</p>', page)


def test_arrows_lead_to_the_week_before_and_after(lived: Viewer) -> None:
    data = lived.data("/week")
    assert data["later"] is None
    before = lived.data("/week", **data["earlier"])
    assert (before["period"], before["later"]) == (data["earlier"], data["period"])
    assert (totals(before), totals(lived.data("/week", **before["later"]))) == ({}, totals(data))
    page = lived.page("/week", **data["earlier"])
    assert re.search(r'rel="next" href="/week\?since=[0-9-]+&amp;until=[0-9-]+"', page)


def test_an_empty_week_leads_to_the_last_one_before_with_something_in_it(lived: Viewer) -> None:
    data = lived.data("/week", since="2025-05-01", until="2025-05-07")
    assert (totals(data), data["newest"]) == ({}, {"since": "2025-02-26", "until": "2025-03-04"})
    assert totals(lived.data("/week", **data["newest"]))["learned"] == 1
    assert lived.data("/week", since="2025-01-01", until="2025-01-07")["newest"] is None


def test_words_keep_what_contains_them(lived: Viewer) -> None:
    data = lived.data("/week", text="closed pools")
    assert (titles(data, "learned"), totals(data)["learned"]) == (["The pool is never closed"], 1)
    assert data["found"]["holds"] == "all"
    data = lived.data("/week", text="pool", since="2025-03-01")
    assert titles(data, "learned") == ["The pool is never closed", "The old pool leaked"]
    assert (titles(data, "done"), titles(data, "decided")) == (["Close the pool"], ["One pool a process"])
    assert data["agents"] == []


def test_the_heading_and_the_form_say_the_period_and_the_numbers_what_they_count(lived: Viewer) -> None:
    data, page = lived.data("/week"), lived.page("/week")
    assert '<h1 id="week-title">Week</h1>' in page
    assert f'name="since" value="" size="14" list="days" placeholder="{data["days"][0]}"' in page
    assert "signed events of these kinds, by agent: <a" in page
    page = lived.page("/week", since="30 days ago", text="pool")
    assert '<h1 id="week-title">31 days</h1>' in page
    assert "entries with these words, by agent: <a" in page
    assert '<h1 id="week-title">1 day</h1>' in lived.page("/week", since="today")
    assert 'placeholder="any time"' in lived.page("/timeline")


def test_blocked_handoffs_come_first(viewer: Viewer) -> None:
    data = viewer.ledger.hand_over("stuck", title="Stuck")
    viewer.ledger.approve("stuck", data)
    viewer.ledger.claim("stuck")
    viewer.ledger.emit("bob", "handoff/stuck", handoff.HandoffBlocked(reason="no disk"))
    for number in range(rows_max):
        viewer.ledger.clock.advance(1)
        viewer.ledger.hand_over(f"h{number}", title=f"Work {number}")
    others = [f"Work {number}" for number in reversed(range(rows_max))]
    assert titles(viewer.data("/week"), "waiting") == ["Stuck", *others[:-1]]
    assert titles(viewer.data("/week", kind="waiting"), "waiting") == [*others, "Stuck"]  # in pages, by time
    assert totals(viewer.data("/week"))["waiting"] == rows_max + 1


def test_words_of_a_title_keep_what_was_recorded_under_it(lived: Viewer) -> None:
    log(lived, "s2", session.SessionStarted(task="Count the files"), session.FindingLogged(finding="there are nine"))
    for text in ("find the leak", "leak"):
        data = lived.data("/week", text=text)
        assert set(titles(data, "learned")) == {EVIL, "The pool is never closed"}
        assert (titles(data, "failed"), titles(data, "closed")) == (["Close it twice"], ["Who closes the pool?"])
        assert titles(data, "reported") == ["Find the leak"]
    assert titles(lived.data("/week", text="counting files"), "learned") == ["there are nine"]
    data = lived.data("/week", text="close pool")
    assert (titles(data, "done"), titles(data, "judged")) == (["Close the pool"], ["Close the pool"])
    step = reasoning.Step(step_number=1, type="observation", content="seen", confidence=0.5)
    lived.ledger.emit("bob", "reasoning/r1", reasoning.ReasoningExtended(steps=[step]))
    lived.ledger.emit("bob", "reasoning/r1", reasoning.ReasoningConcluded(conclusion="It is the cache"))
    assert titles(lived.data("/week", text="why a leak"), "concluded") == ["Why a leak?"]
    for text in ("find the leak", "counting files", "close pool"):  # as the search finds them
        assert lived.data("/search", text=text)["total"] > 0


def test_one_kind_has_pages_and_a_tag_selects_by_topic(lived: Viewer) -> None:
    log(lived, "s1", *(session.FindingLogged(finding=f"finding {n}", topic="many") for n in range(60)))
    overview = lived.data("/week")
    assert (len(overview["sections"][0]["rows"]), totals(overview)["learned"]) == (rows_max, 62)
    first = lived.data("/week", kind="learned")
    assert [part["name"] for part in first["sections"]] == ["learned"]
    second = lived.data("/week", kind="learned", before=first["sections"][0]["next"])
    both = titles(first, "learned") + titles(second, "learned")
    assert len(set(both)) == len(both) == 62
    tagged = lived.data("/week", tag="pool")
    assert (titles(tagged, "learned"), totals(tagged)) == (["The pool is never closed"], {"learned": 1})


@pytest.mark.parametrize(
    "wrong", [{"kind": "lerned"}, {"since": "soon"}, {"agent": "nobody"}, {"color": "red"}, {"text": "..."}]
)
def test_a_filter_that_cannot_be_used_is_named(lived: Viewer, wrong: dict[str, str]) -> None:
    answer = lived.get("/week", **wrong)
    assert (answer.status_code, "INVALID_FIELD" in answer.text or "UNKNOWN_FIELD" in answer.text) == (400, True)


def test_each_agent_has_its_last_report_its_next_step_and_its_calibration(lived: Viewer) -> None:
    (agent,) = lived.data("/week")["agents"]
    assert (agent["row"]["agent"], agent["ai_id"], agent["row"]["title"]) == ("bob", "model", "Find the leak")
    assert (agent["next"], agent["total"]) == ("Find out: Does the cache leak?", 1)
    (point,) = agent["points"]
    assert 0 <= point["x"] <= 1
    day = datetime.fromtimestamp(lived.ledger.clock() / 1000, UTC).date().isoformat()
    (title,) = re.findall(r"<svg[^>]*spark[^>]*>\s*<title>(.*?)</title>", lived.page("/week"), re.DOTALL)
    assert title.split()[2] == day  # FROM to DAY, and then each report
    assert f"{point['at'][:10]} {point['bias']:+.2f}" in title
    assert agent["counts"][point["status"]] == 1
    assert f"1 {point['status'].replace('_', ' ')}</span>" in lived.page("/week").partition("agents-title")[2]
    (claimed,) = lived.data("/week", **SPRING)["agents"]
    assert (claimed["row"]["agent"], claimed["row"]["claim"]["importer"], claimed["points"]) == ("ghost", "bob", [])


def test_the_chart_of_an_overconfident_report_is_above_the_line_and_in_its_colour(viewer: Viewer) -> None:
    log(viewer, "s1", session.SessionStarted(task="t", ai_id="model"))
    for phase, uncertainty in (("PREFLIGHT", 0.9), ("POSTFLIGHT", 0.1)):
        vectors = session.Vectors(**VECTORS["PREFLIGHT"] | {"uncertainty": uncertainty})
        log(viewer, "s1", session.AssessmentRecorded(phase=phase, vectors=vectors))
    report(viewer, "s1", task_summary="done", key_findings=["one"])
    page = viewer.page("/week")
    assert "1 overconfident" in page
    ((colour, y),) = re.findall(r'<circle class="(\w+)" cx="[0-9.]+" cy="([0-9.]+)"', page)
    assert (colour, float(y) < 20) == ("wait", True)
    ((colour, y),) = re.findall(r'<circle class="(\w+)" cx="[0-9.]+" cy="([0-9.]+)"', viewer.page("/a/bob"))
    assert (colour, float(y) < 60) == ("wait", True)


def test_reports_about_the_same_work_are_shown_together(viewer: Viewer) -> None:
    task = "Find out why the connection pool leaks file handles under load"
    for name in ("one", "two"):
        log(viewer, name, session.SessionStarted(task=task, ai_id="model"))
        finding = f"Exceptions in worker {name} skip the release of sockets, so descriptors accumulate until restart"
        report(viewer, name, task_summary="The pool is never closed after an exception", key_findings=[finding])
    (pair,) = viewer.data("/week")["overlaps"]
    assert ({row["path"] for row in pair["rows"]}, "handles" in pair["shared"]) == ({"/s/one", "/s/two"}, True)
    assert viewer.data("/week", agent="alice")["overlaps"] == []
    assert "Overlap" in viewer.page("/week")


def test_a_week_can_be_seen_as_of_an_earlier_entry(viewer: Viewer) -> None:
    log(viewer, "s1", session.SessionStarted(task="t"), session.FindingLogged(finding="first"))
    head = viewer.ledger.head()[0] - 1
    log(viewer, "s1", session.FindingLogged(finding="second"))
    assert titles(viewer.data("/week", as_of=head), "learned") == ["first"]
    assert f"as_of={head}" in viewer.page("/week", as_of=head)


@pytest.mark.parametrize(
    ("name", "expected", "words"),
    [
        ("sessions", ["Find the leak", "An old report"], "2 findings, 1 open unknown, 1 dead end"),
        ("reports", ["Find the leak", "An old report"], "found it · 1 thing learned"),
        ("reasonings", ["Why a leak?"], "0 steps, no conclusion yet"),
        ("handoffs", ["Close the cache", "Close the pool", "An old handoff"], "claims to be done"),
        ("reviews", ["May it go on?"], "nobody has answered yet"),
    ],
)
def test_a_list_says_what_each_thing_is_and_leads_to_it(
    lived: Viewer, name: str, expected: list[str], words: str
) -> None:
    listed = LISTS[name]
    data = lived.data(listed.path)
    assert [row["title"] for row in data["rows"]] == expected
    assert data["total"] == len(expected)
    page = lived.page(listed.path)
    assert words in page
    for row in data["rows"]:
        assert f'href="{listed.path}"' in lived.page(row["path"])  # the page of an item links back to the list
    assert page.count('<li class="claim">') == sum(row["claim"] is not None for row in data["rows"])
    ghost = lived.data(listed.path, agent="ghost")
    assert {row["agent"] for row in ghost["rows"]} <= {"ghost"}
    spring = lived.data(listed.path, **SPRING)
    assert [row["title"] for row in spring["rows"]] == [row["title"] for row in ghost["rows"]]


def test_a_list_has_pages(viewer: Viewer) -> None:
    for number in range(60):
        log(viewer, f"s{number}", session.SessionStarted(task=f"task {number}"))
        viewer.ledger.clock.advance(1)
    first = viewer.data("/s")
    second = viewer.data("/s", before=first["next"])
    assert [row["title"] for row in first["rows"] + second["rows"]] == [f"task {n}" for n in reversed(range(60))]
    assert f"before={first['next']}" in viewer.page("/s")
    assert second["next"] is None
