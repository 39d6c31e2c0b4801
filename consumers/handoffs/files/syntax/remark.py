"""The remark beside a status that was typed into a file and that nobody has signed.

A file never says a status that its ledger does not have: people and agents act on the file. So ``watch`` restores the
ledger's status. The remark behind it says what was typed, who may sign it, and with which command: ``- Status: pending
← not signed: set the status to approved: alex must run deed handoff approve h --as alex`` Anybody who can write the
file can write a remark: ``plan.review_in`` computes it again before it is repeated.
"""

from __future__ import annotations

import re
from typing import Final

from deedbook.consumers.handoffs.files.syntax.document import HandoffFile
from deedbook.consumers.handoffs.files.syntax.lines import apply_edits, join_lines, text_of
from deedbook.consumers.handoffs.files.syntax.marks import without_marks
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.writer import replace_at

_MARK: Final = "← not signed: "
_REMARK: Final = re.compile(rf"[ \t]*{_MARK}(.*)\Z")


def split_remark(content: bytes) -> tuple[bytes, str]:
    """Return the file without marks of reasonings and the remark beside its status, and the remark's text, if any.

    Raises Refused: as ``parse``.
    """
    content = without_marks(content)
    if _MARK.encode() not in content:
        return content, ""
    file = parse(content)
    remark = _REMARK.search(file.status.rest) if file.status else None
    if remark is None:
        return content, ""
    return _with_rest(file, file.status.written if file.status else "", remark.string[: remark.start()]), remark[1]


def with_remark(content: bytes, text: str) -> bytes:
    """Return a file with a remark beside its status, which it must have."""
    file = parse(content)
    if file.status is None or not text:
        return content
    return _with_rest(file, file.status.written, f"{file.status.rest} {_MARK}{text}")


def with_status_of(content: bytes, other: bytes) -> bytes:
    """Return a file with the status of another file and the text beside that status."""
    file, status = parse(content), parse(other).status
    if file.status is None or status is None:
        return content
    return _with_rest(file, status.written, status.rest)


def _with_rest(file: HandoffFile, written: str, rest: str) -> bytes:
    assert file.status is not None  # noqa: S101 - every caller saw it
    column, number = file.status.column, file.status.line
    old = text_of(file.lines[number - 1])[column:]
    edit = replace_at(file, number, column, old, written + rest)
    return join_lines(apply_edits(file.lines, [edit]), has_mark=file.has_mark)
