"""Reads the JSON object in a model's text as a value of the requested type.

Models wrap the object in prose, fences and thinking, add keys, omit optional ones, break lines inside strings, put a
comma after the last entry, and write numbers as text. Paying for the answer again is not worth that, so the reader
accepts:

- several objects, if one fits the type (two different objects that both fit are a fault, because either could be
  meant);
- a field beside the object to which it belongs (``moved``);
- unknown keys and ``null`` for an optional field (both ignored); lists and texts that are too long (cut); a single
  value instead of a list; numbers and lists instead of a text;
- ``"8.5"``, ``"8/10"`` and ``"80%"`` for a number; the last two as a share of its maximum.

Wrong content stays a fault: a score of 11, a repeated key, a number that JSON or the ledger cannot hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import inspect

from deedbook.consumers.sdk.thinking.response import read_tags
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import check_depth, convert, encode_utf8, schema_error, strict_json

T = TypeVar("T")

tries_max: Final = 1_000
depth_max: Final = 16
_LAST_COMMA: Final = re.compile(r'("(?:[^"\\]|\\.)*+")|,(?=\s*+[}\]])', re.DOTALL)
_NUMBER: Final = re.compile(r"\s*(-?\d{1,15}(?:\.\d{1,15})?)\s*(?:(%)|(?:/|out of|of)\s*([1-9]\d{0,5}))?\s*", re.ASCII)


Optional: TypeAlias = Mapping[type, dict[str, Any]]
Moved: TypeAlias = Mapping[type, dict[str, str]]
_NOTHING: Final[Mapping[type, Any]] = MappingProxyType({})


def read_answer(text: str, form: type[T], missing: Optional = _NOTHING, moved: Moved = _NOTHING) -> T:
    """Return the value of type ``form`` in a model's text.

    ``missing`` has the defaults of optional fields by type, and ``moved`` the object to which fields belong that models
    write beside it: ``{Candidate: {"is_solution": "metadata"}}``.

    Raises Refused: the fault, in words with which a model can correct it.
    """
    # An answer that is JSON as a whole may have thinking tags in its strings.
    is_whole = text.lstrip()[:1] == "{"
    answer = text if is_whole else "".join(text[slice(*region)] for region in read_tags(text).answer)
    kind = inspect.type_info(form)
    values: list[T] = []
    faults: dict[int, Refused] = {}
    for size, value in _objects(answer):
        if isinstance(value, Refused):
            faults[size] = value
            continue
        try:
            fitted = convert(fit(value, kind, missing, moved), form)
        except msgspec.ValidationError as error:
            faults[size] = schema_error(error)
        else:
            values += [] if fitted in values else [fitted]
    if len(values) > 1:
        raise Refused("INVALID_FORMAT", "it has two objects: write one")
    if not values:
        raise faults[max(faults)] if faults else Refused("INVALID_FORMAT", "it has no JSON object")
    return values[0]


def _objects(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the length and the value of each outermost object in the text; for a malformed one, the refusal."""
    decoder, position, is_mended = strict_json(controls=True), 0, False
    for _ in range(tries_max):
        if (start := text.find("{", position)) < 0:
            return
        try:
            value, position = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            if not is_mended:
                text, is_mended = text[:start] + _LAST_COMMA.sub(r"\1", text[start:]), True
                continue
            # Do not search a truncated object: an object inside it is not the answer.
            position, length = max(start + 1, error.pos), error.pos - start
            yield length, Refused("INVALID_FORMAT", f"it is not JSON at character {length} of its object: {error.msg}")
            continue
        except RecursionError as error:
            raise Refused("NESTING_TOO_DEEP", "it is nested too deep") from error
        check_depth(encode_utf8(json.dumps(value, ensure_ascii=False), "answer"), depth_max)
        yield position - start, value


def fit(value: Any, kind: inspect.Type, missing: Optional = _NOTHING, moved: Moved = _NOTHING) -> Any:
    """Return a value converted to a type as far as its meaning is clear; the type refuses the rest."""
    match kind:
        case inspect.Metadata():
            return fit(value, kind.type, missing, moved)
        case inspect.StructType() if isinstance(value, dict):
            stated = _put_back({name: one for name, one in value.items() if one is not None}, moved.get(kind.cls, {}))
            given = missing.get(kind.cls, {}) | stated
            names = {field.encode_name: field.type for field in kind.fields if field.encode_name in given}
            fitted = {name: fit(given[name], type_, missing, moved) for name, type_ in names.items()}
            optional = missing.get(kind.cls, {}).items()
            # A word for an optional number ("confidence": "high") counts as missing.
            return fitted | {name: one for name, one in optional if type(one) is float and type(fitted[name]) is str}
        case inspect.ListType() if value is not None:
            values = value if isinstance(value, list) else [value]
            return [fit(value, kind.item_type, missing, moved) for value in values[: kind.max_length]]
        case inspect.DictType() if isinstance(value, dict):
            return {key: fit(one, kind.value_type, missing, moved) for key, one in value.items()}
        case inspect.FloatType() | inspect.IntType():
            return read_number(value, kind.le)
        case inspect.StrType() if isinstance(value, str | int | float | list | dict) and not isinstance(value, bool):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            return text[: kind.max_length]
        case _:  # any other type: the value stays as it is
            return value


def _put_back(stated: dict[str, Any], moved: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields after moving each misplaced one into its inner object, unless that already has it."""
    for name, owner in moved.items():
        inner = stated.get(owner, {})
        if name in stated and isinstance(inner, dict):
            stated |= {owner: {name: stated[name]} | inner}
    return stated


def read_number(value: Any, most: float | None) -> Any:
    """Return the number in a text, a share as a part of ``most``; any other value unchanged."""
    number = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if number is None:
        return int(value) if isinstance(value, float) and value.is_integer() else value
    whole = 100 if number[2] else int(number[3] or 0)
    spelled = float(number[1]) * (most or 1) / whole if whole else float(number[1])
    return int(spelled) if spelled.is_integer() else spelled
