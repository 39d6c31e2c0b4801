"""The events that make, replace and withdraw a decision."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from deedbook.consumers.handoffs.short_ids import by_whole_id, short_id
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.decision import DecisionMade, DecisionWithdrawn


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
    ``by_whole_id`` for an id in ``supersedes``.
    """
    for path in paths:
        if Path(path).is_absolute() or Path(os.path.normpath(path)).parts[:1] == ("..",):
            message = f"{path} lies outside the project: name a file or folder of it, such as src/api.py or src/**"
            raise Refused("INVALID_FIELD", message, path=path)
    replaced = [
        by_whole_id(view("decisions.show", {"id": name}), "decision", name)["id"] for name in dict.fromkeys(supersedes)
    ]
    name = id_ or short_id(view, "decision", text)
    made = DecisionMade(text=" ".join(text.split()), why=why, paths=list(dict.fromkeys(paths)), contract=contract)
    drafts = [Draft(stream=f"decision/{name}", data=made)]
    ended = DecisionWithdrawn(by=name, reason=why)
    return name, [*drafts, *(Draft(stream=f"decision/{other}", data=ended) for other in replaced)]


def withdrawal(view: Ask, id_: str, reason: str) -> tuple[str, Draft]:
    """Return the id of a decision, and the event that withdraws it. Raises Refused: as ``by_whole_id``."""
    name = by_whole_id(view("decisions.show", {"id": id_}), "decision", id_)["id"]
    return name, Draft(stream=f"decision/{name}", data=DecisionWithdrawn(reason=reason))
