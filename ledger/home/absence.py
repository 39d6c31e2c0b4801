"""Where no ledger is found: what the one who looked for it most likely means, and does next."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.ledger.home.location import FOLDER, GIT_FOLDER, main_tree, path_in
from deedbook.ledger.home.trust import quoted_path
from deedbook.ledger.system.files import read_regular

_looked_below_max: Final = 1_000


def no_ledger(start: Path, server: str | None = None, agent: str | None = None) -> Unavailable:
    """Return the refusal where no ledger was found: it names the likely folder before it speaks of a new ledger."""
    name = agent or "NAME"
    how = f"`deed join CODE` makes one by an invitation (`deed agent invite {name}` prints it), or name it with --home"
    if server is None:
        how = _likely(start) or "run `deed init`, or name one with --home"
    return Unavailable("NO_LEDGER", f"there is no {FOLDER} in {start} or any folder above it: {how}", folder=str(start))


_NOTES: Final = "refs/notes/empirica"
_refs_size_max_bytes: Final = 16 * 1024**2


def _likely(start: Path) -> str:
    """Return what to do where a ledger's folder lies below ``start``, or where a work tree of git has none."""
    with suppress(OSError):
        below = (Path(one) / FOLDER for one in islice(os.scandir(start), _looked_below_max))
        if homes := sorted(home for home in below if home.is_dir()):
            return f"did you mean {quoted_path(homes[0])}? Go to its project, or name it with --home"
    for folder in (start, *start.parents):
        if (tree := main_tree(folder)) is not None:
            return f"`deed init` in {quoted_path(tree)}, whose work tree this is, makes one for both"
        with suppress(DeedbookError, OSError, ValueError):
            if (
                path_in(folder / GIT_FOLDER, b"gitdir: ").parent.name == "worktrees"
            ):  # the path may be a stranger's text
                what = "the main tree of this work tree is gone, or does not know of it"
                return f"{what}: `git worktree repair` there, or name the ledger's folder with --home"
        with suppress(DeedbookError, OSError):
            if (folder / GIT_FOLDER / "HEAD").is_file():
                return _notes_in(folder / GIT_FOLDER)
    return ""


def _notes_in(git: Path) -> str:
    """Return what to do in a clone, which has no ledger, and before they are fetched no notes either."""
    other = "; for a ledger of its own `deed init`, for one elsewhere --home"
    refs, settings = (
        read_regular(git / name, size_max_bytes=_refs_size_max_bytes) or b"" for name in ("packed-refs", "config")
    )
    if (git / _NOTES).is_dir() or _NOTES.encode() in refs:
        return f"this clone has notes of sessions: `deed notes list` and `deed notes show` need no ledger{other}"
    is_clone = b'[remote "' in settings
    return is_clone * f"`deed notes fetch` brings what sessions reported where this was cloned from, if any did{other}"
