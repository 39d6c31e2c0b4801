"""A redacted text contains no secret and no part of one; the words around the secret stay."""

from __future__ import annotations

import re

import pytest
from credentials import CREDENTIALS, GITHUB
from hypothesis import given
from hypothesis import strategies as st
from secret_corpus import negatives, positives

from deedbook.ledger.secrets.redaction import redact
from deedbook.ledger.secrets.scanner import scan

PART = re.compile(r"[A-Za-z0-9+/_-]{12,}")


def parts_of(secret: str) -> list[str]:
    """Return the long words of a secret that have a digit and a capital: its random parts."""
    words = (word.group()[-12:] for word in PART.finditer(secret))
    return [word for word in words if re.search("[0-9]", word) and re.search("[A-Z]", word)]


@pytest.mark.parametrize("kind", CREDENTIALS)
def test_nothing_of_a_credential_is_left(kind: str) -> None:
    for text in CREDENTIALS[kind]:
        redacted = redact(f"Before it. {text} After it.")
        assert kind in redacted.kinds, text
        assert scan(redacted.text) is None, text
        assert redacted.text.startswith("Before it. ")
        assert not [part for part in parts_of(text) if part in redacted.text]


def test_nothing_that_the_scanner_finds_in_the_corpus_is_left() -> None:
    found = [sample.text for sample in positives() if scan(sample.text) is not None]
    assert len(found) > 400
    left = [text for text in found if scan(redact(text).text) is not None]
    assert left == []


def test_text_without_a_secret_is_unchanged() -> None:
    texts = [sample.text for sample in negatives() if scan(sample.text) is None]
    assert [text for text in texts if redact(text).text != text] == []


def test_several_secrets_and_a_disguised_one_are_replaced() -> None:
    disguised = GITHUB[:8] + "\u200b" + GITHUB[8:]
    redacted = redact(f"one {GITHUB} two {GITHUB}\nthree {disguised} four")
    assert (
        redacted.text
        == "one [redacted: GitHub token] two [redacted: GitHub token]\nthree [redacted: GitHub token] four"
    )


@given(st.text())
def test_any_text_is_redacted_without_an_error(text: str) -> None:
    assert redact(text).text == text
