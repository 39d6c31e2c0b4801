"""Extracts the responses from the lines of a session, or from the messages of a conversation.

The original of a response is its own lines or its own part of a document, not the whole file. Transcripts grow, so the
whole file would be a new original after every word. A response that was copied to another file would be stored twice.

Rules of this module:

- The lines of one API message (one ``message.id`` of one session) are one response, even if other lines are between
  them. At most ``open_max`` responses are open at once; later lines of a closed one are a response of their own.
- A response answers the user's prompt above it: the nearest along ``parentUuid``, else the last one of the same agent.
  Tool results, texts of the harness (``isMeta``) and summaries of compacted sessions are no prompts.
- A line that cannot be read is passed on with the reason. A line without any mark of thinking is counted. The other
  lines are still read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from deedbook.consumers.importers.transcripts import lines
from deedbook.ledger.errors import Refused

open_max: Final = 64
open_size_max_bytes: Final = 64 * 1024**2
prompts_max: Final = 4_096
prompt_size_max_bytes: Final = 64 * 1024
nesting_max: Final = 3
_SPOKEN: Final = ("role", "message", "from", "sender", "payload")


class UserPrompt(NamedTuple):
    """The beginning of a user's prompt, and its bytes if there are few enough to keep in memory."""

    text: str
    original: bytes


class SourcePosition(NamedTuple):
    """A position in a transcript: the file as the ledger names it, the line, and the position in the line (from 1)."""

    file: str
    line: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        return f"{self.file}{line}" + ("" if self.position is None else f"#{self.position}")


class TranscriptResponse(NamedTuple):
    """A response that may hold thinking: decoded JSON or text, and facts from its surroundings.

    ``session`` and ``message`` are its ids (empty: none), ``at`` its time as written, ``lines`` the number of its
    lines, ``odd`` the numbers in it that only a text can hold, ``form`` the form of an export (empty: none).
    """

    source: SourcePosition
    original: bytes
    response: Any
    is_session: bool = False
    session: str = ""
    message: str = ""
    at: Any = None
    prompt: UserPrompt | None = None
    lines: int = 1
    odd: tuple[str, ...] = ()
    form: str = ""


class UnreadItem(NamedTuple):
    """An item that could not be read, its ids, and the reason; ``original`` is None if it is too large to be stored."""

    source: SourcePosition
    original: bytes | None
    size: int
    reason: str
    session: str = ""
    message: str = ""

    @classmethod
    def of(cls, answered: TranscriptResponse, reason: str) -> UnreadItem:
        """Return the response as unread, with the reason."""
        size, ids = len(answered.original), (answered.session, answered.message)
        return cls(answered.source, answered.original, size, reason, *ids)


@dataclass
class Progress:
    """The progress of reading; ``skipped`` lines and messages have no thinking, and neither have ``other_files``."""

    done_bytes: int = 0
    total_bytes: int = 0
    files: int = 0
    other_files: int = 0
    lines: int = 0
    skipped: int = 0


class _Open(msgspec.Struct):
    """A response whose lines are still being collected; ``answered`` has the facts of its first line."""

    answered: TranscriptResponse
    lines: list[bytes]
    has_trace: bool = False


