"""Reads all notes of a repository, and adds those to the ledger that it does not have yet.

Reading stores every original as a blob and maps it; then all new records are appended, the oldest claimed time first.
If we crash in between, the ledger may have blobs that no event names, or only some of the events. The next run asks
which originals exist already (``records.existing``) and adds the others. A run of another importer, or from a clone,
does the same.

Notes that this ledger wrote itself are recognised by their bytes, which it can derive from one of its own reports. The
ref and the trailer of the commit do not count: anybody can write both.

The session of a note is the one that the ref names, so an id that the tool shortened to eight characters is complete
again. Only notes whose refs name no session (findings, goals, …) have it in a field. A record is made to fit an entry:
its texts are shortened at words, all to the greatest length that fits, and long lists lose items. Every shortening is
listed as dirty. Rejected: storing long notes as unmapped, where nobody would find them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from deedbook.consumers.importers import records
from deedbook.consumers.importers.empirica.kinds import ASIDE, READ_BY, NoteContext, NoteMapping
from deedbook.consumers.importers.empirica.notes import Note, Repository
from deedbook.consumers.importers.empirica.values import Reading, label_max_chars, read_json, shown, unused
from deedbook.consumers.importers.records import Unmapped
from deedbook.consumers.sessions.settings import text_of
from deedbook.ledger.client.author import Author
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KIND_OF
from deedbook.ledger.events.imported import DirtyValue, RecordClaims, RecordImported, read_mapped
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.format.forms import STREAM_PATTERN
from deedbook.ledger.limits import content_size_max_bytes, data_size_max_bytes, stream_name_max_bytes
from deedbook.projections.answers.query import page_rows_max
from deedbook.projections.briefs.tokens import greatest
from deedbook.projections.reports.compressed import shorten

Step: TypeAlias = Callable[[int, int], None]
NoteKey: TypeAlias = tuple[str, str]  # a note's source and original, which identify it

page_size_max_bytes: Final = 32 * 1024**2
_REF: Final = re.compile(rb'"ref":"([0-9a-f]{12})"')
_MARKDOWN: Final = b"# Epistemic Handoff Report"


class NoteReading(NamedTuple):
    """The notes read: kind and key of each, records to add in order, existing rows, count of own notes, unread ones."""

    notes: tuple[tuple[str, NoteKey], ...]
    records: tuple[MappedNote, ...]
    existing: dict[NoteKey, dict[str, Any]]
    own: int
    unread: tuple[Unmapped, ...]


class NoteImport(NamedTuple):
    """The result of an import: the counts, the notes read, and the number of dirty values in each kind of note."""

    counts: records.Counts
    reading: NoteReading
    dirty: Counter[str]

    def answer(self) -> dict[str, Any]:
        """Return the counts as commands print them."""
        kind_at = {key: kind for kind, key in self.reading.notes}
        kinds = Counter(kind for kind, _ in self.reading.notes)
        unmapped_kinds = Counter(kind_at[record.source, record.original] for record in self.counts.unmapped_records)

        def counts_of(kind: str) -> dict[str, int]:
            read, unmapped = kinds[kind], unmapped_kinds[kind]
            return {"read": read, "mapped": read - unmapped, "unmapped": unmapped, "dirty": self.dirty[kind]}

        return self.counts.answer() | {
            "dirty": self.dirty.total(),
            "own": self.reading.own,
            "by_kind": {kind: counts_of(kind) for kind in sorted(kinds)},
            "unread": [unread.answer() for unread in self.reading.unread],
        }


def read_notes(
    repository: Repository,
    roots: Sequence[str],
    answer: Ask,
    *,
    put_blob: Callable[[bytes], str] | None,
    importer: str | None = None,
    step: Step = lambda _done, _total: None,
) -> NoteReading:
    """Return the records of the notes below ``roots``; without ``put_blob`` no original is stored (a dry run).

    Notes that are unmapped because their session belongs to another importer are tried again as ``importer``.
    """
    refs, broken = repository.refs(roots)
    unread = list(broken)
    notes: list[tuple[str, NoteKey]] = []
    fresh: list[MappedNote] = []
    existing: dict[NoteKey, dict[str, Any]] = {}
    seen: set[NoteKey] = set()
    own = 0
    for page in _pages(repository.notes(refs, step), unread):
        theirs = [note for note in page if not is_own(note, answer)]
        own += len(page) - len(theirs)
        rows = records.existing_records(answer, ((note.original, note.source) for note in theirs))
        stored = {(row["source"], row["original"]): row for row in rows}
        for note in theirs:
            key = (note.source, note.original)
            notes.append((kind_of(note.tail), key))
            if key not in seen and key in stored and not _may_be_mine(stored[key], importer):
                existing[key] = stored[key]
            elif key not in seen:
                fresh.append(_stored(note, put_blob))
            seen.add(key)
    # Records that claim no time come first, so that they are never taken for the newest.
    fresh.sort(key=lambda mapped: (mapped.at_us is not None, mapped.at_us or 0))
    return NoteReading(tuple(notes), tuple(fresh), existing, own, tuple(unread))


def import_notes(author: Author, reading: NoteReading, step: Step = lambda _done, _total: None) -> NoteImport:
    """Append the new records; ``step(done, total)`` reports progress."""
    return counted(records.import_records(author, [mapped.record for mapped in reading.records], step), reading)


def rehearsed(reading: NoteReading) -> NoteImport:
    """Return the result of an import in which the ledger refuses no record."""
    return counted(replace(records.rehearsed([mapped.record for mapped in reading.records]), added=0), reading)


def counted(counts: records.Counts, reading: NoteReading) -> NoteImport:
    """Return the counts with the existing records: ``read`` is the number of notes that were read from git."""
    outcomes: dict[NoteKey, tuple[str | None, int]] = {
        key: (None if row["mapped_kind"] else row["reason"], row["dirty"]) for key, row in reading.existing.items()
    }
    for data in (mapped.record.data for mapped in reading.records):
        outcomes[data.source, data.original] = (None, len(data.claims.get("dirty", [])))
    outcomes |= {(record.source, record.original): (record.reason, 0) for record in counts.unmapped_records}
    known = [(key, outcomes[key][0]) for _, key in reading.notes if key in outcomes]  # keys without an outcome are lost
    unmapped = tuple(Unmapped(source, reason, original) for (source, original), reason in known if reason is not None)
    dirty: Counter[str] = Counter()
    for key, kind in {key: kind for kind, key in reading.notes}.items():
        dirty[kind] += outcomes.get(key, (None, 0))[1]
    totals = records.Counts(len(reading.notes), len(known) - len(unmapped), counts.added, unmapped)
    return NoteImport(totals, reading, dirty)


def _pages(notes: Iterator[Note | Unmapped], unread: list[Unmapped]) -> Iterator[list[Note]]:
    """Yield notes in pages that fit one query and memory."""

    def readable() -> Iterator[Note]:
        for note in notes:
            if isinstance(note, Unmapped):
                unread.append(note)
            else:
                yield note

    limits = (page_rows_max, page_size_max_bytes)
    return records.batches(readable(), lambda note: (1, len(note.content or b"")), limits)


def _may_be_mine(row: dict[str, Any], importer: str | None) -> bool:
    is_others = row["mapped_kind"] is None and row["reason"].startswith("NOT_AUTHORIZED")
    return is_others and importer not in (None, row["importer"])


def _stored(note: Note, put_blob: Callable[[bytes], str] | None) -> MappedNote:
    """Store a note's original and return its record; an original that must not be stored is named by its digest."""
    if put_blob is not None and note.content is not None:
        try:
            put_blob(note.content)
        except Refused as refusal:
            reason = f"{refusal.code}: {refusal.message}: only the digest of the original is stored"
            return unmapped_note(note, reason, only_digest=True)
    return map_note(note)


