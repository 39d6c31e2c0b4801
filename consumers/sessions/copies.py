"""The copies of reports beside the log, in git notes and files: written, and brought into step with the log.

A report is one event, ``report.generated``, and what these stores hold is derived from it. So a store that cannot be
written is told and never raised, and none is asked whether a report is true. Words: *ours* are notes whose commit names
a report; a *store* is all notes or all files; a *place* is one ref or one file.

Refused: one ref for all sessions (writers of different sessions would collide); a library for git (none writes refs as
git's own transactions do, and the operator's git is the one whose configuration counts).

Files are for people: ``{ai_id}/{session_id}.md`` and ``.json``, by the names of ``places.name_of``, so that no id leads
out of the folder and no two share a file. Links are never written through. A file is never replaced where a person
wrote: the markdown's last line, a comment that no reader of markdown shows, holds the digests of both files as Deedbook
wrote them. One that no longer fits its digest, or never had one, is left as it is and reported. An older report does
not take the place of a later one, which two writers at once could do otherwise.
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
from deedbook.consumers.sessions.notes import JSON_NOTES, MARKDOWN_NOTES, Notes, Report, encoded, report_in
from deedbook.consumers.sessions.settings import Project, Status, Store, Stored, name_of, project_of
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.home.config import Settings
from deedbook.ledger.system.files import as_unavailable

Step = Callable[[int, int], None]

page_size: Final = 50


class Repaired(NamedTuple):
    """How many reports the log has, how many places had or have them, and all that is not so."""

    reports: int
    written: int
    unchanged: int
    skipped: tuple[Stored, ...]
    failed: tuple[Stored, ...]
    told: tuple[Stored, ...]

    def answer(self) -> dict[str, Any]:
        """Return the form that is printed."""
        lists = {name: [stored._asdict() for stored in getattr(self, name)] for name in ("skipped", "failed", "told")}
        return self._asdict() | lists


def with_copies(ask: Ask, settings: Settings, report: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of ``publish_report`` with ``stored``, the first ``storage_location`` and further warnings."""
    # If we crash before the copies are written, the report stands, and `deed notes sync` writes them.
    try:
        whole, known = _with_versions(ask, report["session_id"])
        copies = store_report(whole, project_of(settings), known)
    except DeedbookError as error:
        warning = f"the report is in the ledger, but in no other store: {error.message}"
        return report | {"stored": [], "warnings": [*report["warnings"], warning]}
    there = [copy.location for copy in copies if copy.status in {"written", "unchanged"}]
    warnings = [
        f"not stored in {copy.location or copy.store}: {copy.reason} (`deed notes sync` tries again)"
        for copy in copies
        if copy.status == "failed"
    ]
    stored = {"stored": [copy._asdict() for copy in copies], "warnings": [*report["warnings"], *warnings]}
    return report | stored | ({"storage_location": there[0]} if there else {})


def _with_versions(ask: Ask, session_id: str) -> tuple[dict[str, Any], set[str]]:
    """Return a session's latest report, and the ids of all its versions."""
    answer = ask("reports.show", {"id": session_id})
    return answer["report"], {version["report_id"] for version in answer["versions"]}


def store_report(report: dict[str, Any], project: Project, known: Collection[str] | None = None) -> list[Stored]:
    """Write a report (``reports.show``'s, with ``markdown`` and ``compressed_json``) to the project's stores.

    The first is the note with the JSON, whose ``location`` is the answer's ``storage_location``; a store that is left
    out or fails as a whole has none. ``known`` as for ``Notes.write``.
    """
    for field in ("session_id", "markdown", "compressed_json"):
        if not isinstance(report.get(field), str):
            raise Refused("INVALID_FIELD", f"a report to store has a text {field}", path=f"$.{field}")
    stored = _store_notes(report, project, known)
    if project.files is None:
        return [*stored, Stored("files", "", "skipped", project.no_files)]
    return stored + write_files(project.files, report)


def _store_notes(report: dict[str, Any], project: Project, known: Collection[str] | None) -> list[Stored]:
    if project.git is None:
        return [Stored("git_notes", "", "skipped", project.no_git)]
    name, version = name_of(report["session_id"]), report_in(report)
    try:
        notes = Notes(project.git)
        notes.check()
    except DeedbookError as error:
        is_none = error.code == "NOT_FOUND" and not project.is_git_sure
        return [Stored("git_notes", "", "skipped" if is_none else "failed", error.message)]
    stored = []
    for ref, content in ((JSON_NOTES + name, report["compressed_json"]), (MARKDOWN_NOTES + name, report["markdown"])):
        try:
            stored.append(notes.write(ref, content, version, known))
        except DeedbookError as error:
            stored.append(Stored("git_notes", f"git:{ref}", "failed", error.message))
    return stored


