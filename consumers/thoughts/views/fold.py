"""The fold of Trees of Thoughts: a state for each task, with its whole tree, and a row for every message.

The gate's state machine decides the status, and matches answers to requests (``ledger.lifecycle.tot``). Children,
frontier, best path and stats follow from the nodes and are not stored in the state.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.family import FAMILY
from deedbook.consumers.thoughts.transition import TotState, transition, tree_digest
from deedbook.consumers.thoughts.views.tree import Costs, costs_after, root_of, search_state, stats_of, with_children
from deedbook.ledger.events.body import Event
from deedbook.projections.views.projection import (
    Logged,
    Projection,
    Row,
    Rows,
    Table,
    json_text,
    kinds_of,
    names_of,
    row_of,
)


class TaskRow(Row, frozen=True):
    """A task. Unknown values are NULL; lists and objects are JSON."""

    id: str
    status: str
    problem: str
    task_type: str
    language: str
    thinker: str
    author: str
    roles: str
    options: str
    search_config: str | None
    root_id: str | None
    search_state: str
    stats: str
    claimed_stats: str | None
    tree_digest: str
    tree_ref: str | None
    solution: str | None
    failure: str | None
    waiting: str
    started_index: int
    started_ms: int
    ended_index: int | None
    ended_ms: int | None


class NodeRow(Row, frozen=True):
    """A node; ``position`` is the order of addition, ``source_id`` the answer that it came from.

    ``evaluated_index`` is the entry of its last evaluation.
    """

    task_id: str
    position: int
    id: str
    parent_id: str | None
    children_ids: str
    depth: int
    content: str
    action_type: str
    score: float | None
    confidence: float | None
    reasoning: str | None
    dimension_scores: str
    status: str
    metadata: str
    temp_id: str | None
    source_id: str | None
    added_index: int
    evaluated_index: int | None


class MessageRow(Row, frozen=True):
    """An event. ``request_id`` of a request is its own id, and its answer has the same."""

    event_index: int
    task_id: str
    event_id: str
    request_id: str | None
    sender: str
    receiver: str | None
    type: str
    signer: str
    key: str
    error: str | None
    usage: str | None
    accepted_ms: int


TASKS: Final = Table(
    "tot_tasks",
    TaskRow,
    primary_key=("id",),
    owner="id",
    indexes=(("started_index",), ("status", "started_index"), ("task_type", "started_index")),
)
NODES: Final = Table(
    "tot_nodes", NodeRow, primary_key=("task_id", "position"), owner="task_id", indexes=(("task_id", "id"),)
)
MESSAGES: Final = Table("tot_messages", MessageRow, primary_key=("event_index",), indexes=(("task_id", "event_index"),))


class NodeOrigin(msgspec.Struct, frozen=True, array_like=True):
    """The origin of a node: the entry that added it, its temporary id, and the generator's answer (event id).

    ``evaluated_index`` is the entry of its last evaluation.
    """

    added_index: int
    temp_id: str | None = None
    source_id: str | None = None
    evaluated_index: int | None = None


class TaskRecord(msgspec.Struct, frozen=True, array_like=True):
    """One task after its events; ``nodes`` are in the order of addition."""

    id: str
    lifecycle: TotState | None = None
    started: kinds.TotStarted | None = None
    author: str = ""
    config: kinds.SearchConfig | None = None
    nodes: dict[str, kinds.ThoughtNode] = {}
    origins: dict[str, NodeOrigin] = {}
    rounds: int = 0
    backtracks: int = 0
    costs: Costs = Costs()
    thinker: str = ""
    solution: kinds.Solution | None = None
    error: kinds.Failure | None = None
    claimed: kinds.SearchStats | None = None
    tree_ref: str | None = None
    started_index: int = -1
    started_ms: int = 0
    ended_index: int | None = None
    ended_ms: int | None = None


def fold(state: TaskRecord, event: Event) -> TaskRecord:
    """Return the task after one more of its events."""
    lifecycle = transition(state.lifecycle, event)
    rounds = state.rounds + isinstance(event.data, kinds.GenerateThoughts)
    fields = {"lifecycle": lifecycle, "costs": costs_after(state.costs, event), "rounds": rounds} | _changes_of(
        state, event
    )
    before, state = state, msgspec.structs.replace(state, **fields)
    if before.lifecycle is None or lifecycle.nodes is before.lifecycle.nodes:
        return state
    restated = {
        id_: msgspec.structs.replace(node, status=lifecycle.nodes[id_].status)
        for id_, node in state.nodes.items()
        if node.status != lifecycle.nodes[id_].status
    }
    return msgspec.structs.replace(state, nodes=state.nodes | restated) if restated else state


def _changes_of(state: TaskRecord, event: Event) -> dict[str, Any]:
    match event.data:
        case kinds.TotStarted() as data:
            since = {"started_index": event.index, "started_ms": event.accepted_ms}
            return {"started": data, "author": event.author, "thinker": data.thinker, **since}
        case kinds.InitializeSearch() as data:
            return {"config": data.payload.search_config}
        case kinds.TotNodesAdded() as data:
            return _added_nodes(state, event, data)
        case kinds.EvaluationResults(payload=kinds.ResultsPayload() as payload):
            nodes, origins = dict(state.nodes), dict(state.origins)
            for result in payload.evaluations:
                node = nodes[result.node_id]
                nodes[node.id] = msgspec.structs.replace(node, evaluation=result.evaluation)
                origins[node.id] = msgspec.structs.replace(origins[node.id], evaluated_index=event.index)
            return {"nodes": nodes, "origins": origins}
        case kinds.TotBacktracked():
            return {"backtracks": state.backtracks + 1}
        case kinds.FinalSolution() as data:
            return {"solution": data.payload}
        case kinds.TotPaused() as data:
            return {"error": data.error}
        case kinds.TotResumed() as data:
            return {"error": None, "thinker": data.thinker}
        case _:  # the other kinds of a task: `transition` refuses any other kind
            return _ended(event)


def _ended(event: Event) -> dict[str, Any]:
    end: dict[str, Any] = {"ended_index": event.index, "ended_ms": event.accepted_ms}
    match event.data:
        case kinds.SearchComplete(payload=payload, error=error):
            return end | {"claimed": payload.stats, "tree_ref": payload.tree_ref, "error": error}
        case kinds.TotError(sender="orchestrator", error=error):
            return end | {"error": error}
        case _:  # the other kinds end nothing
            return {}


def _added_nodes(state: TaskRecord, event: Event, data: kinds.TotNodesAdded) -> dict[str, Any]:
    drawn = {} if state.lifecycle is None else state.lifecycle.drawn
    source = next((cause for cause in event.causes if cause in drawn), None) if data.temp_ids else None
    temp_ids: list[str] | list[None] = data.temp_ids or [None] * len(data.nodes)
    origins = {
        node.id: NodeOrigin(event.index, temp_id, source) for node, temp_id in zip(data.nodes, temp_ids, strict=True)
    }
    return {"nodes": state.nodes | {node.id: node for node in data.nodes}, "origins": state.origins | origins}


def rows(state: TaskRecord) -> Rows:
    """Return the task's row and those of its nodes."""
    if state.lifecycle is None or state.started is None:
        return ()
    stats = stats_of(state.nodes, backtracks=state.backtracks, costs=state.costs, rounds=state.rounds)
    waiting = [{"request_id": id_, "type": request.type} for id_, request in state.lifecycle.waiting.items()]
    row = row_of(
        TaskRow,
        state,
        state.started,
        status=status_of(state),
        thinker=state.thinker,
        roles=json_text(state.started.roles),
        options=json_text(state.started.options),
        waiting=json_text(waiting),
        search_config=_whole(state.config),
        search_state=_whole(search_state(state.nodes, state.config)),
        stats=_whole(stats),
        claimed_stats=_whole(state.claimed),
        solution=_whole(state.solution),
        failure=_whole(state.error),
        root_id=root_of(state.nodes),
        tree_digest=tree_digest(state.lifecycle.nodes),
    )
    nodes = enumerate(with_children(state.nodes).values())
    return (row, *(_node(state, position, node) for position, node in nodes))


