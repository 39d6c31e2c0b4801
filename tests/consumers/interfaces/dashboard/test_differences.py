from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.interfaces.dashboard.differences import folded, word_changes, words_compared_max

SIGNS = {"kept": "{}", "removed": "[-{}-]", "added": "{{+{}+}}"}


def marked(was: str, text: str) -> str:
    return "".join(SIGNS[piece.mark].format(piece.text) for piece in word_changes(was, text))


@pytest.mark.parametrize(
    ("was", "text", "expected"),
    [
        ("keep 30 days", "keep 30 days", "keep 30 days"),
        ("keep 30 days", "keep 90 days", "keep [-30-]{+90+} days"),
        ("rotate the key", "rotate the old key today", "rotate the {+old +}key{+ today+}"),
        ("no downtime at all", "no downtime", "no downtime[- at all-]"),
        (
            "hold write then read locks",
            "hold one big locks",
            "hold [-write then read-]{+one big+} locks",
        ),  # one phrase, not three words
        ("读者持有游标", "每个读者持有一个游标", "{+每个+}读者持有{+一个+}游标"),
        ("p99 < 20 ms", "p99 < 200 ms", "p99 < [-20-]{+200+} ms"),
        ("confidence 0.8", "confidence 0.86", "confidence [-0.8-]{+0.86+}"),
        ("tell the users", "buy new disks", "[-tell the users-]{+buy new disks+}"),
        ("", "new", "{+new+}"),
        ("gone", "", "[-gone-]"),
    ],
)
def test_the_words_that_differ_are_marked(was: str, text: str, expected: str) -> None:
    assert marked(was, text) == expected


@given(st.text("ab 读\n\u202e", max_size=40), st.text("ab 读\n\u202e", max_size=40))
def test_both_versions_are_in_the_pieces_character_for_character(was: str, text: str) -> None:
    pieces = word_changes(was, text)
    assert "".join(piece.text for piece in pieces if piece.mark != "added") == was
    assert "".join(piece.text for piece in pieces if piece.mark != "removed") == text
    assert all(piece.text for piece in pieces)


def test_a_long_line_with_a_small_change_is_still_marked_by_words() -> None:
    words = " ".join(f"w{number}" for number in range(5_000))
    assert " [-w2500-]{+x+} " in marked(words, words.replace("w2500 ", "x "))


def test_lines_that_differ_in_too_many_words_are_replaced_whole() -> None:
    old = " ".join(["a", "b"] * words_compared_max)
    assert [piece.mark for piece in word_changes(f"x{old}", f"{old}y")] == ["removed", "added"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("x", "x"),
        ("oooxooo", "oooxooo"),  # a single far line is not folded
        ("oooooo", "(6)"),
        ("ooooooxoooooo", "(4)ooxoo(4)"),
        ("xoooooooxx", "xoooooooxx"),
        ("xoooooooooxx", "xoo(5)ooxx"),
        ("", ""),
    ],
)
def test_lines_far_from_any_change_are_folded(lines: str, expected: str) -> None:
    groups = folded(lines, "o".__eq__)
    assert "".join(f"({len(group)})" if is_far else "".join(group) for is_far, group in groups) == expected
    assert "".join(line for _, group in groups for line in group) == lines
