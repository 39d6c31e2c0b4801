"""Debugging by hypotheses: a small faulty program, a table of what it should give, and one change a thought.

    debug: f(x) = x * 2 + 3; 0 -> 4; 1 -> 6; 2 -> 8

A hypothesis says that one token should be another. It is tried against the table; under comparative voting each row is
a voter that votes for the hypotheses that satisfy it, or, where none does, for the one that comes nearest. Programs are
whole-number expressions in x, read by a grammar of our own: nothing of the problem's text is ever executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from consumers.thoughts.thinkers import Path, ProgramThinker, invalid, proven
from ledger.events import tot as kinds

Tokens: TypeAlias = tuple[str, ...]

tokens_max: Final = 15
rows_max: Final = 32
value_max: Final = 10**6
faults_max: Final = 3

_PROGRAM: Final = re.compile(r"f\(x\)\s*=\s*([^;；]{1,200})")
_ROW: Final = re.compile(r"(-?\d{1,6})\s*(?:->|→)\s*(-?\d{1,7})")
# All that may stand before the program and beside the rows: with other words it is another problem.
_BEFORE: Final = re.compile(r"\s*(?:(?:debug|fix|调试|修复)\s*[:：]?\s*)?", re.IGNORECASE)
_BESIDE: Final = re.compile(r"[\s,;.，；。、]*")
_TOKEN: Final = re.compile(r"\s*(x|\d{1,6}|[-+*])")
_CHANGE: Final = re.compile(r"token (\d{1,2}) `([^`]{1,6})` should be `([^`]{1,6})`")
_OPERATORS: Final = "+-*"


class Fault(NamedTuple):
    """The faulty program, and the rows (x, expected) that it should satisfy."""

    tokens: Tokens
    rows: tuple[tuple[int, int], ...]


def run(tokens: Tokens, x: int) -> int:
    """Return what a program gives for ``x``; products bind before sums."""
    values = [x if token == "x" else int(token) for token in tokens[::2]]  # noqa: S105 - a token of a program
    total, sign, product = 0, 1, values[0]
    for operator, value in zip(tokens[1::2], values[1:], strict=True):
        if operator == "*":
            product *= value
        else:
            total += sign * product
            sign, product = (1 if operator == "+" else -1), value
    return total + sign * product


class Debugging(ProgramThinker[Fault]):
    """The program."""

    name = task_type = "debugging"
    problems = "a formula and what it should give, as 'f(x) = x * 2 + 3; 0 -> 4; 1 -> 6'"

    def _read(self, text: str) -> Fault | kinds.Failure:
        program = _PROGRAM.search(text)
        beside = None if program is None else _BESIDE.fullmatch(_ROW.sub(" ", text[program.end() :]))
        if program is None or beside is None or _BEFORE.fullmatch(text[: program.start()]) is None:
            return invalid('a program to debug reads "debug: f(x) = x * 2 + 3; 0 -> 4; 1 -> 6"')
        tokens, at = [], 0
        code = program[1].strip()
        while (token := _TOKEN.match(code, at)) is not None:
            tokens.append(token[1])
            at = token.end()
        alternates = all((token in _OPERATORS) == bool(place % 2) for place, token in enumerate(tokens))
        if at != len(code) or not alternates or not len(tokens) % 2 or len(tokens) > tokens_max:
            return invalid(f"a program is x and whole numbers joined by + - *, at most {tokens_max} tokens")
        rows = tuple((int(x), int(expected)) for x, expected in _ROW.findall(text[program.end() :]))
        if not 1 <= len(rows) <= rows_max:
            return invalid(f"the table needs 1 to {rows_max} rows such as 2 -> 7")
        return Fault(tuple(tokens), rows)

    def _shape(self, problem: Fault) -> kinds.Decomposition:
        steps, goal = [self._say("debug_find"), self._say("debug_repeat")], len(problem.rows)
        return kinds.Decomposition(
            "hypothesis", steps, faults_max, [self._say("debug_one")], self._say("debug_goal", count=goal)
        )

    def _proposals(self, path: Path, problem: Fault, k: int) -> Iterable[tuple[str, str]] | kinds.Failure:
        """Return the changes of one token that no earlier one touched: the smallest error first."""
        tokens, touched, errors = self._changed(path, problem)
        if errors:
            return invalid(errors[0])
        free = [(place, old) for place, old in enumerate(tokens) if place not in touched]
        changes = [(place, new) for place, old in free for new in _alternatives(old)]
        changes.sort(key=lambda made: sum(abs(run(_with(tokens, *made), x) - wanted) for x, wanted in problem.rows))
        return ((f"token {place} `{tokens[place]}` should be `{new}`", "hypothesis") for place, new in changes)

    def _judged(
        self, paths: Sequence[Path], problem: Fault, strategy: kinds.EvaluationStrategy
    ) -> list[kinds.NodeEvaluation]:
        """Return the share of rows that hold, or, by comparison, of the rows' votes."""
        programs, say = [self._program(path, problem) for path in paths], self._say
        held = [len(problem.rows) - len(_failing(program, problem)) if program else 0 for program in programs]
        votes = _votes(programs, problem) if strategy == "comparative_voting" else held
        evaluations = []
        for path, program, rows, votes_won in zip(paths, programs, held, votes, strict=True):
            is_whole = rows == len(problem.rows)
            share = 10.0 if is_whole else round(2.0 + 7.0 * votes_won / len(problem.rows), 2)
            name = "debug_votes" if strategy == "comparative_voting" else "debug_held"
            why = say(name if program else "debug_wrong", held=rows, count=len(problem.rows), votes=votes_won)
            score, confidence = (share, 1.0 if is_whole else 0.6) if program else (0.0, 1.0)
            id_ = path[-1].id
            evaluations.append(kinds.NodeEvaluation(node_id=id_, score=score, confidence=confidence, reasoning=why))
        return evaluations

    def _solves(self, path: Path, problem: Fault) -> bool:
        program = self._program(path, problem)
        return program is not None and not _failing(program, problem)

    def _solution(self, path: Path, problem: Fault) -> kinds.Solution:
        tokens, _, errors = self._changed(path, problem)
        errors += [
            self._say("debug_fails", x=x, given=given, expected=expected)
            for x, expected, given in _failing(tokens, problem)
        ]
        trace = [node.content for node in path[1:]] or [self._say("debug_none")]
        return proven(f"f(x) = {' '.join(tokens)}", trace, errors)

    def _changed(self, path: Path, fault: Fault) -> tuple[Tokens, set[int], list[str]]:
        """Return the program after a path's changes, the places changed, and what is wrong (the rest is not made)."""
        tokens, touched = fault.tokens, set[int]()
        for step, node in enumerate(path[1:], 1):
            change = _CHANGE.fullmatch(node.content)
            place = int(change[1]) if change else 0
            old = tokens[place] if place < len(tokens) else None
            if change is None or old != change[2] or change[3] not in _alternatives(change[2]):
                return tokens, touched, [self._say("debug_wrong_step", step=step, change=node.content[:100])]
            tokens = _with(tokens, place, change[3])
            touched.add(place)
        return tokens, touched, []

    def _program(self, path: Path, fault: Fault) -> Tokens | None:
        tokens, _, errors = self._changed(path, fault)
        return None if errors else tokens


def _alternatives(token: str) -> list[str]:
    if token in _OPERATORS:
        return [other for other in _OPERATORS if other != token]
    if token.isdecimal():
        value = int(token)
        near = (value + 1, value - 1, value + 2, value - 2)
        return [*(str(number) for number in near if 0 <= number <= value_max), "x"]
    return ["1", "2"]


def _with(tokens: Tokens, place: int, new: str) -> Tokens:
    return (*tokens[:place], new, *tokens[place + 1 :])


def _failing(tokens: Tokens, fault: Fault) -> list[tuple[int, int, int]]:
    """Return x, what is expected and what is given of each row that does not hold."""
    rows = ((x, expected, run(tokens, x)) for x, expected in fault.rows)
    return [row for row in rows if row[1] != row[2]]


def _votes(programs: list[Tokens | None], fault: Fault) -> list[int]:
    votes = [0] * len(programs)
    for x, expected in fault.rows:
        misses = [abs(run(program, x) - expected) if program else None for program in programs]
        best = min((miss for miss in misses if miss is not None), default=None)
        for place, miss in enumerate(misses):
            votes[place] += miss is not None and miss == best
    return votes
