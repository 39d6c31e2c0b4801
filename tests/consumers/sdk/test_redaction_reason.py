"""The reason of a redaction repeats no erased text."""

from __future__ import annotations

import pytest

from deedbook.consumers.sdk.redaction_reason import repeated_in

TEXT = "Carol Meyer moved to Bergen, her key is Hunter2x and the passphrase is correct-horse-battery-staple."


@pytest.mark.parametrize(
    "reason",
    [
        "a password of the staging server",
        "the name of a person",
        "names of patients, see the ticket of 2026",
        "it is a key",
    ],
)
def test_reason_in_other_words_passes(reason: str) -> None:
    assert repeated_in(reason, "", [TEXT]) is None
    assert repeated_in(reason, "hunter2", []) is None


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("it had hunter2x in it", "hunter2x"),
        ("it had (Hunter2X) in it", "hunter2x"),
        ("the one with the battery", "battery"),
        ("correct_horse was told", "correct"),
        ("moved to Bergen is private", "moved to bergen"),
        ("Carol Meyer moved, so", "carol meyer moved"),
    ],
)
def test_reason_that_repeats_a_part_of_a_text_is_found(reason: str, told: str) -> None:
    found = repeated_in(reason, "", [TEXT])
    assert found is not None
    assert found in told or told in found


@pytest.mark.parametrize("reason", ["Carol asked", "about CAROL", "meyer's wish", "for Carol Meyer"])
def test_reason_that_repeats_a_word_of_the_named_text_is_found(reason: str) -> None:
    assert repeated_in(reason, "Carol Meyer", []) is not None


def test_token_that_the_scanner_knows_is_found_although_it_is_one_plain_word() -> None:
    token = "ghp_" + "abcdefghijKLMNOPQRSTUVWXYZabcdefghij"
    assert repeated_in(f"it was {token[:40].lower()}", "", [f"use {token} there"]) is not None


def test_short_text_is_found_as_a_whole() -> None:
    assert repeated_in("pin 77", "", ["77"]) == "77"
    assert repeated_in("it looks like a secret, ok", "", ["look", "ok", "a"]) is None
