"""Erasing a body: its remnant keeps what rules and folds read, and loses every text.

``remnant_of`` replaces each text of a body by ``ERASED``. Names, ids, numbers, times, references and fixed words stay.
So the entry keeps its meaning for the rules and its place in every view. A reader cannot compare a remnant with the
body that is gone: it trusts the signature of ``entry.redacted``, which holds the digest of the remnant, and the nodes
that had the body when they admitted that event. A remnant that still has a text is refused, so nobody can put words
into an author's mouth.

Nothing that confirms an erasure may rest on the erased entry itself. Otherwise somebody with a copy of a log could
replace an entry by a remnant that names their own key as the root key, and confirm it with this key. Therefore the gate
refuses to erase history resets and the events from which readers learn the keys of root and of checkpoints. It also
refuses to erase the declaration of a kind, because the events of that kind are checked with it. An erased event of a
declared kind loses all fields, because only the state of the log shows which of its texts are fixed words.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any, Final, Literal

import msgspec
from msgspec import inspect

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import CheckpointKeyRotated, HistoryReset, KeyRotated
from deedbook.ledger.events.body import Body, decode_body, decode_unread
from deedbook.ledger.events.declared import DeclaredData, KindDeclared
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.handoff import HandoffContent
from deedbook.ledger.events.imported import RecordImported, mapped_types
from deedbook.ledger.format.codec import encode_sorted
from deedbook.ledger.format.envelope import Entry, Remnant, commitment_to, event_id, is_remnant, read_remnant
from deedbook.ledger.format.forms import LABEL_PATTERN, LINE_PATTERN, ROOT, STATEMENT_PATTERN
from deedbook.ledger.limits import remnant_size_max_bytes

ERASED: Final = "[redacted]"
_SHORT: Final = "*"
"""Used when ``ERASED`` would make the remnant too large, because it is longer than the texts."""
_TEXT_PATTERNS: Final = frozenset({None, LINE_PATTERN, LABEL_PATTERN, STATEMENT_PATTERN})
_NO_SALT: Final = "A" * 22
"""A replacement for the salt, because the salt could confirm a guess of the body."""
_KEPT: Final = frozenset(
    {
        *("origin", "kinds", "streams", "ai_id", "claimed_author", "claimed_at", "status"),
        *("domain", "rule", "code", "mapped_kind", "format", "generator"),
        *("metric", "metric_version", "embedder", "version", "model", "prompt_sha256", "tokenizer"),
        *("compressor_name", "compressor_version", "validator_name", "validator_version", "by"),
    }
)
"""Fields of text that name agents, or that programs write and that decide how the other fields are read.

These names mean the same in all types; a type keeps others by its ``kept_texts``.
"""
LACKS_FAMILY: Final = frozenset({"FAMILY_MISSING", "FAMILY_UNUSABLE"})
"""The codes of an event whose family has no usable package here."""
_PROOFS: Final = f"proofs of the keys of {ROOT} and of checkpoints rest on"
_NEVER_ERASED: Final = (CheckpointKeyRotated, HistoryReset, KindDeclared)


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A stored body and its data, or those of its ``remnant``, with the bytes of this body."""

    body: Body
    data: EventData
    raw: bytes
    remnant: Remnant | None = None

    @property
    def id(self) -> str:
        """The event's id, which a remnant names."""
        return event_id(commitment_to(self.raw)) if self.remnant is None else self.remnant.redacted


