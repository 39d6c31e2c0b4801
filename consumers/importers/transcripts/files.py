"""Finds transcripts and reads them: line by line, or whole if the file is one document or a text.

Lines are read whatever the file's size; a line longer than ``line_size_max_bytes`` is not decoded. A file that does not
begin like UTF-8 text (compressed, or UTF-16) is one unread item, whatever its name.
"""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from deedbook.consumers.importers.records import find_files, name_in
from deedbook.consumers.importers.transcripts import lines
from deedbook.consumers.importers.transcripts.conversation import (
    Conversation,
    Progress,
    SourcePosition,
    TranscriptResponse,
    UnreadItem,
)
from deedbook.consumers.importers.transcripts.exports import export_of, is_unreadable_export, responses_in
from deedbook.consumers.sdk.thinking.response import has_tags, response_size_max_bytes
from deedbook.ledger.errors import Refused
from deedbook.ledger.limits import content_size_max_bytes
from deedbook.ledger.system.files import as_unavailable, open_regular

line_size_max_bytes: Final = response_size_max_bytes
document_size_max_bytes: Final = content_size_max_bytes
text_size_max_bytes: Final = response_size_max_bytes

LINES: Final = (".jsonl", ".ndjson")
TEXTS: Final = (".md", ".txt")
UNTOLD: Final = (
    "INVALID_FORMAT: it looks like an exported conversation, and its thinking tags are not balanced, so its thinking"
    " cannot be told from the rest: import the session file itself (.jsonl)"
)
_skip_bytes: Final = 1024**2
_OTHERS: Final = {
    b"\x1f\x8b": "compressed with gzip: unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it first",
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"\xff\xfe": "UTF-16: convert it to UTF-8 first",
    b"\xfe\xff": "UTF-16: convert it to UTF-8 first",
}


def find_transcripts(path: Path) -> list[Path]:
    """Return the file, or the files of a folder that may be transcripts; see ``find_files``."""
    return find_files(path, (*LINES, ".json", *TEXTS))


def read_transcript(file: Path, root: Path, progress: Progress) -> Iterator[TranscriptResponse | UnreadItem]:
    """Yield the responses of a file that may hold thinking, and its unread parts."""
    source = SourcePosition(name_in(file, root))
    before = progress.done_bytes
    with as_unavailable(file, "cannot be read"), ExitStack() as stack:
        try:
            descriptor = stack.enter_context(open_regular(file, follow=True))
        except Refused as refusal:  # a pipe or a device: reading it would block or never end
            yield UnreadItem(source, None, 0, f"{refusal.code}: {refusal.message}")
            return
        opened = stack.enter_context(os.fdopen(descriptor, "rb", closefd=False))
        size = os.fstat(opened.fileno()).st_size
        form = next((form for sign, form in _OTHERS.items() if opened.peek(4).startswith(sign)), None)
        if form is not None:
            original = opened.read() if size <= content_size_max_bytes else None
            yield UnreadItem(source, original, size, f"INVALID_FORMAT: the file is {form}")
        elif _are_lines(file, opened):
            yield from _read_lines(opened, source, progress)
        else:
            progress.lines += 1
            yield from _read_whole(opened, size, source, progress, is_asked_for=file == root)
        progress.done_bytes = before + size
    progress.files += 1


def _are_lines(file: Path, opened: BinaryIO) -> bool:
    if file.suffix.lower() in LINES:
        return True
    first = b"\n"
    while first and not first.strip():
        first = opened.readline(line_size_max_bytes)
    opened.seek(0)
    return lines.read_head(first.removeprefix(BOM_UTF8)) is not None


class SourceLine(NamedTuple):
    """A line of a file: its number from 1, its size, and its bytes; only the beginning if it is too long for a blob."""

    number: int
    size: int
    content: bytes

    @property
    def is_too_long(self) -> bool:
        """Whether it is too long to be decoded."""
        return self.size - self.content.endswith(b"\n") > line_size_max_bytes


def lines_of(opened: BinaryIO) -> Iterator[SourceLine]:
    """Yield the lines of a file; the memory needed does not depend on their length."""
    number = 0
    while line := opened.readline(line_size_max_bytes + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(BOM_UTF8)
        whole, size = bytearray(line), len(line)
        while not line.endswith(b"\n") and (line := opened.readline(_skip_bytes)):
            size += len(line)
            if size <= content_size_max_bytes:
                whole += line
        yield SourceLine(number, size, bytes(whole))


def _read_lines(
    opened: BinaryIO, source: SourcePosition, progress: Progress
) -> Iterator[TranscriptResponse | UnreadItem]:
    conversation = Conversation(progress)
    for line in lines_of(opened):
        progress.lines += 1
        progress.done_bytes += line.size
        line_source = source._replace(line=line.number)
        if line.is_too_long:
            reason = f"TOO_LARGE: the line has {line.size} bytes; the limit is {line_size_max_bytes}"
            original = line.content if line.size <= content_size_max_bytes else None
            yield UnreadItem(line_source, original, line.size, reason)
        elif line.content.strip():
            yield from conversation.feed(line.content, line_source)
    yield from conversation.finish()


def _read_whole(
    opened: BinaryIO, size: int, source: SourcePosition, progress: Progress, *, is_asked_for: bool
) -> Iterator[TranscriptResponse | UnreadItem]:
    """Yield the responses of a document or text.

    A file without thinking is skipped if the user did not name it.
    """
    if size > document_size_max_bytes:
        yield UnreadItem(
            source, None, size, f"TOO_LARGE: the file has {size} bytes; the limit is {document_size_max_bytes}"
        )
        return
    content = opened.read()
    if not is_asked_for and not lines.has_trace(content):
        progress.other_files += 1
        return
    text = content.removeprefix(BOM_UTF8)
    if source.file.lower().endswith(".json") or lines.read_head(text) is not None or lines.items(text) is not None:
        conversation = Conversation(progress)
        yield from conversation.feed(text, source)
        yield from conversation.finish()
    else:
        yield from _read_text(content, source, progress)


def _read_text(content: bytes, source: SourcePosition, progress: Progress) -> Iterator[TranscriptResponse | UnreadItem]:
    if len(content) > text_size_max_bytes:
        reason = f"TOO_LARGE: the text has {len(content)} bytes; the limit is {text_size_max_bytes}"
        yield UnreadItem(source, content, len(content), reason)
        return
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        yield UnreadItem(source, content, len(content), f"INVALID_FORMAT: it is not UTF-8 (at byte {error.start})")
        return
    responses: list[TranscriptResponse | UnreadItem] = []
    if (export := export_of(text)) is not None:
        responses += responses_in(export, text, source)
    elif has_tags(text):
        is_told = not is_unreadable_export(text)
        responses.append(
            TranscriptResponse(source, content, text) if is_told else UnreadItem(source, content, len(content), UNTOLD)
        )
    progress.other_files += not responses
    yield from responses
