"""A whole Tree-of-Thoughts search, message by message: the Game of 24 with 4 9 10 13, depth first, with a dead end.

It has six roles with six keys. ``STORY`` has their messages, in order; ``events`` turns them into events without a log,
``play`` appends them to a real log. ``TREE`` is the expected result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from building import GIVEN_MS, key_named

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.transition import node_states, tree_digest
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events import KIND_OF
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.fields import EventData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from building import Actors

TASK: Final = "tot-20260212-100000-a3f7b2"
PROBLEM: Final = "4 9 10 13"
GOAL: Final = "24"
ROLES: Final[tuple[kinds.Role, ...]] = (
    "orchestrator",
    "decomposer",
    "generator",
    "evaluator",
    "explorer",
    "synthesizer",
)
CONFIG: Final = kinds.SearchConfig(
    strategy="DFS", max_depth=3, branching_factor=2, pruning_threshold=5.0, evaluation_strategy="comparative_voting"
)
SHAPE: Final = kinds.Decomposition(
    thought_granularity="equation",
    intermediate_steps=["Join two numbers", "Join the result with a third", "Join what is left to 24"],
    depth_estimate=3,
    constraints=["Every number once", "Only + - × ÷"],
    success_criteria="The last number is 24",
)


class Said(NamedTuple):
    """A message of a role, and the positions in the story of the messages that caused it."""

    role: kinds.Role
    data: EventData
    causes: tuple[int, ...] = ()


def agent(role: str) -> str:
    """Return the name of the agent that plays a role."""
    return f"tot-{role}"


def started(task: str = TASK, **fields: Any) -> kinds.TotStarted:
    """Return the event that starts a task; it binds six roles to the keys of their agents."""
    roles = [kinds.RoleBinding(role=role, agent=agent(role), key=key_named(agent(role)).public.hex()) for role in ROLES]
    made: dict[str, Any] = {
        "problem": PROBLEM,
        "task_type": "math_reasoning",
        "roles": roles,
        "thinker": "game24",
        "language": "zh",
    }
    return kinds.TotStarted(task_id=task, **(made | fields))


def node(id_: str, content: str, action: str = "", **fields: Any) -> kinds.ThoughtNode:
    """Return a node; its depth is the number in its id (``node_2_1``)."""
    depth = 0 if id_ == "root" else int(id_.split("_")[1])
    return kinds.ThoughtNode(id=id_, depth=depth, content=content, action_type=action, **fields)


ROOT: Final = node("root", PROBLEM)
N11: Final = node("node_1_1", "13 - 9 = 4 (left: 4 4 10)", "subtraction", parent_id="root")
N12: Final = node("node_1_2", "10 + 4 = 14 (left: 9 13 14)", "addition", parent_id="root")
N21: Final = node("node_2_1", "4 + 4 = 8 (left: 8 10)", "addition", parent_id="node_1_1")
N22: Final = node("node_2_2", "10 - 4 = 6 (left: 4 6)", "subtraction", parent_id="node_1_1")
N31: Final = node("node_3_1", "8 + 10 = 18 (left: 18)", "addition", parent_id="node_2_1")
N32: Final = node("node_3_2", "4 × 6 = 24 (left: 24)", "multiplication", parent_id="node_2_2")
SCORES: Final = {
    "node_1_1": kinds.Evaluation(score=7.5, confidence=0.8, reasoning="4 divides 24"),
    "node_1_2": kinds.Evaluation(score=4.5, confidence=0.6, reasoning="Large numbers are left"),
    "node_2_1": kinds.Evaluation(score=8.5, confidence=0.5, reasoning="8 divides 24"),
    "node_2_2": kinds.Evaluation(score=6.5, confidence=0.7, reasoning="4 and 6 are left"),
    "node_3_1": kinds.Evaluation(score=0.5, confidence=0.99, reasoning="18 is not 24"),
    "node_3_2": kinds.Evaluation(score=9.5, confidence=0.99, reasoning="24"),
}


USAGE: Final = kinds.Usage(requests=1, tokens_in=100, tokens_out=10)


def generate(parent: kinds.ThoughtNode, task: str = TASK) -> kinds.GenerateThoughts:
    """Return the explorer's request for two thoughts from a node."""
    context = kinds.ThoughtContext(
        problem=PROBLEM, current_depth=parent.depth + 1, max_depth=3, goal=GOAL, constraints=SHAPE.constraints
    )
    payload = kinds.GeneratePayload(
        parent_node=parent, generation_strategy="sequential_proposal", num_candidates=2, context=context
    )
    return kinds.GenerateThoughts(
        sender="explorer", to="generator", type="generate_thoughts", task_id=task, payload=payload
    )


def temp_ids(nodes: Sequence[kinds.ThoughtNode]) -> list[str]:
    """Return the temporary ids of thoughts that become ``nodes``."""
    return [f"cand_{position + 1}" for position in range(len(nodes))]