def read_stored(stored: bytes, *, may_lack_family: bool = False) -> Stored:
    """Return the stored body of an entry, or the remnant in its place.

    With ``may_lack_family``, the data of a family without a usable package is ``UnreadData``, and is not checked.
    Raises Refused: as ``body.decode_body``; ``INVALID_FORMAT`` for a remnant that has texts or another encoding, that
    has a version and sets none, or that is of an event that nobody may erase.
    """
    remnant = read_remnant(stored) if is_remnant(stored) else None
    raw = stored if remnant is None else remnant.body
    try:
        body, data = decode_body(raw)
    except Refused as refusal:
        if may_lack_family and refusal.code in LACKS_FAMILY:
            return Stored(*decode_unread(raw), raw, remnant)
        raise
    if remnant is None:
        return Stored(body, data, raw)
    if remnant.body not in [_erased_body(remnant.body, data, mark) for mark in (ERASED, _SHORT)]:
        raise Refused("INVALID_FORMAT", "the remnant of an erased body still has a text, or is not in canonical form")
    if (remnant.version is not None) != sets_content(data):
        raise Refused("INVALID_FORMAT", f"the remnant of an erased {body.kind} must have a version only if it set one")
    if not _is_erasable(data):
        raise Refused("INVALID_FORMAT", f"the body of such a {body.kind} is never erased")
    return Stored(body, data, remnant.body, remnant)


def remnant_of(entry: Entry, version: str | None) -> bytes:
    """Return the remnant of an entry that has its body; ``version`` is the version of the handoff that the body set.

    Raises Refused: ``NOTHING_CHANGED`` if the body has no text; ``TRANSITION_NOT_ALLOWED`` if nobody may erase it.
    """
    body, data = decode_body(entry.body)
    if has_texts(type(data)) and not _is_erasable(data):
        rest = "the events of its kind are checked by" if isinstance(data, KindDeclared) else _PROOFS
        message = f"this {body.kind} cannot be erased: {rest} it"
        raise Refused("TRANSITION_NOT_ALLOWED", message, kind=body.kind)
    plain, short = encode_sorted(_plain(entry.body) | {"salt": _NO_SALT}), b""
    for mark in (ERASED, _SHORT):
        raw = _erased_body(entry.body, data, mark)
        if raw == plain:
            message = f"a {body.kind} has no text to erase: names, ids, keys, numbers and references stay"
            raise Refused("NOTHING_CHANGED", message, kind=body.kind)
        short = Remnant(event_id(entry.commitment), version, raw).encode()
        if len(short) <= remnant_size_max_bytes:
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


@cache
def text_fields(kind: type[msgspec.Struct]) -> dict[str, Literal["mark", "empty"]]:
    """Return the fields of a type that hold texts: ``mark`` replaces each text in it; an object is made ``empty``.

    An object is made empty if its keys are texts, too.
    """
    fields = {field.name: (field.encode_name, _leaf(field.type)) for field in _type_of(kind).fields}
    kept = kind.kept_texts if issubclass(kind, EventData) else frozenset()
    return {
        encoded: "empty" if isinstance(leaf, inspect.DictType) else "mark"
        for name, (encoded, leaf) in fields.items()
        if name not in _KEPT and name not in kept and (isinstance(leaf, inspect.DictType) or _is_text(leaf))
    }


@cache
def types_in(kind: type[msgspec.Struct]) -> frozenset[type[msgspec.Struct]]:
    """Return a type and all types of structs in its fields."""
    found: set[type[msgspec.Struct]] = set()
    waiting: list[Any] = [_type_of(kind)]
    while waiting:
        form = waiting.pop()
        if isinstance(form, inspect.StructType) and form.cls not in found:
            found.add(form.cls)
            waiting += [field.type for field in form.fields]
        waiting += [part for name in ("type", "item_type", "value_type") if (part := getattr(form, name, None))]
        waiting += getattr(form, "types", ())
    return frozenset(found)


@cache
def has_texts(kind: type[EventData]) -> bool:
    """Return whether a kind of data has any text. An event without one is never erased."""
    return any(text_fields(part) for part in types_in(kind))


def is_kind_erasable(kind: type[EventData]) -> bool:
    """Return whether events with this data may be erased. A ``KeyRotated`` of root may not."""
    return has_texts(kind) and not issubclass(kind, _NEVER_ERASED)


