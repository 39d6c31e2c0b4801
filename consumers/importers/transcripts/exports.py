"""Reads sessions that a program exported as Markdown, message by message.

- SpecStory (specstoryai/getspecstory, ``.specstory/history/*.md``): ``_**User**_`` and ``_**Agent (MODEL TIME)**_``
  begin a message; thinking is ``<think><details>…</details></think>``.
- cctrace (jimmc414/cctrace, ``conversation_full.md``): ``### 👤 User`` and ``### 🤖 Assistant (MODEL)`` begin a
  message; thinking is a code block under the summary "Internal Reasoning".

An export shows calls and results of tools as they are, and they may contain anything, for example thinking tags. So of
a message only the part before its first call or result is read.

A response is one block of thinking with the agent's text after it, up to the next block, call, result or request. As in
a session, its reasoning stays open if no text follows.

The importer cannot tell an export of another program from a text with thinking tags. If the tags of such a text are not
balanced, it is an unread item: after a tag in a tool's result, everything would be taken for thinking.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from deedbook.consumers.importers.transcripts.conversation import (
    SourcePosition,
    TranscriptResponse,
    UserPrompt,
    prompt_size_max_bytes,
)
from deedbook.consumers.importers.transcripts.lines import prompt_max_chars
from deedbook.consumers.sdk.thinking.response import Region, read_tags

# Each part has a limit: without one, a long line that nearly matches would take quadratic time.
_ABOUT: Final = r"(?: \((?P<model>(?!\d{4}-)[^)\s]{1,100})? ?(?P<at>\d{4}-[^)\n]{0,60})?\))?"
_SESSION: Final = re.compile(r"\bSession(?: ID:\*\*)? `?(?P<id>[0-9a-f]{8}-[0-9a-f-]{27})\b")
_SPEAKER: Final = re.compile(
    r"^(?:#{1,6} |_?\*\*)\W{0,8}(?P<role>User|Human|Assistant|Agent|Claude|AI)\b", re.MULTILINE
)
_FRAME: Final = re.compile(r"---|\*\*\[[\d :TZ.+-]+\]\*\*")
"""The lines between two messages: a rule, and with cctrace the time of the next message."""
_frame_max_lines: Final = 2
_head_chars: Final = 2_000

_Kind: TypeAlias = Literal["text", "thinking", "call"]


class Export(NamedTuple):
    """The form of an export: the headings of its messages, and the marks around thinking and before calls of tools."""

    form: str
    heading: re.Pattern[str]
    opened: re.Pattern[str]
    closed: re.Pattern[str]
    call: re.Pattern[str]


EXPORTS: Final = (
    Export(
        "specstory-markdown",
        re.compile(rf"^_\*\*(?P<role>User|Agent - sidechain|Agent){_ABOUT}\*\*_[ \t]*\r?$", re.MULTILINE),
        re.compile(r"^<think>(?:<details>(?:<summary>[^<\n]*</summary>)?)?", re.MULTILINE),
        re.compile(r"(?:</details>)?</think>"),
        re.compile(r"^(?:Tool use: \*\*|<tool-use\b|\*\*Agent task list:\*\*)", re.MULTILINE),
    ),
    Export(
        "cctrace-markdown",
        re.compile(rf"^### (?:👤|🤖) (?P<role>User|Assistant){_ABOUT}[ \t]*\r?$", re.MULTILINE),
        re.compile(
            r"^<details>\s*<summary>[^<\n]{0,80}Internal Reasoning[^<\n]{0,80}</summary>\s*```[ \t]*\r?\n", re.MULTILINE
        ),
        re.compile(r"^```\s*</details>", re.MULTILINE),
        re.compile(r"^(?:🔧 \*\*Tool Use|📊 \*\*Tool Result)", re.MULTILINE),
    ),
)


class _Message(NamedTuple):
    """A message of an export: its speaker, its model and time as written, its position, its line, and its content."""

    role: str
    model: str
    at: str | None
    start: int
    line: int
    content: Region


class _Open(msgspec.Struct):
    """A response whose text is still being collected."""

    message: _Message
    thinking: str
    end: int
    said: list[str]


def export_of(text: str) -> Export | None:
    """Return the form of an export by the first heading of an agent's message; None if a text is no known export."""
    headings = {export: next(filter(_is_agent, export.heading.finditer(text)), None) for export in EXPORTS}
    starts = {export: heading.start() for export, heading in headings.items() if heading is not None}
    return min(starts, key=starts.__getitem__, default=None)