def is_own(note: Note, answer: Ask) -> bool:
    """Return whether this ledger can derive exactly these bytes from one of its reports."""
    kind, _, name = note.tail.partition("/")
    if note.content is None or not name:
        return False
    if kind == "handoff":
        ref = _REF.search(note.content)
        return ref is not None and _is_derived(answer, {"id": ref[1].decode()}, "compressed_json", note.content)
    if kind == "handoff-markdown" and note.content.startswith(_MARKDOWN):
        session = text_of(name) or name
        questions = ({"id": session, "version": version} for version in _versions(answer, session))
        return any(_is_derived(answer, question, "markdown", note.content) for question in questions)
    return False


def _versions(answer: Ask, session: str) -> list[str]:
    try:
        versions = answer("reports.show", {"id": session})["versions"]
    except Refused:
        return []
    return [version["report_id"] for version in reversed(versions)]


def _is_derived(answer: Ask, arguments: dict[str, str], form: str, content: bytes) -> bool:
    try:
        report = answer("reports.show", arguments)["report"]
    except Refused:
        return False
    return report["imported"] is None and report[form].encode("utf-8", "replace").rstrip() == content.rstrip()


FORMAT: Final = "empirica"
_BY_REF: Final = frozenset({"handoff", "session"})
_STREAM: Final = re.compile(STREAM_PATTERN)
_kind_max_chars: Final = 100
text_min_chars: Final = 24
text_max_chars: Final = 40_000
_items_max_choices: Final = (1_000, 200, 40)
_notes_max: Final = 12
_claims_max_chars: Final = 40


