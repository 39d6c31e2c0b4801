"""The few fields by which a line of a transcript is told from others, read without decoding the rest of the line.

A line of a session may be megabytes of a tool's output. What may be long is kept as the bytes it is, and decoded when
it is asked for. A value of another type than expected is no error: it counts as absent.

The fields are those of Claude Code's sessions (``type``, ``uuid``, ``parentUuid``, ``sessionId``, ``message``, …), of
API messages (``role``, ``content`` or ``parts``, ``id``), of conversations (``messages`` and what others call them;
``from`` and ``value``; ``sender``), and of lines that carry an API item as their ``payload`` (Codex).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

NONE: Final = msgspec.Raw(b"")
USER: Final = frozenset({"user", "human"})
MODEL: Final = frozenset({"assistant", "model", "gpt", "ai", "bot", "gemini"})
_RESPONSE_TYPES: Final = frozenset({"", "message", "response", "completion", "thinking", "reasoning"})
_CARRIERS: Final = ("response_item",)  # compared, never hashed: a type may be anything
_PROMPTS: Final = ("text", "input_text", None)
_TRACE: Final = re.compile(rb"thinking|reasoning|think>|\"thoughts?\"", re.IGNORECASE)

prompt_max_chars: Final = 8_000


class Message(msgspec.Struct):
    """A message within a line."""

    id: Any = None
    role: Any = None
    content: msgspec.Raw = NONE
    parts: msgspec.Raw = NONE


class Head(msgspec.Struct):
    """A line, or a message of a conversation."""

    type: Any = None
    role: Any = None
    sender: Any = msgspec.field(name="from", default=None)
    speaker: Any = msgspec.field(name="sender", default=None)
    id: Any = None
    uuid: Any = None
    parent: Any = msgspec.field(name="parentUuid", default=None)
    session: Any = msgspec.field(name="sessionId", default=None)
    session_id: Any = None
    agent: Any = msgspec.field(name="agentId", default=None)
    is_sidechain: Any = msgspec.field(name="isSidechain", default=None)
    is_meta: Any = msgspec.field(name="isMeta", default=None)
    is_summary: Any = msgspec.field(name="isCompactSummary", default=None)
    timestamp: Any = None
    created: Any = None
    created_at: Any = None
    message: msgspec.Raw = NONE
    content: msgspec.Raw = NONE
    parts: msgspec.Raw = NONE
    value: msgspec.Raw = NONE
    data: msgspec.Raw = NONE
    payload: msgspec.Raw = NONE
    messages: msgspec.Raw = NONE
    conversations: msgspec.Raw = NONE
    conversation: msgspec.Raw = NONE
    contents: msgspec.Raw = NONE
    history: msgspec.Raw = NONE
    chat_messages: msgspec.Raw = NONE


class _Block(msgspec.Struct):
    type: Any = None
    text: msgspec.Raw = NONE


class _Nested(msgspec.Struct):
    message: msgspec.Raw = NONE


_head = msgspec.json.Decoder(Head)
_message = msgspec.json.Decoder(Message)
_nested = msgspec.json.Decoder(_Nested)
_list = msgspec.json.Decoder(list[msgspec.Raw])
_blocks = msgspec.json.Decoder(list[_Block])


def read_head(line: bytes | msgspec.Raw) -> Head | None:
    """Return the fields of a line; None where it is no JSON object."""
    try:
        return _head.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def repaired_head(value: dict[str, Any]) -> Head | None:
    """Return the fields of a line that spells half a surrogate pair, which JSON can and UTF-8 cannot."""
    return read_head(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def read_message(head: Head) -> Message | None:
    """Return the message that a line wraps; None where it wraps none."""
    return _message.decode(head.message) if _begins(head.message, b"{") else None


def _begins(raw: msgspec.Raw, sign: bytes) -> bool:
    return bytes(memoryview(raw)[:1]) == sign  # a copy of the first byte, not of megabytes


def nested_line(head: Head) -> msgspec.Raw | None:
    """Return the line of another agent that a ``progress`` line carries in its ``data``, or the item of a payload."""
    if head.type in _CARRIERS:
        return head.payload if _begins(head.payload, b"{") else None
    if head.type != "progress" or not _begins(head.data, b"{"):
        return None
    found = _nested.decode(head.data)
    return found.message if _begins(found.message, b"{") else None


def nested_head(line: msgspec.Raw, around: Head) -> Head | None:
    """Return the fields of a nested line, at the time of the one around it where it tells none itself."""
    head = read_head(line)
    if head is None or any(one is not None for one in (head.timestamp, head.created_at, head.created)):
        return head
    return msgspec.structs.replace(head, timestamp=around.timestamp)


def conversation(head: Head) -> list[msgspec.Raw] | None:
    """Return the messages of a line that holds a whole conversation."""
    fields = (head.messages, head.conversations, head.conversation, head.contents, head.chat_messages, head.history)
    for field in fields:
        if _begins(field, b"[") and (found := items(field)) and any(_begins(one, b"{") for one in found):
            return found
    return None


def items(raw: bytes | msgspec.Raw) -> list[msgspec.Raw] | None:
    """Return the parts of a JSON array, each as the bytes it is; None where it is none."""
    try:
        return _list.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def text(value: Any) -> str:
    """Return a value that is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def raw_text(raw: msgspec.Raw) -> str:
    """Return the text that a piece of JSON is; empty where it is none."""
    found: str = msgspec.json.decode(raw) if _begins(raw, b'"') else ""
    return found


def role_of(head: Head, message: Message | None) -> str:
    """Return who speaks: ``user``, ``assistant``, or empty for lines that are neither.

    A line that names neither a role nor a type of its own may be a response by itself.
    """
    kind = text(head.type)
    said = (text(message.role) if message else "") or text(head.role) or text(head.sender) or text(head.speaker) or kind
    if kind in USER or said in USER:
        return "user"
    return "assistant" if said in MODEL or said in _RESPONSE_TYPES else ""


def has_trace(line: bytes) -> bool:
    """Tell whether the words stand in a line without which it cannot hold thinking."""
    return _TRACE.search(line) is not None


def prompt_text(content: msgspec.Raw) -> str:
    """Return the beginning of what a user said; empty for the results of tools, which users do not say."""
    if _begins(content, b'"'):
        return raw_text(content).strip()[:prompt_max_chars]
    texts = (raw_text(block.text).strip() for block in _blocks_of(content) if block.type in _PROMPTS)
    return "\n\n".join(one for one in texts if one and not one.startswith("<system-reminder>"))[:prompt_max_chars]


def only_calls_tools(line: bytes) -> bool:
    """Tell whether the message of a line holds calls of tools and nothing that is said."""
    head = read_head(line)
    message = None if head is None else read_message(head)
    blocks = [] if message is None else _blocks_of(message.content)
    return bool(blocks) and all(block.type == "tool_use" for block in blocks)


def _blocks_of(content: msgspec.Raw) -> list[_Block]:
    try:
        return _blocks.decode(content) if _begins(content, b"[") else []
    except msgspec.DecodeError:
        return []
