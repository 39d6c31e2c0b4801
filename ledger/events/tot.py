"""The Tree-of-Thoughts protocol: every message between its six agents is one event, named and shaped as they know it.

A message carries ``from``, ``to``, ``type``, ``payload`` and ``task_id``, and optionally ``error``; an answer names in
``causes`` the request that it answers. Beside the messages stand what makes the tree rebuildable (which temporary id
became which node, what was pruned, where the search turned back) and what agents log.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from deedbook.ledger.events.fields import (
    Count,
    EventData,
    Label,
    Name,
    OptionalText,
    Passage,
    PublicKey,
    Ref,
    Text,
    Unit,
)
from deedbook.ledger.events.thought import (
    Depth,
    Evaluation,
    EvaluationStrategy,
    Failure,
    Few,
    GenerationStrategy,
    Language,
    NodeId,
    NodeStatus,
    Role,
    Score,
    SearchConfig,
    SearchState,
    SearchStats,
    Strategy,
    TaskId,
    ThoughtNode,
    ThoughtTree,
    Usage,
    Verifier,
)

# What stands in the messages is known by their module, too.
__all__ = [
    "Evaluation",
    "EvaluationStrategy",
    "Failure",
    "GenerationStrategy",
    "Language",
    "NodeStatus",
    "Role",
    "Score",
    "SearchConfig",
    "SearchState",
    "SearchStats",
    "Strategy",
    "ThoughtNode",
    "ThoughtTree",
    "Usage",
    "Verifier",
]


class Statement(EventData, frozen=True, rename={"sender": "from"}, kw_only=True):
    """What a role says of a task."""

    sender: Role
    task_id: TaskId


class Message(Statement, frozen=True, kw_only=True):
    """The base of every message."""

    is_free = True

    to: Role
    error: Failure | None = None


class Reply(Message, frozen=True, kw_only=True):
    """The base of every answer. ``usage`` is the whole cost of it, that of its ``tot.model_answered`` included.

    With a payload and an ``error`` both, the payload holds what was got, and the error says why it is not all.
    """

    usage: Usage = Usage()


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


class DecompositionResult(Reply, frozen=True, kw_only=True):
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


class SearchComplete(Reply, frozen=True, kw_only=True):
    """Answers ``initialize_search``; with ``error`` SEARCH_EXHAUSTED when nothing was found."""

    type: Literal["search_complete"]
    payload: SearchPayload


class ThoughtContext(EventData, frozen=True):
    """What must be known of the problem and the search; the depth is that of the thoughts that are asked about."""

    problem: Text
    current_depth: Depth
    max_depth: Depth
    goal: OptionalText = ""
    constraints: list[Passage] = []
    thought_granularity: OptionalText = ""
    intermediate_steps: list[Passage] = []


class GeneratePayload(EventData, frozen=True):
    """From which node, how, and how many."""

    parent_node: ThoughtNode
    generation_strategy: GenerationStrategy
    num_candidates: Few
    context: ThoughtContext


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
    """Candidates, best first; none at a dead end."""

    candidates: Annotated[list[Candidate], msgspec.Meta(max_length=64)]


class GeneratedThoughts(Reply, frozen=True, kw_only=True):
    """Answers ``generate_thoughts``."""

    type: Literal["generated_thoughts"]
    payload: GeneratedPayload | None = None


class EvaluatePayload(EventData, frozen=True):
    """Which nodes, how, and by what."""

    candidates: Annotated[list[ThoughtNode], msgspec.Meta(min_length=1, max_length=64)]
    evaluation_strategy: EvaluationStrategy
    context: ThoughtContext
    evaluation_criteria: list[Passage] = []


class EvaluateThoughts(Message, frozen=True, kw_only=True):
    """Asks the evaluator for scores or votes."""

    type: Literal["evaluate_thoughts"]
    payload: EvaluatePayload


class NodeEvaluation(Evaluation, frozen=True, kw_only=True):
    """The evaluation of one node."""

    node_id: NodeId

    @property
    def evaluation(self) -> Evaluation:
        """What is kept with the node."""
        return Evaluation(**{name: getattr(self, name) for name in Evaluation.__struct_fields__})


class ResultsPayload(EventData, frozen=True):
    """Evaluations, their ranking, and what should be pruned."""

    evaluations: Annotated[list[NodeEvaluation], msgspec.Meta(max_length=64)]
    ranking: list[NodeId] = []
    pruning_suggestions: list[NodeId] = []


class EvaluationResults(Reply, frozen=True, kw_only=True):
    """Answers ``evaluate_thoughts``."""

    type: Literal["evaluation_results"]
    payload: ResultsPayload | None = None


class SynthesizePayload(DecomposePayload, frozen=True):
    """The path from the root to the best end, and what its answer is held against."""

    best_path: Annotated[list[ThoughtNode], msgspec.Meta(min_length=1)]
    goal: OptionalText = ""
    constraints: list[Passage] = []


class SynthesizeSolution(Message, frozen=True, kw_only=True):
    """Asks the synthesizer for the answer that a path leads to."""

    type: Literal["synthesize_solution"]
    payload: SynthesizePayload


class Verification(EventData, frozen=True):
    """Whether the answer holds, by whose word, and what is wrong with it."""

    is_valid: bool
    by: Verifier
    validation_errors: list[Passage] = []


class Solution(EventData, frozen=True):
    """The answer, the steps to it, and how far it is trusted."""

    answer: Text
    reasoning_trace: list[Passage]
    confidence: Unit
    verification: Verification
    alternative_solutions: list[Passage] = []


class FinalSolution(Reply, frozen=True, kw_only=True):
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
    language: Language = "en"
    options: dict[str, str] = {}


class TotNodesAdded(EventData, frozen=True):
    """The explorer gives candidates their ids; ``temp_ids`` stand in the order of ``nodes`` (none for the root)."""

    is_free = True

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


class TotModelAnswered(Statement, frozen=True, kw_only=True):
    """One paid answer of a model, kept before it is used, so that an equal question is never paid twice.

    ``prompt_sha256`` covers messages and sample number, not the model. ``answer`` is the object as it was read, cut to
    what is used; ``fault`` is what was wrong with one that could not be read, and what the next question names.
    """

    is_free = True

    prompt_sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z", description="A SHA-256 in hex.")]
    model: Label
    answer: dict[str, Any] | None = None
    fault: Passage | None = None
    usage: Usage = Usage()


class TotPaused(Statement, frozen=True, kw_only=True):
    """Nothing more is asked until the task is resumed: a model or agent cannot be asked now. It counts against no node.

    The causes name the answer that failed, or the request that nobody answers.
    """

    error: Failure


class TotResumed(Statement, frozen=True, kw_only=True):
    """The search goes on with this thinker; what was answered is not asked again."""

    thinker: Label


class TotError(Statement, frozen=True, kw_only=True):
    """A failure that answers no message; the orchestrator's ends the task."""

    error: Failure


class LogEntry(EventData, frozen=True):
    """A line for people (``level``, ``msg``, ``data``); its time and place are the ledger's."""

    level: Literal["info", "progress", "warning", "error"]
    msg: Passage
    data: dict[str, Any] = {}


class TotLogWritten(Statement, frozen=True, kw_only=True):
    """What an agent has to say to people."""

    is_free = True

    entries: Annotated[list[LogEntry], msgspec.Meta(min_length=1, max_length=64)]
    round: Count = 0


SideStatement: TypeAlias = TotLogWritten | TotError | TotModelAnswered | TotPaused | TotResumed
Question: TypeAlias = DecomposeTask | InitializeSearch | GenerateThoughts | EvaluateThoughts | SynthesizeSolution
Answer: TypeAlias = DecompositionResult | SearchComplete | GeneratedThoughts | EvaluationResults | FinalSolution