class Conversation:
    """Takes the lines of one file in order, and yields the responses that may hold thinking."""

    def __init__(self, progress: Progress, depth: int = 0) -> None:
        """Count skipped lines in ``progress``; ``depth`` is how deep this conversation is nested in others."""
        self._progress = progress
        self._depth = depth
        self._open: OrderedDict[tuple[str, str], _Open] = OrderedDict()
        self._open_bytes = 0
        self._prompts: OrderedDict[str, UserPrompt] = OrderedDict()
        self._last: OrderedDict[tuple[str, str], UserPrompt] = OrderedDict()
        self._prompt: UserPrompt | None = None

    def feed(self, line: bytes, source: SourcePosition) -> Iterator[TranscriptResponse | UnreadItem]:
        """Take one line or message, and yield the responses that are complete."""
        head = lines.read_head(line) if _is_utf8(line) else None
        if head is None:
            yield from self._odd(line, source)
        else:
            yield from self._object(line, source, head)

    def finish(self) -> Iterator[TranscriptResponse | UnreadItem]:
        """Yield the responses that are still open."""
        while self._open:
            yield from self._close_oldest()

    def _object(
        self, line: bytes, source: SourcePosition, head: lines.Head
    ) -> Iterator[TranscriptResponse | UnreadItem]:
        messages = lines.conversation(head)
        if messages is not None:
            responses = list(self._inner(messages, source))
            yield from responses
            if responses or not lines.has_trace(line):
                return
            # In a document, the prompt may be beside its answer.
        session = lines.text(head.session) or lines.text(head.session_id)
        yield from self._line(line, source, session, lines.nested_head(head) or head)

    def _line(
        self, line: bytes, source: SourcePosition, session: str, head: lines.Head
    ) -> Iterator[TranscriptResponse | UnreadItem]:
        message = lines.read_message(head)
        is_session = message is not None and (bool(session) or lines.text(head.uuid) != "")
        role = lines.role_of(head, message)
        prompt = self._prompt_for(line, head, message, role, session)
        if role != "assistant":
            self._progress.skipped += 1
            return
        named = lines.text(message.id) if message is not None else lines.text(head.id)
        named = named or lines.text(head.uuid)
        opened = _Open(
            TranscriptResponse(source, b"", None, is_session, session, named, lines.time_of(head), prompt), []
        )
        if is_session and named:
            opened = self._open.setdefault((session, named), opened)
            self._add(opened, line)
            while len(self._open) > open_max or (self._open_bytes > open_size_max_bytes and len(self._open) > 1):
                yield from self._close_oldest()
        else:
            self._add(opened, line)
            yield from self._closed(opened)

    def _add(self, opened: _Open, line: bytes) -> None:
        if line not in opened.lines:
            opened.lines.append(line)
            opened.has_trace = opened.has_trace or lines.has_trace(line)
            self._open_bytes += len(line)

    def _close_oldest(self) -> Iterator[TranscriptResponse | UnreadItem]:
        _, opened = self._open.popitem(last=False)
        yield from self._closed(opened)

    def _closed(self, opened: _Open) -> Iterator[TranscriptResponse | UnreadItem]:
        answered = opened.answered
        original = b"".join(line.removesuffix(b"\n") + b"\n" for line in opened.lines[:-1]) + opened.lines[-1]
        self._open_bytes -= sum(len(line) for line in opened.lines)
        # Leave out lines that only call tools: their arguments may be any JSON, and the original has them.
        calls = lines.only_calls_tools if answered.is_session else lambda _line: False
        spoken = [line for line in opened.lines if opened.has_trace and not calls(line)]
        if not spoken:
            self._progress.skipped += len(opened.lines)
            return
        try:
            read = [lines.decoded(line) for line in spoken]
        except Refused as refusal:
            yield UnreadItem(answered.source, original, len(original), f"{refusal.code}: {refusal.message}")
            return
        response = merged([_innermost(value) for value, _ in read])
        odd = tuple(number for _, numbers in read for number in numbers)
        yield answered._replace(original=original, response=response, lines=len(opened.lines), odd=odd)

    def _prompt_for(
        self, line: bytes, head: lines.Head, message: lines.Message | None, role: str, session: str
    ) -> UserPrompt | None:
        chain = (session, lines.text(head.agent) or str(head.is_sidechain is True))
        own = None
        if role == "user" and head.is_meta is not True and head.is_summary is not True:
            contents = [head.content, head.value, head.parts] if message is None else [message.content, message.parts]
            prompt_text = next((text for content in contents if (text := lines.prompt_text(content))), "")
            own = UserPrompt(prompt_text, line if len(line) <= prompt_size_max_bytes else b"") if prompt_text else None
        prompt = own or self._prompts.get(lines.text(head.parent)) or self._last.get(chain)
        if own is not None:
            _remember(self._last, chain, own)
        if prompt is not None and (uuid := lines.text(head.uuid)):
            _remember(self._prompts, uuid, prompt)
        return prompt

    def _inner(self, messages: list[msgspec.Raw], source: SourcePosition) -> Iterator[TranscriptResponse | UnreadItem]:
        if self._depth >= nesting_max:
            self._progress.skipped += 1
            return
        inner = Conversation(self._progress, self._depth + 1)
        for position, message in enumerate(messages, 1):
            yield from inner.feed(bytes(message), source._replace(position=position))
        yield from inner.finish()

    def _odd(self, line: bytes, source: SourcePosition) -> Iterator[TranscriptResponse | UnreadItem]:
        """Yield the content of a line that is not a JSON object: parts of a list, nothing, or an unread item."""
        try:
            value, odd = lines.decoded(line)
        except Refused as refusal:
            yield UnreadItem(source, line, len(line), f"{refusal.code}: {refusal.message}")
            return
        if isinstance(value, dict):
            head = lines.repaired_head(value)
            if head is None:
                yield UnreadItem(source, line, len(line), "INVALID_FORMAT: no fields can be read from it")
            else:
                yield from self._object(line, source, head)
            return
        objects = [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
        if not objects or not lines.has_trace(line):
            self._progress.skipped += 1
        elif not any(name in part for part in objects for name in _SPOKEN):
            yield TranscriptResponse(source, line, value, odd=odd)
        elif (parts := lines.items(line)) is None:
            yield UnreadItem(source, line, len(line), "INVALID_FORMAT: its parts cannot be separated")
        else:
            yield from self._inner(parts, source)


def merged(values: list[Any]) -> Any:
    """Return one response made of all its lines: the first line, with the blocks of all; equal blocks occur once."""
    messages = [value["message"] if isinstance(value.get("message"), dict) else value for value in values]
    if len(messages) == 1:
        return messages[0]
    blocks: list[Any] = []
    for message in messages:
        content = message.get("content")
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if block not in blocks:
                blocks.append(block)
    return messages[0] | {"content": blocks}


def _innermost(value: Any) -> Any:
    """Return the other agent's line in a ``progress`` line, or the item in a payload; else the line itself."""
    type_ = value.get("type")
    if type_ == lines.CARRIER and isinstance(value.get("payload"), dict):
        return value["payload"]
    data = value.get("data") if type_ == lines.OTHER_AGENT else None
    return data["message"] if isinstance(data, dict) and isinstance(data.get("message"), dict) else value


def _remember(known: OrderedDict[Any, UserPrompt], key: Any, prompt: UserPrompt) -> None:
    known[key] = prompt
    known.move_to_end(key)
    if len(known) > prompts_max:
        known.popitem(last=False)


def _is_utf8(line: bytes) -> bool:
    try:
        return line.isascii() or bool(line.decode())
    except UnicodeDecodeError:
        return False
