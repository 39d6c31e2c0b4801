"""The types of answers about handoffs."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from deedbook.ledger.format.forms import UnlockAt
from deedbook.ledger.lifecycle.handoff_status import CriterionMark, QuestionMark, Status
from deedbook.projections.answers.answer import Answer, Checked, Cursor, Head, Index, Marked, Ms, Page, Untrusted
from deedbook.projections.handoffs.lines import HandoffLine, LinkedHandoff

Number = Annotated[int, msgspec.Meta(description="The number of a task, criterion or question, from 1.")]
Position = Annotated[
    int,
    msgspec.Meta(
        description="The position in its list, from 0. Its number, by which an operation names it, is one more."
    ),
]
Action: TypeAlias = Literal["approve", "claim", "continue", "amend", "unblock", "verify", "waive", "answer", "settle"]
QueueAction: TypeAlias = Literal[Action, "review"]
QueueOperation: TypeAlias = Literal[
    "show", "approve", "claim", "check", "complete", "amend", "unblock", "verify", "waive", "answer", "settle"
]
LineMark: TypeAlias = Literal["kept", "added", "removed", "changed"]


class HandoffCard(HandoffLine, frozen=True, kw_only=True, rename={"sender": "from", "receiver": "to"}):
    """A handoff on the board. ``why`` says what it waits for first; it is empty if the receiver can claim it.

    ``reasons_more`` is the number of further reasons, which `handoffs.why` lists.
    """

    why: Untrusted
    reasons_more: int


class BoardColumn(Answer, frozen=True, kw_only=True):
    """The handoffs of one status, newest first: how many there are, and the first of them."""

    status: Status
    total: int
    handoffs: list[HandoffCard]


class BoardColumns(Answer, frozen=True, kw_only=True):
    """The board: a column for each status, all of one snapshot.

    ``history`` counts the imported handoffs that are left out because they claim to be over.
    """

    columns: list[BoardColumn]
    history: int


class QueueItem(Marked, frozen=True, kw_only=True, rename={"sender": "from", "receiver": "to"}):
    """A handoff, review or question that waits for ``agent``.

    ``action`` names the case. ``act`` is the operation by which they move it on, with ``arguments``: for the action
    ``continue`` it is ``check``, ``complete`` or ``answer``. It is ``show`` if they can only look.

    ``author`` signed it; ``from`` may be only a claim of an imported file (``is_imported``: nobody here has confirmed
    it). ``since_*`` is the event since which it waits.
    """

    kind: Literal["handoff", "review", "question"]
    id: str
    title: Untrusted
    action: QueueAction
    agent: str
    status: Status | Literal["open", "answered"]
    is_imported: bool
    sender: str
    author: str
    receiver: str
    reviewer: str
    version: str | None
    why: Untrusted
    act: QueueOperation
    arguments: dict[str, Any]
    reasoning_refs: list[str]
    since_index: Index
    since_ms: Ms = 0


class Queue(Page[QueueItem], frozen=True, kw_only=True):
    """A page of what waits, most urgent first. ``as_of`` is the head of the log that it was read from."""

    as_of: Head | UnsetType = UNSET


class Reason(Answer, frozen=True, kw_only=True):
    """A reason why a handoff is not ready, with the code with which the gate would refuse the claim.

    ``by`` is the agent that can change it. For a dependency, ``on`` is its id, and ``chain`` leads from it to the first
    handoff that only its own parties can move on.
    """

    code: str
    text: Untrusted
    by: str | None = None
    on: str | None = None
    status: Status | None = None
    chain: list[str] = []


class WorkLeft(Answer, frozen=True, kw_only=True):
    """The numbers of open tasks and criteria, and of questions to the receiver that are not settled."""

    tasks: list[Number]
    criteria: list[Number]
    questions: list[Number]


class Why(Checked, frozen=True, kw_only=True):
    """Why a handoff is ready or not: ``sentence`` for people, ``reasons`` for programs.

    ``waits`` are the items of `handoffs.next` that move it on: its own, then those of the handoffs in the chains of its
    reasons, and of at most 32 others that it waits for.
    """

    id: str
    status: Status
    version: str
    is_ready: bool
    sentence: Untrusted
    reasons: list[Reason]
    left: WorkLeft
    waits: list[QueueItem]


class HandoffSummary(Checked, frozen=True, kw_only=True, rename={"sender": "from", "receiver": "to"}):
    """The facts of a handoff for programs that act on it or import over it; ``reasoning_refs`` are what it cites."""

    id: str
    sender: str
    importer: str | None
    receiver: str
    reviewer: str | None
    status: Status
    title: Untrusted
    version: str
    result: str
    claimed_status: Untrusted | None
    claimed_done: str | None
    updated_ms: Ms
    source: Untrusted | None
    original: str | None
    format: str | None
    template_index: Index
    reasoning_refs: list[str]


class ExistingHandoffs(Answer, frozen=True, kw_only=True):
    """The handoffs of these ids; unknown ids are left out."""

    handoffs: dict[str, HandoffSummary]


class Notes(Answer, frozen=True, kw_only=True):
    """Notes of the sender for the receiver: `ReceiverNotes` of the event explains the fields."""

    done: list[Untrusted]
    found: list[Untrusted]
    reproduce: list[Untrusted]
    baseline: list[Untrusted]
    tested_by: list[Untrusted]
    touches: list[Untrusted]
    traps: list[Untrusted]
    tried: list[Untrusted]
    argued: list[Untrusted]
    not_known: list[Untrusted]
    not_part: list[Untrusted]
    artifacts: list[Untrusted]


class Task(Answer, frozen=True, kw_only=True):
    """A task of a handoff, and the evidence of its last tick, which may say why the task was done in another way."""

    position: Position
    text: Untrusted
    done: bool
    evidence: Untrusted


class Criterion(Answer, frozen=True, kw_only=True):
    """An acceptance criterion, the evidence that it is met, and the reason for a waiver or its refusal."""

    position: Position
    text: Untrusted
    mark: Annotated[
        CriterionMark,
        msgspec.Meta(
            description="`checked` or `waived`: it is met. Else it is open: `asked` for a waiver, `claimed` in a file, "
            "`reopened` since changes were requested."
        ),
    ]
    evidence: Untrusted
    waiver_reason: Untrusted


class AskedQuestion(Answer, frozen=True, kw_only=True):
    """A question about a handoff, and its last answer. ``place`` is the file that it is about: PATH or PATH:LINE."""

    position: Position
    text: Untrusted
    by: str
    to: str
    place: Untrusted | None
    mark: Annotated[
        QuestionMark,
        msgspec.Meta(description="`answered`: who asked has not accepted the answer yet. `settled`: it is closed."),
    ]
    answer: Untrusted
    comment: Untrusted
    event_index: Index


class LogLine(Marked, frozen=True, kw_only=True):
    """An event of a handoff as a log line. ``position`` is that of the task or criterion that it ticks."""

    event_index: Index
    day: str
    at: str
    author: str
    kind: str
    text: Untrusted
    position: Position | None
    line: Untrusted


class ShownHandoff(Checked, frozen=True, kw_only=True, rename={"sender": "from", "receiver": "to"}):
    """Everything about one handoff.

    ``claimed_*``, ``source``, ``format`` and ``original`` are of an imported file. ``approved_index`` is a reviewer's
    approval; ``approval_index`` is the event that made it approved, which ``approver`` signed with ``approval_key``.
    """

    id: str
    status: Status
    title: Untrusted
    sender: str
    receiver: str
    reviewer: str | None
    version: str
    created: str
    proposal: Untrusted | None
    unlock_at: UnlockAt
    task: Untrusted
    context: Untrusted
    notes: Notes
    answers: str | None
    template: str | None
    template_index: Index
    tasks_done: int
    tasks_total: int
    criteria_done: int
    criteria_total: int
    importer: str | None
    claimed_author: Untrusted | None
    claimed_at: Untrusted | None
    claimed_status: Untrusted | None
    claimed_done: Untrusted | None
    source: Untrusted | None
    format: str | None
    original: str | None
    is_announced: bool
    superseded_by: str | None
    reason: Untrusted
    lease_from_ms: Ms | None
    lease_until_ms: Ms | None
    summary: Untrusted
    result: str
    created_index: Index
    approved_index: Index | None
    approval_key: str
    approval_index: Index | None
    approver: str
    claimed_index: Index | None
    completed_index: Index | None
    verified_index: Index | None
    updated_index: Index
    updated_ms: Ms
    artifacts: list[Untrusted]
    reasoning_refs: list[str]
    result_refs: list[str]
    tasks: list[Task]
    criteria: list[Criterion]
    questions: list[AskedQuestion]
    depends_on: list[LinkedHandoff]
    dependents: list[LinkedHandoff]
    answered_by: list[LinkedHandoff]
    log: list[LogLine]
    why: Why
    is_ready: bool


class Approval(Marked, frozen=True, kw_only=True):
    """An approval of a version."""

    event_index: Index
    at_ms: Ms
    author: str


class Version(Marked, frozen=True, kw_only=True):
    """A version of a handoff: the event that set its content, and its approvals. ``number`` counts from 1."""

    number: int
    version: str
    event_index: Index
    at_ms: Ms
    author: str
    text: Untrusted
    approvals: list[Approval]


class ChangedLine(Answer, frozen=True, kw_only=True):
    """A line of a changed field; ``was`` is the former text of a changed line."""

    mark: LineMark
    text: Untrusted
    was: Untrusted | None


class FieldChange(Answer, frozen=True, kw_only=True):
    """The change of one field, line by line, with the number of lines of each mark."""

    field: str
    counts: dict[LineMark, int]
    lines: list[ChangedLine]


class Versions(Checked, frozen=True, kw_only=True, rename={"since": "from", "number": "to"}):
    """The versions of a handoff, oldest first, the content of version ``to``, and its changes since ``from``.

    ``from`` is null if there is no earlier version.
    """

    id: str
    versions: list[Version]
    since: int | None
    number: int
    content: dict[str, Any]
    changes: list[FieldChange]


class GraphNode(Marked, frozen=True, kw_only=True, rename={"sender": "from", "receiver": "to"}):
    """A handoff of a graph; ``status`` null: nobody created it, and only ``id`` says something."""

    id: str
    status: Status | None
    title: Untrusted | None
    is_ready: bool
    sender: str | None = None
    receiver: str | None = None
    reviewer: str | None = None
    created: str | None = None
    tasks_done: int = 0
    tasks_total: int = 0
    criteria_done: int = 0
    criteria_total: int = 0
    claimed_status: Untrusted | None = None
    reason: Untrusted = ""
    created_index: Index | None = None
    updated_index: Index | None = None
    updated_ms: Ms | None = None
    importer: str | None = None


class NearNode(GraphNode, frozen=True, kw_only=True, rename={"sender": "from", "receiver": "to"}):
    """``hops`` are the steps from the handoff in the middle: negative before it, positive behind it, null elsewhere."""

    hops: int | None


class GraphEdge(Answer, frozen=True, kw_only=True, rename={"waiting": "from", "on": "to"}):
    """``from`` waits for ``to``."""

    waiting: str
    on: str


class NearEdge(GraphEdge, frozen=True, kw_only=True, rename={"waiting": "from", "on": "to"}):
    """It ``holds`` if ``to`` blocks the handoff in the middle."""

    holds: bool


class GraphTotals(Answer, frozen=True, kw_only=True):
    """The number of handoffs in the whole graph, and how many of them this part leaves out."""

    nodes: int
    left_out: int


class TreeTotals(GraphTotals, frozen=True, kw_only=True):
    """The totals, with the number of dependencies."""

    edges: int


class TreeLine(Answer, frozen=True, kw_only=True):
    """A line of a tree; ``is_again``: its branches were drawn before."""

    id: str
    depth: int
    is_again: bool


class Tree(Answer, frozen=True, kw_only=True):
    """A page of the tree of handoffs.

    ``path`` leads from a root to the first of its ``lines``. ``critical_path`` is the longest chain of unfinished
    handoffs that ends at ``id``, or the longest of all. ``order`` is an order in which its nodes can be done.
    """

    id: str | None
    lines: list[TreeLine]
    path: list[str]
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    critical_path: list[str]
    order: list[str]
    totals: TreeTotals
    next: Cursor


class Surrounding(Answer, frozen=True, kw_only=True):
    """The handoffs around one: first those that block it, then the nearest."""

    id: str | None
    nodes: list[NearNode]
    edges: list[NearEdge]
    totals: GraphTotals


class WaitingRow(Answer, frozen=True, kw_only=True):
    """A handoff or review, its id, the agent whom it waits for, and the action."""

    kind: Literal["handoff", "review", "question"]
    id: str
    agent: str
    action: QueueAction


class QueueCounts(Answer, frozen=True, kw_only=True):
    """The number of items in a queue: in all, by action and by sender, and of imported handoffs to confirm."""

    total: int
    actions: dict[str, int]
    senders: dict[str, int]
    imported: int
