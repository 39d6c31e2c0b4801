"""The fold of trees of thoughts: one state a task, with its whole tree, and one row for every message.

The gate's machine says what a status is and which request an answer answers (``ledger.lifecycle.tot``); what it keeps
as digests, contents and evaluations, is kept whole here. Children, frontier, best path and stats follow from the nodes
and are not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from ledger.codec import encode_sorted
from ledger.events import KINDS
from ledger.events import tot as kinds
from ledger.lifecycle.tot import TotState, transition, tree_digest
from projections.projection import Projection, by_name_of_stream
from projections.thoughts.messages import error_of, sender_of, text_of
from projections.thoughts.rounds import Rounds, round_of, seen
from projections.thoughts.tables import MESSAGES, NODES, TASKS
from projections.thoughts.tree import failed_ask_calls, root_of, search_state, stats_of, with_children
from projections.versions import VIEW_VERSIONS

if TYPE_CHECKING:
    from ledger.events.body import Event
    from projections.projection import Logged, Row, Rows


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Where a node came from: the entry that added it, its temporary id, and the generator's answer (event id)."""

    added_index: int
    temp_id: str | None = None
    source_id: str | None = None


class TaskRecord(msgspec.Struct, frozen=True, array_like=True):
    """One task as its events left it; ``nodes`` stand in the order in which they were added."""

    id: str
    life: TotState | None = None
    started: kinds.TotStarted | None = None
    author: str = ""
    config: kinds.SearchConfig | None = None
    nodes: dict[str, kinds.ThoughtNode] = {}
    origins: dict[str, Origin] = {}
    rounds: Rounds = Rounds()
    backtracks: int = 0
    llm_calls: int = 0
    solution: kinds.Solution | None = None
    error: kinds.Failure | None = None
    claimed: kinds.SearchStats | None = None
    tree_ref: str | None = None
    started_index: int = -1
    started_ms: int = 0
    ended_index: int | None = None
    ended_ms: int | None = None
    updated_index: int = -1
    updated_ms: int = 0


def fold(state: TaskRecord, event: Event) -> TaskRecord:
    """Return the task after one more of its events."""
    life = transition(state.life, event)
    fields: dict[str, Any] = {"life": life, "updated_index": event.index, "updated_ms": event.accepted_ms}
    fields |= _said(state, event) | {"rounds": seen(state.rounds, event)}
    before, state = state, msgspec.structs.replace(state, **fields)
    if before.life is None or life.nodes is before.life.nodes:
        return state
    restated = {
        id_: msgspec.structs.replace(node, status=life.nodes[id_].status)
        for id_, node in state.nodes.items()
        if node.status != life.nodes[id_].status
    }
    return msgspec.structs.replace(state, nodes=state.nodes | restated) if restated else state


def _said(state: TaskRecord, event: Event) -> dict[str, Any]:
    """Return the fields of a task (as it was before) that an event changes."""
    match event.data:
        case kinds.TotStarted() as data:
            return {
                "started": data,
                "author": event.author,
                "started_index": event.index,
                "started_ms": event.accepted_ms,
            }
        case kinds.InitializeSearch() as data:
            return {"config": data.payload.search_config}
        case kinds.TotNodesAdded() as data:
            return _added_nodes(state, event, data)
        case kinds.GeneratedThoughts(payload=kinds.GeneratedPayload() as payload):
            return {"llm_calls": state.llm_calls + payload.llm_calls}
        case kinds.EvaluationResults(payload=kinds.ResultsPayload() as payload):
            nodes = dict(state.nodes)
            for one in payload.evaluations:
                evaluation = kinds.Evaluation(score=one.score, confidence=one.confidence, reasoning=one.reasoning)
                nodes[one.node_id] = msgspec.structs.replace(nodes[one.node_id], evaluation=evaluation)
            return {"nodes": nodes, "llm_calls": state.llm_calls + payload.llm_calls}
        case kinds.GeneratedThoughts() | kinds.EvaluationResults():
            return {"llm_calls": state.llm_calls + failed_ask_calls}
        case kinds.TotBacktracked():
            return {"backtracks": state.backtracks + 1}
        case kinds.FinalSolution() as data:
            return {"solution": data.payload}
        case _:
            return _ended(event)


def _ended(event: Event) -> dict[str, Any]:
    """Return the fields that the end of a task changes: its search's, or the orchestrator's, who could not begin it."""
    end: dict[str, Any] = {"ended_index": event.index, "ended_ms": event.accepted_ms}
    match event.data:
        case kinds.SearchComplete(payload=payload, error=error):
            return end | {"claimed": payload.stats, "tree_ref": payload.tree_ref, "error": error}
        case kinds.TotError(sender="orchestrator", error=error):
            return end | {"error": error}
        case _:
            return {}


