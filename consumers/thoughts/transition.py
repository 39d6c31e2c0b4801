"""The state machine of a Tree-of-Thoughts task: its roles, the requests without an answer, and its nodes.

It refuses the faults that such searches had in practice: an explorer that acts as its own generator, an answer to no
request, a second answer, a node with an unknown parent or temporary id, and a final tree that differs from the one
that was searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, assert_never

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from deedbook.consumers.thoughts import events as kinds
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.body import Event
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.lifecycle.machine import WORKING, Transition

nodes_max: Final = 2_000
prompts_max: Final = 4_000
_digest_bytes: Final = 12


class NodeState(msgspec.Struct, frozen=True, array_like=True):
    """A node as the gate stores it, with digests of its content and its evaluation."""

    parent: str | None
    depth: int
    content: bytes
    status: str = "pending"
    evaluation: bytes = b""


class Request(msgspec.Struct, frozen=True, array_like=True):
    """A request without an answer: its type, and the nodes that it is about."""

    type: str
    nodes: tuple[str, ...] = ()


class TotState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a task. ``waiting`` maps event ids to open requests; ``answered`` maps the others to their answers.

    ``drawn`` maps answers of the generator to the temporary ids that are not nodes yet, with digests of their thoughts.
    ``problem``, ``config``, ``prompts`` and ``faulty`` are digests: of the problem, the configuration, and each role's
    prompts with a usable answer of a model, and with an unusable one since the last resumption. ``is_redacted``: the
    texts of an event are erased. From then on, texts are not compared any more: the gate compared them before.
    """

    roles: dict[str, tuple[str, str]]
    waiting: dict[str, Request] = {}
    answered: dict[str, str] = {}
    drawn: dict[str, dict[str, bytes]] = {}
    nodes: dict[str, NodeState] = {}
    is_decomposed: bool = False
    is_paused: bool = False
    is_ended: bool = False
    prompts: dict[str, tuple[bytes, ...]] = {}
    problem: bytes = b""
    config: bytes = b""
    faulty: dict[str, tuple[bytes, ...]] = {}
    is_redacted: bool = False


# Request type → its sender, its receiver, and the type of its answer.
_ASKS: Final[dict[str, tuple[kinds.Role, kinds.Role, str]]] = {
    "decompose_task": ("orchestrator", "decomposer", "decomposition_result"),
    "initialize_search": ("orchestrator", "explorer", "search_complete"),
    "generate_thoughts": ("explorer", "generator", "generated_thoughts"),
    "evaluate_thoughts": ("explorer", "evaluator", "evaluation_results"),
    "synthesize_solution": ("explorer", "synthesizer", "final_solution"),
}
_ANSWERED_BY: Final = {answer: request for request, (_, _, answer) in _ASKS.items()}


def parties_of(message_type: str) -> tuple[kinds.Role, kinds.Role]:
    """Return the sender and the receiver of a message of this type."""
    sender, receiver, answer = _ASKS[_ANSWERED_BY.get(message_type, message_type)]
    return (receiver, sender) if message_type == answer else (sender, receiver)


def transition(state: TotState | None, event: Event) -> TotState:
    """Return the state after ``event``.

    Raises Refused: ``TRANSITION_NOT_ALLOWED``, ``NOT_AUTHORIZED`` or ``INVALID_FIELD``.
    """
    data = event.data
    if isinstance(data, kinds.TotStarted):
        return _started(state, event, data)
    if state is None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"there is no task {event.name}: start it first (tot.started)")
    if event.erased is not None:
        state = replace(state, is_redacted=True)
    if isinstance(data, kinds.SideStatement):
        return _side_statement(state, event, data)
    _require_going(state, event)
    if state.is_paused and (isinstance(data, kinds.SearchComplete) or not isinstance(data, kinds.Answer)):
        message = f"{event.name} is paused and accepts only answers: resume it with `deed tot resume {event.name}`"
        raise Refused("TRANSITION_NOT_ALLOWED", message)
    if isinstance(data, kinds.Question | kinds.Answer):
        return _message(state, event, data)
    _require_role(state, event, "explorer")
    _require_search(state, event.kind)
    match data:
        case kinds.TotNodesAdded():
            return _added(state, event, data)
        case kinds.TotNodesMarked():
            _known(state, data.node_ids)
            changed = {id_: replace(state.nodes[id_], status=data.status) for id_ in data.node_ids}
            return replace(state, nodes=state.nodes | changed)
        case kinds.TotBacktracked():
            _known(state, [data.node_id, *([data.to_node_id] if data.to_node_id else [])])
            return state
        case _:  # any other data: that of another stream's kind
            raise Refused("UNKNOWN_KIND", f"{event.kind} is not an event of a task", kind=event.kind)


