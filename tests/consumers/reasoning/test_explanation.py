from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from graphs import CHINESE, audit_graph, graph, odd_graphs
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.consumers.reasoning.explanation import look_again, sections_of
from deedbook.ledger.errors import Refused
from deedbook.projections.briefs.prompt import TransferLevel, to_context_prompt
from deedbook.projections.briefs.sentences import fact_line, fact_statement

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.events.brief import Brief
    from deedbook.projections.reasoning.memory import ReasoningMemory


def read(memory: ReasoningMemory, budget: int | None = None) -> tuple[Brief, str, list[dict[str, Any]]]:
    """Return a brief, its text as people read it, and the sections of that."""
    brief = compress(memory, TransferLevel.STANDARD, budget)
    text = to_context_prompt(brief, TransferLevel.STANDARD, budget).expanded
    return brief, text, sections_of(brief, memory, text)


def joined(sections: list[dict[str, Any]]) -> str:
    """Return the text that sections are of."""
    return "\n".join(
        (f"{section['heading']}: " if place == 0 and section["heading"] else "") + "".join(one["text"] for one in line)
        for section in sections
        for place, line in enumerate(section["lines"])
    )


def pieces(sections: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [piece for section in sections for line in section["lines"] for piece in line if piece["step"] is not None]


@given(odd_graphs(), st.sampled_from([None, 40, 120, 400]))
def test_the_pieces_are_the_text_and_each_number_is_of_the_step_that_says_so(
    memory: ReasoningMemory, budget: int | None
) -> None:
    brief, text, sections = read(memory, budget)
    assert joined(sections) == text
    lines = {line: fact.step for fact in brief.facts for line in (fact_statement(fact), fact_line(fact, brief.layout))}
    contents = {step.step_number: step.content.strip() for step in memory.steps}
    for section in sections:
        for piece in pieces([section]):
            is_conclusion = section["heading"] == "CONCLUSION"
            assert contents[piece["step"]] == brief.conclusion.strip() if is_conclusion else piece["text"] in lines


def test_every_fact_of_a_brief_leads_to_its_step() -> None:
    brief, _, sections = read(audit_graph())
    assert {piece["step"] for piece in pieces(sections)} == {fact.step for fact in brief.facts} | {12}


def test_facts_in_chinese_lead_to_their_steps() -> None:
    brief, _, sections = read(graph(CHINESE))
    assert {piece["step"] for piece in pieces(sections)} >= {fact.step for fact in brief.facts}


def test_a_fact_is_not_found_within_another_one() -> None:
    steps = [
        {"step": 1, "type": "observation", "content": "The log grew"},
        {"step": 2, "type": "observation", "content": "Nobody saw that The log grew. It was late"},
        {"step": 3, "type": "conclusion", "content": "Look again"},
    ]
    memory = graph({"task": "t", "conclusion": "Look again", "steps": steps, "dependencies": {"3": [1, 2]}})
    _, _, sections = read(memory)
    (section,) = (one for one in sections if one["heading"] == "REASONING BRIEF")
    assert [piece["step"] for piece in pieces([section])] == [1, 2]


def view(query: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Answer as a ledger that knows one session."""
    assert query == "resolve"
    if arguments["id"] != "session/s1":
        raise Refused("NOT_FOUND", "there is no such thing")
    return {"event_index": 1}


@pytest.fixture
def cited() -> ReasoningMemory:
    evidence = ["a.py:1:one", "a.py:2:two", "gone.py:1", "https://example.org/x", "session/s1", "session/other"]
    steps = [
        {"step": 1, "type": "observation", "content": "seen", "evidence": evidence},
        {"step": 2, "type": "assumption", "content": "It holds", "needs_validation": True},
    ]
    return graph({"task": "t", "conclusion": "", "steps": steps, "dependencies": {}})


def test_evidence_is_fresh_changed_gone_or_not_checkable(cited: ReasoningMemory, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\nthree\n")
    looked = look_again(view, cited, tmp_path)
    assert looked["counts"] == {"fresh": 2, "changed": 1, "gone": 2, "not_checkable": 1}
    states = {check["reference"]: check["freshness"] for check in looked["evidence"]}
    assert states["a.py:2:two"] == "changed"
    assert states["session/s1"] == "fresh"
    assert [check["freshness"] for check in looked["evidence"]][-2:] == ["fresh", "fresh"]  # what matters comes first
    assert [one["status"] for one in looked["assumptions"]] == ["not_checked"]


def test_without_a_tree_nothing_of_a_file_is_called_fresh(cited: ReasoningMemory) -> None:
    looked = look_again(view, cited, None)
    assert looked["tree"] is None
    assert looked["counts"] == {"fresh": 1, "gone": 1, "not_checkable": 4}


def test_without_a_tree_the_last_validation_that_had_one_tells(cited: ReasoningMemory) -> None:
    none, report = (
        {"tree": tree, "author": tree, "accepted_ms": 5, "data": {"evidence": [{"reference": "a", "status": status}]}}
        for tree, status in (("none", "not_checked"), ("folder", "line_changed"))
    )
    looked = look_again(view, cited, None, [none, report])
    assert (looked["by"], looked["at_ms"], looked["counts"]) == ("folder", 5, {"changed": 1})
