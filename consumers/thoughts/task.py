"""A task as its agents know it: a fold over the events of ``tot/TASK``, from which alone each of them goes on.

What an agent says is a function of this, its role and its thinker. An agent that was killed reads the stream again and
says what it would have said: the key of what it says (``Step.key``) comes from the cause, so the ledger takes it once.
A request keeps the tree of the moment it was made in, because an answer must not depend on when it is thought of.

The tree is what the explorer goes by: ``advance`` takes the events in order, and of each only its ``id``, ``causes``
and ``data``. It believes that the gate (``ledger.lifecycle.tot``) let the event in, and refuses nothing itself; each
event gives another state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar, assert_never, get_args

import msgspec

from ledger.author import Draft
from ledger.events import EventData
from ledger.events import tot as kinds
from ledger.events.body import Event
from projections.thoughts import tree as view

AGENTS: Final[dict[kinds.Role, str]] = {role: f"tot-{role}" for role in get_args(kinds.Role)}
_STEPS: Final = (
    kinds.GenerateThoughts, kinds.EvaluateThoughts, kinds.SynthesizeSolution, kinds.TotNodesAdded, kinds.TotNodesMarked,
    kinds.TotBacktracked,
)  # fmt: skip


class Asked(NamedTuple):
    """A request that waits, and the tree as it is from then on."""

    event: Event
    tree: TreeState | None


class Step(NamedTuple):
    """One event that an agent wants to append, and the key under which it is appended once (without one: the gate)."""

    data: EventData
    causes: Sequence[str] = ()
    key: str = ""
    stream: str = ""


class Task:
    """Everything that the six agents of a task go by."""

    def __init__(self, task_id: str) -> None:
        self.id: Final = task_id
        self.started: kinds.TotStarted | None = None
        self.started_id = ""
        self.waiting: dict[str, Asked] = {}
        self.answers: dict[tuple[kinds.Role, str], Event] = {}
        self.costs = self.paid = view.Costs()
        self.others: set[kinds.Role] = set()
        # By this process alone: a request's id for each further try at a question of it.
        self.asked_again: list[str] = []
        self.thinker = ""
        self.paused: Event | None = None
        self.paused_for: set[str] = set()
        self.decompositions: list[Event] = []
        self.added: dict[str, str] = {}
        self.judged: dict[str, str] = {}
        self.tree: TreeState | None = None
        self.steps = 0
        self.solution: Event | None = None
        self.complete: Event | None = None
        self.failure: kinds.Failure | None = None
        self.now_ms = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more is searched."""
        return self.complete is not None or self.failure is not None

    @property
    def language(self) -> kinds.Language:
        """The language that is spoken."""
        return "en" if self.started is None else self.started.language

    def apply(self, event: Event) -> None:
        """Take in the next event of the task's stream."""
        data = event.data
        self.now_ms = event.accepted_ms
        self.costs = view.costs_after(self.costs, event)
        if getattr(data, "sender", None) not in self.others:
            self.paid = view.costs_after(self.paid, event)
        if (tree := advance(self.tree, event)) is not None:
            self.tree = _replace(tree, costs=self.costs, paid=self.paid, language=self.language)
        if isinstance(data, kinds.Question):
            self.waiting[event.id] = Asked(event, self.tree)
        elif isinstance(data, kinds.Answer):
            self._answered(event, data)
        elif isinstance(data, kinds.TotStarted):
            self.started, self.started_id, self.thinker = data, event.id, data.thinker
            self.others = {one.role for one in data.roles if one.agent != AGENTS[one.role]}
        elif isinstance(data, kinds.TotNodesAdded):
            self.added |= {node.id: event.id for node in data.nodes}
        elif isinstance(data, kinds.Aside):
            self._noted(event, data)
        if isinstance(data, _STEPS):
            self.steps += 1

    def _noted(self, event: Event, data: kinds.Aside) -> None:
        match data:
            case kinds.TotLogWritten():
                pass
            case kinds.TotModelAnswered():
                self.answers[data.sender, data.prompt_sha256] = event
            case kinds.TotPaused():
                self.paused = event
                self.paused_for |= set(event.causes)
            case kinds.TotResumed():
                self.paused, self.thinker = None, data.thinker
            case kinds.TotError():
                self.failure = data.error if data.sender == "orchestrator" else self.failure
            case _:
                assert_never(data)

    def _answered(self, event: Event, data: kinds.Message) -> None:
        for cause in event.causes:
            if cause in self.waiting and self.waiting[cause].event.data.to == data.sender:
                del self.waiting[cause]
                break
        match data:
            case kinds.DecompositionResult():
                self.decompositions.append(event)
            case kinds.EvaluationResults() if data.payload is not None:
                self.judged |= {evaluation.node_id: event.id for evaluation in data.payload.evaluations}
            case kinds.FinalSolution() if data.payload is not None:
                self.solution = event
            case kinds.SearchComplete():
                self.complete = event
            case _:  # any other answer: the tree knows it
                pass