def _started(state: TotState | None, event: Event, data: kinds.TotStarted) -> TotState:
    if state is not None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"task {event.name} already exists: choose another id")
    roles: dict[str, tuple[str, str]] = {binding.role: (binding.agent, binding.key) for binding in data.roles}
    if len(roles) != len(data.roles):
        raise Refused("INVALID_FIELD", "each of the six roles must be bound exactly once", path="$.data.roles")
    if len({key for _, key in roles.values()}) != len(roles):
        message = "each role needs a key of its own, so that no role answers itself"
        raise Refused("INVALID_FIELD", message, path="$.data.roles")
    problem = digest_of((data.problem, data.task_type))
    started = TotState(roles, problem=problem, is_redacted=event.erased is not None)
    _require_role(started, event, "orchestrator", data.task_id)
    return started


def _side_statement(state: TotState, event: Event, data: kinds.SideStatement) -> TotState:
    """Accept an event between the messages: a log, a paid answer of a model, a pause, or the user's end."""
    _require_role(state, event, data.sender, data.task_id)
    if isinstance(data, kinds.TotLogWritten) or (isinstance(data, kinds.TotError) and data.sender != "orchestrator"):
        return state
    _require_going(state, event)
    match data:
        case kinds.TotError():
            return replace(state, is_ended=True)
        case kinds.TotModelAnswered():
            return _paid_answer(state, event, data)
        case kinds.TotPaused():
            if state.is_paused or data.sender not in ("explorer", "orchestrator"):
                message = f"only the explorer or orchestrator may pause {event.name}, and only while it runs"
                raise Refused("TRANSITION_NOT_ALLOWED", message)
            if not {*state.waiting, *state.answered.values()} & {*event.causes}:
                message = "a pause must name the failed answer or the unanswered request in its causes"
                raise Refused("INVALID_FIELD", message, path="$.causes")
            return replace(state, is_paused=True)
        case kinds.TotResumed():
            if not state.is_paused or data.sender != "orchestrator":
                message = f"only the orchestrator may resume {event.name}, and only while it is paused: see \
`deed tot show {event.name}`"
                raise Refused("TRANSITION_NOT_ALLOWED", message)
            return replace(state, is_paused=False, faulty={})
        case _:
            assert_never(data)


def _paid_answer(state: TotState, event: Event, data: kinds.TotModelAnswered) -> TotState:
    if (data.answer is None) == (data.fault is None):
        raise Refused("INVALID_FIELD", "give either the model's answer or its fault", path="$.data.answer")
    waits = {state.waiting[cause].type for cause in event.causes[:1] if cause in state.waiting} - {"initialize_search"}
    if not any(parties_of(type_)[1] == data.sender for type_ in waits):
        message = f"the first cause of {event.kind} must be an open request to the {data.sender}"
        raise Refused("TRANSITION_NOT_ALLOWED", message)
    prompt, sender = bytes.fromhex(data.prompt_sha256)[:_digest_bytes], data.sender
    usable, faulty = state.prompts.get(sender, ()), state.faulty.get(sender, ())
    if prompt in usable or prompt in faulty:
        raise Refused("TRANSITION_NOT_ALLOWED", "this prompt is already answered: use the recorded answer")
    if len(usable) + len(faulty) >= prompts_max:
        raise Refused("TOO_LARGE", f"a role may record at most {prompts_max} answers of a model", prompts=prompts_max)
    if data.answer is None:
        return replace(state, faulty=state.faulty | {sender: (*faulty, prompt)})
    return replace(state, prompts=state.prompts | {sender: (*usable, prompt)})


