"""Writes copies of reports to git notes and files, and repairs them from the log.

A report is one event, ``report.generated``, and its copies are derived from it. So a copy that cannot be written is
reported and never raised, and no copy counts as evidence of a report. Terms: a note is *ours* if its commit names a
report; a *store* is all notes or all files; a *location* is one ref or one file.

Rejected: one ref for all sessions (writers of different sessions would collide); a library for git (no library writes
refs in git's own transactions, and only the operator's git uses their configuration).

Files are for people: ``{ai_id}/{session_id}.md`` and ``.json``, with the names of ``settings.name_of``, so no id leads
out of the folder and no two share a file. Deedbook never writes through a link, and never replaces a file that a person
changed: the markdown's last line, a comment that viewers do not display, has the digests of both files as Deedbook
wrote them. A file that does not match its digest, or has none, stays as it is and is reported. An older report never
replaces a later one, even if two writers run at once.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import msgspec

from deedbook.consumers.sdk.files import read_file, write_file
from deedbook.consumers.sdk.sealer import with_erasures
from deedbook.consumers.sessions.notes import JSON_NOTES, MARKDOWN_NOTES, Notes, ReportVersion, encoded, report_in
from deedbook.consumers.sessions.settings import Project, Status, Store, StoredCopy, name_of, project_of
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.home.config import Settings
from deedbook.ledger.system.files import as_unavailable

Step = Callable[[int, int], None]

page_size: Final = 50


class CopyRepair(NamedTuple):
    """The number of reports in the log, of copies written and unchanged, and the other copies with their reasons."""

    reports: int
    written: int
    unchanged: int
    skipped: tuple[StoredCopy, ...]
    failed: tuple[StoredCopy, ...]
    told: tuple[StoredCopy, ...]

    def answer(self) -> dict[str, Any]:
        """Return the form that is printed."""
        lists = {name: [stored._asdict() for stored in getattr(self, name)] for name in ("skipped", "failed", "told")}
        return self._asdict() | lists


def with_copies(ask: Ask, settings: Settings, report: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of ``publish_report`` with ``stored``, the first ``storage_location`` and more warnings."""
    # If we crash before the copies are written, the report is in the log, and `deed notes sync` writes them.
    try:
        whole, known = _with_versions(ask, report["session_id"])
        copies = store_report(whole, project_of(settings), known)
    except DeedbookError as error:
        warning = f"the report is in the ledger, but no copy was written: {error.message}"
        return report | {"stored": [], "warnings": [*report["warnings"], warning]}
    there = [copy.location for copy in copies if copy.status in {"written", "unchanged"}]
    warnings = [
        f"not copied to {copy.location or copy.store}: {copy.reason} (`deed notes sync` tries again)"
        for copy in copies
        if copy.status == "failed"
    ]
    stored = {"stored": [copy._asdict() for copy in copies], "warnings": [*report["warnings"], *warnings]}
    return report | stored | ({"storage_location": there[0]} if there else {})


def _with_versions(ask: Ask, session_id: str) -> tuple[dict[str, Any], set[str]]:
    """Return a session's latest report, and the ids of all its versions."""
    answer = with_erasures(ask("reports.show", {"id": session_id}), ask)
    return answer["report"], {version["report_id"] for version in answer["versions"]}


def store_report(report: dict[str, Any], project: Project, known: Collection[str] | None = None) -> list[StoredCopy]:
    """Write a report (``reports.show``'s, with ``markdown`` and ``compressed_json``) to the project's stores.

    The first is the note with the JSON; its ``location`` is the answer's ``storage_location``. A store that is skipped
    or fails as a whole has no location. ``known`` as for ``Notes.write``.
    """
    for field in ("session_id", "markdown", "compressed_json"):
        if not isinstance(report.get(field), str):
            raise Refused("INVALID_FIELD", f"the field {field} of a report must be a text", path=f"$.{field}")
    stored = _store_notes(report, project, known)
    if project.files is None:
        return [*stored, StoredCopy("files", "", "skipped", project.no_files)]
    return stored + write_files(project.files, report)


