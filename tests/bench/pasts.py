"""Rows of the past: questions as of the middle of a long log, against the same questions now."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from deedbook.projections.answers.reader import Reader
from tests.bench.folding import grow
from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds
from tests.bench.workload import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EVENTS: Final = scaled(int(os.environ.get("DEEDBOOK_BENCH_PAST", "1000000")), 8_192)
REPEATS: Final = 20
APART: Final = 1_500  # the number of entries between two snapshots; each is read here for the first time
Question: TypeAlias = tuple[str, dict[str, Any]]
QUESTIONS: Final[tuple[Question, ...]] = (
    ("handoffs.board", {}),
    ("handoffs.list", {}),
    ("handoffs.show", {"id": "work-0-3"}),
    ("handoffs.next", {"agent": "bob"}),
    ("sessions.list", {}),
    ("sessions.show", {"id": "day-0-3"}),
    ("catalog.find", {"newest": True}),
    ("catalog.find", {"stream": "session/day-0-3"}),
    ("catalog.why", {"id": "90"}),
    ("agents.list", {}),
)
BASELINE: Final = "the same questions now"


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    with open_ledger(bench.folder / "ledger") as ledger, ledger.client() as client:
        bench.say(f"filling a log up to {EVENTS:,} entries")
        grow(ledger, EVENTS)
        with Reader(client, ledger.settings()) as reader:
            bench.say("folding it")
            folded_s = seconds(reader.catch_up)
            size = client.head().size

            def ask(questions: Sequence[Question], as_of: int | None, _round: int, repeats: int = REPEATS) -> float:
                return seconds(lambda: [reader.answer(*one, as_of) for _ in range(repeats) for one in questions])

            middle = size // 2
            by_question = [
                ratios(bench.paired(partial(ask, [one], middle), partial(ask, [one], None))) for one in QUESTIONS
            ]
            note = f"the worst of {len(QUESTIONS)} questions in each round, as of entry {middle:,} of {size:,}"
            worst = [max(of_round) for of_round in zip(*by_question, strict=True)]
            yield Row("past: a question at the middle", worst, BASELINE, Budget("≤", 3.0), note)
            found = bench.paired(
                lambda n: ask(QUESTIONS, middle + n * APART % middle, n, 1), lambda n: ask(QUESTIONS, None, n, 1)
            )
            first_ms = sorted(1000 * ours for ours, _ in found)[len(found) // 2]
            note = f"{first_ms:.0f} ms for all of them; folding the log took {folded_s:.0f} s"
            yield Row("past: all at an entry that nobody asked for yet", ratios(found), BASELINE, None, note)
