"""The table of operations on a reasoning, read by the command line, MCP, files of entries and the Python interface."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from deedbook.consumers.sdk.operations import Operation, operation_on
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import reasoning as kinds
from deedbook.ledger.events.fields import EventData, StepNumber

OptionalNumber = Annotated[StepNumber | None, msgspec.Meta(description="Its number (default: the next).")]
Verb: TypeAlias = Literal["start", "step", "assume", "settle", "retract", "conclude"]


class NewStep(kinds.Step, frozen=True, kw_only=True):
    """A step as its author gives it, with the earlier steps that it rests on. Its number may be left out."""

    step_number: OptionalNumber = None  # type: ignore[assignment]  # the event always has one
    type: Annotated[kinds.StepType, msgspec.Meta(description="The type of step.")] = "inference"
    rests_on: Annotated[
        list[StepNumber], msgspec.Meta(description="The number of a step that this one follows from.")
    ] = []

    def extension(self, number: int) -> kinds.ReasoningExtended:
        """Return the event that adds the step under a number. An assumption needs validation unless it says not."""
        given = {name: getattr(self, name) for name in kinds.Step.__struct_fields__}
        fields = {name: value for name, value in given.items() if value is not None}
        if self.type == "assumption" and self.needs_validation is None:
            fields["needs_validation"] = True
        step = kinds.Step(**fields | {"step_number": number})
        return kinds.ReasoningExtended(steps=[step], dependencies={number: self.rests_on} if self.rests_on else {})


class NewConclusion(kinds.ReasoningConcluded, frozen=True, kw_only=True):
    """A conclusion as its author gives it, with the steps that it rests on."""

    rests_on: Annotated[
        list[StepNumber], msgspec.Meta(description="The number of a step that the conclusion follows from.")
    ] = []

    def events(self, number: int) -> list[EventData]:
        """Return the events to sign: if it rests on steps, a conclusion step under a number comes first."""
        fields = {name: getattr(self, name) for name in kinds.ReasoningConcluded.__struct_fields__}
        concluded = kinds.ReasoningConcluded(**fields)
        if not self.rests_on:
            return [concluded]
        confidence = 1.0 if self.confidence_in_reasoning is None else self.confidence_in_reasoning
        step = NewStep(type="conclusion", content=self.conclusion, rests_on=self.rests_on, confidence=confidence)
        return [step.extension(number), concluded]


def following_number(reasoning: Mapping[str, Any]) -> int:
    """Return the number of the next step of a reasoning (an answer of ``reasoning.show``)."""
    return max((step["step_number"] for step in reasoning["memory"]["steps"]), default=0) + 1


def check_assumption(reasoning: Mapping[str, Any], number: int) -> None:
    """Refuse to settle a step that is no assumption and states none; ``reasoning`` answers ``reasoning.show``."""
    steps = reasoning["memory"]["steps"]
    target = next((row for row in steps if row["step_number"] == number), None)
    if target and not (target["type"] == "assumption" or "needs_validation" in target or target["assumptions"]):
        remedy = f"see `deed reasoning show {quote(reasoning['id'])}` for those that are"
        message = f"step {number} of {reasoning['id']} is no assumption and states none: {remedy}"
        raise Refused("USAGE", message, step=number)


def numbers_of(reasoning: Mapping[str, Any]) -> set[int]:
    """Return the numbers of the steps of a reasoning (an answer of ``reasoning.show``)."""
    return {step["step_number"] for step in reasoning["memory"]["steps"]}


def replaced_statement(reasoning: Mapping[str, Any], number: int, agent: str) -> list[str]:
    """Return notices about earlier statements on the assumption that ``agent`` settles now; empty without any."""
    steps = (row for row in reasoning["memory"]["steps"] if row["step_number"] == number)
    newest = {settlement["by"]: settlement for row in steps for settlement in row.get("settled", [])}
    notices = []
    for by, settlement in newest.items():
        said = f"that step {number} {'holds' if settlement['holds'] else 'is refuted'} ({settlement['how']})"
        rest = "this replaces it" if by == agent else "both statements count, and a single one refutes"
        notices.append(f"{'you' if by == agent else by} said before {said}: {rest}")
    return notices


def retraction_warnings(reasoning: Mapping[str, Any], number: int) -> list[str]:
    """Return a warning that names the steps which rest on step ``number``, which is to be retracted, if any do."""
    links = reasoning["memory"]["dependencies"].items()
    resting = sorted(int(step) for step, earlier in links if number in earlier)
    if not resting:
        return []
    name, steps = quote(reasoning["id"]), ", ".join(map(str, resting))
    advice = f"`deed reasoning retract {name} --step N --reason TEXT`, or `deed reasoning conclude {name}` anew"
    return [f"these steps rested on it: {steps}; do they still stand? {advice}"]


_STEP: Final = (
    "content",
    "type",
    "reasoning_type",
    "evidence",
    "rests_on",
    "premises",
    "alternatives_considered",
    "assumptions",
    "conclusion",
    "confidence",
    "needs_validation",
    "validation_method",
    "step_number",
)
_EXTENDED: Final = (kinds.ReasoningExtended,)

OPERATIONS: Final[dict[Verb, Operation]] = {
    "start": operation_on(
        kinds.ReasoningStarted, "Start a reasoning; the acting agent owns it.", reasoning_strategy="--strategy"
    ),
    "step": operation_on(
        NewStep,
        "Record one step.",
        _STEP,
        signs=_EXTENDED,
        content="TEXT",
        evidence="--evidence PATH:LINE[-LINE][:TEXT]|REV:PATH:LINE|URL|REF",
        rests_on="--rests-on N",
        premises="--premise",
        alternatives_considered="--alternative",
        assumptions="--assuming",
        validation_method="--check",
        step_number="--number",
    ),
    "assume": operation_on(
        NewStep,
        "Record an assumption to validate.",
        ("content", "validation_method"),
        signs=_EXTENDED,
        content="TEXT",
        validation_method="--check",
    ),
    "settle": operation_on(
        kinds.AssumptionSettled,
        "Record whether an assumption came out true or false. Any agent may.",
        ("step", "holds", "how", "evidence"),
        holds="--holds/--refuted",
        evidence="--evidence PATH:LINE[-LINE][:TEXT]|REV:PATH:LINE|URL|REF",
    ),
    "retract": operation_on(
        kinds.StepRetracted, "Retract a step of your own reasoning. Versions that cite it keep it.", ("step", "reason")
    ),
    "conclude": operation_on(
        NewConclusion,
        "Record the conclusion. The compressor then publishes briefs.",
        ("conclusion", "rests_on", "confidence_in_reasoning", "known_limitations"),
        signs=(kinds.ReasoningExtended, kinds.ReasoningConcluded),
        conclusion="TEXT",
        rests_on="--rests-on N",
        confidence_in_reasoning="--confidence",
        known_limitations="--limitation",
    ),
}
