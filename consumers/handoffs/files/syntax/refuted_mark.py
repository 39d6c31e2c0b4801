"""The mark beside a reasoning in a file whose conclusion rests on a refuted assumption.

``- Reasoning: sha256:… ← refuted: 0a2f53dc89c9 rests on an assumption (step 2) that rita refuted (entry 14)``
The mark is made whenever a file is written, and is no part of the file's content: ``without_marks`` returns what was
signed. A file beside which a signed file lies has none, because it must say only what is signed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from deedbook.consumers.handoffs.files.syntax.document import HandoffFile
from deedbook.consumers.handoffs.files.syntax.lines import Edit, apply_edits, join_lines, text_of
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.sections import REFUTED_MARK

_MARKED: Final = re.compile(rf"[ \t]*{REFUTED_MARK}.*")


def with_marks(content: bytes, marks: Mapping[str, str]) -> bytes:
    """Return a file with a mark beside each ref in ``marks``, on the lines of its ``Reasoning``."""
    if not marks:
        return content
    file = parse(content)
    edits: list[Edit] = []
    for number, line in _lines(file):
        found = [text for ref, text in marks.items() if ref in line]
        if found:
            edits.append(Edit(number, number + 1, (f"{line.rstrip()} {REFUTED_MARK}{'; '.join(found)}",)))
    return join_lines(apply_edits(file.lines, edits), has_mark=file.has_mark)


def without_marks(content: bytes) -> bytes:
    """Return a file without these marks. Raises Refused: as ``parse``."""
    if REFUTED_MARK.encode() not in content:
        return content
    file = parse(content)
    plain = ((number, line, _MARKED.sub("", line)) for number, line in _lines(file))
    edits = [Edit(number, number + 1, (text,)) for number, line, text in plain if text != line]
    return join_lines(apply_edits(file.lines, edits), has_mark=file.has_mark)


def _lines(file: HandoffFile) -> Iterator[tuple[int, str]]:
    entry = file.entry("Reasoning")
    for number in range(entry.line - 1, entry.last_line) if entry else ():
        yield number, text_of(file.lines[number])
