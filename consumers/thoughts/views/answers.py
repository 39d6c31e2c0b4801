"""The types of answers about Trees of Thoughts.

Parts without text are those of the protocol, written here with every field.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from deedbook.consumers.thoughts import events as kinds
from deedbook.projections.answers.answer import Answer, Index, Marked, Ms, Untrusted

TaskStatus: TypeAlias = Literal["started", "searching", "paused", "solved", "failed", "unverified"]


class ShownConfig(kinds.SearchConfig, frozen=True, omit_defaults=False):
    """A search configuration."""


class ShownStats(kinds.SearchStats, frozen=True, omit_defaults=False):
    """The counts of a search."""


class ShownUsage(kinds.Usage, frozen=True, omit_defaults=False):
    """The costs at a model."""


class ShownFailure(Answer, frozen=True, kw_only=True):
    """The reason why a search or an answer failed. ``retry_after_s`` is the wait that a busy endpoint requests."""

    code: Untrusted
    message: Untrusted
    recoverable: bool
    retry_after_s: int | None


class ShownVerification(Answer, frozen=True, kw_only=True):
    """Whether a solution is valid, and who verified it."""

    is_valid: bool
    by: kinds.Verifier
    validation_errors: list[Untrusted]


class ShownSolution(Answer, frozen=True, kw_only=True):
    """A solution, the steps to it, and its confidence from 0 to 1."""

    answer: Untrusted
    reasoning_trace: list[Untrusted]
    confidence: float
    verification: ShownVerification
    alternative_solutions: list[Untrusted]


class WaitingRequest(Answer, frozen=True, kw_only=True):
    """A request without an answer."""

    request_id: str
    type: str


class ThoughtTask(Marked, frozen=True, kw_only=True):
    """A problem that is searched as a tree.

    ``stats`` are counted here, and ``claimed_stats`` are the explorer's own. ``tree_ref`` is the blob of a large tree,
    and ``tree_digest`` covers the structure and status of the nodes.
    """

    id: str
    status: TaskStatus
    problem: Untrusted
    task_type: Untrusted
    language: kinds.Language
    thinker: Untrusted
    author: str
    roles: list[kinds.RoleBinding]
    options: dict[str, Untrusted]
    search_config: ShownConfig | None
    root_id: str | None
    search_state: kinds.SearchState
    stats: ShownStats
    claimed_stats: ShownStats | None
    tree_digest: str
    tree_ref: str | None
    solution: ShownSolution | None
    failure: ShownFailure | None
    waiting: list[WaitingRequest]
    started_index: Index
    started_ms: Ms
    ended_index: Index | None
    ended_ms: Ms | None


class ShownEvaluation(Answer, frozen=True, kw_only=True):
    """The evaluation of a node: its scores are from 0 to 10, its confidence from 0 to 1."""

    score: float
    confidence: float
    reasoning: Untrusted
    dimension_scores: dict[str, float]


class ShownNode(Answer, frozen=True, kw_only=True):
    """A node of a tree; ``metadata`` may hold anything."""

    id: str
    parent_id: str | None
    depth: int
    content: Untrusted
    action_type: Untrusted
    status: kinds.NodeStatus
    children_ids: list[str]
    metadata: dict[str, Any]
    evaluation: ShownEvaluation | None


class ShownTree(Marked, frozen=True, kw_only=True):
    """The whole tree of a task, with its nodes by id in the order of addition.

    ``search_config`` is null before the search began, ``root_id`` before there is a root.
    """

    task_id: str
    problem: Untrusted
    task_type: Untrusted
    search_config: ShownConfig | None
    root_id: str | None
    search_state: kinds.SearchState
    nodes: dict[str, ShownNode]


class ProvenAnswer(Answer, frozen=True, kw_only=True):
    """An answer and its request: the agents and keys (hex) that signed them, and their entries."""

    type: str
    signer: str
    key: str
    accepted_ms: Ms
    error: ShownFailure | None
    usage: ShownUsage | None
    role: kinds.Role
    answer_id: str
    answer_index: Index
    request_id: str
    request_index: Index
    asked_by: str
    asked_key: str


class UnansweredRequest(Answer, frozen=True, kw_only=True):
    """A request without an answer; it may still be open."""

    request_id: str
    type: str
    receiver: kinds.Role
    request_index: Index


class ThoughtOrigin(Answer, frozen=True, kw_only=True):
    """The entries behind a node, and who signed them: a proposal, its addition to the tree, and the last evaluation.

    The explorer adds the root without a proposal.
    """

    proposed_index: Index | None
    proposed_by: str | None
    added_index: Index
    added_by: str
    evaluated_index: Index | None
    evaluated_by: str | None


class TaskProof(Marked, frozen=True, kw_only=True):
    """Whether six agents really ran (``passed``): no agent answered itself, and none is missing.

    ``origins`` has an item for each node, by its id.
    ``answered_itself`` has the ids of answers by the agent or the key that sent the request. ``never_ran`` are the
    roles that sent nothing; ``missing`` are those of them that got a request, or all of them once there is a solution.
    """

    id: str
    status: TaskStatus
    roles: list[kinds.RoleBinding]
    answers: list[ProvenAnswer]
    origins: dict[str, ThoughtOrigin]
    unanswered: list[UnansweredRequest]
    answered_itself: list[str]
    never_ran: list[kinds.Role]
    missing: list[kinds.Role]
    passed: bool
