"""Prints a reasoning as text: step by step, as a tree from the conclusion down to the evidence, or as changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Final

from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.text import counted, quote_text
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.reasoning import MISSING
from deedbook.projections.briefs.critical import marks_of, refutations
from deedbook.projections.briefs.sentences import FULL_REASONING
from deedbook.projections.reasoning.memory import confidence_not_stated, memory_from_dict

_SCALARS: Final = {
    "task": "task",
    "ai_id": "model",
    "reasoning_strategy": "strategy",
    "conclusion": "conclusion",
    "confidence_in_reasoning": "confidence",
}
_STATED: Final = {
    "premise": "premises",
    "alternative considered": "alternatives_considered",
    "assumes": "assumptions",
}
_ref_digits: Final = 19  # length of the short form of sha256:HEX, which other verbs print, too


def print_reasoning(reasoning: dict[str, Any]) -> None:
    """Print a reasoning, one step a paragraph."""
    memory = reasoning["memory"]
    echo(quote_text(memory["task"]), bold=True)
    echo(f"{reasoning['id']}  [{reasoning['status']}]  by {reasoning['author']}  {reasoning['ref']}")
    print_verdict(reasoning["verdict"])
    _print_import(reasoning)
    print_steps(memory)


def print_steps(memory: Mapping[str, Any]) -> None:
    """Print the steps of a graph, then its conclusion and its limitations."""
    dependencies = {int(number): rests_on for number, rests_on in memory["dependencies"].items()}
    graph, _ = memory_from_dict(memory)
    marks, refuted = marks_of(graph), refutations(graph)
    for step in memory["steps"]:
        rests_on = dependencies.get(step["step_number"], [])
        after = f"  ← {', '.join(map(str, rests_on))}" if rests_on else ""
        echo(f"  {step['step_number']}. {step['type']}{_confidence(step['confidence'])}{after}")
        echo(f"     {quote_text(step['content'])}")
        _print_evidence("       ", step)
        _print_premises("       ", step)
        if step.get("needs_validation") and not step.get("settled"):
            echo(f"       to be validated: {quote_text(step.get('validation_method') or 'no method is given')}")
        if step.get("conclusion"):
            echo(f"       → {quote_text(step['conclusion'])}")
        _print_outcome("       ", step, marks)
    if memory["conclusion"]:
        confidence = _confidence(memory["confidence_in_reasoning"])
        echo(f"conclusion: {quote_text(memory['conclusion'])}{confidence}")
    grounds = ", ".join(str(each.step) for each in refuted if each.is_ground)
    if memory["conclusion"] and grounds:
        echo(f"  rests on a refuted assumption (step {grounds})", fg="red")
    for limitation in memory["known_limitations"]:
        echo(f"limitation: {quote_text(limitation)}")


def _confidence(value: float) -> str:
    """Return a confidence as a remark; empty for 1, the value if nobody stated a confidence."""
    return "" if value == confidence_not_stated else f" ({value:.2f})"


def _print_outcome(indent: str, step: Mapping[str, Any], marks: Mapping[int, str]) -> None:
    """Print how agents settled the assumption of a step, and its mark if it is refuted or rests on one that is."""
    for settlement in step.get("settled", []):
        echo(f"{indent}{_outcome_of(settlement)}: {quote_text(settlement['how'])}")
        _print_evidence(f"{indent}  ", settlement)
    if mark := marks.get(step["step_number"]):
        echo(f"{indent}{mark.lower()}", fg="red")


def _print_evidence(indent: str, citing: Mapping[str, Any]) -> None:
    """Print what a step or settlement cites, and which citations did not exist when the author cited them."""
    digests = chain(citing.get("evidence_digests") or [], repeat(""))
    for evidence, digest in zip(citing.get("evidence", []), digests, strict=False):
        absent = "  (not there when it was cited)" if digest == MISSING else ""
        echo(f"{indent}{quote_text(evidence)}{absent}")


def _print_premises(indent: str, step: Mapping[str, Any]) -> None:
    """Print the premises and assumptions that a step states, and the alternatives that it was chosen over."""
    for label, field in _STATED.items():
        for text in step.get(field, []):
            echo(f"{indent}{label}: {quote_text(text)}")


def _outcome_of(settlement: Mapping[str, Any]) -> str:
    return f"{'holds, says' if settlement['holds'] else 'refuted by'} {settlement['by']}"


def print_verdict(verdict: dict[str, Any] | None, *, err: bool = False) -> None:
    """Print the verdict of the validators on a version; print nothing if there is no reasoning."""
    if verdict is not None:
        mark = "red" if verdict["outcome"] == "failed" else None
        echo(f"{'-- ' if err else ''}evidence: {verdict['text']}", err=err, fg=mark)


def print_retractions(retractions: Sequence[Mapping[str, Any]]) -> None:
    """Print the steps that were retracted, one a line."""
    for each in retractions:
        reason = quote_text(each["reason"])
        echo(f"retracted: step {each['step']} by {each['by']} (entry {each['entry']}): {reason}")


def print_versions(reasoning: Mapping[str, Any]) -> None:
    """Print the versions of a reasoning, the oldest first."""
    for row in reasoning["versions"]:
        made = row["kind"].partition(".")[2].replace("_", " ")
        echo(f"{row['version']}  {row['ref']}  {counted(row['steps'], 'step')}, {made} (entry {row['event_index']})")


def print_citations(citations: Sequence[Mapping[str, Any]], heading: str, indent: str = "  ") -> None:
    """Print each reasoning that a handoff cites: its state, its brief, and the commands that show more."""
    for citation in citations:
        # Print the brief in full sentences, also to a model. They have up to 6 % more tokens than the short form. JSON
        # has both forms.
        text, whole = _without_graph(citation["expanded"] or "")
        brief = quote_text(text, indent, is_barred=True) if text else ""
        echo(f"{indent}{heading} {citation['said']}{brief}")
        if whole is not None:
            print_steps(whole)
        ref = citation["reasoning_ref"]  # in full, because a shortened ref could equal somebody's id
        asks = (
            f"; `deed snapshot receive {ref} --as NAME` asks" if citation["action"] == "human_review_required" else ""
        )
        if citation["prompt"]:
            echo(f"{indent}the whole graph: `deed reasoning fetch {ref}`{asks}")


def _without_graph(brief: str) -> tuple[str, dict[str, Any] | None]:
    """Return a brief without the JSON of the whole graph, and this graph; None if the brief has no graph to read."""
    before, heading, rest = brief.rpartition(f"\n{FULL_REASONING}: {{")
    if not heading:
        return brief, None
    try:
        memory, _ = memory_from_dict(json.loads(f"{{{rest}"))
    except (ValueError, RecursionError, Refused):
        return brief, None
    return before, memory.to_dict()


def _print_import(reasoning: dict[str, Any]) -> None:
    imported = reasoning["imported"]
    if imported is None:
        return
    echo(import_note(imported))
    for name, value in imported["claims"].get("said", {}).items():
        if name.startswith("inferred"):
            echo(f"  {name.replace('_', ' ')}: {quote_text(value)}")
    for dirty in imported["claims"].get("dirty", []):
        echo(f"  not read as it was meant: {dirty['path']}: {dirty['why']}")
    echo(f"  original: {imported['original']}")


def import_note(imported: dict[str, Any]) -> str:
    """Return in a sentence where imported reasoning came from, and how far to trust it."""
    claimed = [f"claimed author {imported['claimed_author']}"] if imported["claimed_author"] else []
    claimed += [f"claimed time {imported['claimed_at']}"] if imported["claimed_at"] else []
    by = "".join(f", {claim}" for claim in claimed)
    return f"IMPORTED by {imported['importer']} from {imported['source']}{by}: it grants nothing"


def print_tree(reasoning: dict[str, Any]) -> None:
    """Print each step under the steps that it supports.

    A step that supports several is printed in full once, then by number.
    """
    memory = reasoning["memory"]
    steps = {step["step_number"]: step for step in memory["steps"]}
    marks = marks_of(memory_from_dict(memory)[0])
    rests_on = {int(number): wanted for number, wanted in memory["dependencies"].items()}
    supporting = {number for wanted in rests_on.values() for number in wanted}
    echo(quote_text(memory["conclusion"] or memory["task"]), bold=True)
    print_verdict(reasoning["verdict"])
    _print_import(reasoning)
    # A stack instead of recursion: a chain of two thousand steps is two thousand levels deep.
    roots = sorted(
        (number for number in steps if number not in supporting), key=lambda root: (root not in rests_on, root)
    )
    waiting = [(number, 0) for number in reversed(roots)]
    printed: set[int] = set()
    while waiting:
        number, depth = waiting.pop()
        step, indent = steps[number], "  " * depth
        if number in printed:
            echo(f"{indent}{number}. (above)")
            continue
        printed.add(number)
        echo(f"{indent}{number}. {step['type']}{_confidence(step['confidence'])}: {quote_text(step['content'])}")
        _print_evidence(f"{indent}     ", step)
        _print_premises(f"{indent}     ", step)
        _print_outcome(f"{indent}     ", step, marks)
        waiting += [(wanted, depth + 1) for wanted in sorted(rests_on.get(number, []), reverse=True)]


def print_diff(change: dict[str, Any]) -> None:
    """Print the answer of ``describe_change``: `+` for additions, `-` for removals, `~` for changes."""
    echo(f"{change['reasoning_ref'][:_ref_digits]}… → {change['target'][:_ref_digits]}…", bold=True)
    if change["is_equal"]:
        echo("no difference")
    _print_steps(change)
    for name, values in change["changed"].items():
        _line("~", f"{_SCALARS[name]}: {_value_text(values['before'])} → {_value_text(values['after'])}")
    for limitation in change["limitations_added"]:
        _line("+", f"limitation: {limitation}")
    for limitation in change["limitations_removed"]:
        _line("-", f"limitation: {limitation}")
    if change["limitations_reordered"]:
        _line("~", "the same limitations in another order or number")


def _print_steps(change: dict[str, Any]) -> None:
    for step in change["steps_added"]:
        after = f"  ← {', '.join(map(str, step['rests_on']))}" if step["rests_on"] else ""
        _line("+", f"{step['step_number']}. {step['type']} ({step['confidence']:.2f}){after}", step["content"])
    for step in change["steps_removed"]:
        _line("-", f"{step['step_number']}. {step['type']}", step["content"])
    for settled in change["assumptions_settled"]:
        _line("~", f"{settled['step']}. assumption {_outcome_of(settled)}: {settled['how']}", settled["content"])
    for changed in change["steps_changed"]:
        _print_step(changed)
    for linked in change["links_changed"]:
        _line("~", f"{linked['step']}. rests on {_numbers(linked['before'])} → {_numbers(linked['after'])}")


def _print_step(changed: dict[str, Any]) -> None:
    before, after = changed["before"], changed["after"]
    _line("~", f"{changed['step']}. {after['type']} changed")
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            echo(f"     {name}: {_value_text(before.get(name))} → {_value_text(after.get(name))}")


def _line(sign: str, text: str, content: str | None = None) -> None:
    echo(f"{sign} {text}", fg={"+": "green", "-": "red"}.get(sign))
    if content is not None:
        echo(f"     {content}")


def _numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "nothing"


def _value_text(value: Any) -> str:
    match value:
        case None | "" | []:
            return "(none)"
        case float():
            return f"{value:.2f}"
        case list():
            return "; ".join(map(_value_text, value))
        case {"holds": _, "by": _, "how": how}:
            return f"{_outcome_of(value)}: {how}"
        case _:  # any other value
            return str(value)