def is_unreadable_export(text: str) -> bool:
    """Return whether the thinking of a text cannot be told from the rest.

    Such a text has messages of several speakers, and thinking tags that are not balanced.
    """
    tags = read_tags(text)
    if not tags.is_unclosed and not tags.is_unopened:
        return False
    return len({match["role"] for match in _SPEAKER.finditer(text)}) > 1


def responses_in(export: Export, text: str, source: SourcePosition) -> Iterator[TranscriptResponse]:
    """Yield the responses of an export that contain thinking, each with the request of the user above it."""
    session = _SESSION.search(text, 0, _head_chars)
    prompt: UserPrompt | None = None
    for message, opened in _opened(export, text):
        if opened is None:
            prompt = _request(export, text, message) or prompt
            continue
        content: list[dict[str, Any]] = [{"type": "thinking", "thinking": opened.thinking}]
        content += [{"type": "text", "text": "\n\n".join(opened.said)}] if opened.said else []
        yield TranscriptResponse(
            source._replace(line=opened.message.line),
            text[opened.message.start : opened.end].encode(),
            {"model": opened.message.model, "content": content},
            is_session=True,
            session=session["id"] if session else "",
            at=opened.message.at,
            prompt=prompt,
            form=export.form,
        )


def _opened(export: Export, text: str) -> Iterator[tuple[_Message, _Open | None]]:
    """Yield the responses of an export when they are complete, and the messages of the user (with None)."""
    opened: _Open | None = None
    for message in _messages(export, text):
        is_agent = message.role in {"Agent", "Assistant"}
        for kind, region in _parts(export, text, message.content) if is_agent else [("call", message.content)]:
            part = _unframed(text[slice(*region)])
            if kind == "text":
                if opened is not None and part:
                    opened.said.append(part)
                    opened.end = region[1]
                continue
            if opened is not None:
                yield opened.message, opened
            opened = _Open(message, text[slice(*region)], region[1], []) if kind == "thinking" else None
        if message.role == "User":
            yield message, None
    if opened is not None:
        yield opened.message, opened


def _messages(export: Export, text: str) -> Iterator[_Message]:
    headings = list(export.heading.finditer(text))
    line, counted = 1, 0
    for heading, end in zip(headings, [*(after.start() for after in headings[1:]), len(text)], strict=True):
        line, counted = line + text.count("\n", counted, heading.start()), heading.start()
        content = (heading.end(), end)
        yield _Message(heading["role"], heading["model"] or "", heading["at"], heading.start(), line, content)


def _parts(export: Export, text: str, content: Region) -> Iterator[tuple[_Kind, Region]]:
    """Yield the parts of an agent's message in order, up to its first call of a tool."""
    position, end = content
    while True:
        opened = export.opened.search(text, position, end)
        called = export.call.search(text, position, opened.start() if opened else end)
        following = called or opened
        yield "text", (position, following.start() if following else end)
        if called is not None:
            yield "call", called.span()
        if called is not None or opened is None:
            return
        closed = export.closed.search(text, opened.end(), end)
        yield "thinking", (opened.end(), closed.start() if closed else end)
        position = closed.end() if closed else end


def _request(export: Export, text: str, message: _Message) -> UserPrompt | None:
    """Return what a user wrote; None for the results of tools, which some exports show as the user's."""
    start, end = message.content
    called = export.call.search(text, start, end)
    written = _unframed(text[start : called.start() if called else end])
    original = written.encode()
    if not written:
        return None
    return UserPrompt(written[:prompt_max_chars], original if len(original) <= prompt_size_max_bytes else b"")


def _unframed(text: str) -> str:
    """Return a part of a message, trimmed, without the lines that separate it from the next message."""
    text = text.strip()
    for _ in range(_frame_max_lines):
        before, _, last = text.rpartition("\n")
        if _FRAME.fullmatch(last.strip()):
            text = before.rstrip()
    return text


def _is_agent(heading: re.Match[str]) -> bool:
    return heading["role"] in {"Agent", "Assistant"}