def generated(nodes: Sequence[kinds.ThoughtNode], task: str = TASK, **fields: Any) -> kinds.GeneratedThoughts:
    """Return the generator's answer whose candidates become ``nodes``."""
    candidates = [
        kinds.Candidate(temp_id=temp_id, content=one.content, action_type=one.action_type)
        for temp_id, one in zip(temp_ids(nodes), nodes, strict=True)
    ]
    made: dict[str, Any] = {"payload": kinds.GeneratedPayload(candidates=candidates), "usage": USAGE} | fields
    return kinds.GeneratedThoughts(sender="generator", to="explorer", type="generated_thoughts", task_id=task, **made)


def evaluate(nodes: Sequence[kinds.ThoughtNode], task: str = TASK) -> kinds.EvaluateThoughts:
    """Return the explorer's request to judge nodes."""
    context = kinds.ThoughtContext(problem=PROBLEM, goal=GOAL, current_depth=nodes[0].depth, max_depth=3)
    payload = kinds.EvaluatePayload(
        candidates=list(nodes),
        evaluation_strategy="comparative_voting",
        evaluation_criteria=["correctness", "progress"],
        context=context,
    )
    return kinds.EvaluateThoughts(
        sender="explorer", to="evaluator", type="evaluate_thoughts", task_id=task, payload=payload
    )


def evaluated(nodes: Sequence[kinds.ThoughtNode], task: str = TASK, **fields: Any) -> kinds.EvaluationResults:
    """Return the evaluator's answer with the scores of the story."""
    evaluations = [
        kinds.NodeEvaluation(
            node_id=one.id,
            score=SCORES[one.id].score,
            confidence=SCORES[one.id].confidence,
            reasoning=SCORES[one.id].reasoning,
        )
        for one in nodes
    ]
    ranking = sorted((one.id for one in nodes), key=lambda id_: -SCORES[id_].score)
    pruned = [id_ for id_ in ranking if SCORES[id_].score < CONFIG.pruning_threshold]
    payload = kinds.ResultsPayload(evaluations=evaluations, ranking=ranking, pruning_suggestions=pruned)
    made: dict[str, Any] = {"payload": payload, "usage": USAGE} | fields
    return kinds.EvaluationResults(sender="evaluator", to="explorer", type="evaluation_results", task_id=task, **made)


def marked(status: Any, *ids: str) -> kinds.TotNodesMarked:
    """Return the explorer's verdict on nodes."""
    reason = "The score is below 5" if status == "pruned" else "24 is left"
    return kinds.TotNodesMarked(node_ids=list(ids), status=status, reason=reason)


def final(status: kinds.NodeStatus, one: kinds.ThoughtNode, *children: str) -> kinds.ThoughtNode:
    """Return a node as it is at the end of the search."""
    return msgspec.structs.replace(one, status=status, evaluation=SCORES.get(one.id), children_ids=list(children))


NODES: Final = {
    one.id: one
    for one in (
        final("expanded", ROOT, "node_1_1", "node_1_2"),
        final("expanded", N11, "node_2_1", "node_2_2"),
        final("pruned", N12),
        final("expanded", N21, "node_3_1"),
        final("expanded", N22, "node_3_2"),
        final("pruned", N31),
        final("terminal", N32),
    )
}
BEST: Final = ["root", "node_1_1", "node_2_2", "node_3_2"]
DIGEST: Final = tree_digest(node_states(NODES.values()))
STATS: Final = kinds.SearchStats(
    total_nodes=7,
    total_backtracks=1,
    llm_calls=8,
    tokens_in=800,
    tokens_out=80,
    nodes_pruned=2,
    max_depth_reached=3,
    rounds=4,
    best_score=9.5,
)


def tree(task: str = TASK) -> kinds.ThoughtTree:
    """Return the whole tree as the explorer sends it at the end."""
    state = kinds.SearchState(current_depth=3, frontier=[], best_path=BEST)
    return kinds.ThoughtTree(
        task_id=task,
        problem=PROBLEM,
        task_type="math_reasoning",
        search_config=CONFIG,
        nodes=NODES,
        root_id="root",
        search_state=state,
    )


def complete(task: str = TASK, **fields: Any) -> kinds.SearchComplete:
    """Return the explorer's last answer; ``fields`` change its payload."""
    made: dict[str, Any] = {
        "stats": STATS,
        "tree_digest": DIGEST,
        "best_path": [NODES[id_] for id_ in BEST],
        "tree": tree(task),
    }
    payload = kinds.SearchPayload(**(made | fields))
    return kinds.SearchComplete(
        sender="explorer", to="orchestrator", type="search_complete", task_id=task, payload=payload
    )


