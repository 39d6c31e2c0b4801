"""Imports handoff files and `active.md` tables into the ledger as claims, which grant nothing.

Every original is stored byte for byte as a blob. A file that cannot be read as a handoff is unmapped, with the reason.
A changed file is imported again until a reviewer here confirms its handoff; after that, `watch` takes its changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from deedbook.consumers.handoffs.agent_names import AgentNames
from deedbook.consumers.handoffs.files import mapping
from deedbook.consumers.handoffs.files.missing_names import is_unconfirmed, with_names
from deedbook.consumers.handoffs.files.syntax.active_table import (
    TableRow,
    is_active_table,
    missing_columns,
    parse_table,
    row_id,
)
from deedbook.consumers.handoffs.files.syntax.document import META_KEYS, HandoffFile
from deedbook.consumers.handoffs.files.syntax.lines import Problem, settled
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.sections import is_handoff_id
from deedbook.consumers.importers.records import (
    Record,
    Unmapped,
    body_of,
    existing_records,
    find_files,
    name_in,
    unmapped_record,
)
from deedbook.consumers.sdk.text import replace_line_breaks
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.handoff import HandoffClaims, HandoffContent
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.system.files import read_regular
from deedbook.projections.answers.query import page_rows_max
from deedbook.projections.handoffs.claims import claims_over
from deedbook.projections.handoffs.queries import TABLE_FORMAT

file_read_max_bytes: Final = 8 * 1024**2
UNREAD: Final = "unread"
# Any other refusal concerns the importer (their key is not here, for example), and stops the import.
_ABOUT_FILES: Final = frozenset({"TOO_LARGE", "SECRET_DETECTED", "INVALID_FORMAT"})
_NOBODY: Final = AgentNames()
_FRONT_KEY: Final = re.compile(rb"(?:from|to|status)[ \t]*:", re.IGNORECASE)
_FRONT_TEXT: Final = "its front matter is not read: write From, To and Status below a heading '## Meta'"


class SourceFile(NamedTuple):
    """A file: its name in the ledger, its name without ``.md`` and its bytes."""

    name: str
    stem: str
    content: bytes


class FileWarning(NamedTuple):
    """A problem in a file that was still read; ``line`` counts from 1."""

    source: str
    line: int
    text: str


class ImportBatch(NamedTuple):
    """The records of files (each row of a table is one), the warnings, and the files that were not read."""

    records: tuple[Record, ...]
    warnings: tuple[FileWarning, ...]
    only_in_file: dict[str, list[str]] = {}  # by handoff: the headings and keys that no field has
    unread: tuple[Unmapped, ...] = ()  # files that cannot be stored, not even as unmapped


def read_source(file: Path, root: Path) -> SourceFile:
    """Return a file's bytes, with its path under ``root`` as its name."""
    # A name that is not UTF-8 has "\ufffd" for the wrong bytes; such a file is unmapped.
    name = name_in(file, root)
    content = read_regular(file, size_max_bytes=file_read_max_bytes, follow=True)
    if content is None:
        raise Unavailable("STORE_UNAVAILABLE", f"{file} was removed while it was read", path=str(file))
    return SourceFile(name, name.rpartition("/")[2].removesuffix(".md"), content)


