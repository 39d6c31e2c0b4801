"""A task as its agents know it: a fold over the events of ``tot/TASK``, from which alone each of them goes on.

What an agent says is a function of this, its role and its thinker. An agent that was killed reads the stream again and
says what it would have said: the key of what it says (``Say.key``) comes from the cause, so the ledger takes it once.
A request keeps the tree of the moment it was made in, because an answer must not depend on when it is thought of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, get_args

from consumers.thoughts.tree import TreeState, advance
from ledger.author import Draft
from ledger.events import EventData
from ledger.events import tot as kinds
from ledger.events.body import Event

pause_max_ms: Final = 60_000

AGENTS: Final[dict[kinds.Role, str]] = {role: f"tot-{role}" for role in get_args(kinds.Role)}
_STEPS: Final = (
    kinds.GenerateThoughts,
    kinds.EvaluateThoughts,
    kinds.SynthesizeSolution,
    kinds.TotNodesAdded,
    kinds.TotNodesMarked,
    kinds.TotBacktracked,
)


class Asked(NamedTuple):
    """A request that waits, and the tree as it is from then on."""

    event: Event
    tree: TreeState | None


class Say(NamedTuple):
    """One event that an agent wants to append, and the key under which it is appended once (without one: the gate)."""

    key: str
    data: EventData
    causes: Sequence[str] = ()
    stream: str = ""


class Task:
    """Everything that the six agents of a task go by."""

    def __init__(self, task_id: str) -> None:
        self.id: Final = task_id
        self.started: kinds.TotStarted | None = None
        self.started_id = ""
        self.waiting: dict[str, Asked] = {}
        self.decompositions: list[Event] = []
        self.announced: set[tuple[str, str]] = set()
        self.added: dict[str, str] = {}
        self.judged: dict[str, str] = {}
        self.tree: TreeState | None = None
        self.steps = 0
        self.solution: Event | None = None
        self.complete: Event | None = None
        self.failure: kinds.Failure | None = None
        self._now_ms = 0
        self._searched_ms = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more is searched."""
        return self.complete is not None or self.failure is not None

    def apply(self, event: Event) -> None:
        """Take in the next event of the task's stream."""
        data = event.data
        if self.tree is not None:
            self._searched_ms += min(max(0, event.accepted_ms - self._now_ms), pause_max_ms)
        self._now_ms = event.accepted_ms
        self.tree = advance(self.tree, event)
        if isinstance(data, kinds.Question):
            self.waiting[event.id] = Asked(event, self.tree)
        elif isinstance(data, kinds.Answer):
            self._answered(event, data)
        if isinstance(data, _STEPS):
            self.steps += 1
        match data:
            case kinds.TotStarted():
                self.started, self.started_id = data, event.id
            case kinds.TotNodesAdded():
                self.added |= {node.id: event.id for node in data.nodes}
            case kinds.TotLogWritten():
                self.announced |= {(data.sender, cause) for cause in event.causes}
            case kinds.TotError() if data.sender == "orchestrator":
                self.failure = data.error
            case _:  # the data of any other kind; messages are taken in above
                pass

    def elapsed_s(self) -> float:
        """Return the seconds of search up to the latest event, by the ledger's clock.

        Of a pause between two events ``pause_max_ms`` count at most: a search that is resumed the next day is not late.
        """
        return self._searched_ms / 1000

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


def drafts(task_id: str, says: Sequence[Say]) -> list[Draft]:
    """Return what is signed for ``says``; their keys are the task's own."""
    return [
        Draft(
            stream=say.stream or f"tot/{task_id}",
            data=say.data,
            causes=list(dict.fromkeys(say.causes)),
            idem=f"{task_id}:{say.key}" if say.key else None,
        )
        for say in says
    ]


def line(role: kinds.Role, task: Task, key: str, msg: str, causes: Sequence[str] = ()) -> Say:
    """Return a line for people about work that begins, unless a message tells it."""
    entry = kinds.LogEntry(level="progress", msg=msg)
    return Say(f"log:{key}", kinds.TotLogWritten(sender=role, task_id=task.id, entries=[entry]), causes)
