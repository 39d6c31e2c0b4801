"""The settings of a search: the table of task types, equivalent spellings, and overrides.

An override takes precedence over the decomposer's estimate of depth, and the estimate over the table. Open types
(writing, design) generate independently, constrained ones sequentially. A type outside the table needs an explicit
strategy and depth.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from deedbook.consumers.thoughts.events import (
    Decomposition,
    EvaluationStrategy,
    GenerationStrategy,
    Language,
    SearchConfig,
    Strategy,
)
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.chinese import simplified
from deedbook.ledger.format.codec import converted
from deedbook.ledger.lifecycle.authority import to_ms

answer_wait_max_s: Final = 7 * 24 * 3600
criteria_max: Final = 8
_CRITERION: Final = re.compile(r"[^\W_][\w -]{0,59}")
_FIELDS: Final = {
    "depth": "max_depth",
    "branching": "branching_factor",
    "threshold": "pruning_threshold",
    "generation": "generation_strategy",
    "evaluation": "evaluation_strategy",
}


class TaskSettings(NamedTuple):
    """A row of the table; ``depth`` is the greatest recommended depth."""

    granularity: str
    depth: int
    strategy: Strategy
    evaluation: EvaluationStrategy
    generation: GenerationStrategy
    criteria: str = "correctness progress feasibility"
    threshold: float = 3.0
    branching: int = 5


class Overrides(msgspec.Struct, frozen=True, omit_defaults=True, rename=_FIELDS):
    """Settings that override the table; None overrides nothing. Strategies may have any known spelling.

    In the options of ``tot.started``, each has the name of the field of ``SearchConfig`` that it sets.
    """

    strategy: str | None = None
    depth: int | None = None
    branching: int | None = None
    threshold: float | None = None
    beam_width: int | None = None
    generation: str | None = None
    evaluation: str | None = None
    nodes_max: int | None = None
    calls_max: int | None = None
    tokens_max: int | None = None
    deadline: str | None = None
    answer_wait_s: int | None = None


class TaskOptions(NamedTuple):
    """The options of a task: its type in any spelling, overrides, language, thinker, and ``bound`` agents by role.

    ``criteria`` replace those of the task type.
    """

    task_type: str = "math_reasoning"
    overrides: Overrides = Overrides()
    language: Language | None = None
    thinker: str | None = None
    bound: Mapping[str, str] = MappingProxyType({})
    criteria: tuple[str, ...] = ()

    def to_strings(self) -> dict[str, str]:
        """Return the overrides and criteria as ``tot.started`` stores them. Raises Refused: ``INVALID_FIELD``."""
        strings = {name: str(value) for name, value in msgspec.to_builtins(self.overrides).items()}
        wrong = [name for name in self.criteria if not _CRITERION.fullmatch(name)]
        if wrong or len(self.criteria) > criteria_max or len({*self.criteria}) != len(self.criteria):
            message = (
                f"give at most {criteria_max} different criteria, each a name of 1 to 60 letters, digits, blanks, \
_ and -, such as cost or time to repair"
            )
            raise Refused("INVALID_FIELD", message, path="$.evaluation_criteria")
        return strings | ({"evaluation_criteria": "\n".join(self.criteria)} if self.criteria else {})


_SCORING: Final[EvaluationStrategy] = "independent_scoring"
_VOTING: Final[EvaluationStrategy] = "comparative_voting"
_SAMPLING: Final[GenerationStrategy] = "independent_sampling"
_PROPOSAL: Final[GenerationStrategy] = "sequential_proposal"

# The recommended depth of debugging is 不定 (it depends): six, unless the decomposer knows better.
TASK_TYPES: Final[dict[str, TaskSettings]] = {
    "math_reasoning": TaskSettings("equation", 4, "BFS", _SCORING, _PROPOSAL),
    "creative_writing": TaskSettings("paragraph", 3, "BFS", _VOTING, _SAMPLING, "relevance coherence originality"),
    "planning": TaskSettings("action_step", 5, "DFS", _SCORING, _PROPOSAL),
    "debugging": TaskSettings("hypothesis", 6, "DFS", _SCORING, _PROPOSAL, "plausibility progress testability"),
    "architecture_design": TaskSettings("component", 3, "BFS", _VOTING, _SAMPLING, "fitness simplicity feasibility"),
}

# Spellings, in lower case, without blanks and punctuation.
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
SPELLINGS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "strategy": {
        "BFS": ("breadthfirst", "breadthfirstsearch", "广度优先", "广度优先搜索"),
        "DFS": ("depthfirst", "depthfirstsearch", "深度优先", "深度优先搜索"),
    },
    "generation_strategy": {
        _SAMPLING: ("independent", "sampling", "sample", "独立采样"),
        _PROPOSAL: ("sequential", "proposal", "propose", "序列提议"),
    },
    "evaluation_strategy": {
        _SCORING: ("scoring", "score", "independent", "独立评分"),
        _VOTING: ("voting", "vote", "comparative", "对比投票"),
    },
}


def read_overrides(options: Mapping[str, str]) -> Overrides:
    """Return the overrides in the options of ``tot.started``."""
    return converted(options, Overrides, strict=False)


def read_task_type(spelling: str) -> str:
    """Return the table's name of a task type in any spelling; an unknown type unchanged."""
    if not spelling.strip():
        raise Refused("INVALID_FIELD", "the task type is empty: name one", path="$.task_type")
    return _find(_TYPE_ALIASES, spelling) or spelling.strip()


