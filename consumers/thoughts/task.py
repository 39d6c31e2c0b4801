"""The state of a task: a fold over the events of ``tot/TASK``. Its agents use nothing else.

An agent's next step is a function of this state, its role and its thinker. The step's key (``Step.key``) comes from its
cause, so the ledger accepts it once. A request keeps the nodes at the time when it was made, because an answer must not
depend on when it is computed. The gate (``ledger.lifecycle.tot``) admitted every event: nothing is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, assert_never, get_args

import msgspec

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.views import tree as view
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.fields import EventData

AGENTS: Final[dict[kinds.Role, str]] = {role: f"tot-{role}" for role in get_args(kinds.Role)}
_STEPS: Final = (
    kinds.GenerateThoughts,
    kinds.EvaluateThoughts,
    kinds.SynthesizeSolution,
    kinds.TotNodesAdded,
    kinds.TotNodesMarked,
    kinds.TotBacktracked,
)

attempts_max: Final = 3
batch_size_max_bytes: Final = 24 * 1024
"""The size of the items in a message beside the problem, as JSON."""

# A model or a bound agent gave no answer, or the model's answers cannot be used: the task pauses, because its user can
# change the settings or the model; nothing counts against a node.
PAUSING: Final = frozenset({"LLM_UNAVAILABLE", "LLM_INVALID", "EVALUATION_TIMEOUT"})

S = TypeVar("S")
Nodes: TypeAlias = Mapping[str, kinds.ThoughtNode]
SearchRequest: TypeAlias = kinds.GenerateThoughts | kinds.EvaluateThoughts | kinds.SynthesizeSolution


class PendingRequest(NamedTuple):
    """A request that waits for its answer, and the nodes at the time when it was made."""

    event: Event
    nodes: Nodes


class DrawnCandidates(NamedTuple):
    """Candidates of an answer that are not nodes yet, and their parent node."""

    answer: str
    parent: str
    candidates: Sequence[kinds.Candidate]


class Step(NamedTuple):
    """One event that an agent will append. ``key`` is its idempotency key; without it, the gate refuses a repeat."""

    data: EventData
    causes: Sequence[str] = ()
    key: str = ""
    stream: str = ""


class Task:
    """The state from which the six agents of a task decide.

    ``attempts`` counts, for each node, the failed generations and the evaluations without a score (0: the failure does
    not count against it, and the request is repeated); a node in ``given_up`` failed for good. ``trouble`` is the
    answer for which the search must pause (its id and error), ``fault`` the last error, ``turned_from`` the last node
    of a backtrack, ``costs`` the cost of the whole task, and ``paid`` the cost without that of bound agents, because a
    budget limits our own model. ``answers`` are the recorded answers of models by role and prompt; a resumption drops
    the unusable ones, so that their questions are asked again. With ``takes_best_path``, no thinker is asked again.
    """

    def __init__(self, task_id: str) -> None:
        self.id: Final = task_id
        self.started: kinds.TotStarted | None = None
        self.started_id = ""
        self.search: kinds.InitializePayload | None = None
        self.search_id = ""
        self.waiting: dict[str, PendingRequest] = {}
        self.answers: dict[tuple[kinds.Role, str], Event] = {}
        self.costs = self.paid = view.Costs()
        self.others: set[kinds.Role] = set()
        # Only in this process: the request id of each repeated question.
        self.asked_again: list[str] = []
        self.thinker = ""
        self.paused: Event | None = None
        self.paused_for: set[str] = set()
        self.resumptions = 0
        self.takes_best_path = self.is_untellable = False
        self.decompositions: list[Event] = []
        self.nodes: dict[str, kinds.ThoughtNode] = {}  # replaced on each change: requests keep the version they saw
        self.drawn: list[DrawnCandidates] = []
        self.attempts: dict[str, int] = {}
        self.given_up: set[str] = set()
        self.suggested: set[str] = set()
        self.last_expanded: str | None = None
        self.turned_from: str | None = None
        self.backtracks = self.rounds = self.steps = 0
        self.trouble: tuple[str, kinds.Failure] | None = None
        self.fault: kinds.Failure | None = None
        self.added: dict[str, str] = {}
        self.judged: dict[str, str] = {}
        self.solution: Event | None = None
        self.complete: Event | None = None
        self.failure: kinds.Failure | None = None
        self.now_ms = 0
        self.last_id = ""

    @property
    def is_over(self) -> bool:
        """Whether the search has ended."""
        return self.complete is not None or self.failure is not None

    @property
    def language(self) -> kinds.Language:
        """The language of the task."""
        return "en" if self.started is None else self.started.language

    @property
    def asked(self) -> kinds.InitializePayload:
        """The request to search; only after it was made."""
        assert self.search is not None  # noqa: S101 - an agent that searches got a request to search
        return self.search

    @property
    def config(self) -> kinds.SearchConfig:
        """The configuration of the search; only after the request to search."""
        return self.asked.search_config

    @property
    def requests(self) -> dict[str, SearchRequest]:
        """The requests of the search that wait for an answer."""
        data_by_id = {id_: pending.event.data for id_, pending in self.waiting.items()}
        return {id_: data for id_, data in data_by_id.items() if isinstance(data, SearchRequest)}

    def apply(self, event: Event) -> None:
        """Apply the next event of the task's stream."""
        data = event.data
        self.now_ms, self.last_id = event.accepted_ms, event.id
        self.costs = view.costs_after(self.costs, event)
        if getattr(data, "sender", None) not in self.others:
            self.paid = view.costs_after(self.paid, event)
        self.steps += isinstance(data, _STEPS)
        if isinstance(data, kinds.Question):
            self._requested(event, data)
        elif isinstance(data, kinds.Answer):
            self._answered(event, data)
        elif isinstance(data, kinds.SideStatement):
            self._noted(event, data)
        elif isinstance(data, kinds.TotStarted):
            self.started, self.started_id, self.thinker = data, event.id, data.thinker
            self.others = {bound.role for bound in data.roles if bound.agent != AGENTS[bound.role]}
        elif isinstance(data, kinds.TotNodesAdded):
            self.added |= {node.id: event.id for node in data.nodes}
            self.nodes = self.nodes | {node.id: node for node in data.nodes}
            self.drawn = [waiting for waiting in self.drawn if waiting.answer not in event.causes]
        elif isinstance(data, kinds.TotNodesMarked):
            self._change(data.node_ids, status=data.status)
        elif isinstance(data, kinds.TotBacktracked):
            self.backtracks, self.turned_from = self.backtracks + 1, data.node_id

    def _change(self, ids: Iterable[str], **fields: Any) -> None:
        self.nodes = self.nodes | {id_: msgspec.structs.replace(self.nodes[id_], **fields) for id_ in ids}

    def _requested(self, event: Event, data: kinds.Question) -> None:
        if isinstance(data, kinds.InitializeSearch):
            self.search, self.search_id = data.payload, event.id
        elif isinstance(data, kinds.GenerateThoughts):
            self.last_expanded = data.payload.parent_node.id
            self.rounds += 1
            self._change([self.last_expanded], status="expanded")
        self.waiting[event.id] = PendingRequest(event, self.nodes)

    def _noted(self, event: Event, data: kinds.SideStatement) -> None:
        match data:
            case kinds.TotLogWritten():
                pass
            case kinds.TotModelAnswered():
                self.answers[data.sender, data.prompt_sha256] = event
            case kinds.TotPaused():
                self.paused, self.trouble, self.fault = event, None, None
                self.paused_for |= set(event.causes)
            case kinds.TotResumed():
                self.paused, self.trouble, self.fault, self.thinker = None, None, None, data.thinker
                self.resumptions += 1
                self.takes_best_path = data.best_path
                self.answers = {key: paid for key, paid in self.answers.items() if paid.data.answer is not None}
            case kinds.TotError():
                self.failure = data.error if data.sender == "orchestrator" else self.failure
            case _:
                assert_never(data)

    def _answered(self, event: Event, data: kinds.Message) -> None:
        causes = (id_ for id_ in event.causes if id_ in self.waiting)
        id_ = next((id_ for id_ in causes if self.waiting[id_].event.data.to == data.sender), "")
        request: Any = self.waiting.pop(id_).event.data if id_ else None
        match data:
            case kinds.DecompositionResult():
                self.decompositions.append(event)
            case kinds.GeneratedThoughts() if isinstance(request, kinds.GenerateThoughts):
                self._generated(event, data, request.payload)
            case kinds.EvaluationResults() if isinstance(request, kinds.EvaluateThoughts):
                self._evaluated(event, data, request.payload)
            case kinds.FinalSolution() if data.payload is not None:
                self.solution = event
            case kinds.FinalSolution() if isinstance(request, kinds.SynthesizeSolution):
                self.is_untellable |= request.payload.verbatim
                self._failed(event, [request.payload.best_path[-1].id], data.error)
            case kinds.SearchComplete():
                self.complete = event
            case _:  # an answer to no pending request
                pass

    def _generated(self, event: Event, data: kinds.GeneratedThoughts, request: kinds.GeneratePayload) -> None:
        parent = request.parent_node.id
        if data.payload is None:
            self._failed(event, [parent], data.error)
            return
        if candidates := data.payload.candidates[: request.num_candidates]:
            self.drawn.append(DrawnCandidates(event.id, parent, candidates))
        self.attempts.pop(parent, None)

    def _evaluated(self, event: Event, data: kinds.EvaluationResults, request: kinds.EvaluatePayload) -> None:
        for judged in data.payload.evaluations if data.payload is not None else ():
            self._change([judged.node_id], evaluation=judged.evaluation)
            self.judged[judged.node_id] = event.id
        if data.payload is not None:
            self.suggested.update(data.payload.pruning_suggestions)
        missed = [node.id for node in request.candidates if self.nodes[node.id].evaluation is None]
        for node in request.candidates:
            if node.id not in missed:
                self.attempts.pop(node.id, None)
        self._failed(event, missed, data.error)

    def _failed(self, event: Event, ids: list[str], failure: kinds.Failure | None) -> None:
        """Record that nodes got no answer; while the task is paused, no further answer pauses it again."""
        is_passing = failure is not None and failure.code in PAUSING
        self.attempts |= {id_: self.attempts.get(id_, 0) + (not is_passing) for id_ in ids}
        if failure is None:
            return
        self.fault = failure
        if is_passing and self.paused is None:
            self.trouble = (event.id, failure)
        if not failure.recoverable and not is_passing and failure.code != "SEARCH_EXHAUSTED":
            self.given_up.update(ids)  # not if the budget is spent, which is no fault of a node


