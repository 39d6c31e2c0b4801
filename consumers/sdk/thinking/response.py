"""Reads thinking and answer from a model's response, in the formats of several vendors.

Recognised forms, by their structure and not by the vendor's name:

- ``minimax``: ``{"thinking": "…"}``, the answer is in ``content``, ``answer``, ``response`` or ``text``;
- ``anthropic``: ``{"content": [{"type": "thinking", "thinking", "signature"?}, {"type": "redacted_thinking"}, …]}``, or
  the list alone, or another list of blocks: ``output`` (OpenAI's Responses), ``parts``,
  ``{"candidates": [{"content": {"parts"}}]}`` (Gemini);
- ``openai``: ``{"choices": [{"message": {"reasoning_content" or "reasoning" or "reasoning_details", "content"}}]}``
  (DeepSeek and compatible), or one such message;
- ``text``: plain text, or an answer of the forms above, with ``<think>…</think>`` in it.

Known blocks, by the vendors' names: ``thinking`` and ``redacted_thinking`` (Anthropic), ``reasoning`` with ``text``,
``summary`` or ``content`` (OpenAI's Responses, and similar tools), parts with ``thought`` and ``text`` (Gemini),
``text`` and ``output_text``, and ``message``, which contains such a list. Tool calls and other blocks have neither
thinking nor answer.

Rules of this module: strings are not trimmed or normalised, because other modules use spans in them. Malformed parts
are refused with their path. Parts that exist but cannot be read (redacted blocks, other choices) are noted.

Models nest and close thinking tags carelessly, so the module reads every text in some way. Nested tags are one thinking
and belong to neither part. Without a closing tag, the rest is thinking; of several closing tags, the last counts. If
the first tag is a closing one, the text before it is thinking, because its opening tag was in the prompt. The last two
cases are reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import check_strict, encode_utf8

Format = Literal["minimax", "anthropic", "openai", "text"]

response_size_max_bytes: Final = 16 * 1024**2
thinking_size_max_bytes: Final = 1024**2

_REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details", "thoughts")
_ANSWER_FIELDS: Final = ("content", "answer", "response", "text", "value", "generation", "completion", "output")
NoteKind = Literal["redacted", "other_choice", "unclosed_tag", "unopened_tag"]
_ANSWERS: Final = (
    "text",
    "output_text",
    None,
)  # a tuple, because the type in a block may be a value that cannot be hashed
_PLACES_OF_REASONING: Final = ("text", "reasoning", "summary", "content")
_nesting_max: Final = 3
_TAG: Final = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
Region = tuple[int, int]


class Response(msgspec.Struct, frozen=True):
    """The thinking and answer of a response; ``model`` and ``task`` are empty if it does not name them."""

    format: Format
    sources: list[Source]
    notes: list[Note]
    model: str = ""
    task: str = ""


def read_response(given: Any) -> Response:
    """Return the thinking and answer of a response: bytes or text (JSON or plain), or decoded JSON.

    Raises Refused: ``TOO_LARGE``, the strict JSON codes, ``INVALID_FORMAT`` if it has no recognised form or no
    readable thinking (``redacted`` names the unreadable blocks), ``INVALID_FIELD`` with the field's path.
    """
    if isinstance(given, bytes):
        given = _decode(given)
    response = _read_text(given) if isinstance(given, str) else _read_value(given)
    size = sum(_checked_size(source) for source in response.sources)
    if size > thinking_size_max_bytes:
        message = f"the thinking has {size} bytes; a graph can be made of at most {thinking_size_max_bytes}"
        raise Refused("TOO_LARGE", message, size=size)
    if not any(source.text[slice(*region)].strip() for source in response.sources for region in source.thinking):
        redacted = [note.path for note in response.notes if note.kind == "redacted"]
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
    inner = next((name for name in ("message", "response") if isinstance(value.get(name), dict)), None)
    if inner == "response":
        response = _of_object(value[inner])
    else:
        response = _of_message(value[inner], inner) if inner else _of_object(value)
    model = _text_at(value.get("model"), "model") or first_text(value, "modelVersion")
    outer = {"model": model, "task": first_text(value, "task", "prompt")}
    return msgspec.structs.replace(_with_tags(response), **{name: text for name, text in outer.items() if text})


def _of_object(value: dict[str, Any]) -> Response:
    if value.get("type") == "reasoning":
        return _of_message({"content": [value]}, "")
    if isinstance(value.get("output"), list):
        return _of_message(value | {"content": value["output"]}, "", "output")
    for name, inner in (("choices", "message"), ("candidates", "content")):
        if isinstance(value.get(name), list):
            return _of_choices(value[name], name, inner)
    return _of_message(value, "")


def _of_choices(choices: list[Any], name: str, inner: str) -> Response:
    place = f"{name}[0].{inner}"
    message = choices[0].get(inner) if choices and isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        raise Refused("INVALID_FIELD", f"{place} is missing", field=place)
    response = _of_message(message, place)
    # Other choices are other answers to the same question, not parts of this reasoning.
    others = [Note("other_choice", f"{name}[{position}]") for position in range(1, len(choices))]
    return msgspec.structs.replace(response, notes=[*response.notes, *others])


def _of_message(message: dict[str, Any], path: str, name: str = "content") -> Response:
    blocks = _blocks(message, path, name)
    sources = [block for block in blocks if isinstance(block, Source)]
    notes = [block for block in blocks if isinstance(block, Note)]
    model = first_text(message, "model", "modelVersion")
    if message.get("thinking") is not None:
        thinking = list(_read_texts(message["thinking"], _at(path, "thinking"), ("thinking", "text")))
        return Response("minimax", [*thinking, *sources, *_answers(message, path)], notes, model)
    reasoning = [] if any(source.thinking for source in sources) else list(_reasoning(message, path))
    if blocks and not reasoning:
        return Response("anthropic", sources, notes, model)
    answers = list(_answers(message, path))
    if not reasoning and not answers:
        known = "thinking, content blocks, choices, reasoning_content or <think> in a text"
        raise Refused("INVALID_FORMAT", f"this response has no known form: it has none of {known}")
    return Response("openai", [*reasoning, *sources, *answers], notes, model)


def _blocks(message: dict[str, Any], path: str, name: str) -> list[Source | Note]:
    """Return the thinking and answers of a message whose content or ``parts`` is a list of blocks."""
    content = message.get("content")
    if isinstance(content, list):
        return list(_read_blocks(content, _at(path, name)))
    if isinstance(content, dict) and isinstance(content.get("parts"), list):
        return list(_read_blocks(content["parts"], _at(path, "content.parts")))
    parts = message.get("parts")
    return list(_read_blocks(parts, _at(path, "parts"))) if isinstance(parts, list) else []


def _reasoning(message: dict[str, Any], path: str) -> Iterator[Source]:
    """Yield the thinking beside a message's content; if several fields have it, the first counts."""
    for name in _REASONING_FIELDS:
        given = message.get(name)
        if given and not (
            isinstance(given, dict) and name == "reasoning"
        ):  # an object is a setting of the request, not thinking
            found = list(_read_texts(given, _at(path, name), ("text", "description")))
            if found:
                yield from found
                return


