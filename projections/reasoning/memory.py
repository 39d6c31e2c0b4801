"""A reasoning graph: its shape, its ref, and the conversion of foreign JSON.

Five fields of a step are absent by default: ``needs_validation``, ``validation_method``, its own ``conclusion``, the
``evidence_digests`` that its author's tool recorded, and ``settled``, the statements of agents about its assumption. An
absent field is ``msgspec.UNSET`` and does not change the hash. The rules of this module:

- One graph has one ref: ``compute_reasoning_ref`` hashes the ``json.dumps`` form with ``reasoning_id`` empty.
  Dependency keys stay integers until the dump, so step 2 sorts before step 10. As strings, "10" would come first, and
  the same graph would get another ref.
- ``domain`` is not part of the graph: it belongs to the event that starts the reasoning.
- ``memory_from_dict`` is the only entry for JSON. It refuses malformed fields by name, returns unknown fields beside
  the graph, and drops nothing silently.
"""

from __future__ import annotations

import hashlib
import json
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from deedbook.ledger.errors import Refused, refuse_name
from deedbook.ledger.format.codec import convert, halves, schema_error
from deedbook.projections.answers.answer import Untrusted

steps_max: Final = 10_000
confidence_not_stated: Final = 1.0
step_number_max: Final = 1_000_000

StepNumber = Annotated[int, msgspec.Meta(ge=1, le=step_number_max)]
_Links = dict[StepNumber, list[StepNumber]]
StepType = Annotated[str, msgspec.Meta(pattern=r"^(observation|inference|assumption|hypothesis|conclusion)\Z")]
ReasoningType = Annotated[str, msgspec.Meta(pattern=r"^(deductive|inductive|abductive|analogical)?\Z")]

_STEP_ALIASES: Final = {"step": "step_number", "evidence_refs": "evidence"}


class Settlement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An agent's statement about an assumption: whether it ``holds``, how the agent knows this, and the evidence."""

    by: str
    holds: bool
    how: Untrusted
    evidence: list[Untrusted] = []
    evidence_digests: list[str] = []

    if not TYPE_CHECKING:
        __getattr__ = refuse_name


class ReasoningStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of a reasoning graph."""

    step_number: StepNumber
    type: StepType
    content: Untrusted
    reasoning_type: ReasoningType = ""
    evidence: list[Untrusted] = []
    premises: list[Untrusted] = []
    alternatives_considered: list[Untrusted] = []
    assumptions: list[Untrusted] = []
    confidence: float = 1.0
    needs_validation: bool | UnsetType = UNSET
    validation_method: Untrusted | UnsetType = UNSET
    conclusion: Untrusted | UnsetType = UNSET
    evidence_digests: list[str] | UnsetType = UNSET
    settled: list[Settlement] | UnsetType = UNSET

    def settlements(self) -> list[Settlement]:
        """Return the statements of agents about the step's assumption, the oldest first."""
        return [] if self.settled is UNSET else self.settled

    def to_dict(self) -> dict[str, Any]:
        """Return the step as it is hashed: every field, the optional ones only if present."""
        fields = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}
        return fields if self.settled is UNSET else fields | {"settled": msgspec.to_builtins(self.settled)}

    if not TYPE_CHECKING:
        __getattr__ = refuse_name


class ReasoningMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole reasoning graph; ``dependencies`` maps a step to the steps it rests on."""

    reasoning_id: str
    ai_id: Untrusted
    task: Untrusted
    conclusion: Untrusted
    steps: list[ReasoningStep] = []
    dependencies: dict[int, list[int]] = {}
    reasoning_strategy: Untrusted = ""
    confidence_in_reasoning: float = 1.0
    known_limitations: list[Untrusted] = []

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as plain values, dependency keys still integers (see the module docstring)."""
        dependencies = {number: list(rests_on) for number, rests_on in self.dependencies.items()}
        steps = [step.to_dict() for step in self.steps]
        return msgspec.structs.asdict(self) | {"steps": steps, "dependencies": dependencies}

    if not TYPE_CHECKING:  # if a type checker saw it, it would accept any attribute name
        __getattr__ = refuse_name


def canonical_json(memory: ReasoningMemory) -> bytes:
    """Return the bytes whose SHA-256 is the graph's ref."""
    values = memory.to_dict() | {"reasoning_id": ""}
    return json.dumps(values, sort_keys=True, ensure_ascii=True, allow_nan=False).encode()


def compute_reasoning_ref(memory: ReasoningMemory) -> str:
    """Return ``sha256:`` and the hash of the graph, which does not depend on ``reasoning_id``."""
    return f"sha256:{hashlib.sha256(canonical_json(memory)).hexdigest()}"


