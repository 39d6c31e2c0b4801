"""Whether a graph holds together: what can be said of its logic without understanding its words (seed 001).

``check_inference`` is structural and says so: it sees that an inference has something to rest on, that this exists,
and that it is not surer than what it rests on. Whether the words follow from each other, only a judge can say.

Rules:

- step numbers are positive and unique, contents are not empty, confidences lie between 0 and 1;
- dependencies name steps that exist and never run in a circle;
- an inference or conclusion rests on something: steps, premises in words, or evidence of its own;
- it is no surer than its least sure premise, within ``confidence_tolerance``: the figures are an agent's estimates, and
  evidence of its own may add a little; the whole graph is no surer than its concluding steps, within the same, unless
  its confidence was left at its default of 1;
- a graph has a conclusion, and going back from it one comes to a step with evidence.

A graph that came through ``memory_from_dict`` or the ledger cannot break the first two; one that was built by hand, or
by an older ledger, can, so nothing here relies on them.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final

from consumers.reasoning.validator.evidence import cut, references_of
from ledger.events.validation import InferenceCheck, Issue
from projections.briefs.critical import concluding_steps
from projections.reasoning.memory import step_number_max

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from projections.reasoning.memory import ReasoningMemory, ReasoningStep

confidence_tolerance: Final = 0.10
confidence_not_stated: Final = 1.0
INFERRING: Final = frozenset({"inference", "conclusion"})
cycle_shown_max: Final = 20

_digits: Final = 4
_UNSUPPORTED: Final = "The inference names nothing that it rests on"


def check_structure(memory: ReasoningMemory) -> list[Issue]:
    """Return what is wrong with a graph as a whole; ``check_inference`` sees to its single inferences."""
    if not memory.steps:
        return [Issue("GRAPH_EMPTY", "The graph has no step")]
    return [
        *_step_issues(memory.steps),
        *dependency_issues(memory.dependencies, memory.steps),
        *_conclusion_issues(memory),
    ]


def check_inference(step: ReasoningStep, deps: Sequence[ReasoningStep]) -> InferenceCheck:
    """Return whether the structure of an inference from ``deps`` is sound; its words are not judged."""
    number = number_of(step)
    if not step.content.strip():
        return InferenceCheck(number, sound=False, reason="The inference says nothing")
    if not deps and not any(map(str.strip, step.premises)) and not step.evidence:
        return InferenceCheck(number, sound=False, reason=_UNSUPPORTED)
    if not is_confidence(step.confidence):
        return InferenceCheck(number, sound=False, reason="Its confidence does not lie between 0 and 1")
    weakest = min((dep for dep in deps if is_confidence(dep.confidence)), key=lambda dep: dep.confidence, default=None)
    if weakest is not None and exceeds(step.confidence, weakest.confidence):
        said = (
            f"Its confidence is {step.confidence:g}, that of its premise {weakest.step_number} {weakest.confidence:g}"
        )
        return InferenceCheck(number, sound=False, reason=cut(said))
    return InferenceCheck(number, sound=True)


def dependency_issues(dependencies: Mapping[int, Iterable[int]], steps: Iterable[object]) -> list[Issue]:
    """Return dependencies on steps that are not there, and the circle if there is one."""
    known = {getattr(step, "step_number", None) for step in steps}
    issues = [
        Issue("DEPENDENCY_DANGLING", cut(f"Step {number} rests on step {wanted}, which does not exist"), valid(number))
        for number, rests_on in dependencies.items()
        for wanted in (number, *rests_on)
        if wanted not in known
    ]
    try:
        TopologicalSorter(dependencies).prepare()
    except CycleError as error:
        circle = [str(number) for number in error.args[1]]
        shown = " → ".join(circle[:cycle_shown_max]) + (" → …" if len(circle) > cycle_shown_max else "")
        issues.append(
            Issue("DEPENDENCY_CYCLE", cut(f"Steps rest on each other in a circle: {shown}"), valid(error.args[1][0]))
        )
    return issues


def exceeds(confidence: float, premise: float) -> bool:
    """Tell whether a confidence is higher than its premise's allows (compared at four decimals)."""
    return round(confidence - premise, _digits) > confidence_tolerance


def is_confidence(value: float) -> bool:
    """Tell whether a value is a confidence; NaN is none."""
    return 0.0 <= value <= 1.0


def number_of(step: ReasoningStep) -> int | None:
    """Return the step's number if an event can hold it."""
    return valid(step.step_number)


def valid(number: object) -> int | None:
    """Return a step number if an event can hold it."""
    return number if isinstance(number, int) and 1 <= number <= step_number_max else None


def _step_issues(steps: Sequence[ReasoningStep]) -> list[Issue]:
    issues: list[Issue] = []
    seen: set[int] = set()
    for step in steps:
        number = number_of(step)
        if number is None:
            issues.append(Issue("STEP_NUMBER_INVALID", cut(f"{step.step_number} is not the number of a step")))
        if step.step_number in seen:
            issues.append(Issue("STEP_REPEATED", cut(f"Step {step.step_number} is given twice"), number))
        seen.add(step.step_number)
        if not step.content.strip():
            issues.append(Issue("CONTENT_EMPTY", cut(f"Step {step.step_number} says nothing"), number))
        if not is_confidence(step.confidence):
            said = f"The confidence of step {step.step_number} does not lie between 0 and 1: {step.confidence}"
            issues.append(Issue("CONFIDENCE_INVALID", cut(said), number))
    return issues


def _conclusion_issues(memory: ReasoningMemory) -> list[Issue]:
    if not memory.conclusion.strip():
        return [Issue("CONCLUSION_MISSING", "The graph comes to no conclusion")]
    issues: list[Issue] = []
    concluding = concluding_steps(memory)
    surest = max((step.confidence for step in concluding if is_confidence(step.confidence)), default=1.0)
    if not is_confidence(memory.confidence_in_reasoning):
        issues.append(Issue("CONFIDENCE_INVALID", "The confidence in the whole does not lie between 0 and 1"))
    elif memory.confidence_in_reasoning != confidence_not_stated and exceeds(memory.confidence_in_reasoning, surest):
        said = f"The confidence in the whole is {memory.confidence_in_reasoning:g}, that of its conclusion {surest:g}"
        issues.append(Issue("CONFIDENCE_ABOVE_PREMISES", cut(said)))
    with_evidence = {step.step_number for step in memory.steps if references_of(step)}
    reached = ancestors(memory.dependencies, [step.step_number for step in concluding])
    if not reached & with_evidence:
        said = "Going back from the conclusion, one comes to no step with evidence"
        issues.append(Issue("CONCLUSION_UNREACHABLE", said))
    return issues


def ancestors(dependencies: Mapping[int, Iterable[int]], starts: Iterable[int]) -> set[int]:
    """Return the steps that can be reached going back from ``starts``, those included; a circle ends the walk."""
    waiting = list(starts)
    reached = set(waiting)
    while waiting:
        for wanted in dependencies.get(waiting.pop(), ()):
            if wanted not in reached:
                reached.add(wanted)
                waiting.append(wanted)
    return reached
