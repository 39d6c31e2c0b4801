"""``ReasoningValidator``: checks another agent's reasoning before anybody acts on it.

It checks every reference (``evidence``), every assumption that a named check can decide (``assumptions``), and the
structure of the graph. The report depends only on the reasoning, the tree, an earlier report if there is one, and the
judge: not on a clock, the network or any order. A reasoning passes if there is no issue. References that could not be
looked up are listed as not checked. They are not an issue, because nobody may act on a report with open checks anyway
(``projections.validations``).

**A graph is sound** as far as that can be checked without understanding its words. Numbers, contents and confidences
are valid. Dependencies name existing steps and have no cycle. The confidence of an inference or conclusion is not
higher than that of its weakest premise, within ``confidence_tolerance`` (the figures are an agent's estimates, and
evidence of its own may add a little), and the confidence in the whole is not higher than that of its concluding steps.
The default confidence, 1, is no estimate and is not compared. From the conclusion, the dependencies lead back to a step
with evidence or, if the graph cites no evidence at all (a sum, a thought aloud), to another step. A graph built by hand
can break each of these rules, so this code does not rely on them.

**An inference or conclusion is unlinked** if it names no step, premise or evidence that it rests on. People write in
this way, so it is no fault, but nobody can decide whether it follows. If the conclusion rests on it, the verdict on the
graph is "unchecked", never "validated". A conclusion without links is at fault only if there is no other step.

**A judge** (a model, a person) can only add issues: for an inference that it doubts. Its approval never repairs a
failed check. **A brief** is checked in the same way; ``checkable`` are the inferences whose premises are all in it,
verbatim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple, Protocol, TypeAlias, assert_never

import msgspec

from deedbook.consumers.reasoning.validator.assumptions import check_assumption, check_assumptions
from deedbook.consumers.reasoning.validator.evidence import HOLDING, check_evidence, citations_of, cut, references_of
from deedbook.consumers.reasoning.validator.reads import Reads
from deedbook.consumers.reasoning.validator.report import ASSUMPTION_REFUTED, ValidationReport
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
from deedbook.projections.briefs.critical import ancestors, concluding_steps, refutations
from deedbook.projections.reasoning.memory import (
    ReasoningMemory,
    ReasoningStep,
    compute_reasoning_ref,
    confidence_not_stated,
    step_number_max,
)

judged_max: Final = 200
confidence_tolerance: Final = 0.10
INFERRING: Final = frozenset({"inference", "conclusion"})
cycle_shown_max: Final = 20

_digits: Final = 4
_UNLINKED: Final = "It does not name what it rests on"
UNLINKED_CONCLUSION: Final = "The conclusion does not name what it rests on"

_Before: TypeAlias = Mapping[tuple[int | None, str], EvidenceCheck]


class Verdict(NamedTuple):
    """A judge's opinion on one inference."""

    opinion: Opinion
    reason: str


class Judge(Protocol):
    """A model or person who says whether an inference follows from its premises."""

    model: str
    prompt_hash: str

    def judge(self, step: ReasoningStep, deps: Sequence[ReasoningStep]) -> Verdict:
        """Return whether the step follows; a judge that does not know returns ``unsure``, and raises nothing."""


