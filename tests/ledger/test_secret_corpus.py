"""The scanner finds nearly all secrets of a generated corpus, and raises hardly any false alarm."""

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
    """Whether the gate would refuse an event with this text."""
    return bool(secrets.scan_bodies([encode_canonical({"data": {"finding": sample.text}})]))


def print_counts(title: str, samples: list[Sample], flagged: list[Sample]) -> None:
    """Print a row for each kind of text; ``pytest -s`` shows it."""
    totals, flags = Counter(sample.kind for sample in samples), Counter(sample.kind for sample in flagged)
    print(f"\n{title}: {len(flagged)} of {len(samples)}")
    for kind, total in totals.items():
        print(f"  {kind:<32}{flags[kind]:>5} of {total}")


def test_nearly_every_secret_of_the_corpus_is_found() -> None:
    samples = list(positives())
    flagged = [sample for sample in samples if is_found(sample)]
    print_counts("found", samples, flagged)
    assert len(samples) >= POSITIVES_MIN
    assert len({sample.kind for sample in samples}) >= FORMS_MIN
    missed = [sample for sample in samples if sample not in flagged]
    assert len(flagged) >= RECALL_MIN * len(samples), [f"{sample.kind}: {sample.text[:200]}" for sample in missed]


def test_hardly_any_text_without_a_secret_raises_an_alarm() -> None:
    samples = list(negatives())
    flagged = [sample for sample in samples if is_found(sample)]
    print_counts("false alarms", samples, flagged)
    assert len(samples) >= NEGATIVES_MIN
    assert len(flagged) <= FALSE_ALARMS_MAX * len(samples), [
        f"{sample.kind}: {sample.text[:200]}" for sample in flagged
    ]
