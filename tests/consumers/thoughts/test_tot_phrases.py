"""The table of phrases: each phrase is used, and has the same placeholders in every language."""

from __future__ import annotations

import re
import string
import tomllib
from pathlib import Path

import pytest

from deedbook.consumers.thoughts import phrases
from deedbook.consumers.thoughts.phrases import language_of, phrase

ROOM = Path(phrases.__file__).parent
TABLE = tomllib.loads((ROOM / "phrases.toml").read_text("utf-8"))
CODE = "".join(path.read_text("utf-8") for path in ROOM.rglob("*.py"))
MAY_BE_LEFT_OUT = {"game_join_next"}  # only the Chinese phrase says which number is joined


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("name", TABLE)
def test_phrase_has_every_language_and_the_same_places_in_each(name: str) -> None:
    assert list(TABLE[name]) == ["en", "zh"]
    assert all(TABLE[name].values())
    assert name in MAY_BE_LEFT_OUT or places(TABLE[name]["en"]) == places(TABLE[name]["zh"])
    assert not re.search(r"[\u3400-\u9fff]", TABLE[name]["en"])


@pytest.mark.parametrize(
    ("problem", "language"),
    [
        ("用4、9、10、13得到24", "zh"),
        ("微信小程序应该制作几个 Skills", "zh"),
        ("4 9 10 13", "en"),
        ("", "en"),
        ("Translate 你好 into English, please", "en"),
        ("東京でカフェを開く計画", "en"),
    ],
)
def test_language_is_that_of_the_problem(problem: str, language: str) -> None:
    assert language_of(problem) == language


def test_places_are_filled() -> None:
    assert phrase("en", "reason_low", threshold=6.5) == "its score is below 6.5"
    assert phrase("zh", "expand", level=1, count=2) == "⏳ [Explorer - 第1层] 准备扩展 2 个节点"


def test_every_phrase_is_used() -> None:
    assert [name for name in TABLE if f'"{name}"' not in CODE and not name.startswith("by_")] == []  # names of checkers
