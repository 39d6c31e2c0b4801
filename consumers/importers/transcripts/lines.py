"""Reads the lines of transcripts: the few fields that identify a line, and a whole decoded line.

A line of a session may be megabytes of a tool's output, so long fields stay bytes and are decoded on demand. A value of
an unexpected type counts as missing.

Whole lines are decoded under the ledger's strict rules, with one exception: a number that no event can hold (64-bit
ids, ``NaN``) is read as text and reported, because the thinking beside it must not be lost.

To read another vendor's transcripts, add its row to ``VENDORS``, and the field of its conversations to ``Head``.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import UNREADABLE, check_strict, json_decoder
from deedbook.ledger.limits import json_integer_max

T = TypeVar("T")
NONE: Final = msgspec.Raw(b"")
_RESPONSE_TYPES: Final = frozenset({"", "message", "response", "completion", "thinking", "reasoning"})
_PROMPTS: Final = ("text", "input_text", None)
_TRACE: Final = re.compile(rb"thinking|reasoning|think>|\"thoughts?\"", re.IGNORECASE)

prompt_max_chars: Final = 8_000


class Vendor(NamedTuple):
    """The names that a tool gives the speakers, and its field with a whole conversation (empty if it writes lines)."""

    name: str
    user: str
    model: tuple[str, ...]
    conversation: str = ""


# The fields of a conversation are tried in this order.
VENDORS: Final = (
    Vendor("Claude Code, Codex", "user", ("assistant",)),
    Vendor("OpenAI, MiniMax, and sessions of Gemini", "user", ("assistant", "gemini"), "messages"),
    Vendor("ShareGPT", "human", ("gpt",), "conversations"),
    Vendor("ShareGPT's kin", "human", ("ai", "bot"), "conversation"),
    Vendor("Gemini", "user", ("model",), "contents"),
    Vendor("exports of Claude", "human", ("assistant",), "chat_messages"),
    Vendor("other chats", "user", ("bot",), "history"),
)
USER: Final = frozenset(vendor.user for vendor in VENDORS)
MODEL: Final = frozenset(role for vendor in VENDORS for role in vendor.model)
CARRIER: Final = "response_item"
"""The type of Codex's lines that carry an item of the API as their ``payload``."""
OTHER_AGENT: Final = "progress"
"""The type of Claude Code's lines that carry another agent's line as the ``message`` of their ``data``."""


class Message(msgspec.Struct):
    """A message within a line."""

    id: Any = None
    role: Any = None
    content: msgspec.Raw = NONE
    parts: msgspec.Raw = NONE


class Head(msgspec.Struct):
    """The fields of a transcript line, or of one message in a conversation. A missing field is None or ``NONE``."""

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


_head = json_decoder(Head)
_message = json_decoder(Message)
_nested = json_decoder(_Nested)
_list = json_decoder(list[msgspec.Raw])
_blocks = json_decoder(list[_Block])