class MappedNote(NamedTuple):
    """The record of a note, and the time that it claims (Unix microseconds; None if no time can be read)."""

    record: records.Record
    at_us: int | None


def kind_of(source_tail: str) -> str:
    """Return the kind of a note: the first part of its ref's name below the root."""
    return source_tail.partition("/")[0] or "(root)"


def map_note(note: Note) -> MappedNote:
    """Return the record of a note."""
    try:
        return _mapped(note)
    except Refused as refusal:
        return unmapped_note(note, refusal.message, only_digest=note.content is None)


def unmapped_note(note: Note, reason: str, *, only_digest: bool) -> MappedNote:
    """Return the record of a note whose original, or only the digest of its original, is stored."""
    body = "" if only_digest or note.content is None else records.body_of(note.content)
    record = records.unmapped_record(note.original, note.source, format_of(note), reason, body, only_digest=only_digest)
    return MappedNote(record, None)


def format_of(note: Note) -> str:
    """Return the format of a note: the tool and the kind of note."""
    return f"{FORMAT}/{kind_of(note.tail)[:_kind_max_chars]}"


def _mapped(note: Note) -> MappedNote:
    kind, *name = note.tail.split("/")
    if note.problem:
        raise Refused("INVALID_FORMAT", note.problem)
    if note.content is None:
        raise Refused(
            "TOO_LARGE", f"it has more than {content_size_max_bytes} bytes, so not even its original is stored"
        )
    if kind in ASIDE or (kind == "handoff" and name[1:] == ["markdown"]):
        raise Refused("INVALID_FORMAT", ASIDE.get(kind, ASIDE["handoff-markdown"]))
    if kind not in READ_BY:
        raise Refused("INVALID_FORMAT", f"Deedbook does not know the kind of note {kind_of(note.tail)!r}")
    fields, odd = read_json(note.content)
    reading = Reading(fields, dirty=odd)
    stream = _stream(reading, name[0] if kind in _BY_REF and name else "")
    when, at_us = _claimed_at(reading)
    about = NoteContext(name, reading.text("ai", "ai_id", chars_max=label_max_chars))
    mapping = READ_BY[kind](reading, about)
    data = fitted(_record(note, mapping, about.author, when, reading))
    if data is None:
        raise Refused(
            "TOO_LARGE", "the note is too large for an event, even with shortened texts: read the original note"
        )
    read_mapped(data)
    return MappedNote(records.Record(stream, data), at_us)


def _record(note: Note, mapping: NoteMapping, author: str, when: str | None, reading: Reading) -> RecordImported:
    ours = {"noted object": note.noted} if note.noted else {}
    if mapping.filled:
        ours["filled in"] = f"{', '.join(mapping.filled)}: the original has none"
    said = ours | {unused(name, ours): text for name, text in (reading.said() | mapping.said).items()}
    return RecordImported(
        original=note.original,
        source=note.source,
        format=format_of(note),
        mapped_kind=KIND_OF[type(mapping.data)],
        mapped=msgspec.to_builtins(mapping.data),
        claimed_author=author or None,
        claimed_at=when,
        claims=msgspec.to_builtins(RecordClaims(said=said, dirty=reading.dirty)),
    )


