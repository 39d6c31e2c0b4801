from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphs import CHINESE, audit_graph, graph, odd_graphs
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.consumers.reasoning.explanation import sections_of
from deedbook.projections.briefs.prompt import TransferLevel, to_context_prompt
from deedbook.projections.briefs.sentences import fact_line, fact_statement

if TYPE_CHECKING:
    from deedbook.ledger.events.brief import Brief
    from deedbook.projections.reasoning.memory import ReasoningMemory


def read(memory: ReasoningMemory, budget: int | None = None) -> tuple[Brief, str, list[dict[str, Any]]]:
    """Return a brief, its text for people, and the sections of that text."""
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