def read_records(
    path: Path,
    put_blob: Callable[[bytes], str],
    *,
    agents: AgentNames,
    step: Callable[[int, int], None] = lambda _done, _total: None,
) -> ImportBatch:
    """Return the records of a file, or of all files of a folder; ``step(done, total)`` reports progress.

    Two files of one name in different folders would be one handoff: the second is unmapped. Raises Refused:
    ``NOT_FOUND``; the reason why the only file cannot be stored, or why the author cannot store any. Unavailable: a
    file cannot be read, or a blob not stored.
    """
    records: list[Record] = []
    warnings: list[FileWarning] = []
    unread: list[Unmapped] = []
    only_in_file: dict[str, list[str]] = {}
    taken: dict[str, str] = {}
    paths = find_files(path, (".md",))
    for done, file in enumerate(paths, 1):
        try:
            source = read_source(file, path)
            batch = records_of(source, put_blob, agents)
        except Refused as refusal:
            if file == path or refusal.code not in _ABOUT_FILES:
                raise
            unread.append(Unmapped(str(file), f"{refusal.code}: {refusal.message}"))
            continue
        for record in batch.records:
            data = record.data
            is_file = data.mapped_kind is not None and data.format != TABLE_FORMAT
            if is_file and (first := taken.setdefault(record.stream, source.name)) != source.name:
                again = f"{first} has the same name and therefore the same id: rename one of them"
                record = unmapped_record(  # noqa: PLW2901 - replaced
                    data.original, data.source, data.format, again, data.body
                )
            records.append(record)
        warnings += batch.warnings
        only_in_file |= batch.only_in_file
        step(done, len(paths))
    return ImportBatch(tuple(records), tuple(warnings), only_in_file, tuple(unread))


def records_of(source: SourceFile, put_blob: Callable[[bytes], str], agents: AgentNames) -> ImportBatch:
    """Return the records of a file, whose names are those of ``agents``.

    Raises Refused: ``TOO_LARGE`` or ``SECRET_DETECTED`` by ``put_blob``. Unavailable: the blob cannot be stored.
    """
    original = put_blob(source.content)
    try:
        if is_active_table(source.content):
            return _rows(source, original, agents)
        return _file(source, original, agents)
    except Refused as refusal:
        reason = (
            f"{refusal.code}: {refusal.message}{_meant(source.content) if refusal.code == 'INVALID_FORMAT' else ''}"
        )
        return ImportBatch((unmapped_record(original, _source(source), UNREAD, reason, body_of(source.content)),), ())


def _has_front_matter(content: bytes) -> bool:
    """Return whether a file begins with front matter: lines between two ``---``, one of which has a key of Meta."""
    rule, *lines = content.splitlines() or [b""]
    ends = (number for number, line in enumerate(lines) if line.rstrip() == b"---")
    return rule.rstrip() == b"---" and any(map(_FRONT_KEY.match, lines[: next(ends, 0)]))


def _meant(content: bytes) -> str:
    """Return why an unreadable file is not read as handoffs: its table lacks a column, or it has front matter."""
    with suppress(Refused):
        texts = [missing_columns(content), _FRONT_TEXT if _has_front_matter(content) else ""]
        return "".join(f"; {text}" for text in texts if text)
    return ""


def _file(source: SourceFile, original: str, agents: AgentNames) -> ImportBatch:
    file = parse(source.content)
    if not is_handoff_id(source.stem) or "\ufffd" in source.stem:
        raise Refused("INVALID_FIELD", f"{source.stem!r} is not a valid handoff id: rename the file")
    if not file.meta and file.status is None:
        raise Refused("INVALID_FORMAT", "it has no Meta block and no status, so it is no handoff")
    content = mapping.content_of_file(file, template=original, agents=agents)
    author = mapping.claimed_author(file.sender, agents)
    data = _claimed(original, _source(source), content, mapping.claims_of_file(file), file=file, author=author)
    data = msgspec.structs.replace(data, body=body_of(source.content, data.mapped))
    problems = settled([*file.problems, *mapping.name_problems(file, agents)])
    unread = [section.heading for section in file.sections if not section.name]
    unread += [f"{entry.key}:" for entry in file.meta if entry.name not in META_KEYS]
    record = Record(f"handoff/{source.stem}", data)
    return ImportBatch((record,), _warned(source, problems), {source.stem: unread} if unread else {})


