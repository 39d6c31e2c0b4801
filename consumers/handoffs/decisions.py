"""The decisions in force for the files of a handoff, and their lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deedbook.consumers.sdk.text import sanitize_line, shorten
from deedbook.ledger.client.client import Ask
from deedbook.ledger.events.decision import paths_max

shown_max: Final = 5
line_max_chars: Final = 200


def standing(view: Ask, paths: Iterable[str], limit: int = shown_max) -> dict[str, Any]:
    """Return the page of the decisions in force for any of these paths; an empty page if there are no paths."""
    texts = [text for text in dict.fromkeys(paths) if text.strip()][:paths_max]
    if not texts:
        return {"items": [], "total": 0, "next": None}
    return view("decisions.list", {"paths": texts, "status": "standing", "limit": limit})


def touched_paths(notes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the paths at the beginning of the notes on what a handoff touches.

    >>> touched_paths({"touches": ["src/api.py:12 its callers", "src/db.py: the pool"]})
    ['src/api.py', 'src/db.py']
    """
    return [words[0].partition(":")[0] for text in notes["touches"] if (words := text.split())]


def line_of(decision: Mapping[str, Any]) -> str:
    """Return a decision in one short line: its id, who made it, its text and its paths."""
    what = "contract, " if decision["contract"] else ""
    paths = f" [{', '.join(decision['paths'])}]" if decision["paths"] else ""
    return shorten(
        sanitize_line(f"{decision['id']} ({what}{decision['author']}): {decision['text']}{paths}"), line_max_chars
    )


def project_path(text: str, project: Path, folder: Path) -> str:
    """Return a path typed in ``folder`` as a path of the project; a path outside the project stays as it is.

    >>> project_path("api.py", Path("/x"), Path("/x/src")), project_path("src/**", Path("/x"), Path("/x"))
    ('src/api.py', 'src/**')
    """
    path = os.path.relpath(folder / text, project)
    is_outside = path == ".." or path.startswith("../")
    return text if is_outside else path