def drafts(task_id: str, steps: Sequence[Step]) -> list[Draft]:
    """Return the drafts of ``steps``; their keys are prefixed with the task's id."""
    return [
        Draft(
            stream=step.stream or f"tot/{task_id}",
            data=step.data,
            causes=list(dict.fromkeys(step.causes)),
            idem=f"{task_id}:{step.key}" if step.key else None,
        )
        for step in steps
    ]


def path_to(nodes: Nodes, node_id: str) -> list[kinds.ThoughtNode]:
    """Return the nodes from the root to a node."""
    path = [nodes[node_id]]
    while (parent := path[-1].parent_id) is not None:
        path.append(nodes[parent])
    return path[::-1]


def fitting(items: Iterable[S]) -> list[S]:
    """Return as many of the first items as fit together into one message."""
    batch, left = list[S](), batch_size_max_bytes
    for item in items:
        if (size := len(msgspec.json.encode(item))) <= left:
            batch, left = [*batch, item], left - size
    return batch


def cut_to_bytes(text: str, size_max_bytes: int) -> str:
    """Return a text, shortened to ``size_max_bytes`` as JSON, in which one character may have six bytes."""
    if json_size(text) <= size_max_bytes:
        return text
    count, size = 0, json_size("…")
    while (size := size + json_size(text[count]) - 2) <= size_max_bytes:
        count += 1
    return f"{text[:count]}…"


def json_size(text: str) -> int:
    """Return the size of a text as JSON, in bytes."""
    return len(msgspec.json.encode(text))


def in_order(nodes: Nodes, ids: Iterable[str]) -> list[str]:
    """Return nodes best first: by score, then confidence, then in the order of the tree."""

    def worth(id_: str) -> tuple[float, float]:
        evaluation = nodes[id_].evaluation
        return (0.0, 0.0) if evaluation is None else (-evaluation.score, -evaluation.confidence)

    return sorted(ids, key=worth)


def path_to_best(nodes: Nodes) -> list[kinds.ThoughtNode]:
    """Return the path to the best node, by the same rule as all views (``projections.thoughts.tree``)."""
    return [nodes[id_] for id_ in view.best_path(nodes)]


def stats(task: Task) -> kinds.SearchStats:
    """Return the counts of the search so far."""
    return view.stats_of(task.nodes, backtracks=task.backtracks, costs=task.costs, rounds=task.rounds)