def opening(task: str = TASK) -> list[Said]:
    """Return the first messages of the story: start, decomposition, request of the search, root node, a log line."""
    asked = kinds.DecomposePayload(problem=PROBLEM, task_type="math_reasoning")
    wanted = kinds.InitializePayload(
        problem=PROBLEM, task_type="math_reasoning", search_config=CONFIG, decomposition_result=SHAPE
    )
    line = kinds.LogEntry(level="info", msg="🔍 [Explorer] 初始化完成")
    return [
        Said("orchestrator", started(task)),
        Said(
            "orchestrator",
            kinds.DecomposeTask(
                sender="orchestrator", to="decomposer", type="decompose_task", task_id=task, payload=asked
            ),
            (0,),
        ),
        Said(
            "decomposer",
            kinds.DecompositionResult(
                sender="decomposer", to="orchestrator", type="decomposition_result", task_id=task, payload=SHAPE
            ),
            (1,),
        ),
        Said(
            "orchestrator",
            kinds.InitializeSearch(
                sender="orchestrator", to="explorer", type="initialize_search", task_id=task, payload=wanted
            ),
            (2,),
        ),
        Said("explorer", kinds.TotNodesAdded(nodes=[ROOT]), (3,)),
        Said("explorer", kinds.TotLogWritten(sender="explorer", task_id=task, entries=[line]), (3,)),
    ]


def level(at: int, parent: kinds.ThoughtNode, nodes: list[kinds.ThoughtNode], task: str = TASK) -> list[Said]:
    """Return the five messages, from position ``at`` on, that add ``nodes`` below a node and evaluate them."""
    return [
        Said("explorer", generate(parent, task), (at - 1,)),
        Said("generator", generated(nodes, task), (at,)),
        Said("explorer", kinds.TotNodesAdded(nodes=nodes, temp_ids=temp_ids(nodes)), (at + 1,)),
        Said("explorer", evaluate(nodes, task), (at + 2,)),
        Said("evaluator", evaluated(nodes, task), (at + 3,)),
    ]


def story(task: str = TASK) -> list[Said]:
    """Return all messages of the six roles, from the start to the final tree."""
    said = opening(task)
    said += level(len(said), ROOT, [N11, N12], task)
    said.append(Said("explorer", marked("pruned", "node_1_2"), (len(said) - 1,)))
    said += level(len(said), N11, [N21, N22], task)
    said += level(len(said), N21, [N31], task)
    slow = kinds.Failure(code="EVALUATION_TIMEOUT", message="The first call took too long.", recoverable=True)
    said.append(Said("evaluator", kinds.TotError(sender="evaluator", task_id=task, error=slow), (len(said) - 2,)))
    said.append(Said("explorer", marked("pruned", "node_3_1"), (len(said) - 2,)))
    back = kinds.TotBacktracked(node_id="node_3_1", to_node_id="node_2_2", reason="18 is not 24")
    said.append(Said("explorer", back, (len(said) - 1,)))
    said += level(len(said), N22, [N32], task)
    said.append(Said("explorer", marked("terminal", "node_3_2"), (len(said) - 1,)))
    path = kinds.SynthesizePayload(best_path=[NODES[id_] for id_ in BEST], problem=PROBLEM, task_type="math_reasoning")
    said.append(
        Said(
            "explorer",
            kinds.SynthesizeSolution(
                sender="explorer", to="synthesizer", type="synthesize_solution", task_id=task, payload=path
            ),
            (len(said) - 1,),
        )
    )
    solution = kinds.Solution(
        answer="(10 - (13 - 9)) × 4 = 24",
        reasoning_trace=["13 - 9 = 4", "10 - 4 = 6", "4 × 6 = 24"],
        confidence=0.99,
        verification=kinds.Verification(is_valid=True, by="program"),
    )
    said.append(
        Said(
            "synthesizer",
            kinds.FinalSolution(
                sender="synthesizer", to="explorer", type="final_solution", task_id=task, payload=solution
            ),
            (len(said) - 1,),
        )
    )
    said.append(Said("explorer", complete(task), (3, len(said) - 1)))
    return said


STORY: Final = story()


def spoken(
    role: str, data: EventData, *, index: int, causes: Sequence[int] = (), task: str = TASK, key: str | None = None
) -> Event:
    """Return the event that a role signs, with its own key unless ``key`` names another role's."""
    return Event(
        index=index,
        id=f"event:{index:064x}",
        accepted_ms=GIVEN_MS + 1000 * index,
        key=key_named(agent(key or role)).public.hex(),
        ledger="0" * 32,
        kind=KIND_OF[type(data)],
        stream=f"tot/{task}",
        author=agent(role),
        at="2026-02-12T10:00:00Z",
        causes=[f"event:{cause:064x}" for cause in causes],
        data=data,
    )


def events(said: Sequence[Said] = STORY, task: str = TASK) -> list[Event]:
    """Return the story's events, at indexes from 0 on, a second apart."""
    return [spoken(one.role, one.data, index=index, causes=one.causes, task=task) for index, one in enumerate(said)]


def register(ledger: Actors) -> None:
    """Register the six agents."""
    for role in ROLES:
        ledger.register(agent(role), "agent")


def play(ledger: Actors, said: Sequence[Said] = STORY, task: str = TASK) -> list[str]:
    """Let the six roles sign their messages on a real ledger; return the ids of the events."""
    ids: list[str] = []
    for one in said:
        draft = Draft(stream=f"tot/{task}", data=one.data, causes=[ids[cause] for cause in one.causes])
        (accepted,) = ledger.submit(ledger.sign(agent(one.role), draft))
        ids.append(accepted.id)
    return ids
