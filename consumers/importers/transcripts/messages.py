"""Reads the messages of a session: the texts that a user and an agent wrote, and the agent's tool calls as text.

Formats, read from public sources and from files that the programs wrote (November 2026):

- Claude Code 2.1.197: one JSON object a line. ``type`` is ``user`` or ``assistant``; ``message.content`` is a text or
  blocks (``text``, ``thinking``, ``tool_use``, ``tool_result``, ``image``). A response takes several lines with one
  ``message.id``. ``parentUuid`` links the lines; of two prompts with one parent, the
  later one counts: the user edited the prompt.
- Codex CLI 0.171.0 (openai/codex, codex-rs/protocol and rollout): lines ``{timestamp, type, payload}``. A payload of
  type ``response_item`` is an item of the Responses API (``message``, ``function_call``, ``function_call_output``, …).
  The event ``thread_rolled_back`` removes the last ``num_turns`` turns.
- Gemini CLI 0.61.0 (google-gemini/gemini-cli, packages/core/src/services/chatRecordingService.ts): a line of metadata,
  then one message a line; a later line with the same ``id`` replaces it, ``$rewindTo`` removes it and all after it, and
  ``$set.messages`` replaces all. Older versions wrote one JSON document.

Every text is untrusted: broken, nested or huge lines are counted, and never stop the reading. Secrets are redacted
before a text is cut, because the scanner cannot recognize half a secret.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple, TypeAlias

import msgspec

from deedbook.consumers.importers.transcripts import lines
from deedbook.consumers.importers.transcripts.files import document_size_max_bytes, lines_of
from deedbook.consumers.importers.transcripts.mapping import time_of
from deedbook.consumers.sdk.text import cut, sanitize_line
from deedbook.ledger.errors import Refused
from deedbook.ledger.secrets.redaction import redact
from deedbook.ledger.system.files import as_unavailable, open_regular

HarnessName: TypeAlias = Literal["claude-code", "codex", "gemini"]
Role: TypeAlias = Literal["user", "assistant"]

messages_max: Final = 20_000
chars_max: Final = 16 * 1024**2
"""The limits for messages of a session in memory, and for their characters. Older messages are only counted."""
message_max_chars: Final = 40_000
call_max_chars: Final = 2_000
result_max_chars: Final = 3_000
_margin_chars: Final = 4_096
links_max: Final = 500_000
_name_max_chars: Final = 80

THINKING: Final = "thinking block"
IMAGE: Final = "image"
FILE: Final = "attached file"
SUB_AGENT: Final = "sub-agent message"
HARNESS_TEXT: Final = "harness text"
UNREADABLE: Final = "unreadable line"
UNKNOWN: Final = "unknown block"
WITHDRAWN: Final = "withdrawn message"
OLDER: Final = "older message"
SHORTENED: Final = "shortened text"

_TEXTS: Final = frozenset({"text", "input_text", "output_text"})
_FILES: Final = frozenset({"document", "input_file", "file", "fileData"})
_IMAGES: Final = frozenset({"image", "input_image", "inlineData"})
_THINKING: Final = frozenset({"thinking", "redacted_thinking", "reasoning"})
# The tags and first words of the texts that a harness writes in the user's name.
_HARNESS_TEXTS: Final = (
    *("<system-reminder>", "<command-name>", "<command-message>", "<local-command-", "<bash-", "<task-notification>"),
    *("Caveat: The messages below were generated", "[Request interrupted by user", "<user-prompt-submit-hook>"),
    *("<environment_context>", "<user_instructions>", "<permissions instructions>", "<turn_aborted>", "<skill"),
    *("# AGENTS.md instructions", "<INSTRUCTIONS>", "<subagent_notification>", "<session_context>", "<hook_context>"),
)


class SessionMessage(msgspec.Struct):
    """A message of a user or an agent; ``at`` is its time in UTC, or empty."""

    role: Role
    text: str
    at: str = ""


class SessionTranscript(NamedTuple):
    """A session: its id, its folder (as written, or empty), its messages, and counts of omitted parts by name.

    ``calls`` counts the tool calls by tool; the messages contain them as text. ``secrets`` counts the redacted secrets
    by kind.
    """

    harness: HarnessName
    id: str
    folder: str
    messages: list[SessionMessage]
    left_out: dict[str, int]
    calls: dict[str, int]
    secrets: dict[str, int]


class _Origin(NamedTuple):
    """The time of a message, its id, and the id of the line that it follows; each may be empty."""

    at: str
    key: str = ""
    parent: str = ""


class _Entry(msgspec.Struct):
    """A message that is being read."""

    role: Role
    origin: _Origin
    parts: list[str]

    @property
    def chars(self) -> int:
        """The characters of the message."""
        return sum(map(len, self.parts))


class _Reading:
    """The messages of one session so far."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.left_out: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.secrets: Counter[str] = Counter()
        self.id = ""
        self.folder = ""
        self._open: dict[str, tuple[_Entry, int]] = {}
        self._chars = 0

    def add(self, entry: _Entry) -> None:
        """Add a message. The first request always stays."""
        self.entries.append(entry)
        self._chars += entry.chars
        while len(self.entries) > messages_max or (self._chars > chars_max and len(self.entries) > 2):
            self._chars -= self.entries.pop(1).chars
            self.left_out[OLDER] += 1

    def say(self, role: Role, text: str, origin: _Origin) -> None:
        """Add a text to the last message if both are part of the same response, else as a message of its own."""
        if not text.strip():
            return
        last = self.entries[-1] if self.entries else None
        if last is not None and role == "assistant" == last.role and origin.key and origin.key == last.origin.key:
            last.parts.append(self._within(text, message_max_chars))
        else:
            self.add(_Entry(role, origin, [self._within(text, message_max_chars)]))

    def call(self, name: Any, arguments: Any, id_: str, origin: _Origin) -> None:
        """Add a tool call to the agent's last message."""
        tool = cut(sanitize_line(lines.text(name)), _name_max_chars) or "unnamed"
        self.calls[tool] += 1
        last = self.entries[-1] if self.entries else None
        if last is None or last.role != "assistant" or last.chars > message_max_chars:
            self.add(_Entry("assistant", origin, []))
        entry = self.entries[-1]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        entry.parts.append(f"[tool {tool}] {self._within(text, call_max_chars)}".rstrip())
        self._chars += len(entry.parts[-1])
        if id_:
            self._open[id_] = entry, len(entry.parts) - 1

    def result(self, id_: str, content: Any, *, is_error: bool = False) -> None:
        """Add the result of a tool call after the call."""
        text = "\n".join(self.texts(content)).strip()
        if id_ in self._open:
            entry, position = self._open.pop(id_)
            mark = "error" if is_error else "result"
            result = f"\n\n[{mark}] {self._within(text, result_max_chars)}".rstrip()
            entry.parts[position] += result
            self._chars += len(result)

    def texts(self, content: Any) -> Iterator[str]:
        """Yield the texts of a content: a text, a block, or a list of them; count its other blocks."""
        for block in content if isinstance(content, list) else [content]:
            if isinstance(block, str):
                yield block
            elif isinstance(block, dict):
                yield from self._block(block)

    def _block(self, block: dict[str, Any]) -> Iterator[str]:
        type_ = lines.text(block.get("type"))
        if type_ in _THINKING or block.get("thought") is True:
            self.left_out[THINKING] += 1
        elif type_ in _TEXTS or (not type_ and isinstance(block.get("text"), str)):
            yield lines.text(block.get("text"))
        elif type_ in _IMAGES or "inlineData" in block:
            self.left_out[IMAGE] += 1
        elif type_ in _FILES or "fileData" in block:
            self.left_out[FILE] += 1
        elif "functionCall" not in block and "functionResponse" not in block:  # Gemini repeats these in toolCalls
            self.left_out[UNKNOWN] += 1

    def prompt(self, content: Any, origin: _Origin) -> None:
        """Add what a user wrote, without the texts of the harness."""
        texts = [text for text in self.texts(content) if text.strip()]
        own = [text for text in texts if not text.lstrip().startswith(_HARNESS_TEXTS)]
        self.left_out[HARNESS_TEXT] += len(texts) - len(own)
        self.say("user", "\n\n".join(own), origin)

    def drop_from(self, position: int) -> None:
        """Remove the messages from a position on, which the user took back."""
        self.left_out[WITHDRAWN] += len(self.entries[position:])
        del self.entries[position:]

    def transcript(self, harness: HarnessName) -> SessionTranscript:
        """Return the transcript that was read."""
        messages = [SessionMessage(entry.role, "\n\n".join(entry.parts), entry.origin.at) for entry in self.entries]
        left_out = {name: count for name, count in self.left_out.items() if count}
        return SessionTranscript(
            harness, self.id, self.folder, messages, left_out, dict(self.calls), dict(self.secrets)
        )

    def _within(self, text: str, most: int) -> str:
        """Return a text without secrets, cut if it is too long; a cut never leaves a part of a secret."""
        part = text[: most + _margin_chars].encode("utf-8", "replace").decode()  # half a surrogate pair is not UTF-8
        redacted = redact(part)
        self.secrets.update(redacted.kinds)
        is_whole = len(part) == len(text)
        if is_whole and len(redacted.text) <= most:
            return redacted.text.strip()
        self.left_out[SHORTENED] += 1
        # A secret that continues after this part is not recognized, so the last characters of the part are dropped.
        end = most if is_whole else min(most, len(redacted.text) - _margin_chars)
        return f"{redacted.text[: max(end, 0)].strip()}… ({len(text)} characters)"