def _store_notes(report: dict[str, Any], project: Project, known: Collection[str] | None) -> list[StoredCopy]:
    if project.git is None:
        return [StoredCopy("git_notes", "", "skipped", project.no_git)]
    name, version = name_of(report["session_id"]), report_in(report)
    try:
        notes = Notes(project.git)
        notes.check()
    except DeedbookError as error:
        is_none = error.code == "NOT_FOUND" and not project.is_git_sure
        return [StoredCopy("git_notes", "", "skipped" if is_none else "failed", error.message)]
    stored = []
    for ref, content in ((JSON_NOTES + name, report["compressed_json"]), (MARKDOWN_NOTES + name, report["markdown"])):
        try:
            stored.append(notes.write(ref, content, version, known))
        except DeedbookError as error:
            stored.append(StoredCopy("git_notes", f"git:{ref}", "failed", error.message))
    return stored


def repair(ask: Ask, project: Project, step: Step = lambda _done, _total: None) -> CopyRepair:
    """Write every copy that is missing or differs, except of imported reports: their tools have their own stores.

    A store that is skipped, or fails as a whole, is reported once and not for every report.
    """
    copies: list[StoredCopy] = []
    left_out: set[Store] = set()
    count = 0
    for listed, total in _latest(ask):
        whole, known = _with_versions(ask, listed["session_id"])
        stored = store_report(whole, project, known)
        copies += [copy for copy in stored if copy.location or copy.store not in left_out]
        left_out |= {copy.store for copy in stored if not copy.location}
        if "git_notes" in left_out:  # else each report would wait again for a git that hangs
            project = msgspec.structs.replace(project, git=None)
        count += 1
        step(count, total)
    by_status = ([copy for copy in copies if copy.status == status] for status in get_args(Status))
    written, unchanged, skipped, failed = by_status
    noted = [copy for copy in written if copy.reason]
    return CopyRepair(count, len(written), len(unchanged), tuple(skipped), tuple(failed), tuple(noted))


def erase_reports(ask: Ask, project: Project, session_id: str) -> list[StoredCopy]:
    """Write the copies of a session's report again after texts of the session were redacted.

    Only existing copies are written. The history of notes is deleted, too. Return the results of these copies.
    """
    try:
        report, _ = _with_versions(ask, session_id)
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return []  # a session without a report
    stored: list[StoredCopy] = []
    if project.git is not None:
        notes, name, version = Notes(project.git), name_of(session_id), report_in(report)
        for ref, field in ((JSON_NOTES + name, "compressed_json"), (MARKDOWN_NOTES + name, "markdown")):
            try:
                stored += [StoredCopy("git_notes", f"git:{ref}", "written")] * notes.erase(ref, report[field], version)
            except DeedbookError as error:
                is_none = error.code == "NOT_FOUND"  # no repository, or no git
                stored += [] if is_none else [StoredCopy("git_notes", f"git:{ref}", "failed", error.message)]
    folder = (
        None if project.files is None else project.files / name_of(report.get("ai_id") or report.get("author") or "")
    )
    if project.files is not None and folder is not None and (folder / f"{name_of(session_id)}.md").exists():
        stored += write_files(project.files, report)
    return stored


