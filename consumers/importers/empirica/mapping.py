"""From a note to a record: which session it belongs to, who and when it claims, and what it stands for. Pure.

The session is the one that the ref names; only notes whose refs name none (findings, goals, …) have it in a field. So
an id that the tool cut to eight characters is whole again. A note that stands for nothing is kept aside with a reason.

A record is made to fit an entry: its texts are shortened at words, all to one length, the greatest that fits; of too
many fewer are kept; every shortening is listed as dirty. The original stands whole in its blob. Refused: keeping long
notes aside, where nobody would find them.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from consumers.importers.empirica.kinds import ASIDE, READ_BY, About, Meaning
from consumers.importers.empirica.notes import Note
from consumers.importers.empirica.values import Reading, label_max_chars, read_json, shown, unused
from consumers.importers.records import Record, claimed_time, kept_aside
from consumers.sessions.places import text_of
from ledger.codec import encode_canonical
from ledger.errors import Refused
from ledger.events.imported import DirtyValue, RecordClaims, RecordImported, read_mapped
from ledger.forms import STREAM_PATTERN
from ledger.limits import blob_size_max_bytes, data_size_max_bytes, stream_name_max_bytes
from projections.briefs.tokens import greatest
from projections.reports.compressed import shorten

FORMAT: Final = "empirica"
_BY_REF: Final = frozenset({"handoff", "session"})
_STREAM: Final = re.compile(STREAM_PATTERN)
_kind_max_chars: Final = 100
text_min_chars: Final = 24
text_max_chars: Final = 40_000
_items_kept: Final = (1_000, 200, 40)
_told_max: Final = 12
_claims_max_chars: Final = 40


class Mapped(NamedTuple):
    """The record of a note, and the time that it claims (Unix microseconds; None: it claims none that can be read)."""

    record: Record
    at_us: int | None


def kind_of(source_tail: str) -> str:
    """Return the kind of a note: the first part of its ref's name below the root."""
    return source_tail.partition("/")[0] or "(root)"


def map_note(note: Note) -> Mapped:
    """Return the record that a note becomes."""
    try:
        return _mapped(note)
    except Refused as refusal:
        return aside(note, refusal.message)


def aside(note: Note, reason: str) -> Mapped:
    """Return the record of a note that is only kept."""
    return Mapped(kept_aside(note.original, note.source, format_of(note), reason), None)


def format_of(note: Note) -> str:
    """Return what a note is read as: the tool and the kind of note."""
    return f"{FORMAT}/{kind_of(note.tail)[:_kind_max_chars]}"


def _mapped(note: Note) -> Mapped:
    kind, *name = note.tail.split("/")
    if note.problem:
        raise Refused("INVALID_FORMAT", note.problem)
    if note.content is None:
        raise Refused("TOO_LARGE", f"it has more than {blob_size_max_bytes} bytes: not even its original is kept")
    if kind in ASIDE or (kind == "handoff" and name[1:] == ["markdown"]):
        raise Refused("INVALID_FORMAT", ASIDE.get(kind, ASIDE["handoff-markdown"]))
    if kind not in READ_BY:
        raise Refused("INVALID_FORMAT", f"there is no kind of note {kind_of(note.tail)!r} that is known here")
    fields, odd = read_json(note.content)
    reading = Reading(fields, dirty=odd)
    stream = _stream(reading, name[0] if kind in _BY_REF and name else "")
    when, at_us = _claimed_at(reading)
    about = About(name, reading.text("ai", "ai_id", chars_max=label_max_chars))
    meaning = READ_BY[kind](reading, about)
    data = fitted(_record(note, meaning, about.author, when, reading))
    if data is None:
        raise Refused("TOO_LARGE", "not even the beginnings of its texts fit an event: the original has them")
    read_mapped(data)
    return Mapped(Record(stream, data), at_us)


def _record(note: Note, meaning: Meaning, author: str, when: str | None, reading: Reading) -> RecordImported:
    ours = {"noted object": note.noted} if note.noted else {}
    if meaning.filled:
        ours["filled in"] = f"{', '.join(meaning.filled)}: the original has none"
    said = ours | {unused(name, ours): text for name, text in (reading.said() | meaning.said).items()}
    return RecordImported(
        original=note.original,
        source=note.source,
        format=format_of(note),
        mapped_kind=meaning.kind,
        mapped=msgspec.to_builtins(meaning.data),
        claimed_author=author or None,
        claimed_at=when,
        claims=msgspec.to_builtins(RecordClaims(said=said, dirty=reading.dirty)),
    )