class ReasoningValidator:
    """Validates reasoning against a tree; the same input gives the same report."""

    def __init__(
        self, tree: Tree | None = None, judge: Judge | None = None, knows: Callable[[str], bool] | None = None
    ) -> None:
        """Look up evidence in ``tree``, and refs with ``knows``; ask ``judge`` about at most 200 inferences."""
        self._tree = tree
        self._knows = knows
        self._judge = judge

    def validate(
        self, reasoning: ReasoningMemory | Brief, *, earlier: Iterable[EvidenceCheck] = (), validator: str = ""
    ) -> ValidationReport:
        """Return the report on a graph or a brief, compared with the evidence of an earlier report that passed.

        ``validator`` is the agent that will sign it: the assumptions that they settled count as checked.
        """
        reads = Reads(self._tree, self._knows)
        before = {(check.step, check.reference): check for check in earlier}
        match reasoning:
            case ReasoningMemory():
                report = self._validate_graph(reasoning, reads, before, validator)
            case Brief():
                report = _validate_brief(reasoning, reads, before)
            case _:
                assert_never(reasoning)
        report.tree = reads.identity()
        return report

    def check_inference(self, step: ReasoningStep, deps: Sequence[ReasoningStep]) -> InferenceCheck:
        """Return whether the structure of an inference is sound, with the judge's opinion if there is a judge."""
        check = check_inference(step, deps)
        if self._judge is None or check.status == "unlinked":
            return check
        verdict = self._judge.judge(step, deps)
        reason = check.reason if check.status != "sound" else cut(verdict.reason)
        return msgspec.structs.replace(check, method="judged", opinion=verdict.opinion, reason=reason)

    def _validate_graph(
        self, memory: ReasoningMemory, reads: Reads, before: _Before, validator: str
    ) -> ValidationReport:
        report = ValidationReport(_ref_of(memory), steps=len(memory.steps))
        report.issues += check_structure(memory)
        for step in memory.steps:
            number = _number_of(step.step_number)
            for reference, cited in citations_of(step):
                former = before.get((number, cut(reference)))
                _add_evidence(report, check_evidence(reference, reads, step=number, earlier=former, cited=cited))
        for assumed, is_fault in assumptions_of(memory, reads, validator):
            _add_assumption(report, assumed, is_fault=is_fault)
        self._check_inferences(report, memory)
        return report

    def _check_inferences(self, report: ValidationReport, memory: ReasoningMemory) -> None:
        steps, grounds = premises_of(memory), _grounds(memory)
        if self._judge is not None:
            report.judge = JudgeMark(self._judge.model, self._judge.prompt_hash)
        for judged, step in enumerate(inferences_of(memory), start=1):
            deps = [steps[number] for number in memory.dependencies.get(step.step_number, []) if number in steps]
            check = self.check_inference(step, deps) if judged <= judged_max else check_inference(step, deps)
            if check.status == "unlinked" and step.step_number not in grounds:
                check = msgspec.structs.replace(check, is_ground=False)
            _add_inference(report, check, step)
        concluding = {_number_of(step.step_number) for step in concluding_steps(memory)}
        unlinked = {check.step for check in report.inferences if check.status == "unlinked"}
        if is_unlinked(memory) and not concluding & unlinked:
            report.inferences.append(InferenceCheck(None, "unlinked", reason=UNLINKED_CONCLUSION))


def assumptions_of(
    memory: ReasoningMemory, reads: Reads, validator: str = ""
) -> Iterator[tuple[AssumptionCheck, bool]]:
    """Yield the check of each assumption, and whether it is a fault of the reasoning if it is refuted.

    The validator may refute an assumption on which nothing rests: that is no fault.
    """
    unused = {refuted.step for refuted in refutations(memory) if not refuted.is_ground}
    for step in memory.steps:
        is_ground = step.step_number not in unused
        number = _number_of(step.step_number)
        for check in check_assumptions(step, number, reads, validator=validator, is_ground=is_ground):
            yield check, is_ground or bool(check.check)


def _grounds(memory: ReasoningMemory) -> set[int]:
    """Return the steps that the conclusion rests on, and the conclusion itself; all steps, if it names none."""
    concluding = [step.step_number for step in concluding_steps(memory)]
    if not any(memory.dependencies.get(number) for number in concluding):
        return {step.step_number for step in memory.steps}
    return ancestors(memory.dependencies, concluding)


def premises_of(memory: ReasoningMemory) -> dict[int, ReasoningStep]:
    """Return the steps by number, each with the confidence that the steps resting on it may rely on.

    A step that was left at the default confidence carries no more than its weakest premise: otherwise it would hide the
    doubt in its premises.
    """
    steps = {step.step_number: step for step in memory.steps}
    try:
        order = list(TopologicalSorter(memory.dependencies).static_order())
    except CycleError:
        return steps
    for number in order:
        step = steps.get(number)
        if step is None or step.confidence != confidence_not_stated:
            continue
        premises = [steps[on].confidence for on in memory.dependencies.get(number, ()) if on in steps]
        if (weakest := min(premises, default=confidence_not_stated)) < step.confidence:
            steps[number] = msgspec.structs.replace(step, confidence=weakest)
    return steps


