"""``ReasoningValidator``: checks another agent's reasoning before anybody acts on it (seed 001, "ReasoningValidator").

What it checks: every reference (``evidence``), every assumption that a named check can decide (``assumptions``), and
that the graph holds together (``soundness``). The report depends on nothing but the reasoning, the tree, an earlier
report if one is given, and the judge: no clock, no network, no order of anything.

**The rule**: a reasoning passes when nothing speaks against it *and* all its evidence was seen to stand. So a graph
with evidence does not pass without a tree. Assumptions that nobody could check are listed and do not fail it.

**A judge** (a model, a person) may be asked whether each inference follows. It is asked after the structural checks
and can only add: an inference that it doubts becomes an issue, one that it approves changes nothing that failed.

**A brief** can be validated too: its references and assumptions are checked in the same way. ``checkable`` are the
inferences that a receiver can check from the brief alone: all their premises stand in it, word for word. What the
brief dropped is not known to it; ``verification_coverage`` measures against the graph (the figure V of DESIGN §9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, assert_never

import msgspec

from consumers.reasoning.validator.assumptions import check_assumption, check_assumptions
from consumers.reasoning.validator.evidence import HOLDING, check_evidence, cut, quotes_of, references_of
from consumers.reasoning.validator.reads import Reads
from consumers.reasoning.validator.report import ValidationReport
from consumers.reasoning.validator.soundness import (
    INFERRING,
    ancestors,
    check_inference,
    check_structure,
    dependency_issues,
    number_of,
)
from ledger.events.brief import Brief
from ledger.events.validation import AssumptionCheck, EvidenceCheck, InferenceCheck, JudgeMark, Opinion
from projections.briefs.critical import concluding_steps, critical_numbers
from projections.reasoning.memory import ReasoningMemory, ReasoningStep, compute_reasoning_ref

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from consumers.reasoning.validator.trees import Tree

    _Before = Mapping[tuple[int | None, str], EvidenceCheck]

judged_max: Final = 200


class Verdict(NamedTuple):
    """What a judge thinks of one inference."""

    opinion: Opinion
    reason: str


class Judge(Protocol):
    """Somebody who can tell whether an inference follows from its premises."""

    model: str
    prompt_hash: str

    def judge(self, step: ReasoningStep, deps: Sequence[ReasoningStep]) -> Verdict:
        """Return whether the step follows; a judge that cannot tell is ``unsure``, and raises nothing."""
        ...


class ReasoningValidator:
    """Validates reasoning against a tree; the same input gives the same report."""

    def __init__(self, tree: Tree | None = None, judge: Judge | None = None) -> None:
        """Look evidence up in ``tree``; ask ``judge``, if there is one, about at most 200 inferences."""
        self._tree = tree
        self._judge = judge

    def validate(
        self, reasoning: ReasoningMemory | Brief, *, earlier: Iterable[EvidenceCheck] = ()
    ) -> ValidationReport:
        """Return the report on a graph or a brief; ``earlier`` is the evidence of a former report that passed.

        A line or file that is not what the former report found is reported as changed.
        """
        reads = Reads(self._tree)
        before = {(check.step, check.reference): check for check in earlier}
        match reasoning:
            case ReasoningMemory():
                report = self._validate_graph(reasoning, reads, before)
            case Brief():
                report = _validate_brief(reasoning, reads, before)
            case _:
                assert_never(reasoning)
        report.tree = reads.identity()
        return report

    def check_inference(self, step: ReasoningStep, deps: Sequence[ReasoningStep]) -> InferenceCheck:
        """Return whether an inference is sound: structurally, with a judge's opinion beside it if there is a judge."""
        check = check_inference(step, deps)
        if self._judge is None:
            return check
        verdict = self._judge.judge(step, deps)
        reason = check.reason if not check.sound else cut(verdict.reason)
        return msgspec.structs.replace(check, method="judged", opinion=verdict.opinion, reason=reason)

    def _validate_graph(self, memory: ReasoningMemory, reads: Reads, before: _Before) -> ValidationReport:
        report = ValidationReport(_ref_of(memory), steps=len(memory.steps))
        report.issues += check_structure(memory)
        quotes = quotes_of(memory.steps)
        for step in memory.steps:
            number = number_of(step)
            for reference in references_of(step):
                former = before.get((number, cut(reference)))
                _add_evidence(report, check_evidence(reference, reads, step=number, quotes=quotes, earlier=former))
            for check in check_assumptions(step, number, reads):
                _add_assumption(report, check)
        self._check_inferences(report, memory)
        return report

    def _check_inferences(self, report: ValidationReport, memory: ReasoningMemory) -> None:
        steps = {step.step_number: step for step in memory.steps}
        if self._judge is not None:
            report.judge = JudgeMark(self._judge.model, self._judge.prompt_hash)
        asked = 0
        for step in memory.steps:
            rests_on = memory.dependencies.get(step.step_number, [])
            # What was observed or assumed stands on its own, whatever else it names, and so does a bare hypothesis.
            if step.type not in INFERRING and not (step.type == "hypothesis" and rests_on):
                continue
            deps = [steps[number] for number in rests_on if number in steps]
            asked += 1
            check = self.check_inference(step, deps) if asked <= judged_max else check_inference(step, deps)
            _add_inference(report, check, step)


