"""The fold of reasoning graphs: their present version, and the chain of deltas that leads to every earlier one.

A version is read by applying the deltas up to it with the function that folds the events. Its ref is computed again and
compared, so a damaged row never passes for the requested graph. A ref names content, not a stream: two reasonings with
equal content have equal refs.

Imported records are folded as the events that they are mapped to. The row has the importer as ``author``. Every answer
shows the origin and the claims of the original under ``imported``: nobody here vouches for it.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from deedbook.ledger.events import reasoning as kinds
from deedbook.ledger.events.body import Event, read_as
from deedbook.ledger.events.imported import RecordImported
from deedbook.projections.briefs.critical import refutations
from deedbook.projections.briefs.tags import tags_of
from deedbook.projections.briefs.text import plain
from deedbook.projections.reasoning.graph import GraphState, apply_event, change_of, encode_change, memory_of, ref_of
from deedbook.projections.records.marks import happened_ms
from deedbook.projections.views.projection import (
    Logged,
    Projection,
    Row,
    Rows,
    Table,
    json_text,
    names_of,
    row_of,
    unfolded,
)
from deedbook.projections.views.registry import VIEW_VERSIONS

_key_digits: Final = 32


class ImportOrigin(msgspec.Struct, frozen=True, array_like=True):
    """The origin of imported reasoning, and the claims of its original; ``claims`` is JSON."""

    source: str
    format: str
    original: str
    claimed_author: str | None
    claimed_at: str | None
    claims: str


class ReasoningRow(Row, frozen=True):
    """The latest version of a reasoning; ``tags`` (JSON) are empty until it is concluded.

    ``is_refuted`` says that its conclusion rests on a refuted assumption; the same conclusion has the same
    ``conclusion_key`` (``conclusion_key``). ``happened_ms`` is when it began and ``changed_ms`` when it changed last:
    of an imported one the times that its original claims. The columns from ``source`` on are NULL unless the reasoning
    was imported.
    """

    id: str
    task: str
    ai_id: str
    author: str
    domain: str
    session: str
    reasoning_strategy: str
    status: str
    conclusion: str
    conclusion_key: str
    is_refuted: bool
    tags: str
    confidence: float
    ref: str
    version: int
    steps: int
    started_index: int
    happened_ms: int
    updated_index: int
    updated_ms: int
    changed_ms: int
    source: str | None
    format: str | None
    original: str | None
    claimed_author: str | None
    claimed_at: str | None
    claims: str | None


class GraphVersionRow(Row, frozen=True):
    """A graph version, the event that made it and its ``key`` (hex), and ``delta``: the changes from ``base``.

    If the body of the event was erased (``is_erased``), the refs of this version and of all later ones are not those
    that others have cited (``redactions.fold``).
    """

    reasoning_id: str
    version: int
    ref: str
    base: str | None
    event_index: int
    kind: str
    steps: int
    key: str
    is_erased: bool
    delta: str


REASONINGS: Final = Table(
    "reasonings",
    ReasoningRow,
    primary_key=("id",),
    owner="id",
    indexes=(
        *(("author",), ("session",), ("started_index",), ("conclusion_key",)),
        *(("happened_ms", "started_index"), ("changed_ms", "started_index")),
    ),
)
VERSIONS: Final = Table(
    "reasoning_versions", GraphVersionRow, primary_key=("reasoning_id", "version"), indexes=(("ref",), ("event_index",))
)


def origin_of(event: Event) -> ImportOrigin | None:
    """Return the origin of an imported event's data; None for an agent's own event."""
    data = event.data
    if not isinstance(data, RecordImported):
        return None
    claims = json_text(data.claims)
    return ImportOrigin(data.source, data.format, data.original, data.claimed_author, data.claimed_at, claims)


def kind_of(event: Event) -> str:
    """Return the kind of an event, or the kind that an imported record is mapped to."""
    data = event.data
    return (data.mapped_kind or event.kind) if isinstance(data, RecordImported) else event.kind


class ReasoningRecord(msgspec.Struct, frozen=True, array_like=True):
    """A reasoning after its events; ``base`` is the ref of the version before the latest."""

    id: str
    author: str = ""
    domain: str = ""
    session: str = ""
    status: str = "open"
    graph: GraphState = GraphState()
    version: int = 0
    ref: str = ""
    base: str | None = None
    started_index: int = -1
    happened_ms: int = 0
    updated_index: int = -1
    updated_ms: int = 0
    changed_ms: int = 0
    origin: ImportOrigin | None = None
    is_erased: bool = False


def fold(state: ReasoningRecord, event: Event) -> ReasoningRecord:
    """Return the record with the version that the event makes."""
    data = read_as(event).data
    graph = apply_event(state.graph, data, event.author)
    state = msgspec.structs.replace(
        state,
        graph=graph,
        version=state.version + 1,
        ref=ref_of(graph),
        base=state.ref or None,
        updated_index=event.index,
        updated_ms=event.accepted_ms,
        changed_ms=happened_ms(event),
        is_erased=state.is_erased or event.erased is not None,
    )
    match data:
        case kinds.ReasoningStarted():
            return msgspec.structs.replace(
                state,
                author=event.author,
                domain=data.domain,
                session=data.session,
                started_index=event.index,
                happened_ms=happened_ms(event),
                origin=origin_of(event),
            )
        case kinds.ReasoningConcluded():
            return msgspec.structs.replace(state, status="concluded")
        case kinds.ReasoningExtended():
            return msgspec.structs.replace(state, status="open")
        case kinds.AssumptionSettled() | kinds.StepRetracted():
            return state  # the conclusion stays as its author drew it, with a mark if it rests on a refuted assumption
        case _:  # event data is an open set; the handled kinds are listed in VIEW
            raise unfolded(event)


def conclusion_key(conclusion: str) -> str:
    """Return the key of a conclusion: the same for texts that differ in case, spaces or their last mark alone."""
    return hashlib.sha256(plain(conclusion).encode("utf-8", "replace")).hexdigest()[:_key_digits]


def rows(state: ReasoningRecord) -> Rows:
    """Return the row of the reasoning at its latest version."""
    graph = state.graph
    confidence, steps = graph.confidence_in_reasoning, len(graph.steps)
    own = dict.fromkeys(ImportOrigin.__struct_fields__)
    origin = own if state.origin is None else msgspec.structs.asdict(state.origin)
    tags, is_refuted, key = list[str](), False, ""
    if state.status == "concluded":
        memory = memory_of(graph, state.id)
        tags = [tag.tag for tag in tags_of(memory, state.domain)]
        is_refuted = any(refuted.is_ground for refuted in refutations(memory))
        key = conclusion_key(graph.conclusion)
    more = {"confidence": confidence, "steps": steps, "tags": json_text(tags), "is_refuted": is_refuted}
    more["conclusion_key"] = key
    return (row_of(ReasoningRow, state, graph, **more, **origin),)


def added(state: ReasoningRecord | None, logged: Logged) -> Rows:
    """Return the row of the version that the event made."""
    if state is None:
        return ()
    event, steps = logged.event, len(state.graph.steps)
    delta = encode_change(change_of(read_as(event).data, event.author)).decode()
    of_event = (event.index, kind_of(event), steps, event.key, event.erased is not None, delta)
    return (GraphVersionRow(state.id, state.version, state.ref, state.base, *of_event),)


VIEW: Final = Projection(
    name="reasoning",
    version=VIEW_VERSIONS["reasoning"],
    handles=frozenset(
        {
            "reasoning.started",
            "reasoning.extended",
            "reasoning.assumption_settled",
            "reasoning.step_retracted",
            "reasoning.concluded",
            "record.imported",
        }
    ),
    tables=(REASONINGS, VERSIONS),
    state=ReasoningRecord,
    keys=names_of("reasoning"),
    fold=fold,
    rows=rows,
    added=added,
)