def repair(ask: Ask, project: Project, step: Step = lambda _done, _total: None) -> Repaired:
    """Write every report that a store lacks or has otherwise, but for imported ones: their tools have own stores.

    A store that is skipped, or fails as a whole, is told once and not for every report.
    """
    places: list[Stored] = []
    left_out: set[Store] = set()
    count = 0
    for listed, total in _latest(ask):
        whole, known = _with_versions(ask, listed["session_id"])
        stored = store_report(whole, project, known)
        places += [copy for copy in stored if copy.location or copy.store not in left_out]
        left_out |= {copy.store for copy in stored if not copy.location}
        if "git_notes" in left_out:  # a git that hangs is not waited for in each report
            project = msgspec.structs.replace(project, git=None)
        count += 1
        step(count, total)
    written, unchanged, skipped, failed = ([copy for copy in places if copy.status == one] for one in get_args(Status))
    told = [copy for copy in written if copy.reason]
    return Repaired(count, len(written), len(unchanged), tuple(skipped), tuple(failed), tuple(told))


def _latest(ask: Ask) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the latest report of every session, with how many there are."""
    arguments: dict[str, Any] = {"limit": page_size, "imported": False}
    page: dict[str, Any] = {"next": 0}
    while page["next"] is not None:
        page = ask("reports.list", arguments)
        yield from ((report, page["total_found"]) for report in page["reports"])
        arguments["cursor"] = page["next"]


_LAST_LINE: Final = re.compile(
    rb"\n<!-- deedbook: (?P<id>[\w:.-]+) (?P<index>-?[0-9]{1,16}) sha256 (?P<markdown>[0-9a-f]{64}) "
    rb"json (?P<json>[0-9a-f]{64})(?: or (?P<before>[0-9a-f]{64}))? -->\n\Z",
    re.ASCII,
)
_CHANGED: Final = "somebody changed this file: it is left as it is; remove or rename it to have it written anew"


def write_files(root: Path, report: dict[str, Any]) -> list[Stored]:
    """Write a report's two files below ``root`` and return what came of each; nothing is raised."""
    folder = root / name_of(report.get("ai_id") or report.get("author") or "")
    name = name_of(report["session_id"])
    path, json_path = folder / f"{name}.md", folder / f"{name}.json"
    try:
        _make(root, folder)
        markdown_there, json_there = read_file(path), read_file(json_path)
    except DeedbookError as error:
        return [Stored("files", str(place), "failed", error.message) for place in (path, json_path)]
    version, last = report_in(report), _last_line(markdown_there)
    if last is not None and int(last["index"]) > version.event_index:
        reason = f"the files are of a later report, {last['id'].decode()}"
        return [Stored("files", str(place), "skipped", reason) for place in (path, json_path)]
    markdown, compact = encoded(report["markdown"]), encoded(report["compressed_json"])
    digest, digest_there = _digest(compact), _digest(json_there)
    is_json_ours = last is not None and digest_there in {last["json"].decode(), (last["before"] or b"").decode()}
    before = digest_there if is_json_ours and digest_there != digest else None
    content = _signed(markdown, compact, before, version)
    is_same = last is not None and _version_in(last) == _version_in(_last_line(content))
    is_json_same = json_there is not None and digest_there == digest
    return [
        _write(path, content, markdown_there, is_same=is_same, is_ours=last is not None),
        # If we crash here, the markdown has the digests of the new JSON and of the one before: that is known as ours.
        _write(json_path, compact, json_there, is_same=is_json_same, is_ours=is_json_ours),
    ]


def _make(root: Path, folder: Path) -> None:
    is_folder = False
    with as_unavailable(folder, "cannot be made"), suppress(FileExistsError):
        root.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        is_folder = stat.S_ISDIR(folder.lstat().st_mode)
    if not is_folder:
        raise Refused("INVALID_FORMAT", f"{folder} is no folder: links and files are left alone", path=str(folder))


def _write(path: Path, content: bytes, there: bytes | None, *, is_same: bool, is_ours: bool) -> Stored:
    if is_same:
        return Stored("files", str(path), "unchanged")
    if there is not None and not is_ours:
        return Stored("files", str(path), "skipped", _CHANGED)
    try:
        if write_file(path, content, expected=there):
            return Stored("files", str(path), "written")
    except DeedbookError as error:
        return Stored("files", str(path), "failed", error.message)
    return Stored("files", str(path), "skipped", "somebody saved this file just now: it is left as it is")


def _version_in(last: re.Match[bytes] | None) -> tuple[bytes, ...]:
    """Return what tells two versions of a file apart."""
    return () if last is None else last.group("id", "index", "markdown", "json")


def _signed(markdown: bytes, compact: bytes, before: str | None, version: Report) -> bytes:
    who = f"{version.report_id} {version.event_index}"
    digests = f"{_digest(markdown)} json {_digest(compact)}{f' or {before}' if before else ''}"
    return markdown + f"\n<!-- deed: {who} sha256 {digests} -->\n".encode()


def _last_line(markdown: bytes | None) -> re.Match[bytes] | None:
    """Return what the last line of a markdown file says; None when it does not fit what stands above it."""
    plain = (markdown or b"").replace(b"\r\n", b"\n")  # git may have written other line ends at a checkout
    last = _LAST_LINE.search(plain)
    return last if last is not None and _digest(plain[: last.start()]) == last["markdown"].decode() else None


def _digest(content: bytes | None) -> str:
    return hashlib.sha256((content or b"").replace(b"\r\n", b"\n")).hexdigest()
