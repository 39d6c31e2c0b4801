"""Reading all notes of a repository, and adding to the ledger what does not stand there yet.

Reading keeps every original as a blob and maps it; then everything new is appended, the oldest claimed time first. What
happens if we crash in between: blobs that no event names, or some of the events; the next run asks which originals
stand already (``records.existing``), and adds the others. So does a run of another importer, or from a clone.

Notes that this ledger wrote itself are known by their bytes: they are what it derives from one of its own reports.
Neither the ref nor a trailer of the commit decides that: anybody can write both.

A note's session is the one that the ref names, so that an id which the tool cut to eight characters is whole again;
only notes whose refs name none (findings, goals, …) have it in a field. A record is made to fit an entry: its texts are
shortened at words, all to one length, the greatest that fits; of too many fewer are kept; every shortening is listed as
dirty. Refused: to leave long notes unmapped, where nobody would find them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from deedbook.consumers.importers import records
from deedbook.consumers.importers.empirica.kinds import READ_BY, UNMAPPED, About, Meaning
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
from deedbook.ledger.limits import blob_size_max_bytes, data_size_max_bytes, stream_name_max_bytes
from deedbook.projections.answers.query import page_rows_max
from deedbook.projections.briefs.tokens import greatest
from deedbook.projections.reports.compressed import shorten

Step: TypeAlias = Callable[[int, int], None]
Place: TypeAlias = tuple[str, str]  # a note's source and original, which tell it from all others

page_size_max_bytes: Final = 32 * 1024**2
_REF: Final = re.compile(rb'"ref":"([0-9a-f]{12})"')
_MARKDOWN: Final = b"# Epistemic Handoff Report"


class Read(NamedTuple):
    """What was found: kind and place of each note, records to add in order, the rows of what stands, own, unread."""

    notes: tuple[tuple[str, Place], ...]
    records: tuple[Mapped, ...]
    standing: dict[Place, dict[str, Any]]
    own: int
    unread: tuple[Unmapped, ...]


class Done(NamedTuple):
    """What an import came to: the counts, what was read, and how many dirty values there are in each kind of note."""

    counts: records.Counts
    found: Read
    dirty: Counter[str]

    def answer(self) -> dict[str, Any]:
        """Return the counts as commands print them."""
        kind_at = {place: kind for kind, place in self.found.notes}
        kinds = Counter(kind for kind, _ in self.found.notes)
        unmapped_kinds = Counter(kind_at[record.source, record.original] for record in self.counts.unmapped_records)

        def counts_of(kind: str) -> dict[str, int]:
            read, unmapped = kinds[kind], unmapped_kinds[kind]
            return {"read": read, "mapped": read - unmapped, "unmapped": unmapped, "dirty": self.dirty[kind]}

        return self.counts.answer() | {
            "dirty": self.dirty.total(),
            "own": self.found.own,
            "by_kind": {kind: counts_of(kind) for kind in sorted(kinds)},
            "unread": [unread.answer() for unread in self.found.unread],
        }


def read_notes(
    repository: Repository,
    roots: Sequence[str],
    answer: Ask,
    *,
    put_blob: Callable[[bytes], str] | None,
    importer: str | None = None,
    step: Step = lambda _done, _total: None,
) -> Read:
    """Return what the notes below ``roots`` become; without ``put_blob`` no original is kept (a dry run).

    A note that is unmapped because another importer owns its session is tried again as ``importer``.
    """
    refs, broken = repository.refs(roots)
    unread = list(broken)
    notes: list[tuple[str, Place]] = []
    fresh: list[Mapped] = []
    standing: dict[Place, dict[str, Any]] = {}
    met: set[Place] = set()
    own = 0
    for page in _pages(repository.notes(refs, step), unread):
        theirs = [note for note in page if not is_own(note, answer)]
        own += len(page) - len(theirs)
        rows = records.existing_records(answer, ((note.original, note.source) for note in theirs))
        there = {(row["source"], row["original"]): row for row in rows}
        for note in theirs:
            place = (note.source, note.original)
            notes.append((kind_of(note.tail), place))
            if place not in met and place in there and not _may_be_mine(there[place], importer):
                standing[place] = there[place]
            elif place not in met:
                fresh.append(_kept(note, put_blob))
            met.add(place)
    # What claims no time comes first, so that it is never taken for the newest.
    fresh.sort(key=lambda mapped: (mapped.at_us is not None, mapped.at_us or 0))
    return Read(tuple(notes), tuple(fresh), standing, own, tuple(unread))


def import_notes(author: Author, found: Read, step: Step = lambda _done, _total: None) -> Done:
    """Append what was found and does not stand yet; ``step(done, total)`` tells of progress."""
    return counted(records.import_records(author, [mapped.record for mapped in found.records], step), found)


def rehearsed(found: Read) -> Done:
    """Return what an import would come to, by what was read; what the ledger itself would refuse is not known."""
    return counted(replace(records.rehearsed([mapped.record for mapped in found.records]), added=0), found)


def counted(counts: records.Counts, found: Read) -> Done:
    """Return the counts with what stood already: ``read`` is what was read from git, whatever became of it."""
    outcomes: dict[Place, tuple[str | None, int]] = {
        place: (None if row["mapped_kind"] else row["reason"], row["dirty"]) for place, row in found.standing.items()
    }
    for data in (mapped.record.data for mapped in found.records):
        outcomes[data.source, data.original] = (None, len(data.claims.get("dirty", [])))
    outcomes |= {(record.source, record.original): (record.reason, 0) for record in counts.unmapped_records}
    known = [(place, outcomes[place][0]) for _, place in found.notes if place in outcomes]  # the others are lost
    unmapped = tuple(Unmapped(source, reason, original) for (source, original), reason in known if reason is not None)
    dirty: Counter[str] = Counter()
    for place, kind in {place: kind for kind, place in found.notes}.items():
        dirty[kind] += outcomes.get(place, (None, 0))[1]
    return Done(records.Counts(len(found.notes), len(known) - len(unmapped), counts.added, unmapped), found, dirty)


def _pages(notes: Iterator[Note | Unmapped], unread: list[Unmapped]) -> Iterator[list[Note]]:
    """Yield notes in pages that one question can ask for, and memory can hold."""

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


def _kept(note: Note, put_blob: Callable[[bytes], str] | None) -> Mapped:
    """Return the record of a note whose original is kept; one that must not be stored is only named by its digest."""
    if put_blob is not None and note.content is not None:
        try:
            put_blob(note.content)
        except Refused as refusal:
            return unmapped_note(note, f"{refusal.code}: {refusal.message}: the original is not kept, only its digest")
    return map_note(note)


def is_own(note: Note, answer: Ask) -> bool:
    """Return whether this ledger derives the very bytes of a note from a report that it has."""
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


def _is_derived(answer: Ask, asked: dict[str, str], form: str, content: bytes) -> bool:
    try:
        report = answer("reports.show", asked)["report"]
    except Refused:
        return False
    return report["imported"] is None and report[form].encode("utf-8", "replace").rstrip() == content.rstrip()


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

    record: records.Record
    at_us: int | None


def kind_of(source_tail: str) -> str:
    """Return the kind of a note: the first part of its ref's name below the root."""
    return source_tail.partition("/")[0] or "(root)"


