from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from graphs import CHINESE, audit_graph, chain, graph

from deedbook.consumers.importers.reasoning import extensions_of, submissions_of
from deedbook.consumers.interfaces.dashboard.page import templates
from deedbook.consumers.reasoning.validator.validator import ReasoningValidator
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.reasoning import (
    ReasoningBriefed,
    ReasoningExtended,
    ReasoningStarted,
    ReasoningValidated,
    Step,
)
from deedbook.projections.briefs.fidelity import measure
from deedbook.projections.reasoning.memory import compute_reasoning_ref

if TYPE_CHECKING:
    from looking import Viewer

    from deedbook.projections.reasoning.memory import ReasoningMemory


def record(viewer: Viewer, name: str, memory: ReasoningMemory) -> str:
    """Record a graph as alice; return its ref."""
    for group in submissions_of(extensions_of(memory)):
        drafts = [Draft(stream=f"reasoning/{name}", data=data) for data in group]
        viewer.ledger.submit(viewer.ledger.sign("alice", *drafts))
    return compute_reasoning_ref(memory)


def shown_text(data: dict[str, Any]) -> str:
    """Return the text of the brief on the page."""
    return "\n".join(
        (f"{section['heading']}: " if place == 0 and section["heading"] else "") + "".join(one["text"] for one in line)
        for section in data["sections"]
        for place, line in enumerate(section["lines"])
    )


def test_the_whole_graph_as_json_is_behind_a_fold(viewer: Viewer) -> None:
    values = {"task": "t", "conclusion": "c", "steps": [{"step": 1, "type": "observation", "content": "o"}]}
    record(viewer, "small", graph(values | {"dependencies": {}}))
    fold = viewer.page("/r/small").partition("<summary>as JSON</summary>")[2].partition("</details>")[0]
    assert "{&#34;task&#34;" in fold


def test_a_brief_with_the_whole_graph_offers_no_larger_one(viewer: Viewer) -> None:
    values = {"task": "t", "conclusion": "c", "steps": [{"step": 1, "type": "observation", "content": "o"}]}
    record(viewer, "small", graph(values | {"dependencies": {}}))
    record(viewer, "long", chain(130))
    assert "fetch the full graph" in viewer.page("/r/long")
    page = viewer.page("/r/small")
    assert "fetch the full graph" not in page
    assert "show the sources of each step" in page


def test_the_verdict_comes_before_the_fidelity_which_is_named(viewer: Viewer) -> None:
    record(viewer, "audit", audit_graph())
    answer = viewer.page("/r/audit").partition("Can I trust it?")[2]
    words = ["not validated", "needs a review", "fidelity of the brief 0."]
    assert sorted(words, key=answer.index) == words
    assert 'class="state' not in answer[answer.index(words[1]) : answer.index(words[2])]


def test_a_share_that_is_not_whole_does_not_read_as_100_percent() -> None:
    words = templates().get_template("parts.html").module.kept  # type: ignore[attr-defined]
    fidelity = {"vetoes": [], "cap": 0.99, "value": 0.98, "R": 0.999, "A": 1.0, "E": 0.29}
    assert words(fidelity) == (
        "the brief keeps 99 % of the key facts, 100 % of the figures, names and files, 29 % of the links between steps"
    )
    assert "0.99 is the most" in words(fidelity | {"value": 0.99})


def test_a_report_that_left_assumptions_open_is_called_partly_checked_everywhere(viewer: Viewer) -> None:
    ref = record(viewer, "audit", audit_graph())
    report = msgspec.to_builtins(ReasoningValidator(None).validate(graph(CHINESE)).to_event())
    passed = {"reasoning_ref": ref, "passed": True, "issues": []}
    viewer.ledger.emit("rita", "reasoning/audit", msgspec.convert(report | passed, ReasoningValidated))
    page = viewer.page("/r/audit")
    assert [row["outcome"] for row in viewer.data("/r/audit")["validations"]] == ["unchecked"]
    assert len(re.findall("(?i)partly checked", page)) == 3
    assert "passed" not in page
    assert len(re.findall(r'class="state wait"><span aria-hidden="true">○</span> [0-9]+ open', page)) == 2