def status_of(state: TaskRecord) -> str:
    """Return ``started``, ``searching``, ``paused``, or how it ended: ``solved``, ``failed``, ``unverified``."""
    if state.ended_index is None and state.lifecycle is not None and state.lifecycle.is_paused:
        return "paused"
    if state.ended_index is None:
        return "started" if state.config is None else "searching"
    if state.error is not None:
        return "failed"
    return "solved" if state.solution is not None and state.solution.verification.is_valid else "unverified"


def _node(state: TaskRecord, position: int, node: kinds.ThoughtNode) -> NodeRow:
    judged = {name: getattr(node.evaluation, name, None) for name in ("score", "confidence", "reasoning")}
    return row_of(
        NodeRow,
        node,
        state.origins[node.id],
        task_id=state.id,
        position=position,
        **judged,
        children_ids=json_text(node.children_ids),
        metadata=json_text(node.metadata),
        dimension_scores=json_text({} if node.evaluation is None else node.evaluation.dimension_scores),
    )


def added(state: TaskRecord | None, logged: Logged) -> Rows:
    """Return the row of the event."""
    event, data = logged.event, logged.event.data
    assert state is not None  # noqa: S101 - every event of a task has its key
    assert state.lifecycle is not None  # noqa: S101 - and was folded just now
    request_id = event.id if isinstance(data, kinds.Question) else None
    if isinstance(data, kinds.Answer):  # the request that it answers
        request_id = next(cause for cause in event.causes if state.lifecycle.answered.get(cause) == event.id)
    # The orchestrator starts a task and the explorer grows the tree; other messages name their sender.
    sender = "orchestrator" if isinstance(data, kinds.TotStarted) else getattr(data, "sender", "explorer")
    row = MessageRow(
        event_index=event.index,
        task_id=event.name,
        event_id=event.id,
        request_id=request_id,
        sender=sender,
        receiver=getattr(data, "to", None),
        type=event.kind.partition(".")[2],
        signer=event.author,
        key=event.key,
        error=_whole(getattr(data, "error", None)),
        usage=_whole(getattr(data, "usage", None)),
        accepted_ms=event.accepted_ms,
    )
    return (row,)


def _whole(value: msgspec.Struct | None) -> str | None:
    """Return a struct as JSON with all its fields, including defaults."""
    return None if value is None else json_text(_plain(value))


def _plain(value: Any) -> Any:
    match value:
        case msgspec.Struct():
            return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        case list():
            return [_plain(item) for item in value]
        case _:  # numbers, texts and dicts as they are
            return value


VIEW: Final = Projection(
    name="tot",
    version=FAMILY.views["tot"],
    state=TaskRecord,
    tables=(TASKS, NODES, MESSAGES),
    handles=kinds_of("tot"),
    keys=names_of("tot"),
    fold=fold,
    rows=rows,
    added=added,
)