def _decoded(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T | None:
    try:
        return decoder.decode(raw)
    except UNREADABLE:
        return None


def read_head(line: bytes | msgspec.Raw) -> Head | None:
    """Return the fields of a line; None if it is no JSON object."""
    return _decoded(_head, line)


def repaired_head(value: dict[str, Any]) -> Head | None:
    """Return the fields of a line with half a surrogate pair, which JSON can contain and UTF-8 cannot."""
    return read_head(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def read_message(head: Head) -> Message | None:
    """Return the message that a line wraps; None if it wraps none."""
    return _message.decode(head.message) if _begins(head.message, b"{") else None


def _begins(raw: msgspec.Raw, sign: bytes) -> bool:
    return bytes(memoryview(raw)[:1]) == sign  # copies the first byte, not megabytes


def nested_head(around: Head) -> Head | None:
    """Return the fields of the line inside a ``progress`` line or payload, with the outer time if it has none."""
    line = around.payload if around.type == CARRIER else NONE
    if around.type == OTHER_AGENT and _begins(around.data, b"{"):
        line = _nested.decode(around.data).message
    head = read_head(line) if _begins(line, b"{") else None
    if head is None or time_of(head) is not None:
        return head
    return msgspec.structs.replace(head, timestamp=around.timestamp)


def time_of(head: Head) -> Any:
    """Return the time of a line as written."""
    return next((time for time in (head.timestamp, head.created_at, head.created) if time is not None), None)


def conversation(head: Head) -> list[msgspec.Raw] | None:
    """Return the messages of a line that holds a whole conversation."""
    for field in (getattr(head, vendor.conversation) for vendor in VENDORS if vendor.conversation):
        if _begins(field, b"[") and (messages := items(field)) and any(_begins(part, b"{") for part in messages):
            return messages
    return None


def items(raw: bytes | msgspec.Raw) -> list[msgspec.Raw] | None:
    """Return the items of a JSON array as bytes; None if it is no array."""
    return _decoded(_list, raw)


def text(value: Any) -> str:
    """Return a value if it is a text, else an empty text."""
    return value if isinstance(value, str) else ""


def raw_text(raw: msgspec.Raw) -> str:
    """Return the text of a JSON string; empty for any other JSON."""
    return str(msgspec.json.decode(raw)) if _begins(raw, b'"') else ""


def role_of(head: Head, message: Message | None) -> str:
    """Return the speaker: ``user``, ``assistant`` (also for a bare response, which names no role), or empty."""
    type_ = text(head.type)
    spoken = (message.role if message else None, head.role, head.sender, head.speaker)
    role = next(filter(None, map(text, spoken)), type_)
    if type_ in USER or role in USER:
        return "user"
    return "assistant" if role in MODEL or role in _RESPONSE_TYPES else ""


def has_trace(line: bytes) -> bool:
    """Return whether a line has one of the marks that every line with thinking has."""
    return _TRACE.search(line) is not None


def prompt_text(content: msgspec.Raw) -> str:
    """Return the beginning of a user's text; empty for tool results, which users do not write."""
    if _begins(content, b'"'):
        return raw_text(content).strip()[:prompt_max_chars]
    texts = (raw_text(block.text).strip() for block in _blocks_of(content) if block.type in _PROMPTS)
    return "\n\n".join(part for part in texts if part and not part.startswith("<system-reminder>"))[:prompt_max_chars]


def only_calls_tools(line: bytes) -> bool:
    """Return whether the message of a line has only tool calls and no text."""
    head = read_head(line)
    message = None if head is None else read_message(head)
    blocks = [] if message is None else _blocks_of(message.content)
    return bool(blocks) and all(block.type == "tool_use" for block in blocks)


def _blocks_of(content: msgspec.Raw) -> list[_Block]:
    return _decoded(_blocks, content) or [] if _begins(content, b"[") else []


def decoded(line: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return the value of a line, and the numbers in it that are read as texts."""
    try:
        return check_strict(line), ()
    except Refused as refusal:
        odd: list[str] = []
        is_by_number = refusal.code in ("INTEGER_OUT_OF_RANGE", "INVALID_FORMAT")
        value = _with_texts_for_numbers(line, odd) if is_by_number else None
        if not odd:
            raise
        return value, tuple(odd)


def _with_texts_for_numbers(line: bytes, odd: list[str]) -> Any:
    def as_text(digits: str) -> str:
        odd.append(digits)
        return digits

    def integer(digits: str) -> int | str:
        is_long = len(digits) > len(str(-json_integer_max)) or abs(int(digits)) > json_integer_max
        return as_text(digits) if is_long else int(digits)

    def decimal(digits: str) -> float | str:
        return float(digits) if math.isfinite(float(digits)) else as_text(digits)

    def pairs(fields: list[tuple[str, Any]]) -> dict[str, Any]:
        object_ = dict(fields)
        if len(object_) != len(fields):
            raise ValueError("a key occurs twice in one object")
        return object_

    try:
        return json.loads(
            line.decode(), object_pairs_hook=pairs, parse_int=integer, parse_float=decimal, parse_constant=as_text
        )
    except ValueError:
        odd.clear()  # there is another error, too; the strict rules have reported the first one
        return None