def map_note(note: Note) -> Mapped:
    """Return the record that a note becomes."""
    try:
        return _mapped(note)
    except Refused as refusal:
        return unmapped_note(note, refusal.message)


def unmapped_note(note: Note, reason: str) -> Mapped:
    """Return the record of a note that is only kept."""
    return Mapped(records.unmapped_record(note.original, note.source, format_of(note), reason), None)


def format_of(note: Note) -> str:
    """Return what a note is read as: the tool and the kind of note."""
    return f"{FORMAT}/{kind_of(note.tail)[:_kind_max_chars]}"


def _mapped(note: Note) -> Mapped:
    kind, *name = note.tail.split("/")
    if note.problem:
        raise Refused("INVALID_FORMAT", note.problem)
    if note.content is None:
        raise Refused("TOO_LARGE", f"it has more than {blob_size_max_bytes} bytes: not even its original is kept")
    if kind in UNMAPPED or (kind == "handoff" and name[1:] == ["markdown"]):
        raise Refused("INVALID_FORMAT", UNMAPPED.get(kind, UNMAPPED["handoff-markdown"]))
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
    return Mapped(records.Record(stream, data), at_us)


def _record(note: Note, meaning: Meaning, author: str, when: str | None, reading: Reading) -> RecordImported:
    ours = {"noted object": note.noted} if note.noted else {}
    if meaning.filled:
        ours["filled in"] = f"{', '.join(meaning.filled)}: the original has none"
    said = ours | {unused(name, ours): text for name, text in (reading.said() | meaning.said).items()}
    return RecordImported(
        original=note.original,
        source=note.source,
        format=format_of(note),
        mapped_kind=KIND_OF[type(meaning.data)],
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
    """Return the first claimed time that can be read, as text and in Unix microseconds; else the first as it is."""
    unread: str | None = None
    for name in ("ts", "timestamp", "created_at"):
        value = reading.fields.get(name)
        if value is None or value == "":
            continue
        claimed = records.claimed_time(reading.take(name))
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