def memory_from_dict(values: Any) -> tuple[ReasoningMemory, dict[str, Any]]:
    """Return the graph of JSON values, and the unknown fields by path (``steps[0].colour``).

    Also accepts the spellings ``step`` and ``evidence_refs``, and string dependency keys. A null means an absent field.
    ``task``, ``conclusion`` and ``steps`` are required; the other fields have defaults. Raises Refused:
    ``INVALID_FORMAT``, ``INVALID_FIELD``, ``TOO_LARGE`` or ``STEP_CONFLICT``, with ``field``.
    """
    if not isinstance(values, dict):
        raise Refused("INVALID_FORMAT", "A reasoning graph is a JSON object.", field="")
    fields = {name: value for name, value in values.items() if value is not None}
    for name in ("task", "conclusion", "steps"):
        if name not in fields:
            raise _invalid(name, "is missing")
    unknown = {str(name): fields[name] for name in fields if name not in ReasoningMemory.__struct_fields__}
    known: dict[str, Any] = {"reasoning_id": "", "ai_id": ""}
    known |= {name: value for name, value in fields.items() if name not in unknown}
    known["steps"] = _read_steps(fields["steps"], unknown)
    known["dependencies"] = _read_dependencies(fields.get("dependencies", {}))
    _read_confidence(known, "confidence_in_reasoning")
    # JSON escapes can spell half a surrogate pair, UTF-8 cannot, so no event could ever hold it.
    if (path := next(halves(known), None)) is not None:
        raise _invalid(path.removeprefix("$."), "is not valid Unicode")
    try:
        memory = convert(known, ReasoningMemory)
    except msgspec.ValidationError as error:
        refusal = schema_error(error, "graph")
        field = refusal.details["path"].removeprefix("graph").removeprefix(".")
        raise Refused(refusal.code, refusal.message, field=field) from error
    check_graph(memory)
    return memory, unknown


def check_graph(memory: ReasoningMemory) -> None:
    """Check the numbers and dependencies of the steps.

    Raises Refused: ``STEP_CONFLICT`` if two steps have one number, if a dependency names a step that does not exist, or
    if dependencies form a cycle, which the message shows.
    """
    numbers: set[int] = set()
    for position, step in enumerate(memory.steps):
        if step.step_number in numbers:
            raise _conflict(f"steps[{position}].step_number", f"Step {step.step_number} is given twice.")
        numbers.add(step.step_number)
    for number, rests_on in memory.dependencies.items():
        for named in (number, *rests_on):
            if named not in numbers:
                raise _conflict(f"dependencies.{number}", f"The dependencies name step {named}, which is not given.")
    try:
        TopologicalSorter(memory.dependencies).prepare()
    except CycleError as error:
        cycle = " → ".join(str(number) for number in error.args[1])
        raise _conflict("dependencies", f"The dependencies form a cycle: {cycle}.") from error


def _read_steps(values: Any, unknown: dict[str, Any]) -> list[dict[str, Any]]:
    if not isinstance(values, list):
        raise _invalid("steps", "is not a list")
    if len(values) > steps_max:
        raise Refused("TOO_LARGE", f"A graph has at most {steps_max} steps, not {len(values)}.", field="steps")
    return [_read_step(item, f"steps[{position}]", unknown) for position, item in enumerate(values)]


def _read_step(values: Any, path: str, unknown: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise Refused("INVALID_FORMAT", f"{path} is not a JSON object.", field=path)
    fields: dict[str, Any] = {}
    for name, value in values.items():
        if value is None:
            continue
        own_name = _STEP_ALIASES.get(name, name)
        if own_name not in ReasoningStep.__struct_fields__:
            unknown[f"{path}.{name}"] = value
        elif own_name in fields and fields[own_name] != value:
            raise _invalid(f"{path}.{own_name}", f"is there twice, once as {name}, with different values")
        else:
            fields[own_name] = value
    _read_confidence(fields, "confidence", f"{path}.")
    return fields


def _read_dependencies(values: Any) -> dict[int, list[int]]:
    if not isinstance(values, dict):
        raise _invalid("dependencies", "is not an object of step number to step numbers")
    dependencies: dict[int, list[int]] = {}
    for key, rests_on in values.items():
        path = f"dependencies.{key}"
        try:
            ((number, numbers),) = convert({key: rests_on}, _Links, str_keys=True).items()
        except msgspec.ValidationError as error:
            raise _invalid(path, "does not map a step number to a list of step numbers (integers from 1 on)") from error
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
    # -0.0 equals 0.0 but has another spelling, which would give the same graph a second ref.
    fields[name] = float(value) + 0.0


def _invalid(path: str, problem: str) -> Refused:
    return Refused("INVALID_FIELD", f"{path} {problem}.", field=path)


def _conflict(path: str, message: str) -> Refused:
    return Refused("STEP_CONFLICT", message, field=path)
