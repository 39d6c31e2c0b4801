"""The Tree-of-Thoughts protocol: every message between its six agents is one event with the protocol's own names.

A message carries ``from``, ``to``, ``type``, ``payload`` and ``task_id``, and optionally ``error``. An answer names
its request in ``causes``. Other events allow the tree to be rebuilt (which temporary id became which node, which nodes
were pruned, where the search turned back), or are logs of the agents.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from deedbook.consumers.sdk.llm.usage import Usage
from deedbook.consumers.thoughts.nodes import (
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
    Verifier,
)
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

# The parts of messages are re-exported here.
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
    """The base of every event that a role signs about a task."""

    sender: Role
    task_id: TaskId


class Message(Statement, frozen=True, kw_only=True):
    """The base of every message."""

    is_free = True

    to: Role
    error: Failure | None = None


class Reply(Message, frozen=True, kw_only=True):
    """The base of every answer. ``usage`` is its whole cost, including that of its ``tot.model_answered``.

    With both a payload and an ``error``, the payload is a partial result, and the error gives the reason.
    """

    usage: Usage = Usage()


class DecomposePayload(EventData, frozen=True):
    """The problem to decompose."""

    kept_texts = frozenset({"task_type"})

    problem: Text
    task_type: Label


class DecomposeTask(Message, frozen=True, kw_only=True):
    """Asks the decomposer for the structure of a problem."""

    type: Literal["decompose_task"]
    payload: DecomposePayload


class Decomposition(EventData, frozen=True):
    """The structure of a problem: granularity of thoughts, steps, depth, constraints, and success criteria."""

    kept_texts = frozenset({"thought_granularity"})

    thought_granularity: Label
    intermediate_steps: list[Passage]
    depth_estimate: Annotated[int, msgspec.Meta(ge=1, le=64)]
    constraints: list[Passage] = []
    success_criteria: OptionalText = ""


class DecompositionResult(Reply, frozen=True, kw_only=True):
    """The decomposer's answer to ``decompose_task``."""

    type: Literal["decomposition_result"]
    payload: Decomposition | None = None


class InitializePayload(DecomposePayload, frozen=True):
    """The problem to search, and the search configuration."""

    search_config: SearchConfig
    decomposition_result: Decomposition


class InitializeSearch(Message, frozen=True, kw_only=True):
    """Asks the explorer to search."""

    type: Literal["initialize_search"]
    payload: InitializePayload


class SearchPayload(EventData, frozen=True):
    """The result of a search. A tree larger than 32 KiB is a blob (``tree_ref``). ``tree_digest`` is always given."""

    kept_texts = frozenset({"tree_digest"})

    stats: SearchStats
    tree_digest: Label
    best_path: list[ThoughtNode] = []
    tree: ThoughtTree | None = None
    tree_ref: Ref | None = None


class SearchComplete(Reply, frozen=True, kw_only=True):
    """The explorer's answer to ``initialize_search``; its ``error`` is SEARCH_EXHAUSTED if there is no solution."""

    blob_path = ("payload", "tree_ref")

    type: Literal["search_complete"]
    payload: SearchPayload


class ThoughtContext(EventData, frozen=True):
    """The context of a request about thoughts: the problem and the search. The depth is that of these thoughts."""

    kept_texts = frozenset({"thought_granularity"})

    problem: Text
    current_depth: Depth
    max_depth: Depth
    goal: OptionalText = ""
    constraints: list[Passage] = []
    thought_granularity: OptionalText = ""
    intermediate_steps: list[Passage] = []


class GeneratePayload(EventData, frozen=True):
    """The parent node, the strategy, and the number of candidates."""

    parent_node: ThoughtNode
    generation_strategy: GenerationStrategy
    num_candidates: Few
    context: ThoughtContext


class GenerateThoughts(Message, frozen=True, kw_only=True):
    """Asks the generator for candidates. It expands their parent node."""

    type: Literal["generate_thoughts"]
    payload: GeneratePayload


class Candidate(EventData, frozen=True):
    """A thought that is not a node yet. The explorer gives it an id."""

    temp_id: NodeId
    content: Text
    action_type: str = ""
    metadata: dict[str, Any] = {}


class GeneratedPayload(EventData, frozen=True):
    """The candidates, best first. There are none at a dead end."""

    candidates: Annotated[list[Candidate], msgspec.Meta(max_length=64)]


class GeneratedThoughts(Reply, frozen=True, kw_only=True):
    """The generator's answer to ``generate_thoughts``."""

    type: Literal["generated_thoughts"]
    payload: GeneratedPayload | None = None


class EvaluatePayload(EventData, frozen=True):
    """The nodes to evaluate, the strategy, and the criteria."""

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
        """The evaluation as it is stored with the node."""
        return Evaluation(**{name: getattr(self, name) for name in Evaluation.__struct_fields__})


class ResultsPayload(EventData, frozen=True):
    """The evaluations, their ranking, and the nodes to prune."""

    evaluations: Annotated[list[NodeEvaluation], msgspec.Meta(max_length=64)]
    ranking: list[NodeId] = []
    pruning_suggestions: list[NodeId] = []