def is_unlinked(memory: ReasoningMemory) -> bool:
    """Return whether the conclusion names no step that it rests on, and this is no fault (see the module docstring)."""
    concluding = [step.step_number for step in concluding_steps(memory)]
    is_linked = any(memory.dependencies.get(number) for number in concluding)
    if not memory.conclusion.strip() or is_linked or _leads_back(memory, concluding):
        return False
    return len(memory.steps) > len(concluding)


def _leads_back(memory: ReasoningMemory, concluded: list[int]) -> bool:
    """Return whether the concluding steps rest on evidence, or on other steps if the graph cites no evidence."""
    with_evidence = {step.step_number for step in memory.steps if references_of(step)}
    citations = with_evidence or {step.step_number for step in memory.steps}.difference(concluded)
    return bool(ancestors(memory.dependencies, concluded) & citations)


def _is_supported(step: ReasoningStep, memory: ReasoningMemory) -> bool:
    return bool(memory.dependencies.get(step.step_number) or any(map(str.strip, step.premises)) or step.evidence)


def inferences_of(memory: ReasoningMemory) -> Iterator[ReasoningStep]:
    """Yield the steps that must follow from others: not observations, assumptions, and hypotheses without a premise."""
    for step in memory.steps:
        if step.type in INFERRING or (step.type == "hypothesis" and memory.dependencies.get(step.step_number)):
            yield step


def check_structure(memory: ReasoningMemory) -> list[Issue]:
    """Return the issues of a graph as a whole; ``check_inference`` checks its single inferences."""
    if not memory.steps:
        return [Issue("GRAPH_EMPTY", "The graph has no step")]
    return [
        *_step_issues(memory.steps),
        *_dependency_issues(memory.dependencies, {step.step_number for step in memory.steps}),
        *_conclusion_issues(memory),
    ]


def check_inference(step: ReasoningStep, deps: Sequence[ReasoningStep]) -> InferenceCheck:
    """Return whether the structure of an inference from ``deps`` is sound; its words are not checked."""
    number = _number_of(step.step_number)
    if not step.content.strip():
        return InferenceCheck(number, "unsound", reason="The inference has no content")
    if not deps and not any(map(str.strip, step.premises)) and not step.evidence:
        return InferenceCheck(number, "unlinked", reason=_UNLINKED)
    if not _is_confidence(step.confidence):
        return InferenceCheck(number, "unsound", reason="Its confidence is not between 0 and 1")
    weakest = min((dep for dep in deps if _is_confidence(dep.confidence)), key=lambda dep: dep.confidence, default=None)
    is_stated = step.confidence != confidence_not_stated
    if weakest is not None and is_stated and _exceeds(step.confidence, weakest.confidence):
        premise = f"that of its premise {weakest.step_number} {weakest.confidence:g}"
        return InferenceCheck(number, "unsound", reason=cut(f"Its confidence is {step.confidence:g}, {premise}"))
    return InferenceCheck(number, "sound")


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
        path = " → ".join(circle[:cycle_shown_max]) + (" → …" if len(circle) > cycle_shown_max else "")
        message = f"Steps rest on each other in a circle: {path}"
        yield Issue("DEPENDENCY_CYCLE", cut(message), _number_of(error.args[1][0]))


def _exceeds(confidence: float, premise: float) -> bool:
    """Return whether a confidence is higher than its premise's allows (compared at four decimals)."""
    return round(confidence - premise, _digits) > confidence_tolerance


def _is_confidence(value: float) -> bool:
    """Return whether a value is a confidence; NaN is not."""
    return 0.0 <= value <= 1.0


def _number_of(number: object) -> int | None:
    return number if isinstance(number, int) and 1 <= number <= step_number_max else None


def _validate_brief(brief: Brief, reads: Reads, before: _Before) -> ValidationReport:
    report = ValidationReport(brief.reasoning_ref, steps=len(brief.facts), of_brief=True)
    if not brief.facts:
        report.add_issue("The brief has no fact", code="GRAPH_EMPTY")
    if not brief.conclusion.strip():
        report.add_issue("The brief has no conclusion", code="CONCLUSION_MISSING")
    steps = {fact.step for fact in brief.facts}
    # A fact that rests on a dropped step may be right, but the brief alone cannot prove it.
    dependencies = {fact.step: [number for number in fact.rests_on if number in steps] for fact in brief.facts}
    report.issues += _dependency_issues(dependencies, steps)
    for fact in brief.facts:
        for reference in fact.evidence:
            former = before.get((fact.step, cut(reference)))
            _add_evidence(report, check_evidence(reference, reads, step=fact.step, earlier=former))
        if fact.assumed:
            _add_assumption(report, check_assumption(fact.text, fact.check, reads, step=fact.step))
        if fact.rests_on:
            (report.checkable if steps.issuperset(fact.rests_on) else report.not_checkable).append(fact.step)
    return report


