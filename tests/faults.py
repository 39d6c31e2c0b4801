"""The number of kills, flipped bits and races that a test makes: few in ``make test``, many in ``make faults``.

``make test`` shows that each program survives a real kill, and a crash at each step in the test's own process. ``make
faults`` sets ``DEEDBOOK_FAULTS``: with many faults at random times, it also tests times that nobody thought of. A
second table counts lost and repeated events under real faults (``settle``).
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

T = TypeVar("T", bound="Hashable")
FAULTS: Final = int(os.environ.get("DEEDBOOK_FAULTS", "1"))
is_long_run: Final = FAULTS > 1

# _asked: how many faults each test makes, by the test's name without parameters. _tallies: other counts.
_asked: Final = Counter[str]()
_tallies: Final = Counter[str]()
_notes: Final[list[str]] = []
# The figures of ``settle``, by fault.
_settled: Final[dict[str, Counter[str]]] = {}
COLUMNS: Final = ("faults", "events", "published", "gaps", "duplicates", "effects", "wrong effects")
# Matches the parameter by which a test that runs several times counts its runs.
_COUNTED: Final = re.compile(r"\[(number|seed)?\d+\]$")


def times(quick: int, each: float) -> int:
    """Return the number of faults for the current test: ``quick``, or in the long run ``each`` times ``FAULTS``."""
    return made(max(1, round(each * FAULTS)) if is_long_run else quick)


def made(count: int) -> int:
    """Add ``count`` to the faults of the current test, and return it."""
    if test := os.environ.get("PYTEST_CURRENT_TEST"):
        _asked[_name(test.rpartition(" ")[0])] += count
    return count


def some_of(names: Iterable[str], *always: str) -> list[Any]:
    """Return names as parameters of a test that runs with ``always`` in ``make test``, and with all in the long run."""
    assert set(always) <= set(names)
    return [pytest.param(name, marks=() if name in always else pytest.mark.long_run) for name in names]


def note(text: str) -> None:
    """Print a text at the end of a long run, above its table."""
    _notes.append(text)


def metrics(text: str, count: int = 1) -> None:
    """Add to a count that is printed with ``text`` at the end of a long run, above its table."""
    _tallies[text] += count


def settle(
    fault: str, count: int, *, events: Sequence[T], published: Sequence[T], effects: Sequence[T] | None = None
) -> None:
    """Count lost and repeated ``events`` after ``count`` faults, and check that there are none.

    The ledger acknowledged ``events``. Its stream or a reader delivered ``published``, in this order. If there was a
    subscriber, ``effects`` are its effects in order: there must be exactly one for each event.
    """
    has_effects, effects = effects is not None, published if effects is None else effects
    wrong = sum((Counter(effects) - Counter(published)).values())
    wrong = wrong or sum(one != other for one, other in zip(effects, published, strict=False))
    row = {
        "faults": count,
        "events": len(events),
        "published": len(published),
        "gaps": len(set(events) - set(published)),
        "duplicates": len(published) - len(set(published)),
        "effects": len(effects),
        "wrong effects": wrong,
    }
    if not has_effects:
        del row["effects"], row["wrong effects"]
    _settled.setdefault(fault, Counter()).update(row)
    assert (row["gaps"], row["duplicates"], wrong) == (0, 0, 0), (fault, row)
    assert len(effects) == len(published) == len(events), (fault, row)


def counted() -> dict[str, Any]:
    """Return the counts and notes of this process; another process adds them to its own (``add``)."""
    settled = {fault: dict(row) for fault, row in _settled.items()}
    return {"asked": dict(_asked), "tallies": dict(_tallies), "notes": list(_notes), "settled": settled}


def add(counts: dict[str, Any]) -> None:
    """Add the counts of another process."""
    _asked.update(counts["asked"])
    _tallies.update(counts["tallies"])
    _notes.extend(counts["notes"])
    for fault, row in counts["settled"].items():
        _settled.setdefault(fault, Counter()).update(row)


def table(passed: Sequence[pytest.TestReport], failed: Sequence[pytest.TestReport]) -> Iterator[str]:
    """Yield the lines of the report: notes, counts, and for each test the faults that it made and its failures."""
    runs, bad = Counter[str](), Counter(_name(report.nodeid) for report in failed)
    for report in [*passed, *failed]:
        if _name(report.nodeid) in _asked or _COUNTED.search(report.nodeid):
            runs[_name(report.nodeid)] += 1
    yield from _notes
    yield from (f"{count:>9,}  {text}" for text, count in sorted(_tallies.items()))
    if _settled:
        yield "".join(f"{column:>14}" for column in COLUMNS) + "  while"
    for fault, row in sorted(_settled.items()):
        cells = [f"{row[column]:,}" if column in row else "-" for column in COLUMNS]
        yield "".join(f"{cell:>14}" for cell in cells) + f"  {fault}"
    yield f"{'faults':>9}  {'bad':>4}  what must hold"
    for name, count in sorted(runs.items()):
        yield f"{max(count, _asked[name]):>9,}  {bad[name]:>4}  {name.rpartition('::test_')[2].replace('_', ' ')}"
    yield f"{sum(max(count, _asked[name]) for name, count in runs.items()):>9,}  {bad.total():>4}  together"


def _name(test: str) -> str:
    return test.partition("[")[0]


def chances(name: str, count: int) -> list[random.Random]:
    """Return ``count`` random generators with fixed seeds, so that a failed test can be repeated with its seed."""
    return [random.Random(f"{name}/{number}") for number in range(count)]