def _message(state: TotState, event: Event, data: kinds.Question | kinds.Answer) -> TotState:
    kind = data.type
    sender, to = parties_of(kind)
    if (data.sender, data.to) != (sender, to):
        raise Refused("INVALID_FIELD", f"{kind} must go from the {sender} to the {to}", path="$.data.from")
    _require_role(state, event, sender, data.task_id)
    if isinstance(data, kinds.Question):
        return _with_request(state, event, data)
    return _with_answer(state, event, _ANSWERED_BY[kind], data)


def _with_request(state: TotState, event: Event, data: kinds.Question) -> TotState:
    kind = data.type
    if kind != "decompose_task" and not state.is_decomposed:
        raise Refused("TRANSITION_NOT_ALLOWED", f"{kind} must come after the decomposition")
    if kind in ("decompose_task", "initialize_search"):
        if {kind, "initialize_search"} & {request.type for request in state.waiting.values()}:
            raise Refused("TRANSITION_NOT_ALLOWED", f"{kind} is already requested and waits for its answer")
    else:
        _require_search(state, kind)
    nodes, about, config = state.nodes, list[kinds.ThoughtNode](), state.config
    payload = data.payload
    if isinstance(payload, kinds.DecomposePayload):
        _require_same_problem(state, payload)
    match data:
        case kinds.DecomposeTask():
            pass
        case kinds.InitializeSearch():
            config = digest_of(data.payload.search_config)
        case kinds.GenerateThoughts():
            parent = data.payload.parent_node
            about = [parent]
            _known(state, [parent.id])
            _require_growing(parent.id, nodes[parent.id])
            nodes = nodes | {parent.id: replace(nodes[parent.id], status="expanded")}
        case kinds.EvaluateThoughts():
            about = data.payload.candidates
        case kinds.SynthesizeSolution():
            about = data.payload.best_path
        case _:
            assert_never(data)
    _same(state, about, is_path=isinstance(data, kinds.SynthesizeSolution))
    request = Request(kind, tuple(node.id for node in about))
    return replace(state, waiting=state.waiting | {event.id: request}, nodes=nodes, config=config)


def _require_same_problem(state: TotState, payload: kinds.DecomposePayload) -> None:
    if not state.is_redacted and digest_of((payload.problem, payload.task_type)) != state.problem:
        raise Refused("INVALID_FIELD", "the problem differs from the task's problem", path="$.data.payload.problem")


def _with_answer(state: TotState, event: Event, request: str, data: kinds.Answer) -> TotState:
    requests = [cause for cause in event.causes if cause in state.waiting and state.waiting[cause].type == request]
    if len(requests) > 1:
        message = f"{event.kind} must answer one {request}, not {len(requests)}"
        raise Refused("INVALID_FIELD", message, path="$.causes")
    if not requests:
        if any(cause in state.answered for cause in event.causes):
            raise Refused("TRANSITION_NOT_ALLOWED", f"this {request} is already answered")
        raise Refused("TRANSITION_NOT_ALLOWED", f"{event.kind} must name the {request} that it answers in its causes")
    if data.payload is None and data.error is None:
        raise Refused("INVALID_FIELD", "an answer needs a payload or an error", path="$.data.payload")
    about = state.waiting[requests[0]].nodes
    waiting = {id_: open_request for id_, open_request in state.waiting.items() if id_ != requests[0]}
    state = replace(state, waiting=waiting, answered=state.answered | {requests[0]: event.id})
    match data:
        case kinds.DecompositionResult():
            return replace(state, is_decomposed=data.payload is not None)
        case kinds.GeneratedThoughts():
            return state if data.payload is None else _drawn(state, event, data.payload, about[0])
        case kinds.EvaluationResults():
            return state if data.payload is None else _evaluated(state, data.payload, about)
        case kinds.SearchComplete():
            _require_searched(state, data)
            return replace(state, is_ended=True)
        case kinds.FinalSolution():
            return state
        case _:
            assert_never(data)


def _drawn(state: TotState, event: Event, payload: kinds.GeneratedPayload, parent: str) -> TotState:
    drawn = {node.temp_id: digest_of((parent, node.content, node.action_type)) for node in payload.candidates}
    if len(drawn) != len(payload.candidates):
        raise Refused("INVALID_FIELD", "two candidates have the same temporary id", path="$.data.payload.candidates")
    return replace(state, drawn=state.drawn | ({event.id: drawn} if drawn else {}))