def drafts(task_id: str, steps: Sequence[Step]) -> list[Draft]:
    """Return what is signed for ``steps``; their keys are the task's own."""
    return [
        Draft(
            stream=step.stream or f"tot/{task_id}", data=step.data, causes=list(dict.fromkeys(step.causes)),
            idem=f"{task_id}:{step.key}" if step.key else None,
        )
        for step in steps
    ]  # fmt: skip


attempts_max: Final = 3
batch_size_max_bytes: Final = 24 * 1024
"""What stands together in a message beside the problem, as JSON."""

# What an endpoint or a bound agent did not answer passes: the task is paused, and it counts against no node.
PAUSING: Final = frozenset({"LLM_UNAVAILABLE", "EVALUATION_TIMEOUT"})


class Drawn(msgspec.Struct, frozen=True):
    """Candidates of an answer that are no nodes yet, and the node they grow from."""

    answer: str
    parent: str
    candidates: tuple[kinds.Candidate, ...]


S = TypeVar("S")
Ask: TypeAlias = kinds.GenerateThoughts | kinds.EvaluateThoughts | kinds.SynthesizeSolution


class TreeState(msgspec.Struct, frozen=True):
    """Everything that the next action depends on.

    ``requests`` are those that wait for an answer (id → message); ``attempts`` counts, for each node, the failed
    generations and the evaluations that gave it no score (0: what failed counts not against it, and is asked again); a
    node in ``given_up`` failed in a way that does not pass. ``trouble`` is the answer that the search must pause for
    (its id and error), ``turned_from`` the node that was turned back from last, ``costs`` what the whole task cost,
    ``paid`` without what others' agents say they paid: a budget is of our own model.
    """

    config: kinds.SearchConfig
    problem: str
    task_type: str
    task_id: str
    request: str
    decomposition: kinds.Decomposition
    nodes: dict[str, kinds.ThoughtNode] = {}
    requests: dict[str, Ask] = {}
    drawn: tuple[Drawn, ...] = ()
    attempts: dict[str, int] = {}
    given_up: frozenset[str] = frozenset()
    suggested: frozenset[str] = frozenset()
    last_expanded: str | None = None
    turned_from: str | None = None
    backtracks: int = 0
    costs: view.Costs = view.Costs()
    paid: view.Costs = view.Costs()
    trouble: tuple[str, kinds.Failure] | None = None
    is_paused: bool = False
    rounds: int = 0
    failure: kinds.Failure | None = None
    solution: kinds.Solution | None = None
    is_complete: bool = False
    language: kinds.Language = "en"


def advance(state: TreeState | None, event: Event) -> TreeState | None:
    """Return the tree after ``event``; None before a search was asked for."""
    data = event.data
    if isinstance(data, kinds.InitializeSearch):
        asked, shape = data.payload, data.payload.decomposition_result
        return TreeState(asked.search_config, asked.problem, asked.task_type, data.task_id, event.id, shape)
    if state is None:
        return None
    if isinstance(data, kinds.Message):
        return _message(state, event, data)
    match data:
        case kinds.TotNodesAdded():
            drawn = tuple(waiting for waiting in state.drawn if waiting.answer not in event.causes)
            return _replace(state, nodes=state.nodes | {node.id: node for node in data.nodes}, drawn=drawn)
        case kinds.TotNodesMarked():
            changed = {id_: _replace(state.nodes[id_], status=data.status) for id_ in data.node_ids}
            return _replace(state, nodes=state.nodes | changed)
        case kinds.TotBacktracked():
            return _replace(state, backtracks=state.backtracks + 1, turned_from=data.node_id)
        case kinds.TotPaused() | kinds.TotResumed():
            return _replace(state, is_paused=isinstance(data, kinds.TotPaused), trouble=None, failure=None)
        case _:  # the data of any other kind
            return state


def path_to(state: TreeState, node_id: str) -> list[kinds.ThoughtNode]:
    """Return the nodes from the root to a node."""
    path = [state.nodes[node_id]]
    while (parent := path[-1].parent_id) is not None:
        path.append(state.nodes[parent])
    return path[::-1]


def fitting(things: Iterable[S]) -> list[S]:
    """Return those of some things, the first ones first, that one message holds together."""
    kept, left = list[S](), batch_size_max_bytes
    for thing in things:
        if (size := len(msgspec.json.encode(thing))) <= left:
            kept, left = [*kept, thing], left - size
    return kept


