"""Texts of agents inside Markdown: every one stays text, whatever it holds (seed 004, "Report Structure").

A report is read by people and by models, so a finding must not be able to open a section, close a table, hide text in
HTML or swallow what follows in a code fence. Every line is disarmed where Markdown would read it as a block; inside a
line only HTML is, because nothing else reaches beyond its own list item or paragraph. What stands on a line shared
with others (the head of the report) is disarmed wholly. Words are never changed, lines are kept.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from projections.briefs.text import one_line

BLANK: Final = "(blank)"

_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
_BLOCK: Final = re.compile(r"[#>|\[]|```|~~~|[-+*](?:\s|$)|[-=_*+|:\s]+$")
_NUMBER: Final = re.compile(r"([0-9]{1,9})([.)])(?=\s|$)")
_INLINE: Final = re.compile(r"[\\`*\[\]~]|(?<![^\W_])_|_(?![^\W_])")


def inline(text: str) -> str:
    """Return a text as one line in which nothing is markup: for lines that share a paragraph with others."""
    return _TAG.sub("&lt;", _INLINE.sub(r"\\\g<0>", one_line(text))) or BLANK


def span(text: str) -> str:
    """Return a text as one line without HTML, to stand within a list item behind other words."""
    return _TAG.sub("&lt;", one_line(text)) or BLANK


def lines(text: str) -> list[str]:
    """Return the lines of a text, none of which begins a block; empty ones only between others, never two on end."""
    found: list[str] = []
    for line in text.splitlines():
        kept = _line(line)
        if kept or (found and found[-1]):
            found.append(kept)
    while found and not found[-1]:
        found.pop()
    return found or [BLANK]


def paragraph(text: str) -> str:
    """Return a text of any length as paragraphs."""
    return "\n".join(lines(text))


def item(text: str) -> str:
    """Return a text as one item of a list; its further lines are indented to belong to it."""
    first, *others = lines(text)
    return "\n".join((f"- {first}", *(f"  {line}" if line else "" for line in others)))


def _line(line: str) -> str:
    if not line.isprintable():
        line = "".join(" " if unicodedata.category(sign) in {"Cc", "Cs"} else sign for sign in line)
    kept = _TAG.sub("&lt;", line.strip())
    if _BLOCK.match(kept):
        return "\\" + kept
    return _NUMBER.sub(r"\1\\\2", kept, count=1) if _NUMBER.match(kept) else kept