def _evaluated(state: TotState, payload: kinds.ResultsPayload, about: tuple[str, ...]) -> TotState:
    for id_ in (*(result.node_id for result in payload.evaluations), *payload.ranking, *payload.pruning_suggestions):
        if id_ not in about:
            raise Refused(
                "INVALID_FIELD", f"the results name node {id_}, which the request did not ask to evaluate", node_id=id_
            )
    evaluated = {
        result.node_id: replace(state.nodes[result.node_id], evaluation=digest_of(result.evaluation))
        for result in payload.evaluations
    }
    return replace(state, nodes=state.nodes | evaluated)


def _added(state: TotState, event: Event, data: kinds.TotNodesAdded) -> TotState:
    nodes = dict(state.nodes)
    for position, node in enumerate(data.nodes):
        path = f"$.data.nodes[{position}]"
        if node.id in nodes:
            raise Refused("INVALID_FIELD", f"node {node.id} already exists", path=f"{path}.id")
        parent = None if node.parent_id is None else nodes.get(node.parent_id)
        if (node.parent_id is None) != (not nodes) or (node.parent_id is not None and parent is None):
            raise Refused("INVALID_FIELD", f"the parent of node {node.id} is not in the tree", path=f"{path}.parent_id")
        if node.parent_id is not None and parent is not None:
            _require_growing(node.parent_id, parent)
        if node.depth != (0 if parent is None else parent.depth + 1):
            message = f"the depth of node {node.id} must be its parent's depth plus one"
            raise Refused("INVALID_FIELD", message, path=f"{path}.depth")
        if node.status != "pending" or node.evaluation is not None or node.children_ids:
            message = f"the new node {node.id} must be pending, without evaluation and children"
            raise Refused("INVALID_FIELD", message, path=path)
        nodes[node.id] = NodeState(node.parent_id, node.depth, content_digest(node))
    if len(nodes) > nodes_max:
        raise Refused("TOO_LARGE", f"the tree would have more than {nodes_max} nodes", nodes=len(nodes))
    return replace(state, nodes=nodes, drawn=_without_drawn(state, event, data))


def _without_drawn(state: TotState, event: Event, data: kinds.TotNodesAdded) -> dict[str, dict[str, bytes]]:
    """Remove the temporary ids that become nodes from the generator's answer in the causes."""
    if not state.nodes:
        if len(data.nodes) > 1 or data.temp_ids:
            raise Refused("INVALID_FIELD", "add the root node alone and without temp_ids", path="$.data.nodes")
        return state.drawn
    source = next((cause for cause in event.causes if cause in state.drawn), None)
    if source is None or len(data.temp_ids) != len(data.nodes):
        message = "name the generated_thoughts in causes, and one of its temp_ids for each new node in temp_ids"
        raise Refused("INVALID_FIELD", message, path="$")
    left = dict(state.drawn[source])
    for node, temp_id in zip(data.nodes, data.temp_ids, strict=True):
        thought = left.pop(temp_id, None)
        if thought is None:
            raise Refused("INVALID_FIELD", f"that answer has no unused candidate {temp_id}", path="$.data.temp_ids")
        if not state.is_redacted and thought != digest_of((node.parent_id, node.content, node.action_type)):
            raise Refused("INVALID_FIELD", f"node {node.id} differs from its candidate", path="$.data.nodes")
    return {cause: ids for cause, ids in state.drawn.items() if cause != source} | ({source: left} if left else {})


def _require_search(state: TotState, kind: str) -> None:
    if all(request.type != "initialize_search" for request in state.waiting.values()):
        raise Refused("TRANSITION_NOT_ALLOWED", f"no search is running: {kind} must come after initialize_search")


def _require_going(state: TotState, event: Event) -> None:
    if state.is_ended:
        raise Refused("TRANSITION_NOT_ALLOWED", f"the search of {event.name} has ended")


def _require_growing(id_: str, node: NodeState) -> None:
    if node.status in ("pruned", "not_taken", "terminal"):
        raise Refused("TRANSITION_NOT_ALLOWED", f"node {id_} is {node.status} and cannot get children")


