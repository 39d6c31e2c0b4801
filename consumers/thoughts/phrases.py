"""The phrases of a search for people, in every language, from one table (``phrases.toml``).

A task has one language from its first event on: messages, reasons and logs use it for all readers.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from deedbook.consumers.thoughts.events import Language

_HAN = re.compile(r"[\u3400-\u9fff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
_WORD = re.compile(r"[^\W\d_\u3400-\u9fff]+")


def phrase(language: Language, name: str, **values: Any) -> str:
    """Return a phrase of the table, formatted with ``values``."""
    return _table()[name][language].format(**values)


def language_of(text: str) -> Language:
    """Return the language for answering a text: Chinese if it has more Chinese characters than other words."""
    is_chinese = len(_HAN.findall(text)) > len(_WORD.findall(text)) and not _KANA_OR_HANGUL.search(text)
    return "zh" if is_chinese else "en"


@cache
def _table() -> dict[str, dict[Language, str]]:
    table: dict[str, dict[Language, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return table