def in_order(state: TreeState, ids: Iterable[str]) -> list[str]:
    """Return nodes best first: by score, then confidence, then as they came into the tree."""

    def worth(id_: str) -> tuple[float, float]:
        evaluation = state.nodes[id_].evaluation
        return (0.0, 0.0) if evaluation is None else (-evaluation.score, -evaluation.confidence)

    return sorted(ids, key=worth)


def best_path(state: TreeState) -> list[kinds.ThoughtNode]:
    """Return the path to the best node, by the rule of every view (``projections.thoughts.tree``)."""
    return [state.nodes[id_] for id_ in view.best_path(state.nodes)]


def stats(state: TreeState) -> kinds.SearchStats:
    """Return the counts of the search so far."""
    return view.stats_of(state.nodes, backtracks=state.backtracks, costs=state.costs, rounds=state.rounds)


def _message(state: TreeState, event: Event, data: kinds.Message) -> TreeState:
    match data:
        case kinds.GenerateThoughts() | kinds.EvaluateThoughts() | kinds.SynthesizeSolution():
            return _asked(state, event.id, data)
        case kinds.GeneratedThoughts():
            return _generated(state, event, data)
        case kinds.EvaluationResults():
            return _evaluated(state, event, data)
        case kinds.FinalSolution():
            return _synthesized(state, event, data)
        case kinds.SearchComplete():
            return _replace(state, is_complete=True)
        case _:  # any other message: it changes no tree
            return state


def _asked(state: TreeState, id_: str, data: Ask) -> TreeState:
    state = _replace(state, requests=state.requests | {id_: data})
    if not isinstance(data, kinds.GenerateThoughts):
        return state
    parent = data.payload.parent_node.id
    expanded = {parent: _replace(state.nodes[parent], status="expanded")}
    return _replace(state, nodes=state.nodes | expanded, last_expanded=parent, rounds=state.rounds + 1)


def _generated(state: TreeState, event: Event, data: kinds.GeneratedThoughts) -> TreeState:
    state, request = _without_request(state, event)
    if not isinstance(request, kinds.GenerateThoughts):
        return state
    parent = request.payload.parent_node.id
    if data.payload is None:
        return _failed(state, event, [parent], data.error)
    candidates = tuple(data.payload.candidates[: request.payload.num_candidates])
    drawn = (*state.drawn, Drawn(event.id, parent, candidates)) if candidates else state.drawn
    attempts = {id_: count for id_, count in state.attempts.items() if id_ != parent}
    return _replace(state, drawn=drawn, attempts=attempts)


def _evaluated(state: TreeState, event: Event, data: kinds.EvaluationResults) -> TreeState:
    state, request = _without_request(state, event)
    if not isinstance(request, kinds.EvaluateThoughts):
        return state
    asked = [node.id for node in request.payload.candidates]
    nodes = dict(state.nodes)
    if data.payload is not None:
        for judged in data.payload.evaluations:
            nodes[judged.node_id] = _replace(nodes[judged.node_id], evaluation=judged.evaluation)
        state = _replace(state, nodes=nodes, suggested=state.suggested.union(data.payload.pruning_suggestions))
    missed = [id_ for id_ in asked if nodes[id_].evaluation is None]
    attempts = {id_: count for id_, count in state.attempts.items() if id_ not in asked or id_ in missed}
    return _failed(_replace(state, attempts=attempts), event, missed, data.error)


def _synthesized(state: TreeState, event: Event, data: kinds.FinalSolution) -> TreeState:
    state, request = _without_request(state, event)
    if data.payload is None and isinstance(request, kinds.SynthesizeSolution):
        return _failed(state, event, [request.payload.best_path[-1].id], data.error)
    return _replace(state, solution=data.payload)


def _failed(state: TreeState, event: Event, ids: list[str], failure: kinds.Failure | None) -> TreeState:
    """Return the state after nodes got no answer; while the task is paused, no further answer pauses it again."""
    is_passing = failure is not None and failure.code in PAUSING
    is_over = failure is not None and not failure.recoverable and not is_passing
    return _replace(
        state,
        attempts=state.attempts | {id_: state.attempts.get(id_, 0) + (not is_passing) for id_ in ids},
        given_up=state.given_up.union(ids) if is_over else state.given_up,
        failure=failure or state.failure,
        trouble=(event.id, failure) if failure and is_passing and not state.is_paused else state.trouble,
    )


def _without_request(state: TreeState, event: Event) -> tuple[TreeState, Ask | None]:
    answered = next((cause for cause in event.causes if cause in state.requests), None)
    left = {id_: message for id_, message in state.requests.items() if id_ != answered}
    return _replace(state, requests=left), state.requests.get(answered or "")


_replace = msgspec.structs.replace
