"""Bringing handoff files and `active.md` tables into the ledger as claims: shown, and granting nothing.

Every original is kept byte for byte as a blob, what cannot be read as a handoff aside with the reason. A file that
changed is imported anew as long as nobody confirmed it here; if its handoff goes on here, it is left to `watch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from deedbook.consumers.handoffs.files import mapping
from deedbook.consumers.handoffs.files.syntax.active_table import TableRow, is_active_table, parse_table, row_id
from deedbook.consumers.handoffs.files.syntax.document import HandoffFile
from deedbook.consumers.handoffs.files.syntax.lines import Problem
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.sections import is_handoff_id
from deedbook.consumers.importers.records import Aside, Record, existing_records, find_files, kept_aside, name_in
from deedbook.consumers.sdk.text import replace_line_breaks
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.handoff import HandoffClaims, HandoffContent
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.system.files import read_regular
from deedbook.projections.answers.query import page_rows_max
from deedbook.projections.handoffs.queries import TABLE_FORMAT

file_read_max_bytes: Final = 8 * 1024**2
UNREAD: Final = "unread"


class Source(NamedTuple):
    """One file: what it is called in the ledger, its name and its bytes."""

    name: str
    stem: str
    content: bytes


class Warned(NamedTuple):
    """Something odd in a file that was read all the same; ``line`` counts from 1."""

    source: str
    line: int
    text: str


class Found(NamedTuple):
    """What files become: a record each (a row of a table is one, too), and what is odd in them."""

    records: tuple[Record, ...]
    warnings: tuple[Warned, ...]
    unread: tuple[Aside, ...] = ()  # could not even be kept aside, because they cannot be stored


def read_source(file: Path, root: Path) -> Source:
    """Return a file's bytes, named by its place under ``root``."""
    # A name that is not UTF-8 shows "\ufffd" where it is not; such a file is kept aside.
    name = name_in(file, root)
    content = read_regular(file, size_max_bytes=file_read_max_bytes, follow=True)
    if content is None:
        raise Unavailable("STORE_UNAVAILABLE", f"{file} was removed meanwhile", path=str(file))
    return Source(name, name.rpartition("/")[2].removesuffix(".md"), content)


def read_records(
    path: Path,
    put_blob: Callable[[bytes], str],
    *,
    reviewer: str | None,
    step: Callable[[int, int], None] = lambda _done, _total: None,
) -> Found:
    """Return what a file, or all files of a folder become; ``step(done, total)`` tells of progress.

    Two files of one name in different folders would be one handoff: the second is kept aside. Raises Refused:
    ``NOT_FOUND``. Unavailable: a file cannot be read, or a blob not be stored.
    """
    records: list[Record] = []
    warnings: list[Warned] = []
    unread: list[Aside] = []
    taken: dict[str, str] = {}
    paths = find_files(path, (".md",))
    for done, file in enumerate(paths, 1):
        try:
            source = read_source(file, path)
            read = records_of(source, put_blob, reviewer=reviewer)
        except Refused as refusal:
            unread.append(Aside(str(file), f"{refusal.code}: {refusal.message}"))
            continue
        for record in read.records:
            data = record.data
            is_file = data.mapped_kind is not None and data.format != TABLE_FORMAT
            if is_file and (first := taken.setdefault(record.stream, source.name)) != source.name:
                again = f"{first} has the same name, and so the same id: rename one of them"
                record = kept_aside(data.original, data.source, data.format, again)  # noqa: PLW2901 - in its place
            records.append(record)
        warnings += read.warnings
        step(done, len(paths))
    return Found(tuple(records), tuple(warnings), tuple(unread))


def records_of(source: Source, put_blob: Callable[[bytes], str], *, reviewer: str | None) -> Found:
    """Return what a file becomes; ``reviewer`` is who reviews where the file names nobody.

    Raises Refused: ``TOO_LARGE`` or ``SECRET_DETECTED`` by ``put_blob``. Unavailable: the blob cannot be stored.
    """
    original = put_blob(source.content)
    try:
        if is_active_table(source.content):
            return _rows(source, original, reviewer)
        return _file(source, original, reviewer)
    except Refused as refusal:
        return Found((kept_aside(original, _source(source), UNREAD, f"{refusal.code}: {refusal.message}"),), ())


def _file(source: Source, original: str, reviewer: str | None) -> Found:
    file = parse(source.content)
    if not is_handoff_id(source.stem) or "\ufffd" in source.stem:
        raise Refused("INVALID_FIELD", f"no handoff can be called {source.stem!r}: rename the file")
    if not file.meta and file.status is None:
        raise Refused("INVALID_FORMAT", "it has no Meta block and no status: it is no handoff")
    content = mapping.content_of_file(file, template=original, reviewer=reviewer)
    data = _claimed(original, _source(source), content, mapping.claims_of_file(file), file)
    return Found((Record(f"handoff/{source.stem}", data),), _warned(source, file.problems))