def verification_coverage(brief: Brief, memory: ReasoningMemory) -> float | None:
    """Return the share of a graph's critical inferences that the brief holds with all their premises (seed 001: > .80).

    A step that says what the brief's conclusion says is held too: briefs do not say it twice. None when the graph has
    no critical inference.
    """
    critical = critical_numbers(memory)
    wanted = [number for number, rests_on in memory.dependencies.items() if rests_on and number in critical]
    held = {fact.step for fact in brief.facts}
    held |= {step.step_number for step in memory.steps if step.content.strip() == brief.conclusion.strip()}
    kept = sum(number in held and held.issuperset(memory.dependencies[number]) for number in wanted)
    return round(kept / len(wanted), 4) if wanted else None


def conclusion_evidence(memory: ReasoningMemory, report: ValidationReport) -> list[EvidenceCheck]:
    """Return the checks of the evidence that the conclusion rests on: what is stale here matters most."""
    reached = ancestors(memory.dependencies, [step.step_number for step in concluding_steps(memory)])
    return [check for check in report.evidence if check.step in reached]


def _validate_brief(brief: Brief, reads: Reads, before: _Before) -> ValidationReport:
    report = ValidationReport(brief.reasoning_ref, steps=len(brief.facts), of_brief=True)
    if not brief.facts:
        report.add_issue("The brief holds no fact", code="GRAPH_EMPTY")
    if not brief.conclusion.strip():
        report.add_issue("The brief comes to no conclusion", code="CONCLUSION_MISSING")
    held = {fact.step for fact in brief.facts}
    # What rests on a step that was dropped is not wrong; it only cannot be checked from here.
    kept = {fact.step: [number for number in fact.rests_on if number in held] for fact in brief.facts}
    report.issues += dependency_issues(kept, [_Numbered(number) for number in held])
    for fact in brief.facts:
        for reference in fact.evidence:
            former = before.get((fact.step, cut(reference)))
            _add_evidence(report, check_evidence(reference, reads, step=fact.step, earlier=former))
        if fact.assumed:
            _add_assumption(report, check_assumption(fact.text, fact.check, reads, step=fact.step))
        if fact.rests_on:
            (report.checkable if held.issuperset(fact.rests_on) else report.not_checkable).append(fact.step)
    return report


class _Numbered(NamedTuple):
    step_number: int


def _add_evidence(report: ValidationReport, check: EvidenceCheck) -> None:
    report.evidence.append(check)
    if check.status not in HOLDING:
        said = f"Evidence {check.status.replace('_', ' ')}: {cut(check.reference, 160)}"
        message = f"{said} ({check.note})" if check.note else said
        report.add_issue(message, code=f"EVIDENCE_{check.status.upper()}", step=check.step)


def _add_assumption(report: ValidationReport, check: AssumptionCheck) -> None:
    report.assumptions.append(check)
    if check.status == "refuted":
        message = f"Invalid: {cut(check.text, 160)} ({check.note})"
        report.add_issue(message, code="ASSUMPTION_REFUTED", step=check.step)


def _add_inference(report: ValidationReport, check: InferenceCheck, step: ReasoningStep) -> None:
    report.inferences.append(check)
    if not check.sound:
        message = f"Step {step.step_number}: invalid inference ({check.reason})"
        report.add_issue(message, code="INFERENCE_UNSOUND", step=check.step)
    if check.opinion == "does_not_follow":
        message = f"Step {step.step_number}: the judge says that it does not follow ({check.reason})"
        report.add_issue(message, code="INFERENCE_DOUBTED", step=check.step)


def _ref_of(memory: ReasoningMemory) -> str:
    """Return the graph's ref; empty for a graph that has none, because it has no canonical form (NaN, surrogates)."""
    try:
        return compute_reasoning_ref(memory)
    except (ValueError, TypeError):
        return ""
