"""The entries that `record_reasoning` takes: each is an operation on a session or reasoning, selected by ``type``.

They come from the tables of operations, in one schema for all types, because every agent session pays for it. Unknown
fields are refused, because signed events can never be changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec

from deedbook.consumers.interfaces.mcp.arguments import text_of
from deedbook.consumers.reasoning import operations as of_reasoning
from deedbook.consumers.reasoning.operations import NewStep
from deedbook.consumers.sdk.operations import Argument, Operation, operation_on, read_values, with_lists
from deedbook.consumers.sessions import operations as of_session
from deedbook.consumers.sessions.operations import Resolution, Retraction
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events.fields import EventData, Line, Passage, Unit
from deedbook.ledger.events.reasoning import ReasoningConcluded, StepType
from deedbook.ledger.format.codec import converted
from deedbook.projections.snapshots.vectors import read_vectors

STEPS: Final[tuple[StepType, ...]] = get_args(StepType)


class StepEntry(NewStep, frozen=True, kw_only=True):
    """A step of a reasoning; a conclusion also concludes it."""

    confidence: Annotated[Unit | None, msgspec.Meta(description="From 0 to 1.")] = None  # type: ignore[assignment]  # the event always has one
    known_limitations: Annotated[
        list[Passage] | None, msgspec.Meta(description="Where the conclusion may be wrong.")
    ] = None

    def events(self, number: int) -> list[EventData]:
        """Return the events that record the step under a number; a conclusion has a second event.

        A conclusion of which nothing else is said is no step, as on the command line, unless it is the first.
        """
        if self.type != "conclusion":
            if self.known_limitations:
                raise Refused("USAGE", "known_limitations are only for a conclusion", field="known_limitations")
            return [self.extension(number)]
        concluded = ReasoningConcluded(
            conclusion=self.content, confidence_in_reasoning=self.confidence, known_limitations=self.known_limitations
        )
        bare = StepEntry(
            type="conclusion",
            content=self.content,
            confidence=self.confidence,
            known_limitations=self.known_limitations,
        )
        return [concluded] if self == bare and number > 1 else [self.extension(number), concluded]


class Judgement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A snapshot, a validation against the server's work tree, or a question to a human, about a reasoning."""

    type: Literal["snapshot", "validation", "review"]
    ref: Annotated[Line, msgspec.Meta(description="The reasoning.")]
    context: Annotated[str, msgspec.Meta(description="What its reader should know.")] = ""


class NewDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decision about some files, for every agent of the ledger."""

    text: Line
    why: str = ""
    paths: list[Line] = []
    contract: bool = False
    supersedes: list[Line] = []


class Thoughts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tree-of-thoughts search for ``problem`` (minutes), or the state of the search ``ref``.

    Without a program or model that can think about the problem, you think: answer each ``question``.
    """

    problem: Annotated[str, msgspec.Meta(description="The problem.")] = ""
    task_type: Annotated[
        str,
        msgspec.Meta(description="math_reasoning, creative_writing, planning, debugging or architecture_design."),
    ] = "math_reasoning"
    ref: Annotated[str, msgspec.Meta(description="The task_id of a search.")] = ""
    criteria: list[str] = []
    question: Annotated[str, msgspec.Meta(description="The id of what you answer.")] = ""
    answer: dict[str, Any] | None = None
    best_path: Annotated[bool, msgspec.Meta(description="With resume: it is the answer.")] = False
    resume: Annotated[bool, msgspec.Meta(description="Continue a paused search.")] = False
    after: Annotated[int, msgspec.Meta(ge=0, description="Only later log lines.")] = 0


Alone: TypeAlias = Retraction | Resolution | Judgement | NewDecision | Thoughts
"""An entry that must be the only one of its call."""

Work: TypeAlias = EventData | StepEntry
"""An entry that is signed together with others: of the session, or of the reasoning."""

_STEP: Final = operation_on(
    StepEntry,
    "",
    [
        *(
            argument.name
            for argument in of_reasoning.OPERATIONS["step"].arguments
            if argument.name not in {"type", "conclusion"}
        ),
        "known_limitations",
    ],
)
_JUDGE: Final = operation_on(Judgement, "", ("ref", "context"))
_SESSION: Final = of_session.OPERATIONS

OPERATIONS: Final[dict[str, Operation]] = {
    "assessment": _SESSION["assess"],
    **{verb: _SESSION[verb] for verb in of_session.RECORDED},
    "session_end": _SESSION["end"],
    **dict.fromkeys(STEPS, _STEP),
    "settlement": of_reasoning.OPERATIONS["settle"],
    "retraction": _SESSION["retract"],
    "resolution": _SESSION["resolve"],
    "decision": operation_on(NewDecision, ""),
    "snapshot": _JUDGE,
    "validation": _JUDGE,
    "review": _JUDGE,
    "thoughts": operation_on(Thoughts, ""),
}


ALONE: Final = [name for name, operation in OPERATIONS.items() if operation.form in get_args(Alone)]


def read_entry(number: int, entry: Mapping[str, Any]) -> Work | Alone:
    """Return an entry of a call; ``number`` counts from 1. Raises Refused: ``INVALID_FIELD``, ``UNKNOWN_FIELD``."""
    try:
        work: Work | Alone = _read(dict(entry))
    except Refused as refusal:
        details = refusal.details | {"entries": [number]}
        raise Refused(refusal.code, f"entry {number}: {refusal.message}", **details) from refusal
    return work


def _read(values: dict[str, Any]) -> Any:
    kind = values.pop("type", None)
    operation = OPERATIONS.get(kind) if isinstance(kind, str) else None
    if operation is None or operation.form is None:
        rest = did_you_mean(near(str(kind), OPERATIONS)) or f": the types are {', '.join(OPERATIONS)}"
        raise Refused("INVALID_FIELD", f"there is no type {str(kind)[:80]!r}{rest}", field="type")
    values = with_lists(operation.arguments, values)
    if operation in (_STEP, _JUDGE):
        values["type"] = kind
    if kind == "assessment":
        vectors = converted(values.get("vectors", {}), dict[str, Any], "vectors")
        values["vectors"] = msgspec.to_builtins(read_vectors(vectors))
    return read_values(f"an entry of type {kind}", operation.form, values)


def entries_schema() -> dict[str, Any]:
    """Return the schema of the list of entries. Its text describes their fields, in a third of a schema's tokens."""
    types: dict[tuple[Argument, ...], list[str]] = {}
    for name, operation in OPERATIONS.items():
        types.setdefault(operation.arguments, []).append(name)
    lines = text_of({", ".join(names): arguments for arguments, names in types.items()})
    return {
        "type": "array",
        "items": {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]},
        "description": f"Fields by type (*: needed):\n{lines}",
    }