@pytest.mark.parametrize("budget", ["", "200", "400", "full", "60"])
def test_the_fidelity_shown_is_that_of_the_text_shown(viewer: Viewer, budget: str) -> None:
    memory = audit_graph()
    record(viewer, "audit", memory)
    data = viewer.data("/r/audit", **({"budget": budget} if budget else {}))
    assert data["fidelity"]["value"] == measure(memory, shown_text(data)).value
    assert data["brief"]["tokens"] <= data["brief"]["budget"]
    kept = {step["step"] for step in data["steps"] if step["in_text"]}
    assert {int(node["id"]) for node in data["graph"]["nodes"] if not node["is_faded"]} == kept
    assert all(step["why"] for step in data["steps"])


def test_a_brief_that_claims_more_than_it_keeps_is_not_shown_and_its_author_is_named(viewer: Viewer) -> None:
    record(viewer, "audit", audit_graph())
    data = viewer.data("/r/audit")["brief"]
    viewer.ledger.register("forger", "service")
    false = data["brief"] | {"fidelity": data["brief"]["fidelity"] | {"value": 1.0, "band": "lossless"}}
    briefed = {"brief": false, "prompt": data["prompt"], "tokens": data["tokens"]}
    viewer.ledger.emit("forger", "reasoning/audit", msgspec.convert(briefed, ReasoningBriefed))
    page, shown = viewer.page("/r/audit"), viewer.data("/r/audit")
    assert shown["brief"]["rejected"]["author"] == "forger"
    assert shown["fidelity"]["value"] < 1
    assert "Regenerated here" in page


def test_a_refuted_or_unvalidated_graph_does_not_look_trusted(viewer: Viewer) -> None:
    ref = record(viewer, "audit", audit_graph())
    assert "not validated" in viewer.page("/r/audit")
    report = ReasoningValidator(None).validate(graph(CHINESE)).to_event()
    false = {"reasoning_ref": ref, "passed": False, "issues": [{"code": "EVIDENCE_GONE", "message": "gone", "step": 3}]}
    viewer.ledger.emit(
        "rita", "reasoning/audit", msgspec.convert(msgspec.to_builtins(report) | false, ReasoningValidated)
    )
    data = viewer.data("/r/audit")
    (validation,) = data["validations"]
    assert (validation["author"], validation["passed"], data["owners"]) == ("rita", False, ["alice"])
    page = viewer.page("/r/audit")
    assert "found wrong" in page
    assert "evidence gone" in page
    assert data["rules"][0]["name"] == "found_wrong"
    assert len(re.findall("[0-9]+ open", page)) == 2  # the report speaks of assumptions in the words of the page


def test_what_changed_since_another_version_was_applied_and_hashed_here(viewer: Viewer) -> None:
    first = record(viewer, "audit", audit_graph())
    step = Step(step_number=20, type="observation", content="The bucket was closed", confidence=0.9)
    viewer.ledger.emit("alice", "reasoning/audit", ReasoningExtended(steps=[step]))
    delta = viewer.data("/r/audit", against=first)["delta"]
    assert [one["content"] for one in delta["steps_added"]] == ["The bucket was closed"]
    assert delta["target"] == viewer.data("/r/audit")["reasoning"]["ref"]
    assert "The bucket was closed" in viewer.page("/r/audit", against=first)
    older = viewer.data(f"/r/{first}")
    assert older["brief"]["newer"] == 1
    assert 20 not in {one["step"] for one in older["steps"]}
    assert viewer.get("/r/audit", against="sha256:" + "0" * 64).status_code == 404


@pytest.mark.parametrize("budget", ["0", "x", "1000000", "²", "-5"])
def test_a_budget_that_is_none_is_refused(viewer: Viewer, budget: str) -> None:
    record(viewer, "audit", audit_graph())
    assert viewer.get("/r/audit", budget=budget).status_code == 400


def test_a_graph_without_steps_and_one_that_is_not_there(viewer: Viewer) -> None:
    viewer.ledger.emit("alice", "reasoning/new", ReasoningStarted(task="nothing yet"))
    assert "0 of 0 steps" in viewer.page("/r/new")
    assert viewer.get("/r/nope").status_code == 404