def _rows(source: SourceFile, original: str, agents: AgentNames) -> ImportBatch:
    table = parse_table(source.content)
    records: list[Record] = []
    first_lines: dict[str, int] = {}
    for row in table.rows:
        name = row_id(row, source.name)
        where = f"{_source(source)}:{row.line}"
        if name in first_lines:
            records.append(unmapped_record(original, where, TABLE_FORMAT, f"it repeats line {first_lines[name]}"))
            continue
        first_lines[name] = row.line
        records.append(Record(f"handoff/{name}", _row(row, original, where, agents)))
    if not records:
        records.append(unmapped_record(original, _source(source), TABLE_FORMAT, "the table has no readable row"))
    return ImportBatch(tuple(records), _warned(source, table.problems))


def _row(row: TableRow, original: str, where: str, agents: AgentNames) -> RecordImported:
    claims = HandoffClaims(
        status=mapping.shortened(row.status + row.status_rest, mapping.line_max_chars) or None,
        done=mapping.shortened(row.done, mapping.label_max_chars) if row.done else None,
    )
    author = mapping.claimed_author(row.sender, agents)
    return _claimed(original, where, mapping.content_of_row(row, agents), claims, file=row, author=author)


def _source(source: SourceFile) -> str:
    return mapping.shortened(source.name, mapping.line_max_chars - 20) or "—"


def _claimed(
    original: str,
    source: str,
    content: HandoffContent,
    claims: HandoffClaims,
    *,
    file: HandoffFile | TableRow,
    author: str | None,
) -> RecordImported:
    return RecordImported(
        original=original,
        source=source,
        format=TABLE_FORMAT if isinstance(file, TableRow) else file.format,
        mapped_kind="handoff.created",
        mapped=msgspec.to_builtins(content),
        claimed_author=author,
        claimed_at=mapping.shortened(file.created, mapping.label_max_chars) if file.created else None,
        claims=msgspec.to_builtins(claims),
    )


def _warned(source: SourceFile, problems: tuple[Problem, ...]) -> tuple[FileWarning, ...]:
    warnings = [FileWarning(source.name, problem.line, problem.text) for problem in problems]
    warnings += [FileWarning(source.name, 1, _FRONT_TEXT)] if _has_front_matter(source.content) else []
    for number, line in enumerate(source.content.decode(errors="replace").split("\n"), 1):
        if replace_line_breaks(line.rstrip("\r")) != line.rstrip("\r"):
            warnings.append(FileWarning(source.name, number, "a control character was read as a space"))
    return tuple(warnings)


class ImportPlan(NamedTuple):
    """The records to import, the number of the others, and the files that are copies of handoffs made here.

    ``named`` counts the records that only add names to unchanged files. ``repeats`` counts those that the ledger
    already has as unmapped.
    """

    records: list[Record]
    unchanged: int
    copies: list[str]
    named: int
    repeats: int


def changed_records(
    records: Sequence[Record], answer: Ask, agents: AgentNames = _NOBODY, importer: str | None = None
) -> ImportPlan:
    """Return the plan of an import by ``importer``.

    A record is imported if the ledger has none of its id, or a different one. The file of a handoff that was created in
    this ledger is not imported, because it is a copy: `handoff watch` synchronizes it.

    A file that changed since it was imported from the same path replaces the imported record. A row is compared by its
    claims, because its table changes with every other row. A record that was replaced from another path stays replaced.
    A row that is equal to one in an earlier table of this import is not imported again. If ``agents`` now has names
    that an unchanged record lacks, its importer alone imports it again, with the names.
    """
    records, total = _without_repeats(records), len(records)
    standing = existing_rows(records, answer)
    changed: list[Record] = []
    copies: list[str] = []
    named = 0
    for record in records:
        row = standing.get(record.stream.partition("/")[2]) if record.data.mapped_kind is not None else None
        if row is not None and row["importer"] is None and record.data.format != TABLE_FORMAT:
            copies.append(record.data.source)
            continue
        path = None if row is None else _path(row["source"] or "", row["format"])
        if row is None or path != _path(record.data.source, record.data.format):
            changed.append(record)
        elif not _says_the_same(record.data, row):
            data = with_names(record.data, row, agents, is_new=True)
            changed.append(record._replace(data=data, over=row["template_index"]))
        elif row["importer"] == importer and is_unconfirmed(row) and not claims_over(row["claimed_status"]):
            data = with_names(record.data, row, agents, is_new=False)
            if data is not record.data:
                changed.append(record._replace(data=data, over=row["template_index"]))
                named += 1
    others = [record.data for record in changed if record.over is None]
    rows = existing_records(answer, ((data.original, data.source) for data in others))
    kinds = {(row["original"], row["source"]): row["mapped_kind"] for row in rows}
    changed = [record for record in changed if record.over is not None or not _is_replaced(record.data, kinds)]
    repeats = sum(record.data.mapped_kind is None and _place(record.data) in kinds for record in changed)
    return ImportPlan(changed, total - len(changed), copies, named, repeats)


