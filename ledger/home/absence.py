"""The error for a folder without a ledger. It names a likely folder, and the next command."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.ledger.home.location import FOLDER, GIT_FOLDER, HANDOFF_FILES, SIGNED_FILE, main_tree, path_in
from deedbook.ledger.home.trust import is_trusted, quoted_path
from deedbook.ledger.system.files import read_regular

_scanned_entries_max: Final = 1_000


def no_ledger(start: Path, server: str | None = None, agent: str | None = None) -> Unavailable:
    """Return the error for a search that found no ledger. It names a likely folder before it suggests a new ledger."""
    name = agent or "NAME"
    advice = f"create one from an invitation with `deed join CODE` (`deed agent invite {name}` prints the code), \
or name one with --home"
    if server is None:
        advice = _advice(start) or "run `deed init`, or name one with --home"
    message = f"there is no {FOLDER} in {start} or any folder above it: {advice}"
    return Unavailable("NO_LEDGER", message, folder=str(start))


_NOTES: Final = "refs/notes/empirica"
_refs_size_max_bytes: Final = 16 * 1024**2


def _advice(start: Path) -> str:
    """Return the next step if there are ledgers' folders just below ``start``, or if it is in a git work tree."""
    with suppress(OSError):
        below = (Path(entry) / FOLDER for entry in islice(os.scandir(start), _scanned_entries_max))
        homes = [home for home in below if home.is_dir()]
        likely = [home for home in homes if is_trusted(home)] or homes
        if len(likely) == 1:
            return f"did you mean {quoted_path(likely[0])}? Go to its project, or name it with --home"
        if likely:
            return f"{len(homes)} folders in it have ledgers: go to the project of one, or name it with --home"
    for folder in (start, *start.parents):
        if (tree := main_tree(folder)) is not None:
            return f"this is a work tree of {quoted_path(tree)}: run `deed init` there to make one for both"
        with suppress(DeedbookError, OSError, ValueError):
            # The path comes from a file that may be a stranger's, so it is not printed.
            if path_in(folder / GIT_FOLDER, b"gitdir: ").parent.name == "worktrees":
                problem = "the main tree of this work tree is missing, or does not list it"
                return f"{problem}: run `git worktree repair` there, or name the ledger's folder with --home"
        with suppress(DeedbookError, OSError):
            if (folder / GIT_FOLDER / "HEAD").is_file():
                return _signed_advice(folder / HANDOFF_FILES) or _clone_advice(folder / GIT_FOLDER)
    return ""


_OTHER: Final = ". For a ledger here, run `deed init`; for one elsewhere, use --home"


def _signed_advice(folder: Path) -> str:
    """Return the next step in a clone with signed files of handoffs."""
    if not folder.is_dir():
        return ""
    with os.scandir(folder) as entries:
        if not any(entry.name.endswith(SIGNED_FILE) for entry in islice(entries, _scanned_entries_max)):
            return ""
    command = f"deed handoff show ID --bundle {HANDOFF_FILES}/ID{SIGNED_FILE}"
    return f"this clone has signed files of handoffs: `{command}` needs no ledger{_OTHER}"


def _clone_advice(git: Path) -> str:
    """Return the next step in a clone: a clone has no ledger, and git does not fetch notes when it clones."""
    refs, settings = (
        read_regular(git / name, size_max_bytes=_refs_size_max_bytes) or b"" for name in ("packed-refs", "config")
    )
    if (git / _NOTES).is_dir() or _NOTES.encode() in refs:
        return f"this clone has notes of sessions: `deed notes list` and `deed notes show` need no ledger{_OTHER}"
    if b'[remote "' in settings:
        return f"`deed notes fetch` brings the notes of sessions from the remote, if it has any{_OTHER}"
    return ""
