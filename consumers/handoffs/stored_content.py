"""The content of a handoff, from the answer of the query ``handoffs.show``."""

from __future__ import annotations

from typing import Any

from deedbook.ledger.events import handoff as kinds


def content_from(handoff: dict[str, Any]) -> kinds.HandoffContent:
    """Return the content of the handoff that ``handoffs.show`` answered."""
    fields = {name: handoff[name] for name in kinds.HandoffContent.__struct_fields__}
    fields["notes"] = kinds.ReceiverNotes(**handoff["notes"])
    texts = {name: [row["text"] for row in handoff[name]] for name in ("tasks", "criteria")}
    depends_on = [row["id"] for row in handoff["depends_on"]]
    return kinds.HandoffContent(**fields | texts | {"to": handoff["to"] or None, "depends_on": depends_on})
