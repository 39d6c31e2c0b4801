"""Records of other tools, kept as they were: shown as imported, granting nothing.

It stands on the stream that its mapped kind belongs to, or on ``record/ID`` when it is unmapped. A handoff is
mapped to its content, all else to the very data of its mapped kind, and folds read both alike (``body.read_as``).
"""

from __future__ import annotations

from typing import Any, Final

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.fields import EventData, Label, Line, OptionalText, Ref
from deedbook.ledger.events.handoff import HandoffClaims, HandoffContent
from deedbook.ledger.format.codec import converted

UNMAPPED: Final = "record"


class RecordImported(EventData, frozen=True):
    """An original of another tool, kept byte for byte as a blob, and what it stands for here.

    ``source`` is where it was found, ``format`` what it was read as. ``mapped`` is data of ``mapped_kind``; ``claims``
    is what the original says of its own state. Author and time are claims too: who signs is the importer.
    """

    is_free = True

    original: Ref
    source: Line
    format: Label
    mapped_kind: Label | None = None
    mapped: dict[str, Any] = {}
    claimed_author: Line | None = None
    claimed_at: Label | None = None
    claims: dict[str, Any] = {}
    reason: OptionalText = ""


class DirtyValue(EventData, frozen=True):
    """A value of the original that no field here can hold: where it stood, its JSON text (shortened), and why not."""

    path: Label
    value: Line
    why: Line


class RecordClaims(EventData, frozen=True):
    """What else the original says: ``said`` by the names it uses, ``dirty`` what could not be read as it was meant."""

    said: dict[Label, Line] = {}
    dirty: list[DirtyValue] = []


MAPPED: Final = (
    "handoff.created",
    "session.started",
    "assessment.recorded",
    "finding.logged",
    "unknown.logged",
    "dead_end.logged",
    "report.generated",
    "reasoning.started",
    "reasoning.extended",
    "reasoning.concluded",
)
"""What can be imported."""


def mapped_types(kind: str) -> tuple[type[EventData], type[EventData]]:
    """Return the types of ``mapped`` and ``claims`` for one of the kinds that can be imported."""
    return (HandoffContent, HandoffClaims) if kind == "handoff.created" else (KINDS[kind].data, RecordClaims)


def read_mapped(data: RecordImported) -> tuple[EventData, EventData] | None:
    """Return the mapped data and the claims by their types; None for an unmapped record.

    Raises Refused: ``INVALID_FIELD`` or ``UNKNOWN_FIELD``.
    """
    if data.mapped_kind is None:
        if data.mapped or data.claims:
            raise Refused("INVALID_FIELD", "an unmapped record has no mapped data and no claims", path="$.data.mapped")
        return None
    if data.mapped_kind not in MAPPED:
        message = f"only these can be imported: {', '.join(MAPPED)}"
        raise Refused("INVALID_FIELD", message, path="$.data.mapped_kind")
    types = mapped_types(data.mapped_kind)
    return converted(data.mapped, types[0], "$.data.mapped"), converted(data.claims, types[1], "$.data.claims")
