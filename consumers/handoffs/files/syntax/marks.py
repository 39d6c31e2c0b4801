"""Marks in a file for facts that became known after its signing: refuted reasonings and erased subjects.

``- Reasoning: sha256:… ← refuted: 0a2f53dc89c9 rests on an assumption (step 2) that rita refuted (entry 14)`` ``- [ ]
sealed:customer-4711:blake3:…/1 ← erased on 2026-12-01 by rita: She asked for it``

The marks are made whenever a file is written, and are no part of its content: ``without_marks`` returns what was
signed. A file beside a signed file has no marks, because it must say only what is signed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from deedbook.consumers.handoffs.files.syntax.document import HandoffFile
from deedbook.consumers.handoffs.files.syntax.lines import Edit, apply_edits, join_lines, text_of
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.sections import REFUTED_MARK
from deedbook.ledger.seal.reference import REFERENCE

ERASED_MARK: Final = "← "
_REFUTED: Final = re.compile(rf"[ \t]*{REFUTED_MARK}.*")
_ERASED: Final = re.compile(rf"[ \t]*{ERASED_MARK}erased on .*")


def with_marks(content: bytes, refuted: Mapping[str, str], erased: Mapping[str, str]) -> bytes:
    """Return a file with a mark beside each of its ``Reasoning`` refs in ``refuted``, and beside each erased text.

    ``refuted`` maps a ref to the text of its mark, ``erased`` an erased subject to that of its marks.
    """
    if not refuted and not erased:
        return content
    file = parse(content)
    marks: dict[int, str] = {}
    for number, line in _lines(file):
        if found := [text for ref, text in refuted.items() if ref in line]:
            marks[number] = REFUTED_MARK + "; ".join(found)
    for number, line in enumerate(map(text_of, file.lines)):
        if found := [erased[subject] for subject in subjects_in(line) if subject in erased]:
            marks[number] = ERASED_MARK + "; ".join(found)
    edits = [
        Edit(number, number + 1, (f"{text_of(file.lines[number]).rstrip()} {mark}",))
        for number, mark in sorted(marks.items())
    ]
    return join_lines(apply_edits(file.lines, edits), has_mark=file.has_mark)


def without_marks(content: bytes) -> bytes:
    """Return a file without these marks. Raises Refused: as ``parse``."""
    if ERASED_MARK.encode() not in content:
        return content
    file = parse(content)
    plain = {number: _REFUTED.sub("", line) for number, line in _lines(file)}
    for number, line in enumerate(map(text_of, file.lines)):
        if subjects_in(line):
            plain[number] = _ERASED.sub("", line)
    changed = ((number, text) for number, text in sorted(plain.items()) if text != text_of(file.lines[number]))
    edits = [Edit(number, number + 1, (text,)) for number, text in changed]
    return join_lines(apply_edits(file.lines, edits), has_mark=file.has_mark)


def subjects_in(text: str) -> list[str]:
    """Return the subjects of the sealed references in a text."""
    return list(dict.fromkeys(match["subject"] for match in REFERENCE.finditer(text)))


def _lines(file: HandoffFile) -> Iterator[tuple[int, str]]:
    entry = file.entry("Reasoning")
    for number in range(entry.line - 1, entry.last_line) if entry else ():
        yield number, text_of(file.lines[number])