class _ClaudeCode(_Reading):
    def __init__(self) -> None:
        super().__init__()
        self._parents: dict[str, str] = {}

    def feed(self, line: dict[str, Any]) -> None:
        """Take one line."""
        uuid, parent = lines.text(line.get("uuid")), lines.text(line.get("parentUuid"))
        if uuid and len(self._parents) < links_max:
            self._parents[uuid] = parent
        self.id = self.id or lines.text(line.get("sessionId"))
        self.folder = self.folder or lines.text(line.get("cwd"))
        role, message = line.get("type"), line.get("message")
        if role not in ("user", "assistant") or not isinstance(message, dict):
            return
        if line.get("isSidechain") is True:
            self.left_out[SUB_AGENT] += 1
        elif (
            line.get("isMeta") is True
            or line.get("isApiErrorMessage") is True
            or (line.get("isCompactSummary") is True and self.entries)
        ):
            self.left_out[HARNESS_TEXT] += 1
        elif role == "assistant":
            self._answer(message, _Origin(_at(line), lines.text(message.get("id")) or uuid, parent))
        else:
            self._request(message.get("content"), _Origin(_at(line), uuid, parent))

    def _answer(self, message: dict[str, Any], origin: _Origin) -> None:
        content = message.get("content")
        for block in content if isinstance(content, list) else [content]:
            if isinstance(block, dict) and lines.text(block.get("type")).endswith("tool_use"):
                self.call(block.get("name"), block.get("input"), lines.text(block.get("id")), origin)
            elif isinstance(block, dict) and lines.text(block.get("type")).endswith("tool_result"):
                self.result(lines.text(block.get("tool_use_id")), block.get("content"))
            else:
                self.say("assistant", "\n".join(self.texts(block)), origin)

    def _request(self, content: Any, origin: _Origin) -> None:
        blocks = content if isinstance(content, list) else [content]
        results = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
        for block in results:
            error = block.get("is_error") is True
            self.result(lines.text(block.get("tool_use_id")), block.get("content"), is_error=error)
        self.prompt([block for block in blocks if block not in results], origin)

    def finish(self) -> None:
        """Remove the branches that an edited prompt replaced."""
        prompts = [entry.origin for entry in self.entries if entry.role == "user" and entry.origin.parent]
        latest = {prompt.parent: prompt.key for prompt in prompts}
        withdrawn = {prompt.key for prompt in prompts} - set(latest.values())
        if not withdrawn:
            return
        for line, parent in self._parents.items():  # each line comes after its parent
            if parent in withdrawn:
                withdrawn.add(line)
        kept = [entry for entry in self.entries if withdrawn.isdisjoint((entry.origin.key, entry.origin.parent))]
        self.left_out[WITHDRAWN] += len(self.entries) - len(kept)
        self.entries = kept