def _is_erasable(data: EventData) -> bool:
    return is_kind_erasable(type(data)) and not (isinstance(data, KeyRotated) and data.agent == ROOT)


def _plain(raw: bytes) -> dict[str, Any]:
    """Return a valid body with its numbers as the author wrote them."""
    value: dict[str, Any] = json.loads(raw, parse_int=_number, parse_float=_number)
    return value


def _number(digits: str) -> msgspec.Raw:
    return msgspec.Raw(digits.encode())


def _erased_body(raw: bytes, data: EventData, mark: str) -> bytes:
    plain = _plain(raw)
    sent = plain["data"]
    if isinstance(data, DeclaredData):
        return encode_sorted(plain | {"salt": _NO_SALT, "data": {}})
    erased = _erase_struct(sent, type(data), mark)
    if isinstance(data, RecordImported) and data.mapped_kind is not None:
        for name, form in zip(("mapped", "claims"), mapped_types(data.mapped_kind), strict=True):
            if name in sent:
                erased[name] = _erase_struct(sent[name], form, mark)
    return encode_sorted(plain | {"salt": _NO_SALT, "data": erased})


def _erase_struct(value: dict[str, Any], kind: type[msgspec.Struct], mark: str) -> dict[str, Any]:
    """Return the plain value of a struct with ``mark`` in place of each text that is not empty."""
    texts, fields = text_fields(kind), {field.encode_name: field.type for field in _type_of(kind).fields}
    return {
        name: _replace(item, mark, is_emptied=texts[name] == "empty")
        if name in texts
        else _erase(item, fields[name], mark)
        for name, item in value.items()
    }


def _erase(value: Any, form: inspect.Type, mark: str) -> Any:
    """Return a plain value of a type that holds no text itself, with ``mark`` in place of the texts of its structs."""
    match form:
        case inspect.Metadata():
            return _erase(value, form.type, mark)
        case inspect.UnionType():
            return None if value is None else _erase(value, _some(form), mark)
        case inspect.StructType():
            return _erase_struct(value, form.cls, mark)
        case inspect.ListType() | inspect.VarTupleType():
            return [_erase(item, form.item_type, mark) for item in value]
        case inspect.DictType():
            return {key: _erase(item, form.value_type, mark) for key, item in value.items()}
        case _:  # types of values are an open set
            return value


def _replace(value: Any, mark: str, *, is_emptied: bool) -> Any:
    match value:
        case str():
            return mark if value else value
        case list():
            return [_replace(item, mark, is_emptied=is_emptied) for item in value]
        case dict():
            items = {} if is_emptied else value
            return {key: _replace(item, mark, is_emptied=is_emptied) for key, item in items.items()}
        case _:  # numbers, Booleans and None
            return value


def _leaf(form: inspect.Type) -> inspect.Type:
    """Return the type of the values in a field: the struct, the text, the number, or the object with texts as keys."""
    match form:
        case inspect.Metadata():
            return _leaf(form.type)
        case inspect.UnionType():
            return _leaf(_some(form))
        case inspect.ListType() | inspect.VarTupleType():
            return _leaf(form.item_type)
        case inspect.DictType() if not isinstance(form.value_type, inspect.AnyType) and not _is_text(form.value_type):
            return _leaf(form.value_type)
        case _:  # types of values are an open set
            return form


def _some(form: inspect.UnionType) -> inspect.Type:
    (some,) = (member for member in form.types if not isinstance(member, inspect.NoneType))
    return some


def _is_text(form: inspect.Type) -> bool:
    while isinstance(form, inspect.Metadata):
        form = form.type
    return isinstance(form, inspect.StrType) and form.pattern in _TEXT_PATTERNS


@cache
def _type_of(kind: type[msgspec.Struct]) -> inspect.StructType:
    form = inspect.type_info(kind)
    assert isinstance(form, inspect.StructType)  # noqa: S101 - all data of events are structs
    return form
