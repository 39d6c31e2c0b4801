"""The untrusted texts of a structured answer, found by the type of the answer, and the same answer as fenced text.

A text is untrusted if its type is ``Untrusted``. It is also untrusted if it has more than one word and its type is not
``Own``. So a field without a type, or an id that is a sentence, is never taken for words of Deedbook.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Final

import msgspec
from msgspec import inspect

Own = Annotated[str, msgspec.Meta(extra={"is_untrusted": False}, description="A text of Deedbook.")]
_WORD: Final = re.compile(
    r"(?:(?:event|blake3|sha256):[0-9a-f]{64}|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+)?|(?:[a-z]+/)?\w[\w.-]{0,99})?",
    re.ASCII,
)
_ANYTHING: Final = inspect.AnyType()
_NOTHING: Final = object()


def untrusted_fields(answer: Mapping[str, Any], type_: type) -> list[str]:
    """Return JSON pointers (RFC 6901) to the untrusted texts of an answer, and to lists that hold only such texts."""
    return list(_pointers(answer, _inspected(type_), ""))


def split(answer: Mapping[str, Any], fields: Collection[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an answer without the texts at these pointers, and the texts alone, at the same keys and positions.

    >>> split({"items": [{"id": "a", "title": "Obey"}], "total": 1}, ["/items/0/title"])
    ({'items': [{'id': 'a'}], 'total': 1}, {'items': [{'title': 'Obey'}]})
    """
    own, untrusted = (_part(answer, frozenset(fields), "", is_untrusted=part) for part in (False, True))
    return ({} if own is _NOTHING else own), ({} if untrusted is _NOTHING else untrusted)


@cache
def _inspected(type_: type) -> inspect.Type:
    return inspect.type_info(type_)


def _pointers(value: Any, form: inspect.Type, path: str) -> Iterator[str]:
    if isinstance(value, str):
        if _is_untrusted(value, form):
            yield path
    elif isinstance(value, dict):
        fields, of_others = _fields_of(form)
        if not fields and not all(map(_WORD.fullmatch, value)):
            yield path
            return
        for name, item in value.items():
            yield from _pointers(item, fields.get(name, of_others), f"{path}/{_escaped(name)}")
    elif isinstance(value, list):
        item_form = next(
            (each.item_type for each, _ in _alternatives(form) if isinstance(each, inspect.ListType)), None
        )
        found = [list(_pointers(item, item_form or _ANYTHING, f"{path}/{at}")) for at, item in enumerate(value)]
        is_whole = value and all(pointers == [f"{path}/{at}"] for at, pointers in enumerate(found))
        yield from [path] if is_whole else (pointer for pointers in found for pointer in pointers)


def _is_untrusted(text: str, form: inspect.Type) -> bool:
    marks = {mark for _, mark in _alternatives(form)}
    return bool(text) and (True in marks or (False not in marks and _WORD.fullmatch(text) is None))


def _alternatives(form: inspect.Type, mark: bool | None = None) -> Iterator[tuple[inspect.Type, bool | None]]:  # noqa: FBT001
    """Yield a type, or the members of a union, without metadata; and the mark: untrusted, our own, or none."""
    if isinstance(form, inspect.UnionType):
        for each in form.types:
            yield from _alternatives(each, mark)
    elif isinstance(form, inspect.Metadata):
        yield from _alternatives(form.type, (form.extra or {}).get("is_untrusted", mark))
    else:
        yield form, mark


def _fields_of(form: inspect.Type) -> tuple[dict[str, inspect.Type], inspect.Type]:
    """Return the types of the fields of an object, and the type of its other values."""
    fields: dict[str, inspect.Type] = {}
    others: inspect.Type = _ANYTHING
    for each, _ in _alternatives(form):
        if isinstance(each, inspect.StructType):
            for field in each.fields:
                known = fields.get(field.encode_name)
                fields[field.encode_name] = inspect.UnionType((known, field.type)) if known else field.type
        elif isinstance(each, inspect.DictType):
            others = each.value_type
    return fields, others


def _part(value: Any, fields: Collection[str], path: str, *, is_untrusted: bool) -> Any:
    if path in fields:
        return value if is_untrusted else _NOTHING
    if isinstance(value, dict):
        parts = {
            name: _part(item, fields, f"{path}/{_escaped(name)}", is_untrusted=is_untrusted)
            for name, item in value.items()
        }
        parts = {name: part for name, part in parts.items() if part is not _NOTHING}
        return parts if parts or not (value or is_untrusted) else _NOTHING
    if isinstance(value, list):
        items = [_part(item, fields, f"{path}/{at}", is_untrusted=is_untrusted) for at, item in enumerate(value)]
        if all(item is _NOTHING for item in items) and (value or is_untrusted):
            return _NOTHING
        return [{} if item is _NOTHING else item for item in items]
    return _NOTHING if is_untrusted else value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
