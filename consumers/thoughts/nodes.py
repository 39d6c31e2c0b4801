"""The parts of a tree of thoughts: nodes, evaluations, the search configuration, and the costs of a search."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from deedbook.ledger.events.fields import Count, EventData, Label, Text, Time, Unit

Role = Literal["orchestrator", "decomposer", "generator", "evaluator", "explorer", "synthesizer"]
Strategy = Literal["BFS", "DFS"]
GenerationStrategy = Literal["independent_sampling", "sequential_proposal"]
EvaluationStrategy = Literal["independent_scoring", "comparative_voting"]
NodeStatus = Literal["pending", "expanded", "pruned", "not_taken", "terminal"]
TaskId = Annotated[
    str, msgspec.Meta(pattern=r"^tot-[0-9]{8}-[0-9]{6}-[0-9a-z]{6}\Z", description="tot-YYYYMMDD-HHMMSS-xxxxxx")
]
NodeId = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}\Z", description="The id of a node in its tree.")
]
Score = Annotated[float, msgspec.Meta(ge=0.0, le=10.0, description="A score from 0 to 10.")]
Depth = Annotated[int, msgspec.Meta(ge=0, le=64, description="A depth; the root is at 0.")]
Few = Annotated[int, msgspec.Meta(ge=1, le=64)]
Budget = Annotated[
    int, msgspec.Meta(ge=1, le=2_000, description="The limit of nodes, or of requests to a model, of a search.")
]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000, description="The limit of tokens of a search.")]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=31_536_000)]
Verifier = Annotated[
    Literal["program", "model", "nobody"],
    msgspec.Meta(description="The verifier. A model that verifies its own answer is no proof."),
]
Language = Literal["en", "zh"]


class Failure(EventData, frozen=True):
    """The ``error`` of a message. ``retry_after_s`` is the wait that a busy endpoint requests."""

    code: Label
    message: Text
    recoverable: bool
    retry_after_s: Seconds | None = None


class Evaluation(EventData, frozen=True):
    """The evaluation of a node and of its dimensions."""

    score: Score
    confidence: Unit
    reasoning: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    dimension_scores: dict[str, Score] = {}


class ThoughtNode(EventData, frozen=True, omit_defaults=False):
    """A node of the tree, written with every field: agents in other languages read ``parent_id: null``.

    ``children_ids`` follow from the other nodes. ``action_type`` and ``metadata`` may hold anything.
    """

    id: NodeId
    depth: Depth
    content: Text
    parent_id: NodeId | None = None
    children_ids: list[NodeId] = []
    action_type: str = ""
    evaluation: Evaluation | None = None
    status: NodeStatus = "pending"
    metadata: dict[str, Any] = {}


class SearchConfig(EventData, frozen=True):
    """The search configuration. ``beam_width`` nodes are kept per level; the last four fields limit the search."""

    strategy: Strategy
    max_depth: Annotated[int, msgspec.Meta(ge=1, le=64)]
    branching_factor: Few
    pruning_threshold: Score
    beam_width: Few | None = None
    generation_strategy: GenerationStrategy = "sequential_proposal"
    evaluation_strategy: EvaluationStrategy = "independent_scoring"
    nodes_max: Budget = 500
    calls_max: Budget = 1_000
    tokens_max: Tokens | None = None
    deadline: Time | None = None


class SearchState(EventData, frozen=True):
    """The progress of a search."""

    current_depth: Depth
    frontier: list[NodeId]
    best_path: list[NodeId]


class ThoughtTree(EventData, frozen=True):
    """The whole tree, with its nodes by id."""

    kept_texts = frozenset({"task_type"})

    task_id: TaskId
    problem: Text
    task_type: Label
    search_config: SearchConfig
    nodes: dict[str, ThoughtNode]
    root_id: NodeId
    search_state: SearchState


class SearchStats(EventData, frozen=True):
    """The counts of a search. ``llm_calls`` are the requests to a model for the whole task, failed ones included."""

    total_nodes: Count
    total_backtracks: Count
    llm_calls: Count
    tokens_in: Count = 0
    tokens_out: Count = 0
    nodes_pruned: Count = 0
    max_depth_reached: Depth = 0
    rounds: Count = 0
    best_score: Score | None = None
