"""The content of a handoff as views tell it, and the amendment that changes some of it."""

from __future__ import annotations

from typing import Any

import msgspec

from ledger.errors import Refused
from ledger.events.handoff import HandoffAmended, HandoffContent


def content_from(shown: dict[str, Any]) -> HandoffContent:
    """Return the content of the handoff that ``handoffs.show`` answered."""
    return HandoffContent(
        title=shown["title"],
        to=shown["to"] or None,
        reviewer=shown["reviewer"],
        created=shown["created"],
        proposal=shown["proposal"],
        depends_on=[one["id"] for one in shown["depends_on"]],
        unlock_at=shown["unlock_at"],
        task=shown["task"],
        tasks=[one["text"] for one in shown["tasks"]],
        criteria=[one["text"] for one in shown["criteria"]],
        context=shown["context"],
        answers=shown["answers"],
        reasoning_ref=shown["reasoning_ref"],
        skeleton=shown["skeleton"],
    )


def amended(content: HandoffContent, changes: dict[str, Any], reason: str) -> HandoffAmended:
    """Return the amendment that sets ``changes`` and leaves everything else.

    Raises:
        Refused: ``USAGE`` when nothing changes or nobody would receive the work; ``INVALID_FIELD``.
    """
    fields = msgspec.structs.asdict(content)
    if all(fields[name] == value for name, value in changes.items()):
        raise Refused("USAGE", "nothing changes: say what to amend")
    fields |= changes
    if fields["to"] is None:
        raise Refused("USAGE", "its file names no receiver: say who receives the work with --to NAME")
    try:
        return msgspec.convert(fields | {"reason": reason}, HandoffAmended)
    except msgspec.ValidationError as error:
        raise Refused("INVALID_FIELD", f"the amendment cannot be made: {error}") from error