def _stream(reading: Reading, by_ref: str) -> str:
    name = "s" if "s" in reading.fields else "session_id"
    given = reading.text(name, chars_max=stream_name_max_bytes)
    session = (text_of(by_ref) or by_ref) if by_ref else given
    if not session:
        raise Refused("INVALID_FIELD", "it names no session that it belongs to")
    if given and not session.startswith(given):
        reading.complain(name, given, f"the ref names another session, and counts: {session[:100]}")
    stream = f"session/{session}"
    if not _STREAM.fullmatch(stream) or len(stream.encode("utf-8", "replace")) > stream_name_max_bytes:
        raise Refused("INVALID_FIELD", "no session here can have its id: it is too long, or has control characters")
    return stream


def _claimed_at(reading: Reading) -> tuple[str | None, int | None]:
    """Return the time that a note claims, as text and in Unix microseconds: the first of its times that can be read.

    Where none can be, the first one stands as it is.
    """
    unread: str | None = None
    for name in ("ts", "timestamp", "created_at"):
        value = reading.fields.get(name)
        if value is None or value == "":
            continue
        claimed = claimed_time(reading.take(name))
        if claimed is None or claimed.at_us is None:
            reading.complain(name, value, "this is no time" if claimed is None else "this time cannot be read")
            unread = unread or (None if claimed is None else reading.fitted(name, claimed.text, label_max_chars))
            continue
        if claimed.assumed:
            reading.fields[name] = f"{value} ({claimed.assumed})"
        return claimed.text, claimed.at_us
    return unread, None


def fitted(data: RecordImported) -> RecordImported | None:
    """Return a record that fits an entry; None when even its beginnings do not."""
    if _fits(data):
        return data
    items = next((items for items in _items_kept if _fits(_shortened(data, text_min_chars, items))), None)
    if items is None:
        return None
    chars = greatest(text_min_chars, text_max_chars, lambda chars: _fits(_shortened(data, chars, items)))
    return _shortened(data, chars, items)


def _fits(data: RecordImported) -> bool:
    return len(encode_canonical(data)) <= data_size_max_bytes


def _shortened(data: RecordImported, chars: int, items: int) -> RecordImported:
    notes: list[DirtyValue] = []
    mapped = _cut(data.mapped, "", chars, items, notes)
    if len(notes) > _told_max:
        why = f"{len(notes) - _told_max} more were shortened: the original has the whole"
        notes[_told_max:] = [DirtyValue(path="$", value="…", why=why)]
    claims = _claims(data.claims)
    claims["dirty"] = [*claims.get("dirty", []), *msgspec.to_builtins(notes)]
    return msgspec.structs.replace(data, mapped=mapped, claims=claims)


def _claims(claims: dict[str, Any]) -> dict[str, Any]:
    """Return what is said with its values shortened: every name stays."""
    said = {name: shown(text, 2 * _claims_max_chars) for name, text in claims.get("said", {}).items()}
    dirty = [value | {"value": shown(value["value"], _claims_max_chars)} for value in claims.get("dirty", [])]
    return {"said": said, "dirty": dirty}


def _cut(value: Any, path: str, chars: int, items: int, notes: list[DirtyValue]) -> Any:
    if isinstance(value, str) and len(value) > chars:
        why = f"shortened from {len(value)} characters to fit an event: the original has the whole"
        notes.append(DirtyValue(path=path[:200] or "$", value=shown(value, _claims_max_chars), why=why))
        return shorten(value, chars)
    if isinstance(value, list):
        if len(value) > items:
            why = f"only the first {items} fit an event: the original has all"
            notes.append(DirtyValue(path=path[:200] or "$", value=str(len(value)), why=why))
        return [_cut(item, f"{path}[{number}]", chars, items, notes) for number, item in enumerate(value[:items])]
    if isinstance(value, dict):
        return {name: _cut(item, f"{path}.{name}".lstrip("."), chars, items, notes) for name, item in value.items()}
    return value
