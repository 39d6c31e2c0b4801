"""How a task is searched: the seed's table of task types, the spellings that mean the same, and what overrides both.

An override wins over the decomposer's estimate of depth, and that over the table. Open types (writing, design) generate
independently, constrained ones sequentially (the seed's 生成策略说明). A type outside the table needs to be told its
strategy and depth.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ledger.errors import Refused
from ledger.events.tot import Decomposition, EvaluationStrategy, GenerationStrategy, SearchConfig, Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping

Number = TypeVar("Number", int, float)

depth_max: Final = 64
branching_max: Final = 64
budget_max: Final = 2_000


class TaskSettings(NamedTuple):
    """A row of the seed's table; ``depth`` is the greater of the recommended ones, ``threshold`` and width are ours."""

    granularity: str
    depth: int
    strategy: Strategy
    evaluation: EvaluationStrategy
    generation: GenerationStrategy
    threshold: float = 3.0
    branching: int = 5


class Overrides(NamedTuple):
    """What somebody asks for instead; None: nothing. Strategies may be spelled in any of the known ways."""

    strategy: str | None = None
    depth: int | None = None
    branching: int | None = None
    threshold: float | None = None
    beam_width: int | None = None
    generation: str | None = None
    evaluation: str | None = None
    nodes_max: int | None = None
    calls_max: int | None = None
    seconds_max: int | None = None


_SCORING: Final[EvaluationStrategy] = "independent_scoring"
_VOTING: Final[EvaluationStrategy] = "comparative_voting"
_SAMPLING: Final[GenerationStrategy] = "independent_sampling"
_PROPOSAL: Final[GenerationStrategy] = "sequential_proposal"

# The recommended depth of debugging is 不定 (it depends): six, unless the decomposer knows better.
TASK_TYPES: Final[dict[str, TaskSettings]] = {
    "math_reasoning": TaskSettings("equation", 4, "BFS", _SCORING, _PROPOSAL),
    "creative_writing": TaskSettings("paragraph", 3, "BFS", _VOTING, _SAMPLING),
    "planning": TaskSettings("action_step", 5, "DFS", _SCORING, _PROPOSAL),
    "debugging": TaskSettings("hypothesis", 6, "DFS", _SCORING, _PROPOSAL),
    "architecture_design": TaskSettings("component", 3, "BFS", _VOTING, _SAMPLING),
}

# Spellings, without case, blanks and marks.
_TYPE_ALIASES: Final = {
    "math_reasoning": (
        "math",
        "maths",
        "mathematics",
        "mathematicalreasoning",
        "数学推理",
        "数学",
        "gameof24",
        "game24",
    ),
    "creative_writing": ("creative", "writing", "创意写作", "写作"),
    "planning": ("plan", "规划", "计划"),
    "debugging": ("debug", "调试"),
    "architecture_design": ("architecture", "design", "architecturaldesign", "架构设计", "架构"),
}
_GRANULARITY_ALIASES: Final = {
    "equation": ("singleequation", "equations", "方程", "等式"),
    "paragraph": ("paragraphs", "singleparagraph", "段落"),
    "action_step": ("action", "step", "singleaction", "行动步骤", "动作"),
    "hypothesis": ("hypotheses", "singlehypothesis", "假设"),
    "component": ("components", "singlecomponent", "组件"),
}
_STRATEGY_ALIASES: Final = {
    "BFS": ("breadthfirst", "breadthfirstsearch", "广度优先", "广度优先搜索"),
    "DFS": ("depthfirst", "depthfirstsearch", "深度优先", "深度优先搜索"),
}
_GENERATION_ALIASES: Final[dict[str, tuple[str, ...]]] = {
    _SAMPLING: ("independent", "sampling", "sample", "独立采样"),
    _PROPOSAL: ("sequential", "proposal", "propose", "序列提议"),
}
_EVALUATION_ALIASES: Final[dict[str, tuple[str, ...]]] = {
    _SCORING: ("scoring", "score", "independent", "独立评分"),
    _VOTING: ("voting", "vote", "comparative", "对比投票"),
}


def read_task_type(said: str) -> str:
    """Return the table's name of a task type however it is spelled; another type as it stands.

    Raises:
        Refused: ``INVALID_FIELD`` for an empty one.
    """
    found = _find(_TYPE_ALIASES, said)
    if not said.strip():
        raise Refused("INVALID_FIELD", "a task type is not empty", path="$.task_type")
    return found or said.strip()