class _Codex(_Reading):
    def feed(self, line: dict[str, Any]) -> None:
        """Take one line."""
        payload = line.get("payload", line)  # the first versions wrote the items without an outer line
        if not isinstance(payload, dict):
            return
        type_ = line.get("type")
        if type_ == "session_meta" and not self.id:
            self.id, self.folder = lines.text(payload.get("id")), lines.text(payload.get("cwd"))
        elif type_ == "event_msg" and payload.get("type") == "thread_rolled_back":
            self._roll_back(payload.get("num_turns"))
        elif type_ == lines.CARRIER or payload is line:
            self._item(payload, _Origin(_at(line)))

    def _item(self, item: dict[str, Any], origin: _Origin) -> None:
        type_, id_ = lines.text(item.get("type")), lines.text(item.get("call_id"))
        if type_ == "message" or (not type_ and "role" in item):
            if item.get("role") == "user":
                self.prompt(item.get("content"), origin)
            elif item.get("role") == "assistant":
                self.say("assistant", "\n".join(self.texts(item.get("content"))), origin)
            else:
                self.left_out[HARNESS_TEXT] += 1
        elif type_ == "reasoning":
            self.left_out[THINKING] += 1
        elif type_.endswith("_call_output"):
            self.result(id_, _output_of(item.get("output")))
        elif type_.endswith("_call"):
            arguments = next((item[name] for name in ("arguments", "input", "action") if name in item), "")
            self.call(item.get("name") or type_.removesuffix("_call"), arguments, id_, origin)

    def _roll_back(self, turns: Any) -> None:
        prompts = [position for position, entry in enumerate(self.entries) if entry.role == "user"]
        if isinstance(turns, int) and turns > 0 and prompts:
            self.drop_from(prompts[-min(turns, len(prompts))])

    def finish(self) -> None:
        """Nothing is left to do."""


