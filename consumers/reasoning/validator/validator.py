"""``ReasoningValidator``: checks another agent's reasoning before anybody acts on it.

It checks every reference (``evidence``), every assumption that a named check can decide (``assumptions``), and that the
graph holds together. The report depends on nothing but the reasoning, the tree, an earlier report if one is given, and
the judge: no clock, no network, no order of anything. A reasoning passes when nothing speaks against it. What could not
be looked up is listed as not checked and does not fail it: nobody may act on a report that leaves something open
(``projections.validations``).

**A graph holds together** as far as can be said without understanding its words: numbers, contents and confidences are
such; dependencies name steps that exist and never run in a circle; an inference or conclusion rests on something, and
is no surer than its least sure premise, within ``confidence_tolerance`` (the figures are an agent's estimates, and
evidence of its own may add a little); the whole is no surer than its concluding steps, unless its confidence was left
at its default; and going back from the conclusion one comes to a step with evidence or, where none at all is cited (a
sum, a thought aloud), to another step. A graph built by hand can break any of it, so nothing here relies on it.

**A judge** (a model, a person) can only add: an inference that it doubts becomes an issue, one that it approves changes
nothing that failed. **A brief** is checked in the same way; ``checkable`` are the inferences whose premises all stand
in it, word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple, Protocol, TypeAlias, assert_never

import msgspec

from deedbook.consumers.reasoning.validator.assumptions import check_assumption, check_assumptions
from deedbook.consumers.reasoning.validator.evidence import HOLDING, check_evidence, cut, references_of
from deedbook.consumers.reasoning.validator.reads import Reads
from deedbook.consumers.reasoning.validator.report import ValidationReport
from deedbook.consumers.reasoning.validator.trees import Tree
from deedbook.ledger.events.brief import Brief
from deedbook.ledger.events.reasoning import (
    AssumptionCheck,
    EvidenceCheck,
    InferenceCheck,
    Issue,
    JudgeMark,
    Opinion,
)
from deedbook.projections.briefs.critical import ancestors, concluding_steps
from deedbook.projections.reasoning.memory import (
    ReasoningMemory,
    ReasoningStep,
    compute_reasoning_ref,
    step_number_max,
)

judged_max: Final = 200
confidence_tolerance: Final = 0.10
confidence_not_stated: Final = 1.0
INFERRING: Final = frozenset({"inference", "conclusion"})
cycle_shown_max: Final = 20

_digits: Final = 4
_UNSUPPORTED: Final = "The inference names nothing that it rests on"

_Before: TypeAlias = Mapping[tuple[int | None, str], EvidenceCheck]


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


class ReasoningValidator:
    """Validates reasoning against a tree; the same input gives the same report."""

    def __init__(
        self, tree: Tree | None = None, judge: Judge | None = None, knows: Callable[[str], bool] | None = None
    ) -> None:
        """Look evidence up in ``tree``, and by ``knows`` in the ledger; ask ``judge`` about at most 200 inferences."""
        self._tree = tree
        self._knows = knows
        self._judge = judge

    def validate(
        self, reasoning: ReasoningMemory | Brief, *, earlier: Iterable[EvidenceCheck] = ()
    ) -> ValidationReport:
        """Return the report on a graph or a brief, compared with the evidence of an earlier report that passed."""
        reads = Reads(self._tree, self._knows)
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
        for step in memory.steps:
            number = _number_of(step.step_number)
            digests = dict(zip(step.evidence, step.evidence_digests or [], strict=False))
            for reference in references_of(step):
                former, cited = before.get((number, cut(reference))), digests.get(reference, "")
                check = check_evidence(reference, reads, step=number, earlier=former, cited=cited)
                _add_evidence(report, check)
            for assumed in check_assumptions(step, number, reads):
                _add_assumption(report, assumed)
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


def check_structure(memory: ReasoningMemory) -> list[Issue]:
    """Return what is wrong with a graph as a whole; ``check_inference`` sees to its single inferences."""
    if not memory.steps:
        return [Issue("GRAPH_EMPTY", "The graph has no step")]
    return [
        *_step_issues(memory.steps),
        *_dependency_issues(memory.dependencies, {step.step_number for step in memory.steps}),
        *_conclusion_issues(memory),
    ]


def check_inference(step: ReasoningStep, deps: Sequence[ReasoningStep]) -> InferenceCheck:
    """Return whether the structure of an inference from ``deps`` is sound; its words are not judged."""
    number = _number_of(step.step_number)
    if not step.content.strip():
        return InferenceCheck(number, sound=False, reason="The inference says nothing")
    if not deps and not any(map(str.strip, step.premises)) and not step.evidence:
        return InferenceCheck(number, sound=False, reason=_UNSUPPORTED)
    if not _is_confidence(step.confidence):
        return InferenceCheck(number, sound=False, reason="Its confidence does not lie between 0 and 1")
    weakest = min((dep for dep in deps if _is_confidence(dep.confidence)), key=lambda dep: dep.confidence, default=None)
    if weakest is not None and _exceeds(step.confidence, weakest.confidence):
        premise = f"that of its premise {weakest.step_number} {weakest.confidence:g}"
        return InferenceCheck(number, sound=False, reason=cut(f"Its confidence is {step.confidence:g}, {premise}"))
    return InferenceCheck(number, sound=True)


def _dependency_issues(dependencies: Mapping[int, Iterable[int]], known: set[int]) -> Iterator[Issue]:
    for number, rests_on in dependencies.items():
        for wanted in (number, *rests_on):
            if wanted not in known:
                message = f"Step {number} rests on step {wanted}, which does not exist"
                yield Issue("DEPENDENCY_DANGLING", cut(message), _number_of(number))
    try:
        TopologicalSorter(dependencies).prepare()
    except CycleError as error:
        circle = [str(number) for number in error.args[1]]
        shown = " → ".join(circle[:cycle_shown_max]) + (" → …" if len(circle) > cycle_shown_max else "")
        message = f"Steps rest on each other in a circle: {shown}"
        yield Issue("DEPENDENCY_CYCLE", cut(message), _number_of(error.args[1][0]))


def _exceeds(confidence: float, premise: float) -> bool:
    """Tell whether a confidence is higher than its premise's allows (compared at four decimals)."""
    return round(confidence - premise, _digits) > confidence_tolerance


