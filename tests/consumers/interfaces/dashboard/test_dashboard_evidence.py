"""Evidence on the pages: as signed and as it is now, with the same figures on every page."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from graphs import audit_graph, graph
from looking import Viewer, look, seal
from test_dashboard_reasoning import record

from deedbook.consumers.sdk.text import counted
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.reasoning import ReasoningExtended, Step
from deedbook.ledger.events.session import FindingLogged, SessionStarted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVIDENCE = ["config.yaml:1:days: 30", "config.yaml:2:readers: 14", "gone.py:1:x", "config.yaml:3"]
PAGES = (("/", {"open": "x"}), ("/h/x", {}), ("/r/why", {}))
FIGURES = "1 of 4 places is as it was when it was signed"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A work tree in which one cited line has changed since it was cited."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "config.yaml").write_text("days: 90\nreaders: 14\n<b>bold</b> \u202e\n")
    return tmp_path


@pytest.fixture
def rita(project: Path) -> Iterator[Viewer]:
    """The human of a ledger in that work tree, with a handoff that cites a reasoning."""
    for viewer in look(project / ".deedbook"):
        steps = [
            {"step": 1, "type": "observation", "content": "Kept for 30 days", "evidence": EVIDENCE},
            {"step": 2, "type": "conclusion", "content": "Rotate now"},
        ]
        values = {"task": "t", "conclusion": "Rotate now", "steps": steps, "dependencies": {"2": [1]}}
        ref = record(viewer, "why", graph(values))
        viewer.ledger.hand_over("x", reasoning_refs=[ref], tasks=["one"], criteria=["two"])
        yield viewer


def test_every_page_gives_the_same_figures(rita: Viewer) -> None:
    pages = {address: rita.page(address, **query) for address, query in PAGES}
    for address, page in pages.items():
        assert FIGURES in page, address
        assert [re.search(rf"1 {word}\b", page) is not None for word in ("changed", "gone")] == [True, True], address


def test_every_page_says_the_same_about_a_brief_and_whether_it_is_enough(viewer: Viewer) -> None:
    ref = record(viewer, "audit", audit_graph())
    viewer.ledger.hand_over("x", reasoning_refs=[ref])
    (citation,) = viewer.data("/h/x")["reasoning"]
    reasoning = viewer.data("/r/audit")
    left_out = sum(reason["count"] for reason in reasoning["dropped"])
    assert (citation["measured"], citation["left_out"]) == (reasoning["fidelity"], left_out)
    assert f"{left_out} of " in viewer.page("/r/audit")
    for address, query in (("/", {"open": "x"}), ("/h/x", {})):
        assert f"{counted(left_out, 'step')} left out" in viewer.page(address, **query)
    for address, query in (("/", {"open": "x"}), ("/h/x", {}), ("/r/audit", {})):
        assert "needs a review" in viewer.page(address, **query)
    assert (citation["action"], citation["may_act"]) == tuple(reasoning["decision"].values())
    assert "no rule asks" not in viewer.page("/r/audit")


def test_a_place_is_shown_as_it_was_signed_and_as_it_is_now(rita: Viewer) -> None:
    page = rita.page("/h/x")
    assert "days: <del>30</del>" in page
    assert "days: <ins>90</ins>" in page
    assert "the file is not there" in page
    assert "&lt;b&gt;bold&lt;/b&gt; \\u202e" in page
    assert "<b>bold" not in page


def test_a_signed_hash_of_another_text_than_the_quoted_one_is_not_called_a_change(rita: Viewer) -> None:
    step = {
        "step": 1,
        "type": "observation",
        "content": "14",
        "evidence": EVIDENCE[1:2],
        "evidence_digests": ["0" * 16],
    }
    record(rita, "misquoted", graph({"task": "t", "conclusion": "14", "steps": [step], "dependencies": {}}))
    page = rita.page("/r/misquoted")
    assert '<figure class="place" id' in page
    assert "line as quoted, hash of another text" in page
    assert "The line reads as its author quoted it, but the hash that they signed is of another text." in page
    assert "nowhere else" not in page
    assert page.count("<pre") == 1  # the quote and the present line are the same text


def test_doubts_about_the_reasoning_are_said_directly_above_the_buttons(rita: Viewer) -> None:
    seal(rita.ledger)
    for address, query in PAGES[:2]:
        above = rita.page(address, **query).partition('<button class="yes"')[0].rpartition("passphrase")[2]
        words = ("not validated", "1 of 4 cited places changed", "1 of 4 cited places gone")
        assert [word in above for word in words] == [True] * 3, address


def test_a_doubt_stands_in_the_row_and_beside_each_button_that_leads_to_an_approval(rita: Viewer) -> None:
    seal(rita.ledger)
    rita.ledger.hand_over("y", depends_on=["x"])
    doubt = "1 of 4 cited places changed"
    row = rita.page("/").partition('id="q-x:approve"')[2].partition("</li>")[0]
    assert doubt in row
    above = rita.page("/h/x/diff").partition("Approve v1 …")[0]
    assert doubt in above
    for page in (rita.page("/h/y"), rita.page("/graph", id="y")):
        assert doubt in page.partition("Approve …")[0].rpartition("<li>")[2]


def test_a_file_that_is_put_right_is_as_signed_at_the_next_look(rita: Viewer, project: Path) -> None:
    (project / "config.yaml").write_text("days: 30\nreaders: 14\nthree\n")
    assert rita.data("/h/x")["reasoning"][0]["looked"]["counts"] == {"gone": 1, "not_checkable": 1, "as_signed": 2}


def test_evidence_of_a_criterion_stands_beside_the_line(rita: Viewer) -> None:
    rita.ledger.approve("y", rita.ledger.hand_over("y", criteria=["two"]))
    rita.ledger.claim("y")
    rita.ledger.emit("bob", "handoff/y", kinds.HandoffCriterionChecked(position=0, evidence="see src/none.py:7"))
    (criterion,) = rita.data("/h/y")["criteria"]
    assert [(row["path"], row["freshness"]) for row in criterion["places"]] == [("src/none.py", "gone")]
    assert 'id="criterion-1-1"' in rita.page("/h/y")


def test_a_page_without_evidence_looks_nothing_up(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer.ledger.hand_over("x", tasks=["one"])

    def fail(*_: object) -> None:
        raise AssertionError("a file was looked up")

    monkeypatch.setattr("deedbook.consumers.interfaces.dashboard.pages.evidence.work_tree", fail)
    viewer.page("/h/x")
    viewer.page("/", open="x")


def test_two_versions_of_a_cited_reasoning_are_compared_and_not_their_hashes(rita: Viewer) -> None:
    (old,) = rita.data("/h/x/v/1")["content"]["reasoning_refs"]
    step = Step(step_number=3, type="observation", content="The bucket was closed", confidence=0.9)
    rita.ledger.emit("alice", "reasoning/why", ReasoningExtended(steps=[step]))
    new = rita.data("/r/why")["reasoning"]["ref"]
    amended = kinds.HandoffAmended(
        title="x",
        to="bob",
        reviewer="rita",
        tasks=["one"],
        criteria=["two"],
        reasoning_refs=[new, "sha256:" + "0" * 64],
    )
    rita.ledger.emit("alice", "handoff/x", amended)
    (change,) = rita.data("/h/x/diff")["changes"]
    first, unknown = change["reasonings"]
    assert (first["before"], first["after"], first["conclusion"]) == (old, new, "Rotate now")
    assert [step["content"] for step in first["delta"]["steps_added"]] == ["The bucket was closed"]
    assert (unknown["before"], unknown["delta"]) == (None, None)
    page = rita.page("/h/x/diff")
    assert "The conclusion is the same" in page
    assert "cannot be read in this ledger" in page
    assert old not in page


def test_finding_of_a_session_stands_beside_the_lines_that_it_cites(rita: Viewer) -> None:
    rita.ledger.emit("alice", "session/s", SessionStarted(task="look"))
    finding = FindingLogged(finding="They are kept too long", evidence=["config.yaml:1", "see docs/a.md:2"])
    rita.ledger.emit("alice", "session/s", finding)
    (shown,) = rita.data("/s/s")["session"]["findings"]
    assert [(row["number"], row["reference"], row["now"]) for row in shown["places"]] == [
        (1, "config.yaml:1", "days: 90"),
        (2, "docs/a.md:2", None),
    ]
    assert "Only the place was signed, not its text" in rita.page("/s/s")


def test_versions_of_a_reasoning_say_who_made_them_and_what_they_say(rita: Viewer) -> None:
    versions = rita.data("/r/why")["reasoning"]["versions"]
    assert [version["version"] for version in versions] == [3, 2, 1]
    assert [version["author"] for version in versions] == ["alice"] * 3
    assert [version["text"] for version in versions[:2]] == ["Rotate now", "Kept for 30 days"]
    page = rita.page("/r/why")
    assert "this version" in page
    assert f'href="/r/why?against={versions[1]["ref"].replace(":", "%3A")}#delta-title"' in page