class _Gemini(_Reading):
    def __init__(self) -> None:
        super().__init__()
        self._messages: dict[str, dict[str, Any]] = {}

    def feed(self, line: dict[str, Any]) -> None:
        """Take one line, or the document of an older version."""
        update = line.get("$set")
        fields = update if isinstance(update, dict) else line
        if isinstance(line.get("$rewindTo"), str):
            self._rewind(line["$rewindTo"])
        elif isinstance(line.get("id"), str):
            self._messages[line["id"]] = line
        else:
            self.id = lines.text(fields.get("sessionId")) or self.id
            if isinstance(messages := fields.get("messages"), list):
                numbered = enumerate(message for message in messages if isinstance(message, dict))
                self._messages = {lines.text(message.get("id")) or f"#{at}": message for at, message in numbered}

    def _rewind(self, to: str) -> None:
        ids = list(self._messages)
        for id_ in ids[ids.index(to) if to in self._messages else 0 :]:
            del self._messages[id_]
            self.left_out[WITHDRAWN] += 1

    def finish(self) -> None:
        """Read the messages that count."""
        for id_, message in self._messages.items():
            kind = message.get("type")
            if kind == "user":
                self.prompt(message.get("content"), _Origin(_at(message), id_))
            elif isinstance(kind, str) and kind in lines.MODEL:
                self._answer(id_, message)
            else:
                self.left_out[HARNESS_TEXT] += 1

    def _answer(self, id_: str, message: dict[str, Any]) -> None:
        origin = _Origin(_at(message), id_)
        thoughts = message.get("thoughts")
        self.left_out[THINKING] += len(thoughts) if isinstance(thoughts, list) else 0
        self.say("assistant", "\n".join(self.texts(message.get("content"))), origin)
        calls = message.get("toolCalls")
        for call in calls if isinstance(calls, list) else []:
            if isinstance(call, dict):
                called = f"{id_}/{lines.text(call.get('id'))}"
                self.call(call.get("name"), call.get("args"), called, origin)
                self.result(called, _output_of(call.get("result")), is_error=call.get("status") == "error")


