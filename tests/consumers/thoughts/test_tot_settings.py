"""The table of task types, its spellings, and the settings that override it."""

from __future__ import annotations

from functools import partial

import pytest

from deedbook.consumers.thoughts.events import Decomposition
from deedbook.consumers.thoughts.settings import TASK_TYPES, Overrides, read_name, read_task_type, search_config
from deedbook.ledger.errors import Refused


@pytest.mark.parametrize(
    ("task_type", "row"),
    [
        ("math_reasoning", ("equation", 4, "BFS", "independent_scoring", "sequential_proposal")),
        ("creative_writing", ("paragraph", 3, "BFS", "comparative_voting", "independent_sampling")),
        ("planning", ("action_step", 5, "DFS", "independent_scoring", "sequential_proposal")),
        ("debugging", ("hypothesis", 6, "DFS", "independent_scoring", "sequential_proposal")),
        ("architecture_design", ("component", 3, "BFS", "comparative_voting", "independent_sampling")),
    ],
)
def test_table_has_a_row_for_every_task_type(task_type: str, row: tuple[object, ...]) -> None:
    assert TASK_TYPES[task_type][:5] == row
    config = search_config(task_type)
    assert (config.max_depth, config.strategy, config.evaluation_strategy, config.generation_strategy) == row[1:]


@pytest.mark.parametrize(
    ("read", "said", "meant"),
    [
        (read_task_type, "Math-Reasoning", "math_reasoning"),
        (read_task_type, "数学推理", "math_reasoning"),
        (read_task_type, "cooking", "cooking"),
        (partial(read_name, "strategy"), "bfs", "BFS"),
        (partial(read_name, "strategy"), "Depth-First Search", "DFS"),
        (partial(read_name, "strategy"), "BFS（广度优先搜索）", "BFS"),
        (
            partial(read_name, "generation_strategy"),
            "Independent Sampling（独立采样）",
            "independent_sampling",
        ),
        (partial(read_name, "generation_strategy"), "序列提议", "sequential_proposal"),
        (partial(read_name, "evaluation_strategy"), "Independent Scoring", "independent_scoring"),
        (partial(read_name, "evaluation_strategy"), "对比投票", "comparative_voting"),
    ],
)
def test_spellings_that_mean_the_same_are_read(read, said: str, meant: str) -> None:
    assert read(said) == meant


def test_override_wins_over_estimate_and_estimate_over_table() -> None:
    shape = Decomposition(thought_granularity="equation", intermediate_steps=[], depth_estimate=3)
    assert search_config("math", shape).max_depth == 3
    assert search_config("math", shape, Overrides(depth=2)).max_depth == 2
    config = search_config("math", shape, Overrides(strategy="dfs", branching=7, threshold=6.5, beam_width=3))
    assert (config.strategy, config.branching_factor, config.pruning_threshold) == ("DFS", 7, 6.5)
    assert config.beam_width == 3


def test_type_outside_the_table_needs_strategy_and_depth() -> None:
    with pytest.raises(Refused, match="not a known task type"):
        search_config("cooking", None, Overrides(depth=2))
    assert search_config("cooking", None, Overrides(depth=2, strategy="BFS")).max_depth == 2


@pytest.mark.parametrize(
    "asked",
    [
        Overrides(depth=0),
        Overrides(depth=65),
        Overrides(branching=0),
        Overrides(threshold=10.5),
        Overrides(threshold=float("nan")),
        Overrides(beam_width=0),
        Overrides(nodes_max=0),
        Overrides(calls_max=2_001),
        Overrides(tokens_max=0),
        Overrides(deadline="soon"),
        Overrides(deadline="2026-02-30T00:00:00Z"),
        Overrides(strategy="A*"),
        Overrides(generation="guess"),
        Overrides(evaluation=""),
    ],
)
def test_override_that_no_search_takes_is_refused(asked: Overrides) -> None:
    with pytest.raises(Refused) as raised:
        search_config("math", None, asked)
    assert raised.value.code == "INVALID_FIELD"
