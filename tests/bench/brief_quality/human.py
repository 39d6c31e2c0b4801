"""``make bench-human``: fifty briefs beside their full graphs for a person to judge blind, and the results.

    python -m tests.bench.brief_quality.human            writes SHEET, or reads it back once it has every answer
    python -m tests.bench.brief_quality.human --sheet F  the same with another file

The sheet shows no measured figure. It has pairs of all qualities (our briefs, truncated texts and random lines, at four
sizes), in an order drawn from a fixed seed. The person fills in the ``answer`` of each pair, from 0 (the text keeps
nothing of the reasoning) to 10 (it keeps everything that matters). Then the program reads the sheet and prints how well
the answers agree with the metric. For that it builds the pairs again, so it refuses a sheet made of other cases.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.projections.briefs.fidelity import measure
from deedbook.projections.briefs.prompt import TransferLevel, to_context_prompt
from tests.bench.brief_quality.baselines import first_n, lines_of, random_lines, spearman
from tests.bench.brief_quality.cases import load_cases
from tests.bench.brief_quality.incidents import incidents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbook.projections.reasoning.memory import ReasoningMemory

PAIRS: Final = 50
SEED: Final = 50
SIZES: Final = (80, 150, 250, 400)
SHEET: Final = Path("build") / "human-evaluation.csv"
FIELDS: Final = ("pair", "full reasoning", "brief", "answer (0 to 10)")
ANSWER_MAX: Final = 10


class Pair(NamedTuple):
    """A graph and a text that represents it."""

    memory: ReasoningMemory
    brief: str


def pairs() -> list[Pair]:
    """Return the pairs in the order of the sheet."""
    chance = random.Random(SEED)
    cases = load_cases()
    memories = [*incidents(), *(case.memory for case in [*cases.distracted, *cases.dense])]
    return [_pair(memory, chance) for memory in chance.sample(memories, PAIRS)]


def _pair(memory: ReasoningMemory, chance: random.Random) -> Pair:
    budget = chance.choice(SIZES)
    match chance.choice(("ours", "ours", "first", "random")):
        case "ours":
            brief = to_context_prompt(compress(memory, TransferLevel.MINIMAL, budget)).expanded
        case "first":
            brief = first_n(memory, budget)
        case _:
            brief = random_lines(memory, budget)
    return Pair(memory, brief)


def write_sheet(path: Path, made: Sequence[Pair]) -> None:
    """Write the sheet without any answer or figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(FIELDS)
        rows.writerows((number, full_text(pair.memory), pair.brief, "") for number, pair in enumerate(made, start=1))


def full_text(memory: ReasoningMemory) -> str:
    """Return a graph as a person reads it."""
    conclusion = f"Conclusion: {memory.conclusion}"
    return "\n".join([f"Task: {memory.task}", *lines_of(memory), conclusion])


def read_sheet(path: Path, made: Sequence[Pair]) -> list[float | None]:
    """Return the answers of a sheet in the order of its pairs; None for a pair without an answer.

    Raises:
        ValueError: When the sheet has other pairs, or an answer is not a number from 0 to 10.
    """
    with path.open(encoding="utf-8", newline="") as file:
        read = {row[FIELDS[0]]: row for row in csv.DictReader(file)}
    answers: list[float | None] = []
    for number, pair in enumerate(made, start=1):
        row = read.get(str(number))
        if row is None or row[FIELDS[2]].split() != pair.brief.split():
            raise ValueError(f"pair {number} is not the one that these cases give; write a new sheet")
        given = row[FIELDS[3]].strip()
        answer = float(given) if given else None
        if answer is not None and not 0 <= answer <= ANSWER_MAX:
            raise ValueError(f"pair {number}: {given} is not between 0 and {ANSWER_MAX}")
        answers.append(answer)
    return answers


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the sheet, or read it back."""
    parser = argparse.ArgumentParser(prog="make bench-human", description="Fifty pairs for a person to judge.")
    parser.add_argument("--sheet", type=Path, default=SHEET, help=f"the sheet (default: {SHEET})")
    path = parser.parse_args(arguments).sheet
    made = pairs()
    if not path.exists():
        write_sheet(path, made)
        print(f"{path} holds {len(made)} pairs. Fill its last column, then call this again.")
        return
    try:
        answers = read_sheet(path, made)
    except ValueError as error:
        sys.exit(f"{path}: {error}")
    given = [
        (answer, measure(pair.memory, pair.brief).value)
        for answer, pair in zip(answers, made, strict=True)
        if answer is not None
    ]
    if len(given) < len(made):
        print(f"{path}: {len(given)} of {len(made)} pairs have an answer; no agreement is told before all have.")
        return
    print(f"agreement with the metric over {len(given)} pairs: Spearman {spearman(*zip(*given, strict=True)):.3f}")


if __name__ == "__main__":
    main()