_READINGS: Final[Mapping[HarnessName, type[_ClaudeCode | _Codex | _Gemini]]] = {
    "claude-code": _ClaudeCode,
    "codex": _Codex,
    "gemini": _Gemini,
}


def read_messages(
    file: Path, harness: HarnessName, step: Callable[[int, int], None] = lambda _done, _total: None
) -> SessionTranscript:
    """Return the messages of a session file of a harness; ``step`` gets the bytes read, and all bytes.

    Raises Refused: ``INVALID_FORMAT`` if it is not a regular file, or if none of its lines belongs to a session.
    ``TOO_LARGE`` for a document, and for a session of Gemini, in which any line may replace an earlier one.
    Unavailable: ``STORE_UNAVAILABLE`` if it cannot be read.
    """
    reading = _READINGS[harness]()
    with as_unavailable(file, "cannot be read"), ExitStack() as stack:
        descriptor = stack.enter_context(open_regular(file))
        opened = stack.enter_context(os.fdopen(descriptor, "rb", closefd=False))
        size, done = os.fstat(descriptor).st_size, 0
        is_document = file.suffix == ".json"
        if (is_document or harness == "gemini") and size > document_size_max_bytes:
            message = f"{file} has {size} bytes; a session of {harness} may have {document_size_max_bytes}"
            raise Refused("TOO_LARGE", message, path=str(file), limit=document_size_max_bytes)
        for content in iter([opened.read()]) if is_document else _lines(opened, reading):
            done += len(content)
            step(done, size)
            line = _object(content)
            if line is None:
                reading.left_out[UNREADABLE] += 1
            else:
                reading.feed(line)
    reading.finish()
    transcript = reading.transcript(harness)
    if not transcript.messages:
        message = f"{file} has no messages of {harness}: name a session file of {harness}, or its id"
        raise Refused("INVALID_FORMAT", message, path=str(file))
    return transcript


def _lines(opened: BinaryIO, reading: _Reading) -> Iterator[bytes]:
    for line in lines_of(opened):
        if line.is_too_long:
            reading.left_out[UNREADABLE] += 1
        elif line.content.strip():
            yield line.content


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        value, _ = lines.decoded(content)
    except Refused:
        return None
    return value if isinstance(value, dict) else None


def _at(line: Mapping[str, Any]) -> str:
    return time_of(line.get("timestamp")) or ""


def _output_of(output: Any) -> Any:
    """Return the text of a tool's output: Codex and Gemini wrap it in objects, or in a text with such an object."""
    if isinstance(output, str) and output.startswith('{"output"'):
        wrapped = _object(output.encode("utf-8", "replace"))
        return output if wrapped is None else _output_of(wrapped)
    if isinstance(output, list):
        return [_output_of(part) for part in output]
    if isinstance(output, dict):
        response = output.get("functionResponse")
        if isinstance(response, dict):
            return _output_of(response.get("response"))
        return next((_output_of(output[name]) for name in ("output", "content", "error") if name in output), output)
    return output
