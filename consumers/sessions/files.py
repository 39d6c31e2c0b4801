"""Reports as files that people read: ``{ai_id}/{session_id}.md`` and ``.json``.

Rules kept here:

- Names are those of ``places.name_of``: no agent's or session's id leads out of the folder, no two share a file. The
  folder of an agent must be a folder, not a link to one, and links are never written through.
- A file is replaced whole or not at all (``sdk.files``).
- What a person wrote is never overwritten. The markdown's last line, a comment that no reader of markdown shows, holds
  the digests of both files as Baton wrote them (who wrote last, not what is true: the ledger's signatures say that). A
  file that no longer fits its digest, or never had one, is left as it is and reported.
- An older report does not take the place of a later one, which two writers at once could do otherwise.
"""

from __future__ import annotations

import hashlib
import re
import stat
from pathlib import Path
from typing import Any, Final

from consumers.sdk.files import read_file, write_file
from consumers.sessions.notes import Report, encoded, report_in
from consumers.sessions.places import Stored, name_of
from ledger.errors import BatonError, Refused, Unavailable

_LAST_LINE: Final = re.compile(
    rb"\n<!-- baton: (?P<id>[\w:.-]+) (?P<index>-?[0-9]{1,16}) sha256 (?P<markdown>[0-9a-f]{64}) "
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
    except BatonError as error:
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
    """Make the folder of an agent."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        is_folder = stat.S_ISDIR(folder.lstat().st_mode)
    except FileExistsError:
        is_folder = False
    except OSError as error:
        text = f"{folder} cannot be made: {error.strerror}"
        raise Unavailable("STORE_UNAVAILABLE", text, path=str(folder)) from error
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
    except BatonError as error:
        return Stored("files", str(path), "failed", error.message)
    return Stored("files", str(path), "skipped", "somebody saved this file just now: it is left as it is")


def _version_in(last: re.Match[bytes] | None) -> tuple[bytes, ...]:
    """Return what tells two versions of a file apart."""
    return () if last is None else last.group("id", "index", "markdown", "json")


def _signed(markdown: bytes, compact: bytes, before: str | None, version: Report) -> bytes:
    who = f"{version.report_id} {version.event_index}"
    digests = f"{_digest(markdown)} json {_digest(compact)}{f' or {before}' if before else ''}"
    return markdown + f"\n<!-- baton: {who} sha256 {digests} -->\n".encode()


def _last_line(markdown: bytes | None) -> re.Match[bytes] | None:
    """Return what the last line of a markdown file says; None when it does not fit what stands above it."""
    plain = (markdown or b"").replace(b"\r\n", b"\n")  # git may have written other line ends at a checkout
    last = _LAST_LINE.search(plain)
    return last if last is not None and _digest(plain[: last.start()]) == last["markdown"].decode() else None


def _digest(content: bytes | None) -> str:
    return hashlib.sha256((content or b"").replace(b"\r\n", b"\n")).hexdigest()
