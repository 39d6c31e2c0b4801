"""The parts of a message that stand in a list: which of them think, which answer, and which are hidden.

Kinds that are known, by the vendors' own names: ``thinking`` and ``redacted_thinking`` (Anthropic), ``reasoning`` with
``text``, ``summary`` or ``content`` (OpenAI's Responses, and tools that speak of parts), parts with ``thought`` and
``text`` (Gemini), ``text`` and ``output_text``, and ``message``, which holds such a list itself. Calls of tools and
other blocks hold neither thinking nor answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from consumers.sdk.thinking.tags import Region
from ledger.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

NoteSort = Literal["redacted", "other_choice", "unclosed_tag", "unopened_tag"]

_ANSWERS: Final = ("text", "output_text", None)  # compared, never hashed: a type may be anything
_PLACES_OF_REASONING: Final = ("text", "reasoning", "summary", "content")
_nesting_max: Final = 3


class Source(msgspec.Struct, frozen=True):
    """One string of a response, its place in it, and which of its regions are thinking and answer.

    ``signature`` is the vendor's own over the block, kept for whoever can check it.
    """

    path: str
    text: str
    thinking: tuple[Region, ...] = ()
    answer: tuple[Region, ...] = ()
    signature: str = ""


class Note(msgspec.Struct, frozen=True):
    """What a reader of the graph should know of the response: what could not be read, or was read by a guess."""

    sort: NoteSort
    path: str


def read_blocks(content: list[Any], path: str, depth: int = 0) -> Iterator[Source | Note]:
    """Yield the thinking and text of a message's blocks.

    Raises:
        Refused: ``INVALID_FIELD`` with the path of what is not what it must be.
    """
    for position, block in enumerate(content):
        place = f"{path}[{position}]"
        if not isinstance(block, dict):
            raise Refused("INVALID_FIELD", f"{place} is not an object", field=place)
        match block.get("type"):
            case "thinking":
                text = text_at(block.get("thinking"), f"{place}.thinking")
                yield thinking_at(f"{place}.thinking", text, text_at(block.get("signature"), f"{place}.signature"))
            case "redacted_thinking":
                yield Note("redacted", place)
            case "reasoning":
                yield from _reasoning(block, place)
            case "message" if isinstance(block.get("content"), list) and depth < _nesting_max:
                yield from read_blocks(block["content"], f"{place}.content", depth + 1)
            case kind if kind in _ANSWERS and block.get("thought") is True:
                yield thinking_at(f"{place}.text", text_at(block.get("text"), f"{place}.text"))
            case kind if kind == "text" or (kind in _ANSWERS and "text" in block):
                yield answer_at(f"{place}.text", text_at(block.get("text"), f"{place}.text"))
            case _:
                continue


def read_texts(value: Any, path: str, names: tuple[str, ...]) -> Iterator[Source]:
    """Yield the thinking in a text, or in a list of texts and of objects that hold one under one of ``names``.

    Raises:
        Refused: ``INVALID_FIELD``.
    """
    if not isinstance(value, list):
        if text := text_at(value, path):
            yield thinking_at(path, text)
        return
    for position, item in enumerate(value):
        place = f"{path}[{position}]"
        name = next((name for name in names if isinstance(item, dict) and name in item), None)
        if name:
            yield thinking_at(f"{place}.{name}", text_at(item[name], f"{place}.{name}"))
        elif not isinstance(item, dict):
            yield thinking_at(place, text_at(item, place))


def text_at(value: Any, path: str) -> str:
    """Return a text, or an empty one for what is not there.

    Raises:
        Refused: ``INVALID_FIELD``.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refused("INVALID_FIELD", f"{path} is not a text", field=path)
    return value


def thinking_at(path: str, text: str, signature: str = "") -> Source:
    """Return a text that is thinking."""
    return Source(path, text, thinking=((0, len(text)),), signature=signature)


def answer_at(path: str, text: str) -> Source:
    """Return a text that is an answer."""
    return Source(path, text, answer=((0, len(text)),))


def _reasoning(block: dict[str, Any], place: str) -> Iterator[Source | Note]:
    found = [
        source
        for name in _PLACES_OF_REASONING
        for source in read_texts(block.get(name), f"{place}.{name}", ("text", "reasoning"))
        if source.text
    ]
    yield from found
    if not found and any(block.get(name) for name in ("encrypted_content", "data")):
        yield Note("redacted", place)