def _added_nodes(state: TaskRecord, event: Event, data: kinds.TotNodesAdded) -> dict[str, Any]:
    drawn = {} if state.life is None else state.life.drawn
    source = next((cause for cause in event.causes if cause in drawn), None) if data.temp_ids else None
    temp_ids: list[str] | list[None] = data.temp_ids or [None] * len(data.nodes)
    origins = {
        node.id: Origin(event.index, temp_id, source) for node, temp_id in zip(data.nodes, temp_ids, strict=True)
    }
    return {
        "nodes": state.nodes | {node.id: node for node in data.nodes},
        "origins": state.origins | origins,
    }


def _request_of(life: TotState, event: Event) -> str:
    """Return the request that an answer was taken to answer."""
    return next(cause for cause in event.causes if life.answered.get(cause) == event.id)


def rows(state: TaskRecord) -> Rows:
    """Return the task's row and those of its nodes."""
    if state.life is None or state.started is None:
        return {}
    stats = stats_of(state.nodes, backtracks=state.backtracks, llm_calls=state.llm_calls, rounds=state.rounds.count)
    row: Row = (
        state.id,
        status_of(state),
        state.started.problem,
        state.started.task_type,
        state.started.thinker,
        state.author,
        _json(state.started.roles),
        _json(state.started.options),
        None if state.config is None else _whole(state.config),
        root_of(state.nodes),
        _whole(search_state(state.nodes, state.config)),
        _whole(stats),
        None if state.claimed is None else _whole(state.claimed),
        tree_digest(state.life.nodes),
        state.tree_ref,
        None if state.solution is None else _whole(state.solution),
        None if state.error is None else _whole(state.error),
        _json([{"request_id": id_, "type": one.type} for id_, one in state.life.waiting.items()]),
        state.started_index,
        state.started_ms,
        state.ended_index,
        state.ended_ms,
        state.updated_index,
        state.updated_ms,
    )
    nodes = enumerate(with_children(state.nodes).values())
    return {"tot_tasks": [row], "tot_nodes": [_node(state, position, node) for position, node in nodes]}


def status_of(state: TaskRecord) -> str:
    """Return ``started``, ``searching``, or how it ended: ``solved``, ``failed``, ``unverified``."""
    if state.ended_index is None:
        return "started" if state.config is None else "searching"
    if state.error is not None:
        return "failed"
    return "solved" if state.solution is not None and state.solution.verification.is_valid else "unverified"


def _node(state: TaskRecord, position: int, node: kinds.ThoughtNode) -> Row:
    evaluation, origin = node.evaluation, state.origins[node.id]
    judged: Row = (None, None, None)
    if evaluation is not None:
        judged = (evaluation.score, evaluation.confidence, evaluation.reasoning)
    first: Row = (state.id, position, node.id, node.parent_id, _json(node.children_ids), node.depth, node.content)
    last: Row = (node.status, _json(node.metadata), origin.temp_id, origin.source_id, origin.added_index)
    return (*first, node.action_type, *judged, *last)


def added(state: TaskRecord | None, logged: Logged) -> Rows:
    """Return the row of what was said."""
    event = logged.event
    assert state is not None  # noqa: S101 - every event of a task has its key
    assert state.life is not None  # noqa: S101 - and was folded just now
    data = event.data
    is_answer = isinstance(data, kinds.ANSWERS)
    request_id = event.id if isinstance(data, kinds.REQUESTS) else None
    if is_answer:
        request_id = _request_of(state.life, event)
    failure = error_of(data)
    is_log = isinstance(data, kinds.TotLogWritten)
    row: Row = (
        event.index,
        event.name,
        event.id,
        request_id,
        event.id if is_answer else None,
        sender_of(data),
        data.to if isinstance(data, kinds.Message) else None,
        event.kind.partition(".")[2],
        round_of(state.rounds, event),
        event.author,
        event.key,
        None if failure is None else _whole(failure),
        text_of(data),
        _json(data.entries if is_log else []),
        event.accepted_ms,
    )
    return {"tot_messages": [row]}


def _json(value: Any) -> str:
    return encode_sorted(value).decode()


def _whole(value: msgspec.Struct) -> str:
    """Return a struct as JSON with all its fields, also those that have their defaults."""
    return _json(_plain(value))


def _plain(value: Any) -> Any:
    match value:
        case msgspec.Struct():
            return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        case list():
            return [_plain(one) for one in value]
        case _:
            return value


THOUGHT_VIEW: Final = Projection(
    name="thoughts",
    version=VIEW_VERSIONS["thoughts"],
    handles=frozenset(name for name, kind in KINDS.items() if kind.stream == "tot"),
    tables=(TASKS, NODES, MESSAGES),
    state=TaskRecord,
    initial=TaskRecord,
    keys=by_name_of_stream,
    fold=fold,
    rows=rows,
    added=added,
)
