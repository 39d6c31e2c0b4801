"""A reasoning graph: its shape, its one ref, and how foreign JSON becomes one.

Four fields of a step are absent by default: ``needs_validation``, ``validation_method``, its own ``conclusion``, and
the ``evidence_digests`` that its author's tool took along. An absent one is ``msgspec.UNSET`` and leaves no trace in
the hash. Rules this module keeps:

- one graph has one ref: ``compute_reasoning_ref`` hashes the ``json.dumps`` form with ``reasoning_id`` empty.
  Dependency keys stay integers until the dump, so step 2 sorts before step 10; as strings, "10" would come first, and
  the same graph would get another ref;
- ``domain`` is never part of the graph: it belongs to the event that starts the reasoning;
- ``memory_from_dict`` is the only way in for JSON: what is malformed is refused with the field named, what is unknown
  is handed back beside the graph, and nothing is dropped in silence.
"""

from __future__ import annotations

import hashlib
import json
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import halves, schema_error

steps_max: Final = 10_000
step_number_max: Final = 1_000_000

StepNumber = Annotated[int, msgspec.Meta(ge=1, le=step_number_max)]
_Links = dict[StepNumber, list[StepNumber]]
StepType = Annotated[str, msgspec.Meta(pattern=r"^(observation|inference|assumption|hypothesis|conclusion)\Z")]
ReasoningType = Annotated[str, msgspec.Meta(pattern=r"^(deductive|inductive|abductive|analogical)?\Z")]

_STEP_ALIASES: Final = {"step": "step_number", "evidence_refs": "evidence"}


class ReasoningStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of a reasoning graph."""

    step_number: StepNumber
    type: StepType
    content: str
    reasoning_type: ReasoningType = ""
    evidence: list[str] = []
    premises: list[str] = []
    alternatives_considered: list[str] = []
    assumptions: list[str] = []
    confidence: float = 1.0
    needs_validation: bool | UnsetType = UNSET
    validation_method: str | UnsetType = UNSET
    conclusion: str | UnsetType = UNSET
    evidence_digests: list[str] | UnsetType = UNSET

    def to_dict(self) -> dict[str, Any]:
        """Return the step as it is hashed: every dataclass field, the optional ones only when given."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}


class ReasoningMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole reasoning graph; ``dependencies`` maps a step to those it rests on."""

    reasoning_id: str
    ai_id: str
    task: str
    conclusion: str
    steps: list[ReasoningStep] = []
    dependencies: dict[int, list[int]] = {}
    reasoning_strategy: str = ""
    confidence_in_reasoning: float = 1.0
    known_limitations: list[str] = []

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as plain values, dependency keys still integers (see the module docstring)."""
        dependencies = {number: list(rests_on) for number, rests_on in self.dependencies.items()}
        steps = [step.to_dict() for step in self.steps]
        return msgspec.structs.asdict(self) | {"steps": steps, "dependencies": dependencies}


def canonical_json(memory: ReasoningMemory) -> bytes:
    """Return the bytes whose SHA-256 is the graph's ref."""
    values = memory.to_dict() | {"reasoning_id": ""}
    return json.dumps(values, sort_keys=True, ensure_ascii=True, allow_nan=False).encode()


def compute_reasoning_ref(memory: ReasoningMemory) -> str:
    """Return ``sha256:`` and the hash of the graph, the same whatever ``reasoning_id`` says."""
    return f"sha256:{hashlib.sha256(canonical_json(memory)).hexdigest()}"


