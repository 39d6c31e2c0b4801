"""Decisions: the events that make, replace and withdraw one, and the decisions in force for the files of a handoff."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deedbook.consumers.handoffs.short_ids import short_id
from deedbook.consumers.sdk.text import sanitize_line, shorten
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.decision import DecisionMade, DecisionWithdrawn, paths_max

shown_max: Final = 5
line_max_chars: Final = 200


def drafts_of(
    view: Ask,
    text: str,
    *,
    why: str = "",
    paths: Sequence[str] = (),
    contract: bool = False,
    supersedes: Sequence[str] = (),
    id_: str | None = None,
) -> tuple[str, list[Draft]]:
    """Return the id of a new decision, and the events that make it and end those that it ``supersedes``.

    The ledger accepts all of them or none. Raises Refused: ``INVALID_FIELD`` for a path outside the project; as
    ``decisions.show`` for an id in ``supersedes``.
    """
    for path in paths:
        if Path(path).is_absolute() or Path(os.path.normpath(path)).parts[:1] == ("..",):
            message = f"{path} lies outside the project: name a file or folder of it, such as src/api.py or src/**"
            raise Refused("INVALID_FIELD", message, path=path)
    replaced = [view("decisions.show", {"id": name})["id"] for name in dict.fromkeys(supersedes)]
    name = id_ or short_id(view, "decision", text)
    made = DecisionMade(text=" ".join(text.split()), why=why, paths=list(dict.fromkeys(paths)), contract=contract)
    drafts = [Draft(stream=f"decision/{name}", data=made)]
    ended = DecisionWithdrawn(by=name, reason=why)
    return name, [*drafts, *(Draft(stream=f"decision/{other}", data=ended) for other in replaced)]


def withdrawal(view: Ask, id_: str, reason: str) -> tuple[str, Draft]:
    """Return the whole id of a decision, and the event that withdraws it. Raises Refused: as ``decisions.show``."""
    name = view("decisions.show", {"id": id_})["id"]
    return name, Draft(stream=f"decision/{name}", data=DecisionWithdrawn(reason=reason))


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
