"""Reading all notes of a repository, and adding to the ledger what does not stand there yet.

Reading keeps every original as a blob and maps it; then everything new is appended, the oldest claimed time first. What
happens if we crash in between: blobs that no event names, or some of the events; the next run asks which originals
stand already (``records.existing``), and adds the others. So does a run of another importer, or from a clone.

Notes that this ledger wrote itself are known by their bytes: they are what it derives from one of its own reports.
Neither the ref nor a trailer of the commit decides that: anybody can write both. A note that claims to be ours, and
says something else, is another tool's and is imported as such.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from consumers.importers import records
from consumers.importers.empirica.mapping import Mapped, aside, kind_of, map_note
from consumers.importers.empirica.notes import Note, Repository, Unread
from consumers.importers.records import Aside, Counts, existing_records, import_records
from consumers.sessions.places import text_of
from ledger.errors import Refused
from projections.query import page_rows_max

if TYPE_CHECKING:
    from ledger.author import Author
    from ledger.client import Ask

Step: TypeAlias = Callable[[int, int], None]

page_size_max_bytes: Final = 32 * 1024**2
_REF: Final = re.compile(rb'"ref":"([0-9a-f]{12})"')
_MARKDOWN: Final = b"# Epistemic Handoff Report"


class Known(NamedTuple):
    """A note that needs no new event: it stands in the ledger, or was met twice in this run."""

    kind: str
    source: str
    original: str
    reason: str | None
    dirty: int
    importer: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """What tells it from other notes."""
        return self.source, self.original


class Read(NamedTuple):
    """What was found: how many notes of each kind, records to add in order, what stands already, our own, unread."""

    kinds: Counter[str]
    records: tuple[Mapped, ...]
    standing: tuple[Known, ...]
    repeats: tuple[Known, ...]
    own: int
    unread: tuple[Unread, ...]


class Done(NamedTuple):
    """What an import came to: the counts, and what was read."""

    counts: Counts
    found: Read

    def answer(self) -> dict[str, Any]:
        """Return the counts as commands print them."""
        places = {mapped.record.data.source: _kind_in(mapped) for mapped in self.found.records}
        places |= {known.source: known.kind for known in (*self.found.standing, *self.found.repeats)}
        asides = Counter(places[aside.source] for aside in self.counts.aside)
        kinds = self.found.kinds
        dirty = _dirty_by_kind(self.found, {aside.place for aside in self.counts.aside})
        return self.counts.answer() | {
            "dirty": sum(dirty.values()),
            "own": self.found.own,
            "by_kind": {
                kind: {
                    "read": kinds[kind],
                    "mapped": kinds[kind] - asides[kind],
                    "kept_aside": asides[kind],
                    "dirty": dirty[kind],
                }
                for kind in sorted(kinds)
            },
            "unread": [unread._asdict() for unread in self.found.unread],
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

    What was kept aside because its session is another importer's is tried again as ``importer``.

    Raises:
        Refused: ``INVALID_FIELD`` for a root that is none. Unavailable: git, the views or the blobs.
    """
    refs, broken = repository.refs(roots)
    unread = list(broken)
    kinds: Counter[str] = Counter()
    fresh: list[Mapped] = []
    standing: list[Known] = []
    repeats: list[Known] = []
    met: set[tuple[str, str]] = set()
    own = 0
    for page in _pages(repository.notes(refs, step), unread):
        theirs = [note for note in page if not is_own(note, answer)]
        own += len(page) - len(theirs)
        kinds.update(kind_of(note.tail) for note in theirs)
        there = _standing(answer, theirs)
        for note in theirs:
            place = (note.original, note.source)
            if place in met:
                repeats.append(Known(kind_of(note.tail), note.source, note.original, None, 0))
            elif place in there and not _may_be_mine(there[place], importer):
                standing.append(there[place])
            else:
                fresh.append(_kept(note, put_blob))
            met.add(place)
    # What claims no time comes first, so that it is never taken for the newest.
    fresh.sort(key=lambda mapped: (mapped.at_us is not None, mapped.at_us or 0))
    return Read(kinds, tuple(fresh), tuple(standing), tuple(repeats), own, tuple(unread))


