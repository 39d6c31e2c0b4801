"""What a model's response holds of thinking and answer, whatever vendor's form it has.

Forms that are recognised, by their shape and not by their vendor's name:

- ``minimax``: ``{"thinking": "…"}`` (seed 001), the answer beside it as ``content``, ``answer``, ``response`` or
  ``text``;
- ``anthropic``: ``{"content": [{"type": "thinking", "thinking", "signature"?}, {"type": "redacted_thinking"}, …]}``, or
  the list alone;
- ``openai``: ``{"choices": [{"message": {"reasoning_content" or "reasoning" or "reasoning_details", "content"}}]}``
  (DeepSeek and compatible), or one such message alone;
- ``text``: plain text, or an answer of the forms above, with ``<think>…</think>`` in it.

Rules this module keeps: strings are taken as they are (no trimming, no normalising: other modules give spans in them);
what cannot be read is refused with its place; what is there but not readable (redacted blocks, other choices) is noted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from consumers.thinking.tags import Region, has_tags, read_tags
from ledger.codec import check_strict, encode_utf8
from ledger.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

Format = Literal["minimax", "anthropic", "openai", "text"]
NoteSort = Literal["redacted", "other_choice", "unclosed_tag", "unopened_tag"]

response_size_max_bytes: Final = 16 * 1024**2
thinking_size_max_bytes: Final = 1024**2

_REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
_ANSWER_FIELDS: Final = ("content", "answer", "response", "text")


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


class Response(msgspec.Struct, frozen=True):
    """A response as far as reasoning is concerned; ``model`` and ``task`` are empty when it does not name them."""

    format: Format
    sources: list[Source]
    notes: list[Note]
    model: str = ""
    task: str = ""


def read_response(given: Any) -> Response:
    """Return the thinking and answer of a response: bytes or text (JSON or plain), or decoded JSON.

    Raises:
        Refused: ``TOO_LARGE``, the strict JSON codes, ``INVALID_FORMAT`` when it has no recognised form or no thinking
            that can be read (``redacted`` names the blocks that cannot), ``INVALID_FIELD`` with the field's path.
    """
    if isinstance(given, bytes):
        given = _decode(given)
    response = _read_text(given) if isinstance(given, str) else _read_value(given)
    size = sum(_checked_size(source) for source in response.sources)
    if size > thinking_size_max_bytes:
        message = f"the thinking has {size} bytes; at most {thinking_size_max_bytes} become one graph"
        raise Refused("TOO_LARGE", message, size=size)
    if not any(source.text[slice(*region)].strip() for source in response.sources for region in source.thinking):
        redacted = [note.path for note in response.notes if note.sort == "redacted"]
        why = "its thinking is redacted" if redacted else "there is no thinking in it"
        raise Refused("INVALID_FORMAT", f"no reasoning can be read from this response: {why}", redacted=redacted)
    return response


def _decode(given: bytes) -> str:
    if len(given) > response_size_max_bytes:
        message = f"the response has {len(given)} bytes, more than {response_size_max_bytes}"
        raise Refused("TOO_LARGE", message, size=len(given))
    try:
        return given.decode()
    except UnicodeDecodeError as error:
        raise Refused("INVALID_FORMAT", f"the response is not UTF-8 (at byte {error.start})") from error


def _read_text(text: str) -> Response:
    encoded = encode_utf8(text, "response")
    if text.lstrip().startswith(("{", "[")):
        try:
            value = check_strict(encoded)
        except Refused:
            if not has_tags(text):
                raise
        else:
            return _read_value(value)
    source, notes = _tagged("", text)
    return Response("text", [source], notes)


def _read_value(value: Any) -> Response:
    if isinstance(value, list):
        value = {"content": value}
    if not isinstance(value, dict):
        raise Refused("INVALID_FORMAT", "a response is a JSON object, a list of content blocks, or text")
    wrapped = value.get("message")
    response = _of_message(wrapped, "message") if isinstance(wrapped, dict) else _of_object(value)
    outer = {"model": _text(value.get("model"), "model"), "task": _first_text(value, ("task", "prompt"))}
    named = {name: text for name, text in outer.items() if text}
    return msgspec.structs.replace(_with_tags(response), **named)


def _of_object(value: dict[str, Any]) -> Response:
    if not isinstance(value.get("choices"), list):
        return _of_message(value, "")
    choices = value["choices"]
    message = choices[0].get("message") if choices and isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        raise Refused("INVALID_FIELD", "choices[0].message is missing", field="choices[0].message")
    response = _of_message(message, "choices[0].message")
    # Other choices are other answers to the same question, not more of this reasoning.
    others = [Note("other_choice", f"choices[{position}]") for position in range(1, len(choices))]
    return msgspec.structs.replace(response, notes=[*response.notes, *others])


def _of_message(message: dict[str, Any], path: str) -> Response:
    content = message.get("content")
    blocks = list(_blocks(content, _at(path, "content"))) if isinstance(content, list) else []
    sources = [one for one in blocks if isinstance(one, Source)]
    notes = [one for one in blocks if isinstance(one, Note)]
    model = _text(message.get("model"), _at(path, "model"))
    if message.get("thinking") is not None:
        thinking = list(_strings(message["thinking"], _at(path, "thinking"), ("thinking", "text")))
        return Response("minimax", [*thinking, *sources, *_answers(message, path)], notes, model)
    if blocks:
        return Response("anthropic", sources, notes, model)
    details = list(_strings(message.get("reasoning_details"), _at(path, "reasoning_details"), ("text",)))
    name = next((name for name in _REASONING_FIELDS if message.get(name)), None)
    reasoning = list(_strings(message[name], _at(path, name), ())) if name else details
    answers = list(_answers(message, path))
    if not reasoning and not answers:
        known = "thinking, content blocks, choices, reasoning_content or <think> in a text"
        raise Refused("INVALID_FORMAT", f"this is no response of a known form: it has none of {known}")
    return Response("openai", [*reasoning, *answers], notes, model)


def _blocks(content: list[Any], path: str) -> Iterator[Source | Note]:
    """Yield the thinking and text blocks of a message; calls of tools and other blocks hold neither."""
    for position, block in enumerate(content):
        place = f"{path}[{position}]"
        if not isinstance(block, dict):
            raise Refused("INVALID_FIELD", f"{place} is not an object", field=place)
        match block.get("type"):
            case "thinking":
                text = _text(block.get("thinking"), f"{place}.thinking")
                yield _thinking(f"{place}.thinking", text, _text(block.get("signature"), f"{place}.signature"))
            case "redacted_thinking":
                yield Note("redacted", place)
            case "text":
                yield _answer(f"{place}.text", _text(block.get("text"), f"{place}.text"))
            case _:
                continue


def _strings(value: Any, path: str, names: tuple[str, ...]) -> Iterator[Source]:
    """Yield the thinking in a text, or in a list of texts and of objects that hold one under one of ``names``."""
    if not isinstance(value, list):
        if text := _text(value, path):
            yield _thinking(path, text)
        return
    for position, item in enumerate(value):
        place = f"{path}[{position}]"
        name = next((name for name in names if isinstance(item, dict) and name in item), None)
        if name:
            yield _thinking(f"{place}.{name}", _text(item[name], f"{place}.{name}"))
        elif not isinstance(item, dict):
            yield _thinking(place, _text(item, place))


def _answers(message: dict[str, Any], path: str) -> Iterator[Source]:
    for name in _ANSWER_FIELDS:
        if isinstance(message.get(name), str) and message[name]:
            yield _answer(_at(path, name), message[name])


def _with_tags(response: Response) -> Response:
    """Look for tags in the answers of a response that names no thinking; elsewhere an answer may speak about them."""
    if any(source.thinking for source in response.sources) or not any(has_tags(one.text) for one in response.sources):
        return response
    tagged = [_tagged(source.path, source.text) for source in response.sources]
    notes = [*response.notes, *(note for _, found in tagged for note in found)]
    return msgspec.structs.replace(response, sources=[source for source, _ in tagged], notes=notes)


def _tagged(path: str, text: str) -> tuple[Source, list[Note]]:
    tags = read_tags(text)
    notes = [Note("unclosed_tag", path)] if tags.is_unclosed else []
    notes += [Note("unopened_tag", path)] if tags.is_unopened else []
    return Source(path, text, tags.thinking, tags.answer), notes


def _thinking(path: str, text: str, signature: str = "") -> Source:
    return Source(path, text, thinking=((0, len(text)),), signature=signature)


def _answer(path: str, text: str) -> Source:
    return Source(path, text, answer=((0, len(text)),))


def _checked_size(source: Source) -> int:
    try:
        return sum(len(source.text[slice(*region)].encode()) for region in (*source.thinking, *source.answer))
    except UnicodeEncodeError as error:
        # JSON escapes can spell half a surrogate pair, UTF-8 cannot, so no event could hold it.
        raise Refused("INVALID_FIELD", f"{source.path} is not valid Unicode", field=source.path) from error


def _text(value: Any, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refused("INVALID_FIELD", f"{path} is not a text", field=path)
    return value


def _first_text(value: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((value[name] for name in names if isinstance(value.get(name), str) and value[name]), "")


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
