"""The files in the working folder that a result names: whether their content is committed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from deedbook.consumers.sdk.git import Git
from deedbook.ledger.errors import DeedbookError


def uncommitted(texts: Sequence[str]) -> list[str]:
    """Return a warning that names the files among the texts whose content here is not committed.

    Bytes are compared, by commands that only read objects: `git status` would run filters that a repository names.
    """
    files = sorted(filter(os.path.isfile, {text.partition(":")[0] for text in texts}))  # a text may be no path at all
    try:
        git = Git(Path.cwd(), is_own=False)
        hashed = git.ask("hash-object", "--no-filters", "--", *files).split() if files else []
        listed = git.ask("ls-tree", "-z", "HEAD", "--", *files).split("\0") if files else []
    except DeedbookError:  # no git, no repository or no commit: nothing to compare with
        return []
    committed = {path: head.split(" ")[-1] for head, _, path in (row.partition("\t") for row in listed)}
    left = [path for blob, path in zip(hashed, files, strict=True) if blob != committed.get(path)]
    return [f"not committed here: {', '.join(left)}: commit it, or the reviewer verifies other content"] if left else []