class EvaluationResults(Reply, frozen=True, kw_only=True):
    """The evaluator's answer to ``evaluate_thoughts``."""

    type: Literal["evaluation_results"]
    payload: ResultsPayload | None = None


class SynthesizePayload(DecomposePayload, frozen=True):
    """The path from the root to the best leaf, with the goal and constraints for its answer.

    With ``verbatim``, the path itself is the answer: no thinker writes or checks one.
    """

    best_path: Annotated[list[ThoughtNode], msgspec.Meta(min_length=1)]
    goal: OptionalText = ""
    constraints: list[Passage] = []
    verbatim: bool = False


class SynthesizeSolution(Message, frozen=True, kw_only=True):
    """Asks the synthesizer for the answer at the end of a path."""

    type: Literal["synthesize_solution"]
    payload: SynthesizePayload


class Verification(EventData, frozen=True):
    """Whether the answer is valid, who verified it, and its errors."""

    is_valid: bool
    by: Verifier
    validation_errors: list[Passage] = []


class Solution(EventData, frozen=True):
    """The answer, the steps to it, its confidence and its verification."""

    answer: Text
    reasoning_trace: list[Passage]
    confidence: Unit
    verification: Verification
    alternative_solutions: list[Passage] = []


class FinalSolution(Reply, frozen=True, kw_only=True):
    """The synthesizer's answer to ``synthesize_solution``: the solution of the task."""

    type: Literal["final_solution"]
    payload: Solution | None = None


class RoleBinding(EventData, frozen=True):
    """The agent and the key that act as a role in this task."""

    role: Role
    agent: Name
    key: PublicKey


class TotStarted(EventData, frozen=True):
    """Starts a task: the problem, the options of the search, and the agents of the six roles."""

    kept_texts = frozenset({"task_type", "thinker"})

    task_id: TaskId
    problem: Text
    task_type: Label
    roles: Annotated[list[RoleBinding], msgspec.Meta(min_length=6, max_length=6)]
    thinker: Label
    language: Language = "en"
    options: dict[str, str] = {}


class TotNodesAdded(EventData, frozen=True):
    """The explorer adds candidates as nodes. ``temp_ids`` are in the order of ``nodes`` (none for the root)."""

    is_free = True

    nodes: Annotated[list[ThoughtNode], msgspec.Meta(min_length=1, max_length=64)]
    temp_ids: list[NodeId] = []


class TotNodesMarked(EventData, frozen=True):
    """The explorer marks nodes: as pruned, as terminal, or as not taken, because the search needed them no more."""

    node_ids: Annotated[list[NodeId], msgspec.Meta(min_length=1, max_length=64)]
    status: Literal["pruned", "not_taken", "terminal"]
    reason: Passage


class TotBacktracked(EventData, frozen=True):
    """A depth-first search turns back from one node to another."""

    node_id: NodeId
    reason: Passage
    to_node_id: NodeId | None = None


class TotModelAnswered(Statement, frozen=True, kw_only=True):
    """One paid answer of a model, recorded before it is used, so that an equal prompt is never paid twice.

    ``prompt_sha256`` covers the messages and the sample number, not the model. ``answer`` is the parsed object without
    unused fields. ``fault`` is the error in an answer that could not be used; the next prompt names it. After
    ``tot.resumed``, a prompt that has only a fault may be asked again.
    """

    is_free = True

    prompt_sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z", description="A SHA-256 in hex.")]
    model: Label
    answer: dict[str, Any] | None = None
    fault: Passage | None = None
    usage: Usage = Usage()


class TotPaused(Statement, frozen=True, kw_only=True):
    """Pauses the task until it is resumed: a model or agent is unavailable, or a model's answers cannot be used.

    It counts against no node. The causes name the failed answer or the unanswered request.
    """

    error: Failure


class TotResumed(Statement, frozen=True, kw_only=True):
    """Resumes the search with this thinker. Answered requests are not sent again.

    With ``best_path``, nothing more is thought: the best path becomes the answer.
    """

    kept_texts = frozenset({"thinker"})

    thinker: Label
    best_path: bool = False


class TotError(Statement, frozen=True, kw_only=True):
    """A failure that answers no message. An error of the orchestrator ends the task."""

    error: Failure


class LogEntry(EventData, frozen=True):
    """A log line for people (``level``, ``msg``, ``data``). The ledger gives its time and order."""

    level: Literal["info", "progress", "warning", "error"]
    msg: Passage
    data: dict[str, Any] = {}


class TotLogWritten(Statement, frozen=True, kw_only=True):
    """Log lines of an agent for people."""

    is_free = True

    entries: Annotated[list[LogEntry], msgspec.Meta(min_length=1, max_length=64)]
    round: Count = 0


SideStatement: TypeAlias = TotLogWritten | TotError | TotModelAnswered | TotPaused | TotResumed
Question: TypeAlias = DecomposeTask | InitializeSearch | GenerateThoughts | EvaluateThoughts | SynthesizeSolution
Answer: TypeAlias = DecompositionResult | SearchComplete | GeneratedThoughts | EvaluationResults | FinalSolution