def _is_confidence(value: float) -> bool:
    """Tell whether a value is a confidence; NaN is none."""
    return 0.0 <= value <= 1.0


def _number_of(number: object) -> int | None:
    return number if isinstance(number, int) and 1 <= number <= step_number_max else None


def _validate_brief(brief: Brief, reads: Reads, before: _Before) -> ValidationReport:
    report = ValidationReport(brief.reasoning_ref, steps=len(brief.facts), of_brief=True)
    if not brief.facts:
        report.add_issue("The brief holds no fact", code="GRAPH_EMPTY")
    if not brief.conclusion.strip():
        report.add_issue("The brief comes to no conclusion", code="CONCLUSION_MISSING")
    held = {fact.step for fact in brief.facts}
    # What rests on a step that was dropped is not wrong; it only cannot be checked from here.
    kept = {fact.step: [number for number in fact.rests_on if number in held] for fact in brief.facts}
    report.issues += _dependency_issues(kept, held)
    for fact in brief.facts:
        for reference in fact.evidence:
            former = before.get((fact.step, cut(reference)))
            _add_evidence(report, check_evidence(reference, reads, step=fact.step, earlier=former))
        if fact.assumed:
            _add_assumption(report, check_assumption(fact.text, fact.check, reads, step=fact.step))
        if fact.rests_on:
            (report.checkable if held.issuperset(fact.rests_on) else report.not_checkable).append(fact.step)
    return report


def _add_evidence(report: ValidationReport, check: EvidenceCheck) -> None:
    report.evidence.append(check)
    if check.status not in HOLDING and check.status != "not_checked":
        message = f"Evidence {check.status.replace('_', ' ')}: {cut(check.reference, 160)}"
        message += f" ({check.note})" if check.note else ""
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


def _step_issues(steps: Sequence[ReasoningStep]) -> Iterator[Issue]:
    seen: set[int] = set()
    for step in steps:
        number = _number_of(step.step_number)
        if number is None:
            yield Issue("STEP_NUMBER_INVALID", cut(f"{step.step_number} is not the number of a step"))
        if step.step_number in seen:
            yield Issue("STEP_REPEATED", cut(f"Step {step.step_number} is given twice"), number)
        seen.add(step.step_number)
        if not step.content.strip():
            yield Issue("CONTENT_EMPTY", cut(f"Step {step.step_number} says nothing"), number)
        if not _is_confidence(step.confidence):
            message = f"The confidence of step {step.step_number} does not lie between 0 and 1: {step.confidence}"
            yield Issue("CONFIDENCE_INVALID", cut(message), number)


def _conclusion_issues(memory: ReasoningMemory) -> Iterator[Issue]:
    if not memory.conclusion.strip():
        yield Issue("CONCLUSION_MISSING", "The graph comes to no conclusion")
        return
    concluding = concluding_steps(memory)
    surest = max((step.confidence for step in concluding if _is_confidence(step.confidence)), default=1.0)
    whole = memory.confidence_in_reasoning
    if not _is_confidence(whole):
        yield Issue("CONFIDENCE_INVALID", "The confidence in the whole does not lie between 0 and 1")
    elif whole != confidence_not_stated and _exceeds(whole, surest):
        message = f"The confidence in the whole is {whole:g}, that of its conclusion {surest:g}"
        yield Issue("CONFIDENCE_ABOVE_PREMISES", cut(message))
    concluded = [step.step_number for step in concluding]
    with_evidence = {step.step_number for step in memory.steps if references_of(step)}
    citations = with_evidence or {step.step_number for step in memory.steps}.difference(concluded)
    if not ancestors(memory.dependencies, concluded) & citations:
        sought = "step with evidence" if with_evidence else "other step"
        yield Issue("CONCLUSION_UNREACHABLE", f"Going back from the conclusion, one comes to no {sought}")