def read_granularity(said: str) -> str:
    """Return the table's name of a granularity however it is spelled (``single_equation``); another as it stands."""
    return _find(_GRANULARITY_ALIASES, said) or said


def read_strategy(said: str) -> Strategy:
    """Return BFS or DFS however it is spelled (``Breadth-First``, 广度优先搜索).

    Raises:
        Refused: ``INVALID_FIELD`` when it is neither.
    """
    found = _required(_STRATEGY_ALIASES, said, "strategy")
    return "BFS" if found == "BFS" else "DFS"


def read_generation(said: str) -> GenerationStrategy:
    """Return a generation strategy however it is spelled (``Sequential Proposal``, 序列提议).

    Raises:
        Refused: ``INVALID_FIELD`` when there is none such.
    """
    found = _required(_GENERATION_ALIASES, said, "generation_strategy")
    return "independent_sampling" if found == _SAMPLING else "sequential_proposal"


def read_evaluation(said: str) -> EvaluationStrategy:
    """Return an evaluation strategy however it is spelled (``Comparative Voting``, 对比投票).

    Raises:
        Refused: ``INVALID_FIELD`` when there is none such.
    """
    found = _required(_EVALUATION_ALIASES, said, "evaluation_strategy")
    return "independent_scoring" if found == _SCORING else "comparative_voting"


def search_config(
    task_type: str, decomposition: Decomposition | None = None, overrides: Overrides | None = None
) -> SearchConfig:
    """Return how a task is searched.

    Raises:
        Refused: ``INVALID_FIELD`` for an override that no search takes, or a type outside the table without strategy
            and depth.
    """
    asked = Overrides() if overrides is None else overrides
    row = TASK_TYPES.get(read_task_type(task_type))
    if row is None:
        if asked.strategy is None or asked.depth is None:
            message = f"{task_type} is not in the table ({', '.join(TASK_TYPES)}): give its strategy and depth"
            raise Refused("INVALID_FIELD", message, path="$.task_type")
        row = TaskSettings(task_type, asked.depth, read_strategy(asked.strategy), _SCORING, _PROPOSAL)
    estimate = row.depth if decomposition is None else decomposition.depth_estimate
    return SearchConfig(
        strategy=row.strategy if asked.strategy is None else read_strategy(asked.strategy),
        max_depth=_within("depth", estimate if asked.depth is None else asked.depth, 1, depth_max),
        branching_factor=_within(
            "branching", row.branching if asked.branching is None else asked.branching, 1, branching_max
        ),
        pruning_threshold=float(
            _within("threshold", row.threshold if asked.threshold is None else asked.threshold, 0, 10)
        ),
        beam_width=None if asked.beam_width is None else _within("beam_width", asked.beam_width, 1, branching_max),
        generation_strategy=row.generation if asked.generation is None else read_generation(asked.generation),
        evaluation_strategy=row.evaluation if asked.evaluation is None else read_evaluation(asked.evaluation),
        nodes_max=_within("nodes_max", 500 if asked.nodes_max is None else asked.nodes_max, 1, budget_max),
        calls_max=_within("calls_max", 1_000 if asked.calls_max is None else asked.calls_max, 1, budget_max),
        seconds_max=_within("seconds_max", 600 if asked.seconds_max is None else asked.seconds_max, 1, budget_max),
    )


def _find(aliases: Mapping[str, tuple[str, ...]], said: str) -> str | None:
    spelled = re.sub(r"[\s_\-.]+", "", said).lower()
    for name, others in aliases.items():
        if spelled == name.replace("_", "").lower() or spelled in others:
            return name
    return None


def _required(aliases: Mapping[str, tuple[str, ...]], said: str, field: str) -> str:
    # The seed writes both names of a strategy in one heading: "BFS（广度优先搜索）".
    found = _find(aliases, said) or _find(aliases, re.split(r"[（(]", said)[0])
    if found is None:
        raise Refused("INVALID_FIELD", f"{said[:60]} is no {field}: {', '.join(aliases)}", path=f"$.{field}")
    return found


def _within(name: str, value: Number, least: int, most: int) -> Number:
    if not least <= value <= most:
        raise Refused("INVALID_FIELD", f"{name} is {value:g}: it lies between {least} and {most}", path=f"$.{name}")
    return value