def _stream(reading: Reading, by_ref: str) -> str:
    name = "s" if "s" in reading.fields else "session_id"
    field = reading.text(name, chars_max=stream_name_max_bytes)
    session = (text_of(by_ref) or by_ref) if by_ref else field
    if not session:
        raise Refused("INVALID_FIELD", "it does not name its session")
    if field and not session.startswith(field):
        reading.complain(name, field, f"the ref names another session, which counts: {session[:100]}")
    stream = f"session/{session}"
    if not _STREAM.fullmatch(stream) or len(stream.encode("utf-8", "replace")) > stream_name_max_bytes:
        raise Refused("INVALID_FIELD", "its session id is too long, or has control characters")
    return stream


def _claimed_at(reading: Reading) -> tuple[str | None, int | None]:
    """Return the first readable claimed time, as text and in Unix microseconds; else the first time as written."""
    unread: str | None = None
    for name in ("ts", "timestamp", "created_at"):
        value = reading.fields.get(name)
        if value is None or value == "":
            continue
        claimed = records.claimed_time(reading.take(name))
        if claimed is None or claimed.at_us is None:
            reading.complain(name, value, "not a time" if claimed is None else "this time cannot be read")
            unread = unread or (None if claimed is None else reading.fitted(name, claimed.text, label_max_chars))
            continue
        if claimed.assumed:
            reading.fields[name] = f"{value} ({claimed.assumed})"
        return claimed.text, claimed.at_us
    return unread, None


def fitted(data: RecordImported) -> RecordImported | None:
    """Return a record that fits an entry, shortened if needed; None if even the shortest form is too large."""
    if _fits(data):
        return data
    items = next((items for items in _items_max_choices if _fits(_shortened(data, text_min_chars, items))), None)
    if items is None:
        return None
    chars = greatest(text_min_chars, text_max_chars, lambda chars: _fits(_shortened(data, chars, items)))
    return _shortened(data, chars, items)


def _fits(data: RecordImported) -> bool:
    return len(encode_canonical(data)) <= data_size_max_bytes


def _shortened(data: RecordImported, chars: int, items: int) -> RecordImported:
    notes: list[DirtyValue] = []
    mapped = _cut(data.mapped, "", chars, items, notes)
    if len(notes) > _notes_max:
        why = f"{len(notes) - _notes_max} more were shortened: the original is complete"
        notes[_notes_max:] = [DirtyValue(path="$", value="…", why=why)]
    claims = _claims(data.claims)
    claims["dirty"] = [*claims.get("dirty", []), *msgspec.to_builtins(notes)]
    return msgspec.structs.replace(data, mapped=mapped, claims=claims)


def _claims(claims: dict[str, Any]) -> dict[str, Any]:
    said = {name: shown(text, 2 * _claims_max_chars) for name, text in claims.get("said", {}).items()}
    dirty = [value | {"value": shown(value["value"], _claims_max_chars)} for value in claims.get("dirty", [])]
    return {"said": said, "dirty": dirty}


def _cut(value: Any, path: str, chars: int, items: int, notes: list[DirtyValue]) -> Any:
    if isinstance(value, str) and len(value) > chars:
        why = f"shortened from {len(value)} characters to fit an event: the original is complete"
        notes.append(DirtyValue(path=path[:200] or "$", value=shown(value, _claims_max_chars), why=why))
        return shorten(value, chars)
    if isinstance(value, list):
        if len(value) > items:
            why = f"only the first {items} fit an event: the original is complete"
            notes.append(DirtyValue(path=path[:200] or "$", value=str(len(value)), why=why))
        return [_cut(item, f"{path}[{number}]", chars, items, notes) for number, item in enumerate(value[:items])]
    if isinstance(value, dict):
        return {name: _cut(item, f"{path}.{name}".lstrip("."), chars, items, notes) for name, item in value.items()}
    return value