def _add_evidence(report: ValidationReport, check: EvidenceCheck) -> None:
    report.evidence.append(check)
    if check.status not in HOLDING and check.status != "not_checked":
        message = f"Evidence {check.status.replace('_', ' ')}: {cut(check.reference, 160)}"
        message += f" ({check.note})" if check.note else ""
        report.add_issue(message, code=f"EVIDENCE_{check.status.upper()}", step=check.step)


def _add_assumption(report: ValidationReport, check: AssumptionCheck, *, is_fault: bool = True) -> None:
    report.assumptions.append(check)
    if check.status == "refuted" and is_fault:
        message = f"Invalid: {cut(check.text, 160)} ({check.note})"
        report.add_issue(message, code=ASSUMPTION_REFUTED, step=check.step)


def _add_inference(report: ValidationReport, check: InferenceCheck, step: ReasoningStep) -> None:
    report.inferences.append(check)
    if check.status == "unsound":
        message = f"Step {step.step_number}: invalid inference ({check.reason})"
        report.add_issue(message, code="INFERENCE_UNSOUND", step=check.step)
    if check.opinion == "does_not_follow":
        message = f"Step {step.step_number}: the judge says that it does not follow ({check.reason})"
        report.add_issue(message, code="INFERENCE_DOUBTED", step=check.step)


def _ref_of(memory: ReasoningMemory) -> str:
    """Return the graph's ref; empty for a graph without a canonical form (NaN, surrogates)."""
    try:
        return compute_reasoning_ref(memory)
    except (ValueError, TypeError):
        return ""


def _step_issues(steps: Sequence[ReasoningStep]) -> Iterator[Issue]:
    seen: set[int] = set()
    for step in steps:
        number = _number_of(step.step_number)
        if number is None:
            yield Issue("STEP_NUMBER_INVALID", cut(f"{step.step_number} is not a valid step number"))
        if step.step_number in seen:
            yield Issue("STEP_REPEATED", cut(f"Step {step.step_number} occurs twice"), number)
        seen.add(step.step_number)
        if not step.content.strip():
            yield Issue("CONTENT_EMPTY", cut(f"Step {step.step_number} has no content"), number)
        if not _is_confidence(step.confidence):
            message = f"The confidence of step {step.step_number} is not between 0 and 1: {step.confidence}"
            yield Issue("CONFIDENCE_INVALID", cut(message), number)


def _conclusion_issues(memory: ReasoningMemory) -> Iterator[Issue]:
    if not memory.conclusion.strip():
        yield Issue("CONCLUSION_MISSING", "The graph has no conclusion")
        return
    concluding = concluding_steps(memory)
    premises = premises_of(memory)
    carried = (premises[step.step_number].confidence for step in concluding)
    surest = max(filter(_is_confidence, carried), default=1.0)
    whole = memory.confidence_in_reasoning
    if not _is_confidence(whole):
        yield Issue("CONFIDENCE_INVALID", "The confidence in the whole is not between 0 and 1")
    elif whole != confidence_not_stated and _exceeds(whole, surest):
        message = f"The confidence in the whole is {whole:g}, that of its conclusion {surest:g}"
        yield Issue("CONFIDENCE_ABOVE_PREMISES", cut(message))
    concluded = [step.step_number for step in concluding]
    between = ancestors(memory.dependencies, concluded).difference(concluded)
    # A step that names no premise ends the search: nobody knows what it rests on.
    is_cut_off = any(step.step_number in between and not _is_supported(step, memory) for step in inferences_of(memory))
    if not _leads_back(memory, concluded) and not is_cut_off and not is_unlinked(memory):
        with_evidence = any(references_of(step) for step in memory.steps)
        sought = "step with evidence" if with_evidence else "other step"
        yield Issue("CONCLUSION_UNREACHABLE", f"The conclusion does not lead back to any {sought}")