def _answers(message: dict[str, Any], path: str) -> Iterator[Source]:
    for name in _ANSWER_FIELDS:
        if isinstance(message.get(name), str) and message[name]:
            yield _answer_at(_at(path, name), message[name])


def _with_tags(response: Response) -> Response:
    """Read thinking tags in the answers, unless the response names its thinking: then they may be about tags."""
    sources = response.sources
    if any(source.thinking for source in sources) or not any(has_tags(source.text) for source in sources):
        return response
    tagged = [_tagged(source.path, source.text) for source in sources]
    notes = [*response.notes, *(note for _, found in tagged for note in found)]
    return msgspec.structs.replace(response, sources=[source for source, _ in tagged], notes=notes)


def _tagged(path: str, text: str) -> tuple[Source, list[Note]]:
    tags = read_tags(text)
    notes = [Note("unclosed_tag", path)] if tags.is_unclosed else []
    notes += [Note("unopened_tag", path)] if tags.is_unopened else []
    return Source(path, text, tags.thinking, tags.answer), notes


def _checked_size(source: Source) -> int:
    try:
        return sum(len(source.text[slice(*region)].encode()) for region in (*source.thinking, *source.answer))
    except UnicodeEncodeError as error:
        # JSON escapes can spell half a surrogate pair, UTF-8 cannot, so no event could hold it.
        raise Refused("INVALID_FIELD", f"{source.path} is not valid Unicode", field=source.path) from error


def first_text(value: dict[str, Any], *names: str) -> str:
    """Return the first text in these fields; empty if there is none."""
    return next((value[name] for name in names if isinstance(value.get(name), str) and value[name]), "")


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


