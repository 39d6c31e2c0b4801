"""The entries that `record_reasoning` takes: each is an operation on a session or reasoning, selected by ``type``.

They come from the tables of operations, in one schema for all types, because every agent session pays for it. Unknown
fields are refused, because signed events can never be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec

from deedbook.consumers.interfaces.families import family_hooks
from deedbook.consumers.interfaces.mcp.arguments import text_of
from deedbook.consumers.interfaces.mcp.fence import Own
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.consumers.reasoning import operations as of_reasoning
from deedbook.consumers.reasoning.operations import NewStep
from deedbook.consumers.sdk.operations import Argument, Operation, operation_on, read_values, with_lists
from deedbook.consumers.sessions import operations as of_session
from deedbook.consumers.sessions.operations import Resolution, Retraction
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.fields import EventData, Label, Line, Passage, Unit
from deedbook.ledger.events.reasoning import ReasoningConcluded, StepType
from deedbook.ledger.families import Family, installed
from deedbook.ledger.format.codec import converted
from deedbook.projections.answers.answer import Answer, Untrusted
from deedbook.projections.search.answers import RelatedDeadEnd
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

        A conclusion without other fields is not a step, as on the command line, unless it comes first.
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


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event of a declared kind, on a stream ``x.TYPE/ID``. Without a ``kind``, the only one on such streams."""

    stream: Annotated[str, msgspec.Meta(description="x.TYPE/ID.")]
    data: dict[str, Any]
    kind: str = ""


class Recorded(Answer, frozen=True, kw_only=True):
    """The recorded events, the ids for the next call, and the results of an entry that is the only one of its call.

    ``report_id`` is the report that a POSTFLIGHT made; ``dead_ends`` failed in sessions with a similar task;
    ``is_repeat``: an earlier call with this key recorded this, and nothing was added.
    """

    dead_ends: list[RelatedDeadEnd]
    warnings: list[Own]
    problems: list[Untrusted]


class FamilyEntry(msgspec.Struct, frozen=True):
    """A type of entries that a family adds (hook ``entry``): its fields, and the function that answers it.

    ``answer`` gets the ledger and the entry, and returns the fields of ``result``. ``words`` tell an agent when to
    use it.
    """

    name: str
    form: type[msgspec.Struct]
    answer: Callable[[ToolLedger, Any], dict[str, Any]]
    words: str
    result: type[Answer] | None = None


class FamilyEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event of a family that has no entry of its own."""

    kind: Annotated[Label, msgspec.Meta(description="The second part of the kind.")]
    id: Annotated[Line, msgspec.Meta(description="The stream is FAMILY/ID.")]
    data: dict[str, Any] = {}


def _event_entry(family: Family) -> FamilyEntry:
    """Return the entry of a family that has none of its own: one event, whose fields are in ``data``."""
    name = family.name
    form = msgspec.defstruct(
        f"{name.title()}Event", [], bases=(FamilyEvent,), frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    named = [(kind.partition(".")[2], msgspec.structs.fields(KINDS[kind].data)) for kind in family.kinds]
    kinds = "; ".join(f"{kind} ({', '.join(field.encode_name for field in of)})" for kind, of in named)

    def answer(ledger: ToolLedger, entry: FamilyEvent) -> dict[str, Any]:
        draft = Draft(stream=f"{name}/{entry.id}", kind=f"{name}.{entry.kind}", data=entry.data)
        (accepted,) = ledger.author().emit(draft)
        return {"first_index": accepted.index, "last_index": accepted.index}

    return FamilyEntry(name, form, answer, f"An entry of type {name} records an event of these kinds: {kinds}.")


def _entries_of_families() -> Iterator[FamilyEntry]:
    own = dict[str, FamilyEntry](family_hooks("entry"))
    for family in installed():
        with suppress(Refused):  # `deed doctor` says why a family cannot be used
            yield own.get(family.name) or _event_entry(family)


Alone: TypeAlias = Retraction | Resolution | Judgement | NewDecision | NewEvent
"""An entry that must be the only one in its call. All entries of families are such entries."""

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

_OF_CORE: Final[dict[str, Operation]] = {
    "assessment": _SESSION["assess"],
    **{verb: _SESSION[verb] for verb in of_session.RECORDED},
    "session_end": _SESSION["end"],
    **dict.fromkeys(STEPS, _STEP),
    "settlement": of_reasoning.OPERATIONS["settle"],
    "retraction": _SESSION["retract"],
    "resolution": _SESSION["resolve"],
    "decision": operation_on(NewDecision, ""),
    "event": operation_on(NewEvent, ""),
    "snapshot": _JUDGE,
    "validation": _JUDGE,
    "review": _JUDGE,
}


@cache
def of_families() -> dict[type[msgspec.Struct], FamilyEntry]:
    """Return the entries of families, by the types of their fields."""
    return {entry.form: entry for entry in _entries_of_families() if entry.name not in _OF_CORE}


@cache
def operations() -> dict[str, Operation]:
    """Return what an entry of each type does."""
    return _OF_CORE | {entry.name: operation_on(entry.form, "") for entry in of_families().values()}


def alone_types() -> list[str]:
    """Return the types of entries that must be the only one of their call."""
    forms = {*get_args(Alone), *of_families()}
    return [name for name, operation in operations().items() if operation.form in forms]


def is_alone(entry: Any) -> bool:
    """Return whether an entry must be the only one of its call."""
    return isinstance(entry, Alone) or type(entry) in of_families()


def read_entry(number: int, entry: Mapping[str, Any]) -> Any:
    """Return an entry of a call, which is ``Work``, ``Alone`` or of a family; ``number`` counts from 1.

    Raises Refused: ``INVALID_FIELD``, ``UNKNOWN_FIELD``.
    """
    try:
        work = _read(dict(entry))
    except Refused as refusal:
        details = refusal.details | {"entries": [number]}
        raise Refused(refusal.code, f"entry {number}: {refusal.message}", **details) from refusal
    return work


def _read(values: dict[str, Any]) -> Any:
    kind = values.pop("type", None)
    operation = operations().get(kind) if isinstance(kind, str) else None
    if operation is None or operation.form is None:
        rest = did_you_mean(near(str(kind), operations())) or f": the types are {', '.join(operations())}"
        raise Refused("INVALID_FIELD", f"there is no type {str(kind)[:80]!r}{rest}", field="type")
    values = with_lists(operation.arguments, values)
    if operation in (_STEP, _JUDGE):
        values["type"] = kind
    if kind == "assessment":
        vectors = converted(values.get("vectors", {}), dict[str, Any], "vectors")
        values["vectors"] = msgspec.to_builtins(read_vectors(vectors))
    return read_values(f"an entry of type {kind}", operation.form, values)


def entries_schema() -> dict[str, Any]:
    """Return the schema of a list of entries. A text describes their fields, in a third of the tokens of a schema."""
    types: dict[tuple[Argument, ...], list[str]] = {}
    for name, operation in operations().items():
        types.setdefault(operation.arguments, []).append(name)
    lines = text_of({", ".join(names): arguments for arguments, names in types.items()})
    return {
        "type": "array",
        "items": {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]},
        "description": f"Fields by type (*: needed):\n{lines}",
    }
