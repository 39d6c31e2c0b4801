"""The rows of report quality: the cost of a resume against a session's whole history, and its answers by look-up.

    python -m tests.bench report_quality

The targets: a resume has 93.75 % fewer tokens than a history of 20,000 tokens or more, and answers .90 of the questions
at level detailed, .75 at level summary. Sessions and questions are generated (``session_cases``); ``report_figures``
answers the questions. A summary leaves out tools by definition, so only the other levels get questions about tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from deedbook.projections.answers.reader import Reader
from tests.bench.pairs import Bench, Budget, Row, scaled
from tests.building import Ledger
from tests.report_figures import Recorder, answered
from tests.session_cases import SORTS, case

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.report_figures import Figures

CASES: Final = 48
LONG_CASES: Final = scaled(8, 1)
LONG_STEPS: Final = 120
history_tokens_min: Final = 20_000
_TO_REACH: Final = {"summary": 0.75, "detailed": 0.90, "full": None}


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    with (
        Ledger(bench.folder / "quality") as ledger,
        ledger.client() as client,
        Reader(client, ledger.settings()) as reader,
    ):
        recorder = Recorder(ledger, client, reader)
        bench.say(f"{CASES} generated sessions")
        cases = [case(number) for number in range(CASES)]
        for one in cases:
            recorder.record(one)
        for level, least in _TO_REACH.items():
            found = [recorder.figures(one, level) for one in cases]
            yield _answers(level, found, least)
            yield from (_answers(level, _of(found, sort), None, f"{sort} only") for sort in SORTS)
        bench.say(f"{LONG_CASES} sessions of {LONG_STEPS} recorded thoughts and tools")
        long = [case(CASES + number, steps=LONG_STEPS) for number in range(LONG_CASES)]
        for one in long:
            recorder.record(one)
        for level in _TO_REACH:
            found = [recorder.figures(one, level) for one in long]
            yield _cost(level, [one for one in found if one.history >= history_tokens_min])


def _answers(level: str, found: Sequence[Figures], least: float | None, note: str = "") -> Row:
    shares = [one.answered / one.asked for one in found]
    budget = None if least is None else Budget("≥", least)
    overall = f"{answered(found):.3f} of all questions"
    return Row(
        f"reports: answered by a {level} resume", shares, "questions", budget, ", ".join(filter(None, (note, overall)))
    )


def _cost(level: str, found: Sequence[Figures]) -> Row:
    budget = Budget("≤", 0.0625) if level == "detailed" else None
    least = min(one.history for one in found)
    note = f"{len(found)} sessions of {least:,} tokens or more"
    return Row(
        f"reports: tokens of a {level} resume", [one.tokens / one.history for one in found], "history", budget, note
    )


def _of(found: Sequence[Figures], sort: str) -> list[Figures]:
    return [one for one in found if one.case.sort == sort]