def _rows(source: Source, original: str, reviewer: str | None) -> Found:
    table = parse_table(source.content)
    records: list[Record] = []
    first_lines: dict[str, int] = {}
    for row in table.rows:
        name = row_id(row)
        where = f"{_source(source)}:{row.line}"
        if name in first_lines:
            records.append(kept_aside(original, where, TABLE_FORMAT, f"it repeats line {first_lines[name]}"))
            continue
        first_lines[name] = row.line
        records.append(Record(f"handoff/{name}", _row(row, original, where, reviewer)))
    if not records:
        records.append(kept_aside(original, _source(source), TABLE_FORMAT, "the table has no row that can be read"))
    return Found(tuple(records), _warned(source, table.problems))


def _row(row: TableRow, original: str, where: str, reviewer: str | None) -> RecordImported:
    claims = HandoffClaims(
        status=mapping.shortened(row.status + row.status_rest, mapping.line_max_chars) or None,
        done=mapping.shortened(row.done, mapping.label_max_chars) if row.done else None,
    )
    return _claimed(original, where, mapping.content_of_row(row, reviewer=reviewer), claims, row)


def _source(source: Source) -> str:
    return mapping.shortened(source.name, mapping.line_max_chars - 20) or "—"


def _claimed(
    original: str, source: str, content: HandoffContent, claims: HandoffClaims, file: HandoffFile | TableRow
) -> RecordImported:
    return RecordImported(
        original=original,
        source=source,
        format=TABLE_FORMAT if isinstance(file, TableRow) else file.format,
        mapped_kind="handoff.created",
        mapped=msgspec.to_builtins(content),
        claimed_author=mapping.claimed_author(file.sender),
        claimed_at=mapping.shortened(file.created, mapping.label_max_chars) if file.created else None,
        claims=msgspec.to_builtins(claims),
    )


def _warned(source: Source, problems: tuple[Problem, ...]) -> tuple[Warned, ...]:
    warnings = [Warned(source.name, problem.line, problem.text) for problem in problems]
    for number, line in enumerate(source.content.decode(errors="replace").split("\n"), 1):
        if replace_line_breaks(line.rstrip("\r")) != line.rstrip("\r"):
            warnings.append(Warned(source.name, number, "a control character, which is read as a space"))
    return tuple(warnings)


def changed_records(records: Sequence[Record], answer: Ask) -> tuple[list[Record], int, list[str]]:
    """Return the records that differ from what stands in the ledger, how many do not, and the files made from here.

    A file of a handoff that was created in this ledger is a copy of it: `handoff watch` keeps the two in step.

    A file that changed since it was imported from the same place is imported over what stands. A row is compared by
    what it claims, because its table changes with every other row. What was replaced from another place stays so.
    """
    ids = [record.stream.partition("/")[2] for record in records if record.data.mapped_kind is not None]
    standing: dict[str, dict[str, Any]] = {}
    for start in range(0, len(ids), page_rows_max):
        standing |= answer("handoffs.existing", {"ids": ids[start : start + page_rows_max]})["handoffs"]
    changed: list[Record] = []
    copies: list[str] = []
    for record in records:
        row = standing.get(record.stream.partition("/")[2]) if record.data.mapped_kind is not None else None
        if row is not None and row["importer"] is None and record.data.format != TABLE_FORMAT:
            copies.append(record.data.source)
            continue
        place = None if row is None else _place(row["source"] or "", row["format"])
        if row is None or place != _place(record.data.source, record.data.format):
            changed.append(record)
        elif not _says_the_same(record.data, row):
            changed.append(record._replace(over=row["template_index"]))
    others = [one.data for one in changed if one.over is None and one.data.mapped_kind is not None]
    rows = existing_records(answer, ((data.original, data.source) for data in others))
    replaced = {(row["original"], row["source"]) for row in rows if row["mapped_kind"] is not None}
    changed = [one for one in changed if one.over is not None or (one.data.original, one.data.source) not in replaced]
    return changed, len(records) - len(changed), copies


def _place(source: str, read_as: str | None) -> str:
    return source.rpartition(":")[0] if read_as == TABLE_FORMAT else source


def _says_the_same(data: RecordImported, row: dict[str, Any]) -> bool:
    if data.original == row["original"]:
        return True
    if data.format != TABLE_FORMAT or row["claimed_status"] is None:
        return False
    claimed = (row["claimed_status"], row["claimed_done"])
    return (data.claims.get("status") or "", data.claims.get("done")) == claimed
