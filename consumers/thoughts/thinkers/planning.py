"""Planning with blocks: a small task whose answer can be checked, and whose obvious first move is often a dead end.

    blocks: C on A, A on table, B on table; goal: A on B, B on C

A thought moves one clear block. Its score is how much of the goal holds, which is what misleads: with the blocks above
(Sussman's anomaly) putting B on C first looks best and leads nowhere, so a depth-first search has to turn back. What is
never proposed is a move back to a state that the path has seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from consumers.thoughts.thinkers import Path, ProgramThinker, invalid, proven
from ledger.events import tot as kinds

# Block → what it stands on.
State: TypeAlias = dict[str, str]

table: Final = "table"
blocks_max: Final = 8

_PLACED: Final = re.compile(r"([A-Za-z0-9]{1,16}) on ([A-Za-z0-9]{1,16})")
_GOAL: Final = re.compile(r"\bgoal\b|目标", re.IGNORECASE)
# All that may stand beside the blocks: with other words it is another problem.
_BESIDE: Final = re.compile(r"(?:\bblocks?\b|\band\b|积木|[\s,;:.，；：。、])*", re.IGNORECASE)
_MOVE: Final = re.compile(r"move ([A-Za-z0-9]{1,16}) from ([A-Za-z0-9]{1,16}) to ([A-Za-z0-9]{1,16})")


class Task(NamedTuple):
    """How the blocks stand, and how they shall stand."""

    start: State
    goal: State


def moves(state: State) -> list[tuple[str, str]]:
    """Return every legal move (block, place) in the order of names, the table last."""
    clear = sorted(block for block in state if block not in state.values())
    places = [*clear, table]
    return [(block, place) for block in clear for place in places if place not in (block, state[block])]


class Planning(ProgramThinker[Task]):
    """The program."""

    name = task_type = "planning"
    problems = "blocks to be moved, as 'blocks: C on A, A on table; goal: A on C'"

    def _read(self, text: str) -> Task | kinds.Failure:
        parts = _GOAL.split(text)
        if len(parts) != 2 or not all(_BESIDE.fullmatch(_PLACED.sub(" ", part)) for part in parts):
            return invalid('a task of blocks reads "blocks: C on A, A on table; goal: A on C"')
        start, goal = (dict(_PLACED.findall(part)) for part in parts)
        if not goal or not 2 <= len(start) <= blocks_max:
            return invalid(f"the task needs 2 to {blocks_max} blocks and a goal")
        for state in (start, goal):
            strange = [block for pair in state.items() for block in pair if block != table and block not in start]
            supports = [place for place in state.values() if place != table]
            if strange or table in state or len(set(supports)) != len(supports) or not _is_grounded(state):
                return invalid("every block stands on the table or on one block of the task, alone and in no circle")
        return Task(start, goal)

    def _shape(self, problem: Task) -> kinds.Decomposition:
        steps = [self._say("blocks_step", block=block, place=place) for block, place in problem.goal.items()]
        depth = 2 * len(problem.start)  # no plan needs more than two moves a block
        goal = ", ".join(f"{block} on {place}" for block, place in problem.goal.items())
        return kinds.Decomposition(
            "action_step", steps, depth, [self._say("blocks_one"), self._say("blocks_clear")], goal
        )

    def _proposals(self, path: Path, problem: Task, k: int) -> Iterable[tuple[str, str]] | kinds.Failure:
        """Return the moves to states that the path has not seen: those towards the goal first."""
        seen, errors = self._states(path, problem)
        if errors:
            return invalid(errors[0])
        state = seen[-1]
        fresh = [(block, place) for block, place in moves(state) if state | {block: place} not in seen]
        fresh.sort(key=lambda move: (problem.goal.get(move[0]) != move[1], move[1] != table))
        return ((f"move {block} from {state[block]} to {place}", "move") for block, place in fresh)

    def _judged(
        self, paths: Sequence[Path], problem: Task, strategy: kinds.EvaluationStrategy
    ) -> list[kinds.NodeEvaluation]:
        """Return scores by how much of the goal holds; a move that is not legal is worth nothing."""
        return [self._judge(path, problem) for path in paths]

    def _solves(self, path: Path, problem: Task) -> bool:
        states, errors = self._states(path, problem)
        return not errors and _holds(problem, states[-1]) == len(problem.goal)

    def _solution(self, path: Path, problem: Task) -> kinds.Solution:
        (states, errors), say = self._states(path, problem), self._say
        unmet = [(block, place) for block, place in problem.goal.items() if states[-1][block] != place]
        missing = [say("blocks_missing", block=block, place=place) for block, place in unmet]
        plan = [node.content for node in path[1:]]
        trace = [say("blocks_trace", step=step, move=move) for step, move in enumerate(plan, 1)]
        return proven("; ".join(plan) or say("blocks_none"), trace, errors + missing)

    def _judge(self, path: Path, task: Task) -> kinds.NodeEvaluation:
        states, errors = self._states(path, task)
        if errors:
            return kinds.NodeEvaluation(node_id=path[-1].id, score=0.0, confidence=1.0, reasoning=errors[0])
        held, count = _holds(task, states[-1]), len(task.goal)
        score, confidence = (10.0, 1.0) if held == count else (round(4.0 + 5.0 * held / count, 2), 0.5)
        why = self._say("blocks_held", held=held, count=count)
        return kinds.NodeEvaluation(node_id=path[-1].id, score=score, confidence=confidence, reasoning=why)

    def _states(self, path: Path, task: Task) -> tuple[list[State], list[str]]:
        """Return the states of a path one after the other, and what is wrong with its moves (the rest is not made)."""
        states = [task.start]
        for step, node in enumerate(path[1:], 1):
            state, move = states[-1], _MOVE.fullmatch(node.content)
            if move is None or (move[1], move[3]) not in moves(state) or state[move[1]] != move[2]:
                return states, [self._say("blocks_wrong", step=step, move=node.content[:100])]
            states.append(state | {move[1]: move[3]})
        return states, []


def _holds(task: Task, state: State) -> int:
    return sum(state[block] == place for block, place in task.goal.items())


def _is_grounded(state: State) -> bool:
    for start in state:
        place = start
        for _ in range(len(state) + 1):
            place = state.get(place, table)
        if place != table:
            return False
    return True
