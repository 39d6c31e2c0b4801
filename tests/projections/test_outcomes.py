"""Assumptions that prove true or false: given these settlements, expect these marks."""

from __future__ import annotations

from msgspec.structs import replace

from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.projections.briefs.critical import is_open_assumption, marks_of, refutations
from deedbook.projections.briefs.prompt import TransferLevel, to_context_prompt
from deedbook.projections.reasoning.memory import ReasoningMemory, Settlement, memory_from_dict

REFUTED = Settlement("rita", holds=False, how="logs encrypted since 2024-10")
HELD = Settlement("bob", holds=True, how="somebody said so")
STEPS = [
    {"step": 1, "type": "observation", "content": "The secret is in env"},
    {"step": 2, "type": "assumption", "content": "Logs are not encrypted", "needs_validation": True},
    {"step": 3, "type": "inference", "content": "The secret is readable in the logs"},
    {"step": 4, "type": "inference", "content": "Whoever reads logs has the secret"},
    {"step": 5, "type": "observation", "content": "The vault is empty"},
]


def graph(*settled: Settlement, dependencies: dict[str, list[int]] | None = None, **fields: object) -> ReasoningMemory:
    """Return a graph with these settlements of step 2, an assumption; step 3 depends on 2, and 4 on 3."""
    links = {"3": [1, 2], "4": [3]} if dependencies is None else dependencies
    values = {"task": "Is it leaked?", "conclusion": "Rotate it", "steps": STEPS, "dependencies": links} | fields
    memory, _ = memory_from_dict(values)
    steps = [replace(step, settled=[*settled]) if settled and step.step_number == 2 else step for step in memory.steps]
    return replace(memory, steps=steps)


def marked(memory: ReasoningMemory) -> list[tuple[int, str, list[int], bool]]:
    """Return each refutation: its step, its agent, the dependent steps, and whether the conclusion depends on it."""
    return [(each.step, each.by, each.rests, each.is_ground) for each in refutations(memory)]


def test_a_refuted_assumption_marks_all_that_rests_on_it():
    memory = graph(REFUTED)
    assert marked(memory) == [(2, "rita", [3, 4], True)]
    resting = "RESTS ON A REFUTED ASSUMPTION"
    assert marks_of(memory) == {2: "REFUTED", 3: resting, 4: resting}
    assert marks_of(graph()) == marks_of(graph(HELD)) == {}


def test_one_agent_who_refutes_is_enough_and_each_may_change_their_mind():
    assert marked(graph(REFUTED, HELD))
    assert marked(graph(HELD, REFUTED))
    assert not marked(graph(REFUTED, replace(HELD, by="rita")))
    assert marked(graph(HELD, replace(REFUTED, by="bob"))) == [(2, "bob", [3, 4], True)]


def test_a_conclusion_on_other_grounds_is_not_marked_and_one_without_links_is():
    assert [each.is_ground for each in refutations(graph(REFUTED, conclusion="Nothing", dependencies={}))] == [True]
    own = [*STEPS, {"step": 6, "type": "conclusion", "content": "Fill the vault"}]
    links = {"3": [1, 2], "6": [5]}
    assert marked(graph(REFUTED, steps=own, dependencies=links, conclusion="Fill the vault")) == [
        (2, "rita", [3], False)
    ]
    links = {"3": [1, 2], "6": [5, 3]}
    found = marked(graph(REFUTED, steps=own, dependencies=links, conclusion="Fill the vault"))
    assert found == [(2, "rita", [3, 6], True)]


def test_a_brief_says_what_was_refuted_at_every_budget_and_marks_the_steps():
    memory = graph(REFUTED, known_limitations=["Assumption unvalidated: Logs are not encrypted"])
    for budget in (60, 90, 200, 700):
        prompt = to_context_prompt(compress(memory, TransferLevel.MINIMAL, budget))
        assert prompt.prompt.startswith("REFUTED: The conclusion and steps 3, 4 rest on an assumption")
        assert prompt.tokens <= budget
    assert '"Logs are not encrypted" (step 2). logs encrypted since 2024-10.' in prompt.prompt
    text = to_context_prompt(compress(memory, TransferLevel.MINIMAL)).prompt
    assert "refuted by rita: logs encrypted since 2024-10 (REFUTED)" in text
    assert "The secret is readable in the logs (RESTS ON A REFUTED ASSUMPTION)" in text
    assert "unvalidated" not in text


def test_a_settled_assumption_is_not_called_unvalidated_and_makes_no_tag():
    for settlement in (HELD, replace(REFUTED, how="Refuted: they are")):
        memory = graph(settlement, known_limitations=["Assumption unvalidated: Logs are not encrypted"])
        assert not any(map(is_open_assumption, memory.steps))
        brief = compress(memory, TransferLevel.STANDARD)
        assert "unvalidated" not in to_context_prompt(brief).prompt.partition("FULL REASONING")[0]
        assert not any("refuted" in tag.tag or "validated" in tag.tag or "holds" in tag.tag for tag in brief.tags)
        assert brief.top_assumptions == []
