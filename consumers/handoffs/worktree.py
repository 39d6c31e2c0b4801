"""The files in the working folder that belong to a result, and whether their content is committed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deedbook.consumers.sdk.git import Git
from deedbook.consumers.sdk.text import sanitize_line
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.home.location import FOLDER

changed_files_max: Final = 1000
_shown_max: Final = 6


def uncommitted(client: Client, handoff: Mapping[str, Any], artifacts: Sequence[str]) -> list[str]:
    """Return the files here whose content is in no commit, as paths from this folder: the reviewer will not get them.

    The files are those that the result names (else those that the handoff touches), and those that were changed in this
    working tree since the claim. ``handoff`` is an answer of ``handoffs.show``.
    """
    texts = artifacts or handoff["notes"]["touches"]
    try:
        folder = Path(Git(Path.cwd(), is_own=False).ask("rev-parse", "--show-toplevel"))
        git = Git(folder, is_own=False)
        named = filter(os.path.isfile, {text.partition(":")[0] for text in texts})  # a text may not be a path
        files = {os.path.relpath(path, folder) for path in named}
        if (index := handoff["claimed_index"]) is not None:
            own = {f"{handoff['id']}.md", f"{handoff['id']}.deed.json"}  # written again after the completion
            since_ms = read_event(index, client.entry(index)).accepted_ms
            changed = (Path(path) for path in _changed(git, since_ms))
            files.update(str(path) for path in changed if path.name not in own and FOLDER not in path.parts)
        left = _not_in_head(git, sorted(path for path in files if not path.startswith(".."))[:changed_files_max])
    except DeedbookError:  # no git, no repository or no commit: nothing to compare with
        return []
    return [os.path.relpath(folder / path) for path in left]


def uncommitted_text(files: Sequence[str]) -> str:
    """Return the warning that names uncommitted files.

    >>> uncommitted_text(["bus.py", "test_bus.py"])
    'not committed here: bus.py, test_bus.py: commit first, or the reviewer verifies other content'
    """
    more = f" and {len(files) - _shown_max} more" if len(files) > _shown_max else ""
    names = ", ".join(map(sanitize_line, files[:_shown_max]))
    return f"not committed here: {names}{more}: commit first, or the reviewer verifies other content"


def _changed(git: Git, since_ms: int) -> Iterator[str]:
    """Yield the tracked and the untracked files that changed here since a time; ignored files are left out."""
    listed = git.ask("ls-files", "-z") + "\0" + git.ask("ls-files", "-z", "--others", "--exclude-standard")
    for path in filter(None, listed.split("\0")):
        try:
            status = (git.folder / path).lstat()
        except OSError:
            continue  # deleted, or not checked out
        if stat.S_ISREG(status.st_mode) and status.st_ctime * 1000 >= since_ms:
            yield path


def _not_in_head(git: Git, files: Sequence[str]) -> list[str]:
    """Return the files whose bytes the last commit does not have.

    The commands only read objects: `git status` would run filters that a repository names.
    """
    listed = git.ask("ls-tree", "-z", "HEAD", "--", *files).split("\0") if files else []
    committed = {path: head.split(" ")[-1] for head, _, path in (row.partition("\t") for row in listed)}
    known = [path for path in files if path in committed]
    hashed = git.ask("hash-object", "--no-filters", "--", *known).split() if known else []
    same = {path for path, blob in zip(known, hashed, strict=True) if blob == committed[path]}
    return [path for path in files if path not in same]