def _latest(ask: Ask) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the latest report of every session, with their total."""
    arguments: dict[str, Any] = {"limit": page_size, "imported": False}
    page: dict[str, Any] = {"next": 0}
    while page["next"] is not None:
        page = ask("reports.list", arguments)
        yield from ((report, page["total_found"]) for report in page["reports"])
        arguments["after"] = page["next"]


_LAST_LINE: Final = re.compile(
    rb"\n<!-- deedbook: (?P<id>[\w:.-]+) (?P<index>-?[0-9]{1,16}) sha256 (?P<markdown>[0-9a-f]{64}) "
    rb"json (?P<json>[0-9a-f]{64})(?: or (?P<before>[0-9a-f]{64}))? -->\n\Z",
    re.ASCII,
)
_CHANGED: Final = "somebody changed this file, so it was not replaced: remove or rename it, and it is written again"


def write_files(root: Path, report: dict[str, Any]) -> list[StoredCopy]:
    """Write a report's two files below ``root`` and return each result; nothing is raised."""
    folder = root / name_of(report.get("ai_id") or report.get("author") or "")
    name = name_of(report["session_id"])
    path, json_path = folder / f"{name}.md", folder / f"{name}.json"
    try:
        _make(root, folder)
        markdown_there, json_there = read_file(path), read_file(json_path)
    except DeedbookError as error:
        return [StoredCopy("files", str(file), "failed", error.message) for file in (path, json_path)]
    version, last = report_in(report), _last_line(markdown_there)
    if last is not None and int(last["index"]) > version.event_index:
        reason = f"the files are of a later report, {last['id'].decode()}"
        return [StoredCopy("files", str(file), "skipped", reason) for file in (path, json_path)]
    markdown, compact = encoded(report["markdown"]), encoded(report["compressed_json"])
    digest, digest_there = _digest(compact), _digest(json_there)
    is_json_ours = last is not None and digest_there in {last["json"].decode(), (last["before"] or b"").decode()}
    before = digest_there if is_json_ours and digest_there != digest else None
    content = _signed(markdown, compact, before, version)
    is_same = last is not None and _version_in(last) == _version_in(_last_line(content))
    is_json_same = json_there is not None and digest_there == digest
    return [
        _write(path, content, markdown_there, is_same=is_same, is_ours=last is not None),
        # If we crash here, the markdown has the digests of the new and the old JSON, so both are recognised as ours.
        _write(json_path, compact, json_there, is_same=is_json_same, is_ours=is_json_ours),
    ]


def _make(root: Path, folder: Path) -> None:
    is_folder = False
    with as_unavailable(folder, "cannot be made"), suppress(FileExistsError):
        root.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        is_folder = stat.S_ISDIR(folder.lstat().st_mode)
    if not is_folder:
        raise Refused("INVALID_FORMAT", f"{folder} is not a folder; links and files are not replaced", path=str(folder))


def _write(path: Path, content: bytes, there: bytes | None, *, is_same: bool, is_ours: bool) -> StoredCopy:
    if is_same:
        return StoredCopy("files", str(path), "unchanged")
    if there is not None and not is_ours:
        return StoredCopy("files", str(path), "skipped", _CHANGED)
    try:
        if write_file(path, content, expected=there):
            return StoredCopy("files", str(path), "written")
    except DeedbookError as error:
        return StoredCopy("files", str(path), "failed", error.message)
    return StoredCopy("files", str(path), "skipped", "somebody saved this file just now, so it was not replaced")


def _version_in(last: re.Match[bytes] | None) -> tuple[bytes, ...]:
    """Return the identity of a version of a file."""
    return () if last is None else last.group("id", "index", "markdown", "json")


def _signed(markdown: bytes, compact: bytes, before: str | None, version: ReportVersion) -> bytes:
    report = f"{version.report_id} {version.event_index}"
    digests = f"{_digest(markdown)} json {_digest(compact)}{f' or {before}' if before else ''}"
    return markdown + f"\n<!-- deedbook: {report} sha256 {digests} -->\n".encode()


def _last_line(markdown: bytes | None) -> re.Match[bytes] | None:
    """Return the last line of a markdown file; None if its digest does not match the lines above."""
    plain = (markdown or b"").replace(b"\r\n", b"\n")  # git may have changed the line endings at a checkout
    last = _LAST_LINE.search(plain)
    return last if last is not None and _digest(plain[: last.start()]) == last["markdown"].decode() else None


def _digest(content: bytes | None) -> str:
    return hashlib.sha256((content or b"").replace(b"\r\n", b"\n")).hexdigest()