def _require_role(state: TotState, event: Event, role: str, task_id: str | None = None) -> None:
    if task_id not in (None, event.name):
        raise Refused("INVALID_FIELD", f"a message of {task_id} must be on tot/{task_id}", path="$.data.task_id")
    agent, key = state.roles.get(role, ("", ""))
    if (event.author, event.key) != (agent, key):
        message = f"only {agent} may act as the {role} of {event.name}, with the key bound at its start"
        raise Refused("NOT_AUTHORIZED", message, role=role)


def _known(state: TotState, ids: Iterable[str]) -> None:
    for id_ in ids:
        if id_ not in state.nodes:
            raise Refused("INVALID_FIELD", f"the tree has no node {id_}", node_id=id_)


def _same(state: TotState, nodes: list[kinds.ThoughtNode], *, is_path: bool = False) -> None:
    for node in nodes:
        _known(state, [node.id])
        if not state.is_redacted and state.nodes[node.id].content != content_digest(node):
            raise Refused("INVALID_FIELD", f"node {node.id} differs from the tree's node", node_id=node.id)
    above = (None, *(node.id for node in nodes))
    if is_path and any(node.parent_id != parent for node, parent in zip(nodes, above, strict=False)):
        message = "best_path must lead from the root down, from parent to child"
        raise Refused("INVALID_FIELD", message, path="$.data.payload.best_path")


def content_digest(node: kinds.ThoughtNode) -> bytes:
    """Return the digest of a node without its evaluation, status and children."""
    return digest_of((node.id, node.parent_id, node.depth, node.content, node.action_type, node.metadata))


def tree_digest(nodes: Mapping[str, NodeState]) -> str:
    """Return the digest (hex) of a whole tree, independent of the order of its nodes."""
    lines = [
        (id_, node.parent, node.depth, node.content.hex(), node.status, node.evaluation.hex())
        for id_, node in sorted(nodes.items())
    ]
    return blake3(encode_canonical(lines)).hexdigest()


def node_states(nodes: Iterable[kinds.ThoughtNode]) -> dict[str, NodeState]:
    """Return nodes as the gate stores them, to compare a tree with its state."""
    evaluations = ((node, b"" if node.evaluation is None else digest_of(node.evaluation)) for node in nodes)
    return {
        node.id: NodeState(node.parent_id, node.depth, content_digest(node), node.status, digest)
        for node, digest in evaluations
    }


def _require_searched(state: TotState, data: kinds.SearchComplete) -> None:
    """Refuse a final tree whose nodes, problem or configuration differ from those of the search.

    Stats and frontier follow from them and are not checked: views show their own beside the explorer's.
    """
    _same(state, data.payload.best_path, is_path=True)
    if state.is_redacted:
        return
    digest, path, tree = tree_digest(state.nodes), node_states(data.payload.best_path), data.payload.tree
    is_same = data.payload.tree_digest == digest and path.items() <= state.nodes.items()
    if tree is not None:
        is_same &= (
            (tree.task_id, digest_of((tree.problem, tree.task_type))) == (data.task_id, state.problem)
            and digest_of(tree.search_config) == state.config
            and _is_whole(tree)
            and tree_digest(node_states(tree.nodes.values())) == digest
        )
    if not is_same:
        raise Refused("VERSION_MISMATCH", "the tree differs from the one that was searched", tree_digest=digest)


def _is_whole(tree: kinds.ThoughtTree) -> bool:
    """Return whether nodes are stored under their own ids, children_ids match the parents, and the root is the root."""
    children: dict[str | None, list[str]] = {}
    for node in tree.nodes.values():
        children.setdefault(node.parent_id, []).append(node.id)
    return children.get(None) == [tree.root_id] and all(
        id_ == node.id and sorted(node.children_ids) == sorted(children.get(id_, []))
        for id_, node in tree.nodes.items()
    )


def digest_of(content: Any) -> bytes:
    """Return a short digest of plain content."""
    return blake3(encode_canonical(content)).digest(length=_digest_bytes)


RULES: Final = Transition(
    state=TotState,
    step=transition,
    roles=WORKING,
    kept=lambda state: [state.is_ended, state.is_paused, sorted(state.waiting), sorted(state.nodes)],
)
