"""The Tree-of-Thoughts protocol: every message between its six agents is one event, named and shaped as they know it.

A message carries ``from``, ``to``, ``type``, ``payload`` and ``task_id``, and optionally ``error``; an answer names in
``causes`` the request that it answers. Beside the messages stand what makes the tree rebuildable (which temporary id
became which node, what was pruned, where the search turned back) and what agents log.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from ledger.events.fields import Count, EventData, Label, Name, OptionalText, Passage, PublicKey, Ref, Text, Unit

Role = Literal["orchestrator", "decomposer", "generator", "evaluator", "explorer", "synthesizer"]
Strategy = Literal["BFS", "DFS"]
GenerationStrategy = Literal["independent_sampling", "sequential_proposal"]
EvaluationStrategy = Literal["independent_scoring", "comparative_voting"]
NodeStatus = Literal["pending", "expanded", "pruned", "terminal"]
TaskId = Annotated[
    str, msgspec.Meta(pattern=r"^tot-[0-9]{8}-[0-9]{6}-[0-9a-z]{6}\Z", description="tot-YYYYMMDD-HHMMSS-xxxxxx")
]
NodeId = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}\Z", description="The id of a node in its tree.")
]
Score = Annotated[float, msgspec.Meta(ge=0.0, le=10.0, description="A score from 0 to 10.")]
Depth = Annotated[int, msgspec.Meta(ge=0, le=64, description="A depth; the root is at 0.")]
Few = Annotated[int, msgspec.Meta(ge=1, le=64)]
Budget = Annotated[int, msgspec.Meta(ge=1, le=2_000, description="The most nodes, calls or seconds of a search.")]


class Failure(EventData, frozen=True):
    """What went wrong (the ``error`` of a message)."""

    code: Label
    message: Text
    recoverable: bool


class Evaluation(EventData, frozen=True):
    """The evaluation of a node."""

    score: Score
    confidence: Unit
    reasoning: OptionalText = ""


class ThoughtNode(EventData, frozen=True):
    """A node of the tree. ``children_ids`` follow from the other nodes; ``action_type`` and ``metadata`` are free."""

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
    """How the tree is searched; ``beam_width`` nodes are kept a level, and the last three bound the whole search."""

    strategy: Strategy
    max_depth: Annotated[int, msgspec.Meta(ge=1, le=64)]
    branching_factor: Few
    pruning_threshold: Score
    beam_width: Few | None = None
    generation_strategy: GenerationStrategy = "sequential_proposal"
    evaluation_strategy: EvaluationStrategy = "independent_scoring"
    nodes_max: Budget = 500
    calls_max: Budget = 1_000
    seconds_max: Budget = 600


class SearchState(EventData, frozen=True):
    """Where a search stands."""

    current_depth: Depth
    frontier: list[NodeId]
    best_path: list[NodeId]


class ThoughtTree(EventData, frozen=True):
    """The whole tree, nodes by their ids."""

    task_id: TaskId
    problem: Text
    task_type: Label
    search_config: SearchConfig
    nodes: dict[str, ThoughtNode]
    root_id: NodeId
    search_state: SearchState


class SearchStats(EventData, frozen=True):
    """The counts of a search: nodes and calls, pruning, depth and time."""

    total_nodes: Count
    total_backtracks: Count
    llm_calls: Count
    nodes_pruned: Count = 0
    max_depth_reached: Depth = 0
    rounds: Count = 0
    best_score: Score | None = None


class Message(EventData, frozen=True, rename={"sender": "from"}, kw_only=True):
    """The base of every message."""

    sender: Role
    to: Role
    task_id: TaskId
    error: Failure | None = None


class DecomposePayload(EventData, frozen=True):
    """What is to be decomposed."""

    problem: Text
    task_type: Label


class DecomposeTask(Message, frozen=True, kw_only=True):
    """Asks the decomposer for the shape of a problem."""

    type: Literal["decompose_task"]
    payload: DecomposePayload


class Decomposition(EventData, frozen=True):
    """The shape of a problem: how fine thoughts are, which steps, how deep, what holds, when it is solved."""

    thought_granularity: Label
    intermediate_steps: list[Passage]
    depth_estimate: Annotated[int, msgspec.Meta(ge=1, le=64)]
    constraints: list[Passage] = []
    success_criteria: OptionalText = ""


class DecompositionResult(Message, frozen=True, kw_only=True):
    """Answers ``decompose_task``."""

    type: Literal["decomposition_result"]
    payload: Decomposition | None = None


class InitializePayload(DecomposePayload, frozen=True):
    """What is to be searched, and how."""

    search_config: SearchConfig
    decomposition_result: Decomposition


class InitializeSearch(Message, frozen=True, kw_only=True):
    """Asks the explorer to search."""

    type: Literal["initialize_search"]
    payload: InitializePayload


class SearchPayload(EventData, frozen=True):
    """What a search came to. A tree beyond 32 KiB is a blob, ``tree_ref``; ``tree_digest`` stands in either case."""

    stats: SearchStats
    tree_digest: Label
    best_path: list[ThoughtNode] = []
    tree: ThoughtTree | None = None
    tree_ref: Ref | None = None


class SearchComplete(Message, frozen=True, kw_only=True):
    """Answers ``initialize_search``; with ``error`` SEARCH_EXHAUSTED when nothing was found."""

    type: Literal["search_complete"]
    payload: SearchPayload


class GenerationContext(EventData, frozen=True):
    """What a generator must know of the problem."""

    problem: Text
    goal: OptionalText = ""
    constraints: list[Passage] = []


class GeneratePayload(EventData, frozen=True):
    """From which node, how, and how many."""

    parent_node: ThoughtNode
    generation_strategy: GenerationStrategy
    num_candidates: Few
    context: GenerationContext


class GenerateThoughts(Message, frozen=True, kw_only=True):
    """Asks the generator for candidates; its parent node is expanded by it."""

    type: Literal["generate_thoughts"]
    payload: GeneratePayload


class Candidate(EventData, frozen=True):
    """A thought that is no node yet: the explorer gives it its id."""

    temp_id: NodeId
    content: Text
    action_type: str = ""
    metadata: dict[str, Any] = {}


class GeneratedPayload(EventData, frozen=True):
    """Candidates, and how often a model was asked for them."""

    candidates: Annotated[list[Candidate], msgspec.Meta(max_length=64)]
    llm_calls: Count = 0


class GeneratedThoughts(Message, frozen=True, kw_only=True):
    """Answers ``generate_thoughts``."""

    type: Literal["generated_thoughts"]
    payload: GeneratedPayload | None = None


class EvaluationContext(EventData, frozen=True):
    """What an evaluator must know of the problem and the search."""

    problem: Text
    current_depth: Depth
    max_depth: Depth
    goal: OptionalText = ""


class EvaluatePayload(EventData, frozen=True):
    """Which nodes, how, and by what."""

    candidates: Annotated[list[ThoughtNode], msgspec.Meta(min_length=1, max_length=64)]
    evaluation_strategy: EvaluationStrategy
    context: EvaluationContext
    evaluation_criteria: list[Passage] = []


class EvaluateThoughts(Message, frozen=True, kw_only=True):
    """Asks the evaluator for scores or votes."""

    type: Literal["evaluate_thoughts"]
    payload: EvaluatePayload


class NodeEvaluation(EventData, frozen=True):
    """The evaluation of one node, and of its dimensions."""

    node_id: NodeId
    score: Score
    confidence: Unit
    reasoning: OptionalText = ""
    dimension_scores: dict[str, Score] = {}


class ResultsPayload(EventData, frozen=True):
    """Evaluations, their ranking, and what should be pruned."""

    evaluations: Annotated[list[NodeEvaluation], msgspec.Meta(max_length=64)]
    ranking: list[NodeId] = []
    pruning_suggestions: list[NodeId] = []
    llm_calls: Count = 0


class EvaluationResults(Message, frozen=True, kw_only=True):
    """Answers ``evaluate_thoughts``."""

    type: Literal["evaluation_results"]
    payload: ResultsPayload | None = None


class SynthesizePayload(EventData, frozen=True):
    """The path from the root to the best end."""

    best_path: Annotated[list[ThoughtNode], msgspec.Meta(min_length=1)]
    problem: Text
    task_type: Label


class SynthesizeSolution(Message, frozen=True, kw_only=True):
    """Asks the synthesizer for the answer that a path leads to."""

    type: Literal["synthesize_solution"]
    payload: SynthesizePayload


class Verification(EventData, frozen=True):
    """Whether the answer holds, and what is wrong with it."""

    is_valid: bool
    validation_errors: list[Passage] = []


class Solution(EventData, frozen=True):
    """The answer, the steps to it, and how far it is trusted."""

    answer: Text
    reasoning_trace: list[Passage]
    confidence: Unit
    verification: Verification
    alternative_solutions: list[Passage] = []


class FinalSolution(Message, frozen=True, kw_only=True):
    """Answers ``synthesize_solution``."""

    type: Literal["final_solution"]
    payload: Solution | None = None


class RoleBinding(EventData, frozen=True):
    """Which agent, by which key, speaks as a role in this task."""

    role: Role
    agent: Name
    key: PublicKey


class TotStarted(EventData, frozen=True):
    """Opens a task: the problem, how it is searched, and who may speak as whom."""

    task_id: TaskId
    problem: Text
    task_type: Label
    roles: Annotated[list[RoleBinding], msgspec.Meta(min_length=6, max_length=6)]
    thinker: Label
    options: dict[str, str] = {}


class TotNodesAdded(EventData, frozen=True):
    """The explorer gives candidates their ids; ``temp_ids`` stand in the order of ``nodes`` (none for the root)."""

    nodes: Annotated[list[ThoughtNode], msgspec.Meta(min_length=1, max_length=64)]
    temp_ids: list[NodeId] = []


class TotNodesMarked(EventData, frozen=True):
    """The explorer prunes nodes or finds them to be ends."""

    node_ids: Annotated[list[NodeId], msgspec.Meta(min_length=1, max_length=64)]
    status: Literal["pruned", "terminal"]
    reason: Passage


class TotBacktracked(EventData, frozen=True):
    """A depth-first search turns back from a node to another."""

    node_id: NodeId
    reason: Passage
    to_node_id: NodeId | None = None


class TotError(EventData, frozen=True, rename={"sender": "from"}, kw_only=True):
    """A failure that answers no message."""

    sender: Role
    task_id: TaskId
    error: Failure


class LogEntry(EventData, frozen=True):
    """A line for people (``level``, ``msg``, ``data``); its time and place are the ledger's."""

    level: Literal["info", "progress", "warning", "error"]
    msg: Passage
    data: dict[str, Any] = {}


class TotLogWritten(EventData, frozen=True, rename={"sender": "from"}, kw_only=True):
    """What an agent has to say to people."""

    sender: Role
    task_id: TaskId
    entries: Annotated[list[LogEntry], msgspec.Meta(min_length=1, max_length=64)]
    round: Count = 0


Question: TypeAlias = DecomposeTask | InitializeSearch | GenerateThoughts | EvaluateThoughts | SynthesizeSolution
Answer: TypeAlias = DecompositionResult | SearchComplete | GeneratedThoughts | EvaluationResults | FinalSolution
