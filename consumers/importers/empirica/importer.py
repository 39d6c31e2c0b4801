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
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from consumers.importers import records
from consumers.importers.empirica.mapping import Mapped, aside, kind_of, map_note
from consumers.importers.empirica.notes import Note, Repository, Unread
from consumers.importers.records import Aside, Counts, existing_records, import_records
from consumers.sessions.places import text_of
from ledger.author import Author
from ledger.client import Ask
from ledger.errors import Refused
from projections.query import page_rows_max

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
    unread: tuple[Unread, ...]


class Done(NamedTuple):
    """What an import came to: the counts, what was read, and how many dirty values there are in each kind of note."""

    counts: Counts
    found: Read
    dirty: Counter[str]

    def answer(self) -> dict[str, Any]:
        """Return the counts as commands print them."""
        kind_at = {place: kind for kind, place in self.found.notes}
        kinds = Counter(kind for kind, _ in self.found.notes)
        asides = Counter(kind_at[aside.source, aside.original] for aside in self.counts.aside)
        return self.counts.answer() | {
            "dirty": self.dirty.total(),
            "own": self.found.own,
            "by_kind": {
                kind: {
                    "read": kinds[kind],
                    "mapped": kinds[kind] - asides[kind],
                    "kept_aside": asides[kind],
                    "dirty": self.dirty[kind],
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
    notes: list[tuple[str, Place]] = []
    fresh: list[Mapped] = []
    standing: dict[Place, dict[str, Any]] = {}
    met: set[Place] = set()
    own = 0
    for page in _pages(repository.notes(refs, step), unread):
        theirs = [note for note in page if not is_own(note, answer)]
        own += len(page) - len(theirs)
        rows = existing_records(answer, ((note.original, note.source) for note in theirs))
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
    return counted(import_records(author, [mapped.record for mapped in found.records], step), found)


def rehearsed(found: Read) -> Done:
    """Return what an import would come to, by what was read; what the ledger itself would refuse is not known."""
    return counted(replace(records.rehearsed([mapped.record for mapped in found.records]), added=0), found)


def counted(counts: Counts, found: Read) -> Done:
    """Return the counts with what stood already: ``read`` is what was read from git, whatever became of it."""
    outcomes: dict[Place, tuple[str | None, int]] = {
        place: (None if row["mapped_kind"] else row["reason"], row["dirty"]) for place, row in found.standing.items()
    }
    for data in (mapped.record.data for mapped in found.records):
        outcomes[data.source, data.original] = (None, len(data.claims.get("dirty", [])))
    outcomes |= {(aside.source, aside.original): (aside.reason, 0) for aside in counts.aside}
    known = [(place, outcomes[place][0]) for _, place in found.notes if place in outcomes]  # the others are lost
    asides = tuple(Aside(source, reason, original) for (source, original), reason in known if reason is not None)
    dirty: Counter[str] = Counter()
    for place, kind in {place: kind for kind, place in found.notes}.items():
        dirty[kind] += outcomes.get(place, (None, 0))[1]
    return Done(Counts(len(found.notes), len(known) - len(asides), counts.added, asides), found, dirty)


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


def _may_be_mine(row: dict[str, Any], importer: str | None) -> bool:
    is_others = row["mapped_kind"] is None and row["reason"].startswith("NOT_AUTHORIZED")
    return is_others and importer not in (None, row["importer"])


def _kept(note: Note, put_blob: Callable[[bytes], str] | None) -> Mapped:
    """Return the record of a note whose original is kept; one that must not be stored is only named by its digest."""
    if put_blob is not None and note.content is not None:
        try:
            put_blob(note.content)
        except Refused as refusal:
            return aside(note, f"{refusal.code}: {refusal.message}: the original is not kept, only its digest")
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
