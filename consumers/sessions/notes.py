"""Reports as git notes: JSON under ``refs/notes/empirica/handoff/ID``, markdown under ``…/handoff-markdown/ID``.

Git cannot have a ref below a ref, so the markdown has its own root and is not at ``handoff/ID/markdown``. ``git notes
--ref empirica/handoff/ID show HEAD`` prints the JSON at the commit that was HEAD when it was written (the empty tree in
a repository without commits). Deedbook reads the latest note of the ref, wherever HEAD is.

The tree of a notes ref maps the noted object's id (perhaps with slashes in it, "fan-out") to a blob. It has no times:
the newest commit in the ref's history that set a note's blob gives the time of the note. Deedbook's commits name their
report (``Deedbook-Report``: event and index; the author date is the report's time). All others are by other tools;
their notes stay, and are read only if there is none of ours. Rules:

- A new commit replaces the ref only if the ref did not change since it was read; else the write is retried. ``git notes
  add`` does not check, so of two writers at once one may lose its note.
- Another tool's note on the same commit is replaced, as with ``git notes add -f``, but stays in the history of the ref,
  and the answer says so. Its notes on other commits stay.
- Nothing but the notes ref changes: no index, work tree, branch or reflog of HEAD. Its history is rewritten only if
  texts in it were redacted (``Notes.erase``).
"""

from __future__ import annotations

import hashlib
import random
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from deedbook.consumers.sdk.git import Git, Objects, failure, output_size_max_bytes
from deedbook.consumers.sessions.settings import StoredCopy, name_of, text_of
from deedbook.ledger.errors import Refused, Unavailable

T = TypeVar("T")

commits_read_max: Final = 1_000
attempts_max: Final = 40
retry_wait_first_s: Final = 0.01
retry_wait_max_s: Final = 0.5

NOTES: Final = "refs/notes/empirica/"
JSON_NOTES: Final = f"{NOTES}handoff/"
MARKDOWN_NOTES: Final = f"{NOTES}handoff-markdown/"

_REPORT_ID: Final = re.compile(r"[\w:.-]{1,200}", re.ASCII)
_OBJECT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ONE_NOTE: Final = re.compile(rb"100644 (?:[0-9a-f]{40}\0(.{20})|[0-9a-f]{64}\0(.{32}))", re.DOTALL)
_tree_size_max_bytes: Final = 4096
_COMMIT: Final = re.compile(r"commit (-?\d+) ?(?:(\S+) (-?\d+))?")
_CHANGE: Final = re.compile(r":\d+ \d+ [0-9a-f]+ ([0-9a-f]+) [A-Z]\d*\t(.+)")
_LOG: Final = (
    "-c",
    "log.showRoot=true",
    "log",
    "--topo-order",
    "--no-merges",
    f"--max-count={commits_read_max}",
    "--raw",
    "--no-abbrev",
    "--no-renames",
    "--no-relative",
    "--no-color",
    "--no-notes",
    "--no-mailmap",
    "--no-decorate",
    "--no-ext-diff",
    "--format=commit %at %(trailers:key=Deedbook-Report,valueonly,separator=%x20)",
)


class ReportVersion(NamedTuple):
    """A version of a report: its time in seconds, its event's index and id; later versions compare greater."""

    at_s: int
    event_index: int
    report_id: str

    @property
    def order(self) -> tuple[int, int]:
        """The sort key of a version."""
        return self.at_s, self.event_index


class Tip(NamedTuple):
    """The tip of a notes ref: its commit, and the blobs and modes of its tree by path."""

    commit: str
    entries: dict[str, str]
    modes: dict[str, str]

    @property
    def only_blob(self) -> str | None:
        """The blob of the only note; None if there are several, or another file."""
        blobs = [blob for path, blob in self.entries.items() if _OBJECT.fullmatch(path.replace("/", ""))]
        return blobs[0] if len(self.entries) == len(blobs) == 1 else None


class ReportNote(NamedTuple):
    """A note: its object, its path in the tree, its blob, its time in seconds, and its ``report`` if it is ours."""

    object_id: str
    path: str
    blob: str
    at_s: int
    report: ReportVersion | None

    @property
    def order(self) -> tuple[bool, int, int]:
        """The sort key of a note: ours above others', then the later."""
        return self.report is not None, self.at_s, self.report.event_index if self.report else 0