def criteria_of(task_type: str, options: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Return the criteria in the options of ``tot.started``, else those of the type (an unknown one: mathematics)."""
    if own := options.get("evaluation_criteria"):
        return own.split("\n")
    return TASK_TYPES.get(task_type, TASK_TYPES["math_reasoning"]).criteria.split()


def read_name(field: str, spelling: str) -> str:
    """Return the name of a strategy in any spelling (``Breadth-First``, 广度优先搜索, both together)."""
    names = SPELLINGS[field]
    name = _find(names, spelling) or _find(names, re.split(r"[（(]", spelling)[0])
    if name is None:
        raise Refused("INVALID_FIELD", f"{field} must be one of {', '.join(names)}", path=f"$.{field}")
    return name


def search_config(
    task_type: str, decomposition: Decomposition | None = None, overrides: Overrides | None = None
) -> SearchConfig:
    """Return the configuration of a search. Raises Refused: ``INVALID_FIELD`` for an invalid or missing setting."""
    overriding: dict[str, Any] = msgspec.to_builtins(overrides or Overrides())
    row = TASK_TYPES.get(read_task_type(task_type))
    if row is None:
        if not overriding.keys() >= {"strategy", "max_depth"}:
            message = f"{task_type} is not a known task type ({', '.join(TASK_TYPES)}): give its strategy and depth"
            raise Refused("INVALID_FIELD", message, path="$.task_type")
        row = TaskSettings(task_type, overriding["max_depth"], overriding["strategy"], _SCORING, _PROPOSAL)
    if not 0 < (wait_s := overriding.pop("answer_wait_s", 1)) <= answer_wait_max_s:
        message = f"answer_wait_s is {wait_s}: it must be between 1 and {answer_wait_max_s}"
        raise Refused("INVALID_FIELD", message, path="$.answer_wait_s")
    config: dict[str, Any] = {
        "strategy": row.strategy,
        "max_depth": row.depth if decomposition is None else decomposition.depth_estimate,
        "branching_factor": row.branching,
        "pruning_threshold": row.threshold,
        "generation_strategy": row.generation,
        "evaluation_strategy": row.evaluation,
    } | overriding
    config |= {field: read_name(field, config[field]) for field in SPELLINGS}
    # Other settings keep the message's own defaults.
    read = converted(config, SearchConfig)
    if read.deadline is not None:
        to_ms(read.deadline)  # raises for an impossible date, because the explorer would fail on it at every step
    return read


def _find(aliases: Mapping[str, tuple[str, ...]], spelling: str) -> str | None:
    spelled = simplified(re.sub(r"[\s_\-.]+", "", spelling)).lower()
    for name, others in aliases.items():
        if spelled == name.replace("_", "").lower() or spelled in others:
            return name
    return None
