"""What resuming is for, measured small (``python -m tests.bench report_quality`` measures more)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from report_figures import answered, is_answered
from session_cases import Question, case

if TYPE_CHECKING:
    from report_figures import Told


LEAST = {"summary": 0.75, "detailed": 0.90, "full": 0.90}


def test_questions_about_a_session_are_answered_by_look_up(told: Told) -> None:
    cases = [case(number) for number in range(100, 116)]
    for one in cases:
        told.record(one)
    shares = {level: answered(told.figures(one, level) for one in cases) for level in LEAST}
    assert {level: share for level, share in shares.items() if share < LEAST[level]} == {}


def test_a_detailed_resume_costs_a_sixteenth_of_a_long_history(told: Told) -> None:
    one = case(200, steps=130)
    told.record(one)
    figures = told.figures(one, "detailed")
    assert figures.history >= 20_000
    assert figures.saved >= 0.9375


def test_a_look_up_finds_only_what_stands_in_the_entry_that_fits() -> None:
    entries = ["key findings The pool holds 37 handles", "remaining unknowns Who opens the pool 99 times"]
    assert is_answered(Question("finding", "The pool holds handles", "37"), entries)
    assert not is_answered(Question("finding", "The pool holds handles", "99"), entries)
    assert not is_answered(Question("unknown", "Who opens the pool", "37"), entries)