class SessionNotes(NamedTuple):
    """The notes of a session; ``session_id`` is None if it cannot be decoded from the ref's name."""

    session_id: str | None
    ref: str
    commit: str
    written_ms: int
    has_markdown: bool


class Notes:
    """The notes of one repository."""

    def __init__(self, folder: Path, *, is_own: bool = True) -> None:
        """Find git; the repository is looked up at the first call, and is not trusted unless ``is_own``."""
        self.git = Git(folder, is_own=is_own)
        self._target: str | None = None
        self._algorithm: str | None = None

    def check(self) -> None:
        """Return if the folder is in a repository that git can use. Raises Refused or Unavailable otherwise."""
        self._algorithm = self.git.ask("rev-parse", "--show-object-format")

    def write(self, ref: str, content: str, report: ReportVersion, known: Collection[str] | None = None) -> StoredCopy:
        """Write ``content`` as the note of ``ref`` unless it is there already.

        ``known`` has the ids of all versions in the log. If it is set, a note that claims any other version (a remote
        can claim anything) counts as a note of another tool, and is removed from the ref's tree. Raises Refused:
        ``INVALID_FORMAT`` if another tool's ref has a conflicting name. Unavailable: ``STORE_UNAVAILABLE``,
        ``STORE_FULL``; ``STORE_IN_USE`` if others locked the ref all the time.
        """
        blob = self._blob_of(encoded(content))
        return until_free(lambda: self._write_once(ref, content, blob, report, known))

    def read(self, ref: str) -> str | None:
        """Return the latest note of ``ref`` wherever HEAD is; None if there is none."""
        tip = tip_of(self.git, ref)
        if tip is None:
            return None
        # The history, which says which note is the latest, is only read if there are several.
        blobs = [tip.only_blob] if tip.only_blob else [note.blob for note in notes_of(self.git, tip)]
        return self.git.ask("cat-file", "blob", blobs[0]) if blobs else None

    def listed(self) -> list[SessionNotes]:
        """Return the sessions with notes, the last written first."""
        roots = (JSON_NOTES, MARKDOWN_NOTES)
        answer = self.git.ask("for-each-ref", "--format=%(refname) %(objectname) %(committerdate:unix)", *roots)
        rows: dict[str, SessionNotes] = {}
        for line in sorted(answer.splitlines()):  # handoff-markdown/ sorts before handoff/
            ref, commit, written = (*line.split(" "), "")[:3]
            root = next(root for root in roots if ref.startswith(root))
            name = ref.removeprefix(root)
            has_markdown = root == MARKDOWN_NOTES or name in rows
            rows[name] = SessionNotes(text_of(name), ref, commit, int(written or 0) * 1000, has_markdown)
        return sorted(rows.values(), key=lambda row: (-row.written_ms, row.ref))

    def contents(self, rows: Iterable[SessionNotes]) -> Iterator[str | None]:
        """Yield the latest note of each session; one git process reads all trees with a single note."""
        with Objects(self.git) as objects:
            for row in rows:
                tree = objects.get(f"{row.commit}^{{tree}}", _tree_size_max_bytes)
                entry = _ONE_NOTE.fullmatch((tree and tree.content) or b"")
                note = objects.get((entry[1] or entry[2]).hex(), output_size_max_bytes) if entry else None
                content = None if note is None else note.content
                yield self.read(row.ref) if content is None else content.decode("utf-8", "replace")

    def find(self, session: str) -> str:
        """Return the last part of the ref for a session's id, the start of an id, or that part itself."""
        names = sorted({row.ref.removeprefix(JSON_NOTES).removeprefix(MARKDOWN_NOTES) for row in self.listed()})
        if name_of(session) in names:
            return name_of(session)
        fitting = [name for name in names if session and (text_of(name) or name).startswith(session)]
        if not fitting:
            raise Refused("NOT_FOUND", f"there are no notes of session {session} in {self.git.folder}", session=session)
        if len(fitting) > 1:
            raise Refused(
                "REF_AMBIGUOUS", f"{session} matches {len(fitting)} sessions, for example {fitting[0]} and {fitting[1]}"
            )
        return fitting[0]

    def _write_once(
        self, ref: str, content: str, blob: str, report: ReportVersion, known: Collection[str] | None
    ) -> StoredCopy:
        tip, location = tip_of(self.git, ref), f"git:{ref}"
        if tip is not None and tip.only_blob == blob:  # so a repair of many reports does not read their histories
            return StoredCopy("git_notes", location, "unchanged")
        present = [] if tip is None else notes_of(self.git, tip)
        forged = [note for note in present if note.report and known is not None and note.report.report_id not in known]
        notes = [note for note in present if note not in forged]
        if notes and notes[0].blob == blob and not forged:
            return StoredCopy("git_notes", location, "unchanged")
        if notes and notes[0].report is not None and notes[0].report.order > report.order:
            reason = f"there is a note of a later report, {notes[0].report.report_id}"
            return StoredCopy("git_notes", location, "skipped", reason)
        target = self._noted()
        self.git.ask("hash-object", "-w", "--stdin", data=encoded(content))
        removed = {note.path for note in present if note.object_id == target or note in forged}
        entries = {path: blob for path, blob in tip.entries.items() if path not in removed} if tip else {}
        self.put(ref, tip, {**entries, target: blob}, report, f"Handoff report {ref.removeprefix(NOTES)}")
        return StoredCopy("git_notes", location, "written", _displaced(notes, forged, target))

    def erase(self, ref: str, content: str, report: ReportVersion) -> bool:
        """Replace all our notes of ``ref`` by ``content``, and delete the history of the ref.

        Return whether there is such a ref. Other tools' notes stay. Git still has the old objects, which nothing names
        any more, until `git gc --prune=now`. Raises as ``write``.
        """
        return until_free(lambda: self._erase_once(ref, content, report))

    def _erase_once(self, ref: str, content: str, report: ReportVersion) -> bool:
        if (tip := tip_of(self.git, ref)) is None:
            return False
        own = {note.path for note in notes_of(self.git, tip) if note.report is not None}
        blob = self.git.ask("hash-object", "-w", "--stdin", data=encoded(content))
        entries = {path: other for path, other in tip.entries.items() if path not in own}
        # If we crash before the ref moves, nothing has changed. If we crash before the reflog is emptied, the next call
        # does it.
        self.put(ref, None, {**entries, self._noted(): blob}, report, "Redacted report", expected=tip.commit)
        self.git.ask("reflog", "expire", "--expire=now", "--expire-unreachable=now", ref)
        return True

    def put(
        self,
        ref: str,
        tip: Tip | None,
        entries: dict[str, str],
        report: ReportVersion | None,
        subject: str,
        *more: str,
        expected: str | None = None,
    ) -> None:
        """Commit ``entries`` on ``tip`` (and the parents ``more``), and set ``ref`` to it if it is still at ``tip``.

        Without a ``tip`` the commit has no history, and the ref must still be at the commit ``expected``.
        """
        modes = {} if tip is None else tip.modes
        lines = [f"{modes.get(path, '100644')} {blob}\t{path}\0" for path, blob in entries.items()]
        with tempfile.TemporaryDirectory(prefix="deedbook-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            data = "".join(lines).encode("utf-8", "surrogateescape")
            self.git.ask("update-index", "-z", "--add", "--index-info", data=data, variables=index)
            tree = self.git.ask("write-tree", variables=index)
        parents = [part for parent in ((tip.commit,) if tip else ()) + more for part in ("-p", parent)]
        message, dated = f"{subject}\n", {}
        if report is not None:
            message += f"\nDeedbook-Report: {report.report_id} {report.event_index}\n"
            dated = {"GIT_AUTHOR_DATE": f"@{report.at_s} +0000"}
        commit = self.git.ask("commit-tree", *parents, "-F", "-", tree, data=message.encode(), variables=dated)
        self.move(ref, commit, expected if tip is None else tip.commit)

    def move(self, ref: str, commit: str, expected: str | None) -> None:
        """Set ``ref`` to ``commit`` if it is at ``expected`` (None: if it does not exist)."""
        self.git.ask("update-ref", "-m", "deed notes", ref, commit, expected or "0" * len(commit))

    def _noted(self) -> str:
        """Return the object that notes are attached to: the commit at HEAD at the first call, else the empty tree."""
        if self._target is None:  # only once: the two notes of a report are on the same commit
            answer = self.git.call("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
            head = answer.out.decode("ascii").strip()
            self._target = head or self.git.ask("hash-object", "-w", "-t", "tree", "--stdin")
        return self._target

    def _blob_of(self, content: bytes) -> str:
        """Return the id that git gives a blob, without a call of git each time."""
        if self._algorithm is None:
            self.check()
        digest = hashlib.new(self._algorithm or "sha1", usedforsecurity=False)
        digest.update(b"blob %d\0" % len(content) + content)
        return digest.hexdigest()


def until_free(action: Callable[[], T]) -> T:
    """Return the result of ``action``, called again while it raises ``STORE_IN_USE``, up to ``attempts_max`` times."""
    wait_s = retry_wait_first_s
    for _ in range(attempts_max - 1):
        try:
            return action()
        except Unavailable as error:
            if error.code != "STORE_IN_USE":
                raise
        time.sleep(random.uniform(wait_s / 2, wait_s))  # noqa: S311 - so that two writers do not retry at once
        wait_s = min(2 * wait_s, retry_wait_max_s)
    return action()


def tip_of(git: Git, ref: str) -> Tip | None:
    """Return the tip of a ref; None if there is no such ref."""
    answer = git.call("rev-parse", "--verify", "--quiet", ref)
    if answer.code:
        if "broken ref" in answer.error:
            file = git.ask("rev-parse", "--path-format=absolute", "--git-path", ref)
            text = f"{ref} is damaged: remove the file {file}, then run `deed notes sync`"
            raise Unavailable("STORE_UNAVAILABLE", text, ref=ref)
        if answer.code != 1:
            raise failure(answer, "git rev-parse", git.folder)
        return None
    commit = answer.out.decode("ascii").strip()
    listed = git.call("ls-tree", "-r", "-z", "--full-tree", commit)
    if listed.code:
        raise failure(listed, f"git ls-tree of {ref}", git.folder)
    entries, modes = {}, {}
    for line in listed.out.decode("utf-8", "surrogateescape").split("\0"):
        head, _, path = line.partition("\t")
        if path:
            mode, _, blob = head.split(" ")
            entries[path], modes[path] = blob, mode
    return Tip(commit, entries, modes)


def notes_of(git: Git, tip: Tip) -> list[ReportNote]:
    """Return the notes of a ref, the latest of ours first, other tools' last."""
    written = _written(git.ask(*_LOG, tip.commit).splitlines(), tip)
    notes = [
        ReportNote(path.replace("/", ""), path, blob, *written[path][1:])
        for path, blob in tip.entries.items()
        if _OBJECT.fullmatch(path.replace("/", ""))
    ]
    return sorted(notes, key=lambda note: (note.order, -written[note.path][0]), reverse=True)


def _written(lines: list[str], tip: Tip) -> dict[str, tuple[int, int, ReportVersion | None]]:
    """Return for each path the commit that wrote it (0 is the newest), that commit's time, and its report."""
    unknown = len(lines)
    written: dict[str, tuple[int, int, ReportVersion | None]] = {}
    at_s, report = 0, None
    for number, line in enumerate(lines):
        if commit := _COMMIT.fullmatch(line.rstrip()):
            at_s = int(commit[1])
            report = ReportVersion(at_s, int(commit[3]), commit[2]) if commit[2] else None
        elif (change := _CHANGE.fullmatch(line)) and tip.entries.get(change[2]) == change[1]:
            written.setdefault(change[2], (number, at_s, report))
    return {path: written.get(path, (unknown, 0, None)) for path in tip.entries}


def report_in(report: dict[str, Any]) -> ReportVersion:
    """Return the version of a report in the form of ``reports.show``."""
    report_id = str(report.get("report_id") or "")
    try:
        at_s = int(datetime.fromisoformat(str(report.get("timestamp"))).timestamp())
    except ValueError:
        at_s = 0
    index = report.get("event_index")
    return ReportVersion(
        max(at_s, 0), index if isinstance(index, int) else -1, report_id if _REPORT_ID.fullmatch(report_id) else "-"
    )


def encoded(content: str) -> bytes:
    """Return a text as stored bytes: with a newline at its end, as git's own notes have."""
    return (content if content.endswith("\n") else content + "\n").encode("utf-8", "replace")


def _displaced(notes: list[ReportNote], forged: list[ReportNote], target: str) -> str:
    """Return a message on the notes of others that were replaced or are beside ours; empty if there are none."""
    if forged:
        blob = forged[0].blob
        return f"a note of a report that the ledger does not have was replaced; the ref's history has it as blob {blob}"
    foreign = [note for note in notes if note.report is None]
    here = [note for note in foreign if note.object_id == target]
    if here:
        return f"another tool's note on {target[:12]} was replaced; the ref's history has it as blob {here[0].blob}"
    if foreign:
        return f"there is also another tool's note, on {foreign[0].object_id[:12]}"
    return ""