def _place(data: RecordImported) -> tuple[str, str]:
    return data.original, data.source


def _is_replaced(data: RecordImported, kinds: dict[tuple[str, str], str | None]) -> bool:
    """Return whether another path's record replaced this one; ``kinds`` has the mapped kinds here, by place."""
    return data.mapped_kind is not None and kinds.get(_place(data)) is not None


def existing_rows(records: Sequence[Record], answer: Ask) -> dict[str, dict[str, Any]]:
    """Return the handoffs of these records that the ledger has, by their ids, as ``handoffs.existing`` returns them."""
    ids = [record.stream.partition("/")[2] for record in records if record.data.mapped_kind is not None]
    rows: dict[str, dict[str, Any]] = {}
    for start in range(0, len(ids), page_rows_max):
        rows |= answer("handoffs.existing", {"ids": ids[start : start + page_rows_max]})["handoffs"]
    return rows


def planned_rows(plan: ImportPlan, rows: dict[str, dict[str, Any]], importer: str | None) -> dict[str, dict[str, Any]]:
    """Return the rows as they would be after the import."""
    after = dict(rows)
    for record in plan.records:
        id_, data = record.stream.partition("/")[2], record.data
        if data.mapped_kind is not None:
            status = data.claims.get("status") or ""
            parties = {"to": data.mapped.get("to") or "", "reviewer": data.mapped.get("reviewer")}
            parties |= {"from": data.claimed_author or "", "importer": importer}
            after[id_] = {"status": "pending", "claimed_status": status, **parties}
    return after


def _without_repeats(records: Sequence[Record]) -> list[Record]:
    """Leave out rows that an earlier table has, too.

    If a table has no other rows, keep one row, which keeps the table's bytes.
    """
    latest: dict[str, RecordImported] = {}
    repeats: list[bool] = []
    for record in records:
        before, data = latest.get(record.stream), record.data
        is_row = data.format == TABLE_FORMAT and data.mapped_kind is not None
        repeats.append(is_row and before is not None and before == _at(data, before))
        latest[record.stream] = data
    kept = {record.data.original for record, is_repeat in zip(records, repeats, strict=True) if not is_repeat}
    left: list[Record] = []
    for record, is_repeat in zip(records, repeats, strict=True):
        if not is_repeat or record.data.original not in kept:
            left.append(record)
            kept.add(record.data.original)
    return left


def _at(data: RecordImported, other: RecordImported) -> RecordImported:
    """Return a record as it would be at the position of another."""
    return msgspec.structs.replace(data, original=other.original, source=other.source, body=other.body)


def _path(source: str, read_as: str | None) -> str:
    return source.rpartition(":")[0] if read_as == TABLE_FORMAT else source


def _says_the_same(data: RecordImported, row: dict[str, Any]) -> bool:
    if data.original == row["original"]:
        return True
    if data.format != TABLE_FORMAT or row["claimed_status"] is None:
        return False
    claimed = (row["claimed_status"], row["claimed_done"], row["title"])
    return (data.claims.get("status") or "", data.claims.get("done"), data.mapped["title"]) == claimed