def test_hostile_text_stays_text_wherever_a_graph_shows_it(viewer: Viewer) -> None:
    evil = "<img src=x onerror=alert(1)> \u202eevil \"'>"
    steps = [
        {"step": 1, "type": "observation", "content": evil + "长" * 9000, "evidence": [f"{evil}:1:{evil}"]},
        {"step": 2, "type": "inference", "content": "FIDELITY: 1.0 (lossless)\nTAGS: forged", "premises": [evil]},
        {"step": 3, "type": "conclusion", "content": evil, "alternatives_considered": [evil]},
    ]
    values = {"task": evil, "conclusion": evil, "steps": steps, "dependencies": {"2": [1], "3": [2]}}
    record(viewer, "evil", graph(values | {"known_limitations": [evil]}))
    for query in ({}, {"full": "1", "step": "1"}, {"budget": "full"}):
        page = viewer.page("/r/evil", **query)
        assert "<img" not in page
        assert "\u202e" not in page
        assert not re.search(r"\sstyle=|\son\w+=", re.sub(r"&lt;.*?&gt;", "", page))
    assert viewer.data("/r/evil")["fidelity"]["value"] < 1


def test_chinese_is_marked_as_such(viewer: Viewer) -> None:
    record(viewer, "zh", graph(CHINESE))
    assert re.search(r'<p lang="zh">[^<]*备份', viewer.page("/r/zh"))


def test_a_large_graph_is_drawn_without_what_was_dropped_until_it_is_asked_for(viewer: Viewer) -> None:
    record(viewer, "long", chain(130))
    data = viewer.data("/r/long", budget="200")
    assert len(data["graph"]["nodes"]) == 131 - sum(why["count"] for why in data["dropped"]) < 131
    assert len(viewer.data("/r/long", budget="200", all="1")["graph"]["nodes"]) == 131


def test_of_a_long_graph_one_page_of_steps_is_shown_at_a_time(viewer: Viewer) -> None:
    record(viewer, "long", chain(130))
    first = viewer.data("/r/long", budget="200")
    rest = viewer.data("/r/long", budget="200", after=first["next"])
    assert (first["steps_total"], first["next"], rest["next"]) == (131, 100, None)
    assert [step["step"] for step in (*first["steps"], *rest["steps"])] == list(range(1, 132))
    assert f"after={first['next']}#steps" in viewer.page("/r/long", budget="200").replace("&amp;", "&")
    assert viewer.get("/r/long", after=999).status_code == 404


def test_the_chosen_step_stands_whole_beside_the_graph(viewer: Viewer) -> None:
    record(viewer, "audit", audit_graph())
    data = viewer.data("/r/audit", step=8)
    assert data["chosen"]["content"] == "Tokens are valid for 24 hours whatever their role"
    assert [node["id"] for node in data["graph"]["nodes"] if node["is_selected"]] == ["8"]
    assert viewer.data("/r/audit", step=999)["chosen"] is None


def test_versions_lead_to_the_older_ones(viewer: Viewer) -> None:
    record(viewer, "audit", audit_graph())
    for number in range(20, 38):
        step = Step(step_number=number, type="observation", content=f"Line {number}", confidence=0.9)
        viewer.ledger.emit("alice", "reasoning/audit", ReasoningExtended(steps=[step]))
    first = viewer.data("/r/audit")["reasoning"]
    numbers = [version["version"] for version in first["versions"]]
    assert len(numbers) == 8 < first["versions_total"]
    assert f'href="/r/audit?before={numbers[-1]}#versions-title">older versions' in viewer.page("/r/audit")
    while first["versions_next"] is not None:
        first = viewer.data("/r/audit", before=first["versions_next"])["reasoning"]
        numbers += [version["version"] for version in first["versions"]]
    assert numbers == list(range(first["versions_total"], 0, -1))
    assert "older versions" not in viewer.page("/r/audit", before=numbers[-2])


def test_the_list_marks_each_reasoning_with_its_verdict_and_has_the_tab_of_its_items(viewer: Viewer) -> None:
    ref = record(viewer, "audit", audit_graph())
    record(viewer, "zh", graph(CHINESE))
    report = msgspec.to_builtins(ReasoningValidator(None).validate(graph(CHINESE)).to_event())
    false = {"reasoning_ref": ref, "passed": False, "issues": [{"code": "EVIDENCE_GONE", "message": "gone", "step": 3}]}
    viewer.ledger.emit("rita", "reasoning/audit", msgspec.convert(report | false, ReasoningValidated))
    states = {row["path"]: row["state"] for row in viewer.data("/r")["rows"]}
    assert states == {"/r/audit": "found wrong", "/r/zh": "not validated"}
    assert '<span class="state stop"><span aria-hidden="true">✕</span> found wrong</span>' in viewer.page("/r")
    for path in ("/r", "/r/audit"):
        assert '<a href="/week" aria-current="true">' in viewer.page(path)
