r"""Text that stands in a section, and the text it stands for (seed 002).

A line that would begin a section is written with a backslash in front of its hashes (``\## Plan``), which markdown
shows as the hashes themselves; one more backslash for each that is there already. Deeper headings (``### …``) and code
need none. What can still not be kept (a code fence that nothing closes) is refused by whoever writes, which reads
back what it wrote.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from consumers.handoffs.files.syntax.blocks import read_blocks
from consumers.handoffs.files.syntax.lines import text_of, trim_blank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumers.handoffs.files.syntax.document import Section

_ENDING: Final = re.compile(r"\r\n|\r|\n")
_HASHES: Final = re.compile(r"^( {0,3})(\\*#{1,2}(?:\s|$))")
_ESCAPED: Final = re.compile(r"^( {0,3})\\(\\*#{1,2}(?:\s|$))")


def text_in(lines: Sequence[str], section: Section | None, code: frozenset[int]) -> str:
    """Return the text of a section without the blank lines around it, its lines joined with newlines."""
    if section is None:
        return ""
    start, stop = trim_blank(lines, section.body, section.stop)
    texts = (text_of(lines[index]) for index in range(start, stop))
    return "\n".join(
        text if index in code else _ESCAPED.sub(r"\1\2", text) for index, text in enumerate(texts, start=start)
    )


def lines_for(text: str) -> tuple[str, ...]:
    """Return the lines that stand for a text in a section; the opposite of ``text_in`` for what ``trimmed`` returns."""
    lines = _trimmed_lines(text)
    code = read_blocks(lines).code
    return tuple(line if index in code else _HASHES.sub(r"\1\\\2", line) for index, line in enumerate(lines))


def trimmed(text: str) -> str:
    """Return a text as a section can keep it: newlines as the only line endings, no blank lines around it."""
    return "\n".join(_trimmed_lines(text))


def _trimmed_lines(text: str) -> list[str]:
    lines = _ENDING.split(text)
    start, stop = trim_blank(lines, 0, len(lines))
    return lines[start:stop]