def memory_from_dict(given: Any) -> tuple[ReasoningMemory, dict[str, Any]]:
    """Return the graph that JSON values describe, and its unmapped fields, by path (``steps[0].colour``).

    Takes the spellings ``step`` and ``evidence_refs`` too, and string dependency keys. A null stands for
    an absent field. ``task``, ``conclusion`` and ``steps`` are required, the rest has the dataclass defaults. Raises
    Refused: ``INVALID_FORMAT``, ``INVALID_FIELD``, ``TOO_LARGE`` or ``STEP_CONFLICT``, with ``field``.
    """
    if not isinstance(given, dict):
        raise Refused("INVALID_FORMAT", "A reasoning graph is a JSON object.", field="")
    fields = {name: value for name, value in given.items() if value is not None}
    for name in ("task", "conclusion", "steps"):
        if name not in fields:
            raise _invalid(name, "is missing")
    unmapped = {str(name): fields[name] for name in fields if name not in ReasoningMemory.__struct_fields__}
    known: dict[str, Any] = {"reasoning_id": "", "ai_id": ""}
    known |= {name: value for name, value in fields.items() if name not in unmapped}
    known["steps"] = _read_steps(fields["steps"], unmapped)
    known["dependencies"] = _read_dependencies(fields.get("dependencies", {}))
    _read_confidence(known, "confidence_in_reasoning")
    # JSON escapes can spell half a surrogate pair, UTF-8 cannot, so no event could ever hold it.
    if (path := next(halves(known), None)) is not None:
        raise _invalid(path.removeprefix("$."), "is not valid Unicode")
    try:
        memory = msgspec.convert(known, ReasoningMemory)
    except msgspec.ValidationError as error:
        refusal = schema_error(error, "graph")
        field = refusal.details["path"].removeprefix("graph").removeprefix(".")
        raise Refused(refusal.code, refusal.message, field=field) from error
    check_graph(memory)
    return memory, unmapped


def check_graph(memory: ReasoningMemory) -> None:
    """Raises Refused: ``STEP_CONFLICT``: a number used twice, a dependency on no step, or a cycle (which is named)."""
    numbers: set[int] = set()
    for position, step in enumerate(memory.steps):
        if step.step_number in numbers:
            raise _conflict(f"steps[{position}].step_number", f"Step {step.step_number} is given twice.")
        numbers.add(step.step_number)
    for number, rests_on in memory.dependencies.items():
        for wanted in (number, *rests_on):
            if wanted not in numbers:
                raise _conflict(f"dependencies.{number}", f"The dependencies name step {wanted}, which is not given.")
    try:
        TopologicalSorter(memory.dependencies).prepare()
    except CycleError as error:
        cycle = " → ".join(str(number) for number in error.args[1])
        raise _conflict("dependencies", f"The dependencies run in a circle: {cycle}.") from error


def _read_steps(given: Any, unmapped: dict[str, Any]) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise _invalid("steps", "is not a list")
    if len(given) > steps_max:
        raise Refused("TOO_LARGE", f"A graph has at most {steps_max} steps, not {len(given)}.", field="steps")
    return [_read_step(item, f"steps[{position}]", unmapped) for position, item in enumerate(given)]


def _read_step(given: Any, path: str, unmapped: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise Refused("INVALID_FORMAT", f"{path} is not a JSON object.", field=path)
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        own_name = _STEP_ALIASES.get(name, name)
        if own_name not in ReasoningStep.__struct_fields__:
            unmapped[f"{path}.{name}"] = value
        elif own_name in fields and fields[own_name] != value:
            raise _invalid(f"{path}.{own_name}", f"is given twice, once as {name}, with different values")
        else:
            fields[own_name] = value
    _read_confidence(fields, "confidence", f"{path}.")
    return fields


def _read_dependencies(given: Any) -> dict[int, list[int]]:
    if not isinstance(given, dict):
        raise _invalid("dependencies", "is not an object of step number to step numbers")
    dependencies: dict[int, list[int]] = {}
    for key, rests_on in given.items():
        path = f"dependencies.{key}"
        try:
            ((number, numbers),) = msgspec.convert({key: rests_on}, _Links, str_keys=True).items()
        except msgspec.ValidationError as error:
            raise _invalid(path, "is not a list of step numbers (integers from 1 on) by such a number") from error
        if number in dependencies:
            raise _conflict(path, f"The dependencies of step {number} are given twice.")
        dependencies[number] = numbers
    return dependencies


def _read_confidence(fields: dict[str, Any], name: str, within: str = "") -> None:
    if name not in fields:
        return
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid(f"{within}{name}", "is not a number")
    if not 0 <= value <= 1:  # False for NaN too
        raise _invalid(f"{within}{name}", "is not between 0 and 1")
    # -0.0 equals 0.0 but is spelt differently, and would give the same graph a second ref.
    fields[name] = float(value) + 0.0


def _invalid(path: str, problem: str) -> Refused:
    return Refused("INVALID_FIELD", f"{path} {problem}.", field=path)


def _conflict(path: str, message: str) -> Refused:
    return Refused("STEP_CONFLICT", message, field=path)