def import_notes(author: Author, found: Read, answer: Ask, step: Step = lambda _done, _total: None) -> Done:
    """Append what was found and does not stand yet; ``step(done, total)`` tells of progress."""
    return counted(import_records(author, [mapped.record for mapped in found.records], step), found, answer)


def rehearsed(found: Read, answer: Ask) -> Done:
    """Return what an import would come to, by what was read; what the ledger itself would refuse is not known."""
    counts = records.rehearsed([mapped.record for mapped in found.records])
    return counted(counts._replace(added=0), found, answer)


def counted(counts: Counts, found: Read, answer: Ask) -> Done:
    """Return the counts with what stood already: ``read`` is what was read from git, whatever became of it."""
    known = [*found.standing, *found.repeats]
    reasons = {note.place: note.reason for note in (*found.standing, *_met_again(found, counts, answer))}
    asides = [
        Aside(note.source, reason, note.original) for note in known if (reason := reasons.get(note.place)) is not None
    ]
    mapped = counts.mapped + len(known) - len(asides)
    return Done(counts._replace(read=found.kinds.total(), mapped=mapped, aside=(*counts.aside, *asides)), found)


def _met_again(found: Read, counts: Counts, answer: Ask) -> Iterator[Known]:
    """Yield what became of the notes that were met a second time in this run: by its counts, or as they stand now."""
    reasons = {aside.place: aside.reason for aside in counts.aside}
    yield from (note._replace(reason=reasons.get(note.place)) for note in found.repeats)
    yield from (_known("", row) for row in _rows(answer, found.repeats))


def _pages(notes: Iterator[Note | Unread], unread: list[Unread]) -> Iterator[list[Note]]:
    """Yield notes in pages that one question can ask for, and memory can hold."""
    page: list[Note] = []
    size = 0
    for note in notes:
        if isinstance(note, Unread):
            unread.append(note)
            continue
        page.append(note)
        size += len(note.content or b"")
        if len(page) == page_rows_max or size > page_size_max_bytes:
            yield page
            page, size = [], 0
    if page:
        yield page


def _standing(answer: Ask, notes: Sequence[Note]) -> dict[tuple[str, str], Known]:
    kinds = {note.source: kind_of(note.tail) for note in notes}
    rows = _rows(answer, notes)
    return {(row["original"], row["source"]): _known(kinds[row["source"]], row) for row in rows}


def _rows(answer: Ask, wanted: Sequence[Note | Known]) -> Iterator[dict[str, Any]]:
    return existing_records(answer, ((note.original, note.source) for note in wanted))


def _known(kind: str, row: dict[str, Any]) -> Known:
    reason = row["reason"] if row["mapped_kind"] is None else None
    return Known(kind, row["source"], row["original"], reason, row["dirty"], row["importer"])


def _may_be_mine(known: Known, importer: str | None) -> bool:
    is_others = known.reason is not None and known.reason.startswith("NOT_AUTHORIZED")
    return is_others and importer not in (None, known.importer)


def _kept(note: Note, put_blob: Callable[[bytes], str] | None) -> Mapped:
    """Return the record of a note whose original is kept; one that must not be stored is only named by its digest."""
    if put_blob is not None and note.content is not None:
        try:
            put_blob(note.content)
        except Refused as refusal:
            return aside(note, f"{refusal.code}: {refusal.message}: the original is not kept, only its digest")
    return map_note(note)


def _dirty_by_kind(found: Read, asides: set[tuple[str, str]]) -> Counter[str]:
    dirty: Counter[str] = Counter()
    for mapped in found.records:
        data = mapped.record.data
        if (data.source, data.original) not in asides:
            dirty[_kind_in(mapped)] += len(data.claims.get("dirty", []))
    for known in found.standing:
        dirty[known.kind] += known.dirty
    return dirty


def _kind_in(mapped: Mapped) -> str:
    return mapped.record.data.format.partition("/")[2]


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
