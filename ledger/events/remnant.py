"""Erasing a body: its remnant keeps what rules and folds read, and loses every text.

``remnant_of`` replaces each text of a body by ``ERASED``. Names, ids, numbers, times, references and fixed words stay.
So the entry keeps its meaning for the rules and its place in every view. A reader cannot compare a remnant with the
body that is gone: it trusts the signature of ``entry.redacted``, which holds the digest of the remnant, and the nodes
that had the body when they admitted that event. A remnant that still has a text is refused, so nobody can put words
into an author's mouth.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.body import Body, decode_body
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.handoff import HandoffContent
from deedbook.ledger.events.imported import RecordImported, mapped_types
from deedbook.ledger.format.codec import convert, encode_sorted
from deedbook.ledger.format.envelope import Entry, Remnant, event_id, is_remnant, read_remnant
from deedbook.ledger.format.forms import LABEL_PATTERN, LINE_PATTERN, STATEMENT_PATTERN
from deedbook.ledger.limits import body_size_max_bytes

ERASED: Final = "[redacted]"
_SHORT: Final = "*"
"""Used when ``ERASED`` would make the remnant too large, because it is longer than the texts."""
_TEXT_PATTERNS: Final = frozenset({None, LINE_PATTERN, LABEL_PATTERN, STATEMENT_PATTERN})
_NO_SALT: Final = "A" * 22
"""In place of the salt, which could confirm a guess of the body."""
_KEPT: Final = frozenset(
    {
        *("origin", "kinds", "streams", "ai_id"),
        *("domain", "rule", "code", "mapped_kind", "format", "generator", "task_type", "thought_granularity"),
        *("metric", "metric_version", "embedder", "version", "model", "prompt_sha256", "tokenizer", "tree_digest"),
        *("compressor_name", "compressor_version", "validator_name", "validator_version", "thinker", "by"),
    }
)
"""Fields of text that programs write and that decide who may act, or how the other fields are read."""


class Stored(msgspec.Struct, frozen=True):
    """A stored body and its data, or those of its ``remnant``, with the bytes of this body."""

    body: Body
    data: EventData
    raw: bytes
    remnant: Remnant | None = None


def read_stored(stored: bytes) -> Stored:
    """Return what is in the place of an entry's body.

    Raises Refused: as ``body.decode_body``; ``INVALID_FORMAT`` for a remnant that has texts or another encoding.
    """
    if not is_remnant(stored):
        return Stored(*decode_body(stored), stored)
    remnant = read_remnant(stored)
    raw = bytes(remnant.body)
    body, data = decode_body(raw)
    if raw not in [_erased_body(body, data, mark) for mark in (ERASED, _SHORT)]:
        raise Refused("INVALID_FORMAT", "what is left of an erased body still has a text, or is not in canonical form")
    return Stored(body, data, raw, remnant)


def remnant_of(entry: Entry, version: str | None) -> bytes:
    """Return the remnant of an entry that has its body; ``version`` is that of the handoff which the body set.

    Raises Refused: ``NOTHING_CHANGED`` if the body has no text.
    """
    body, data = decode_body(entry.body)
    short = b""
    for mark in (ERASED, _SHORT):
        raw = _erased_body(body, data, mark)
        if decode_body(raw)[1] == data:
            message = f"a {body.kind} has no text to erase: names, ids, keys, numbers and references stay"
            raise Refused("NOTHING_CHANGED", message, kind=body.kind)
        short = Remnant(event_id(entry.commitment), msgspec.Raw(raw), version).encode()
        if len(short) <= body_size_max_bytes:
            break
    return short


def digest_of(remnant: bytes) -> str:
    """Return the digest by which ``entry.redacted`` names a remnant."""
    return "sha256:" + hashlib.sha256(remnant).hexdigest()


def sets_content(data: EventData) -> bool:
    """Return whether an event sets the content of a handoff, and so its version."""
    return isinstance(data, HandoffContent) or (
        isinstance(data, RecordImported) and data.mapped_kind == "handoff.created"
    )


def _erased_body(body: Body, data: EventData, mark: str) -> bytes:
    return encode_sorted(msgspec.structs.replace(body, salt=_NO_SALT, data=_without_texts(data, mark)))


def _without_texts(data: EventData, mark: str) -> EventData:
    kind = type(data)
    plain = _erase(msgspec.to_builtins(data, str_keys=True), _type_of(kind), mark)
    if isinstance(data, RecordImported) and data.mapped_kind is not None:
        for name, form in zip(("mapped", "claims"), mapped_types(data.mapped_kind), strict=True):
            plain[name] = _erase(getattr(data, name), _type_of(form), mark)
    return convert(plain, kind, str_keys=True)


def _erase(value: Any, form: inspect.Type, mark: str) -> Any:
    """Return a plain value of a type with ``mark`` in place of each text that is not empty."""
    match form:
        case inspect.Metadata():
            return _erase(value, form.type, mark)
        case inspect.UnionType():
            if value is None:
                return None
            (some,) = (member for member in form.types if not isinstance(member, inspect.NoneType))
            return _erase(value, some, mark)
        case inspect.StructType():
            fields = {field.encode_name: field for field in form.fields}
            kept = {name for name, field in fields.items() if field.name in _KEPT}
            return {name: it if name in kept else _erase(it, fields[name].type, mark) for name, it in value.items()}
        case inspect.ListType() | inspect.VarTupleType():
            return [_erase(item, form.item_type, mark) for item in value]
        case inspect.DictType():
            if isinstance(form.value_type, inspect.AnyType) or _is_text(form.value_type):
                return {}  # the keys are texts, too
            return {key: _erase(item, form.value_type, mark) for key, item in value.items()}
        case _:  # every other type: a text, a number, a word of a list
            return mark if value and _is_text(form) else value


def _is_text(form: inspect.Type) -> bool:
    while isinstance(form, inspect.Metadata):
        form = form.type
    return isinstance(form, inspect.StrType) and form.pattern in _TEXT_PATTERNS


@cache
def _type_of(kind: type[EventData]) -> inspect.Type:
    return inspect.type_info(kind)
