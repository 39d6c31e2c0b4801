"""How many secrets of a generated corpus are found, and how many texts without one raise a false alarm."""

from __future__ import annotations

from collections import Counter
from typing import Final

from secret_corpus import Sample, negatives, positives

from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.secrets import scanner as secrets

POSITIVES_MIN: Final = 400
FORMS_MIN: Final = 25
NEGATIVES_MIN: Final = 2000
RECALL_MIN: Final = 0.98
FALSE_ALARMS_MAX: Final = 0.001


def is_found(sample: Sample) -> bool:
    """Tell whether the gate would refuse an event with this text."""
    return bool(secrets.scan_bodies([encode_canonical({"data": {"finding": sample.text}})]))


def shown(title: str, samples: list[Sample], flagged: list[Sample]) -> None:
    """Print a row for each sort of text; ``pytest -s`` shows it."""
    totals, flags = Counter(one.sort for one in samples), Counter(one.sort for one in flagged)
    print(f"\n{title}: {len(flagged)} of {len(samples)}")
    for sort, total in totals.items():
        print(f"  {sort:<32}{flags[sort]:>5} of {total}")


def test_nearly_every_secret_of_the_corpus_is_found() -> None:
    samples = list(positives())
    flagged = [one for one in samples if is_found(one)]
    shown("found", samples, flagged)
    assert len(samples) >= POSITIVES_MIN
    assert len({one.sort for one in samples}) >= FORMS_MIN
    missed = [one for one in samples if one not in flagged]
    assert len(flagged) >= RECALL_MIN * len(samples), [f"{one.sort}: {one.text[:200]}" for one in missed]


def test_hardly_any_text_without_a_secret_raises_an_alarm() -> None:
    samples = list(negatives())
    flagged = [one for one in samples if is_found(one)]
    shown("false alarms", samples, flagged)
    assert len(samples) >= NEGATIVES_MIN
    assert len(flagged) <= FALSE_ALARMS_MAX * len(samples), [f"{one.sort}: {one.text[:200]}" for one in flagged]
