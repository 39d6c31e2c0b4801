"""Which notes a ref holds, which commit of the ref wrote each, and which is the latest.

The tree of a notes ref maps the noted object's id (perhaps with slashes in it, "fan-out") to a blob. The tree has no
times, so these are read from the ref's history: the newest commit that put a blob where it is wrote that note. Commits
of Baton name their report; all others are another tool's. Baton's notes come first: a note of another tool in our ref
is kept, and read only where there is none of ours.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from consumers.sdk.git import failure
from ledger.errors import Unavailable

if TYPE_CHECKING:
    from consumers.sdk.git import Git

commits_read_max: Final = 1_000

_OBJECT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_COMMIT: Final = re.compile(r"commit (-?\d+) ?(?:(\S+) (-?\d+))?")
_CHANGE: Final = re.compile(r":\d+ \d+ [0-9a-f]+ ([0-9a-f]+) [A-Z]\d*\t(.+)")
_LOG: Final = (
    "-c", "log.showRoot=true", "log", "--topo-order", "--no-merges", f"--max-count={commits_read_max}", "--raw",
    "--no-abbrev", "--no-renames", "--no-relative", "--no-color", "--no-notes", "--no-mailmap", "--no-decorate",
    "--no-ext-diff", "--format=commit %at %(trailers:key=Baton-Report,valueonly,separator=%x20)",
)  # fmt: skip


class Report(NamedTuple):
    """A version of a report: the second it was accepted in, its event's index and id. The later one is the greater."""

    at_s: int
    event_index: int
    report_id: str

    @property
    def order(self) -> tuple[int, int]:
        """What two versions are compared by."""
        return self.at_s, self.event_index


class Tip(NamedTuple):
    """Where a notes ref is: its commit, and the blobs and modes of its tree by path."""

    commit: str
    entries: dict[str, str]
    modes: dict[str, str]

    @property
    def only_blob(self) -> str | None:
        """The blob of the only note; None when there are several, or something else."""
        match list(self.entries.items()):
            case [(path, blob)] if _OBJECT.fullmatch(path.replace("/", "")):
                return blob
            case _:
                return None


class Note(NamedTuple):
    """A note: the object it is on, its path in the tree, its blob, when it was written; ``report`` if it is ours."""

    object_id: str
    path: str
    blob: str
    at_s: int
    report: Report | None

    @property
    def order(self) -> tuple[bool, int, int]:
        """What two notes are compared by: ours above others', then the later."""
        return self.report is not None, self.at_s, self.report.event_index if self.report else 0


def tip_of(git: Git, ref: str) -> Tip | None:
    """Return where a ref is; None when there is no such ref.

    Raises:
        Refused: ``NOT_FOUND`` in no repository. Unavailable: the ref is damaged or no tree of notes; git's errors.
    """
    answer = git.call("rev-parse", "--verify", "--quiet", ref)
    if answer.code:
        if "broken ref" in answer.error:
            file = git.ask("rev-parse", "--path-format=absolute", "--git-path", ref)
            text = f"{ref} is damaged: remove the file {file}, then run `baton notes sync`"
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


def notes_of(git: Git, tip: Tip) -> list[Note]:
    """Return the notes of a ref, the latest of ours first, other tools' last.

    Raises:
        Unavailable: git's own errors.
    """
    written = _written(git.ask(*_LOG, tip.commit).splitlines(), tip)
    notes = [
        Note(path.replace("/", ""), path, blob, *written[path][1:])
        for path, blob in tip.entries.items()
        if _OBJECT.fullmatch(path.replace("/", ""))
    ]
    return sorted(notes, key=lambda note: (note.order, -written[note.path][0]), reverse=True)


def _written(lines: list[str], tip: Tip) -> dict[str, tuple[int, int, Report | None]]:
    """Return, by path, which commit of the history (0 is the newest) wrote it, when, and of which report."""
    unknown = len(lines)
    found: dict[str, tuple[int, int, Report | None]] = {}
    at_s, report = 0, None
    for number, line in enumerate(lines):
        if commit := _COMMIT.fullmatch(line.rstrip()):
            at_s = int(commit[1])
            report = Report(at_s, int(commit[3]), commit[2]) if commit[2] else None
        elif (change := _CHANGE.fullmatch(line)) and tip.entries.get(change[2]) == change[1]:
            found.setdefault(change[2], (number, at_s, report))
    return {path: found.get(path, (unknown, 0, None)) for path in tip.entries}