class Source(msgspec.Struct, frozen=True):
    """One string of a response, its path there, and its regions of thinking and answer.

    ``signature`` is the vendor's signature of the block; Deedbook cannot check it.
    """

    path: str
    text: str
    thinking: tuple[Region, ...] = ()
    answer: tuple[Region, ...] = ()
    signature: str = ""


class Note(msgspec.Struct, frozen=True):
    """Notes for readers of the graph: parts of the response that could not be read, or were guessed."""

    kind: NoteKind
    path: str


def _read_blocks(content: list[Any], path: str, depth: int = 0) -> Iterator[Source | Note]:
    """Yield the thinking and text of a message's blocks; a malformed block is refused with its path."""
    for position, block in enumerate(content):
        place = f"{path}[{position}]"
        if not isinstance(block, dict):
            raise Refused("INVALID_FIELD", f"{place} is not an object", field=place)
        match block.get("type"):
            case "thinking":
                text = _text_at(block.get("thinking"), f"{place}.thinking")
                yield _thinking_at(f"{place}.thinking", text, _text_at(block.get("signature"), f"{place}.signature"))
            case "redacted_thinking":
                yield Note("redacted", place)
            case "reasoning":
                yield from _reasoning_block(block, place)
            case "message" if isinstance(block.get("content"), list) and depth < _nesting_max:
                yield from _read_blocks(block["content"], f"{place}.content", depth + 1)
            case type_ if type_ in _ANSWERS and block.get("thought") is True:
                yield _thinking_at(f"{place}.text", _text_at(block.get("text"), f"{place}.text"))
            case type_ if type_ == "text" or (type_ in _ANSWERS and "text" in block):
                yield _answer_at(f"{place}.text", _text_at(block.get("text"), f"{place}.text"))
            case _:  # any other block: a call of a tool, an image
                continue


def _read_texts(value: Any, path: str, names: tuple[str, ...]) -> Iterator[Source]:
    """Yield the thinking in a text, or in a list of texts and of objects with a text in one of the fields ``names``."""
    if not isinstance(value, list):
        if text := _text_at(value, path):
            yield _thinking_at(path, text)
        return
    for position, item in enumerate(value):
        place = f"{path}[{position}]"
        name = next((name for name in names if isinstance(item, dict) and name in item), None)
        if name:
            yield _thinking_at(f"{place}.{name}", _text_at(item[name], f"{place}.{name}"))
        elif not isinstance(item, dict):
            yield _thinking_at(place, _text_at(item, place))


def _text_at(value: Any, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refused("INVALID_FIELD", f"{path} is not a text", field=path)
    return value


def _thinking_at(path: str, text: str, signature: str = "") -> Source:
    return Source(path, text, thinking=((0, len(text)),), signature=signature)


def _answer_at(path: str, text: str) -> Source:
    return Source(path, text, answer=((0, len(text)),))


def _reasoning_block(block: dict[str, Any], place: str) -> Iterator[Source | Note]:
    found = [
        source
        for name in _PLACES_OF_REASONING
        for source in _read_texts(block.get(name), f"{place}.{name}", ("text", "reasoning"))
        if source.text
    ]
    yield from found
    if not found and any(block.get(name) for name in ("encrypted_content", "data")):
        yield Note("redacted", place)


class Tagged(NamedTuple):
    """The regions of a text in order, without empty ones, and whether its tags were not balanced."""

    thinking: tuple[Region, ...]
    answer: tuple[Region, ...]
    is_unclosed: bool
    is_unopened: bool


def has_tags(text: str) -> bool:
    """Return whether a text has a thinking tag."""
    return _TAG.search(text) is not None


def read_tags(text: str) -> Tagged:
    """Return the regions of thinking and answer in a text; a text without tags is all answer."""
    thinking: list[Region] = []
    answer: list[Region] = []
    depth = position = 0
    is_first, is_opened_last, is_unopened = True, False, False
    for tag in _TAG.finditer(text):
        closes = bool(tag[1])
        is_thinking = depth > 0 or (closes and is_first)
        (thinking if is_thinking else answer).append((position, tag.start()))
        is_unopened = is_unopened or (closes and is_first)
        depth = max(0, depth - 1) if closes else depth + 1
        position, is_first, is_opened_last = tag.end(), False, not closes
    (thinking if is_opened_last else answer).append((position, len(text)))
    return Tagged(_filled(thinking), _filled(answer), depth > 0, is_unopened)


def _filled(regions: list[Region]) -> tuple[Region, ...]:
    return tuple(region for region in regions if region[0] < region[1])
