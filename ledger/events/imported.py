"""Records of other tools, kept as they were: shown as imported, granting nothing.

It stands on the stream that its mapped kind belongs to, or on ``record/ID`` when it is only kept aside. A handoff is
mapped to its content, all else to the very data of its mapped kind, and folds read both alike (``body.read_as``).
"""

from __future__ import annotations

from typing import Any, Final

from ledger.codec import converted
from ledger.errors import Refused
from ledger.events import reasoning, session
from ledger.events.fields import EventData, Label, Line, OptionalText, Ref
from ledger.events.handoff import HandoffClaims, HandoffContent

KEPT_ASIDE: Final = "record"


class RecordImported(EventData, frozen=True):
    """An original of another tool, kept byte for byte as a blob, and what it stands for here.

    ``source`` is where it was found, ``format`` what it was read as. ``mapped`` is data of ``mapped_kind``; ``claims``
    is what the original says of its own state. Author and time are claims too: who signs is the importer.
    """

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


# What can be imported: the types of ``mapped`` and ``claims`` for each kind.
MAPPED: Final[dict[str, tuple[type[EventData], type[EventData]]]] = {
    "handoff.created": (HandoffContent, HandoffClaims),
    "session.started": (session.SessionStarted, RecordClaims),
    "assessment.recorded": (session.AssessmentRecorded, RecordClaims),
    "finding.logged": (session.FindingLogged, RecordClaims),
    "unknown.logged": (session.UnknownLogged, RecordClaims),
    "dead_end.logged": (session.DeadEndLogged, RecordClaims),
    "report.generated": (session.ReportGenerated, RecordClaims),
    "reasoning.started": (reasoning.ReasoningStarted, RecordClaims),
    "reasoning.extended": (reasoning.ReasoningExtended, RecordClaims),
    "reasoning.concluded": (reasoning.ReasoningConcluded, RecordClaims),
}


def read_mapped(data: RecordImported) -> tuple[EventData, EventData] | None:
    """Return the mapped data and the claims by their types; None for a record that is only kept aside.

    Raises Refused: ``INVALID_FIELD`` or ``UNKNOWN_FIELD``.
    """
    if data.mapped_kind is None:
        if data.mapped or data.claims:
            raise Refused("INVALID_FIELD", "a record that is kept aside maps to nothing", path="$.data.mapped")
        return None
    types = MAPPED.get(data.mapped_kind)
    if types is None:
        message = f"only these can be imported: {', '.join(MAPPED)}"
        raise Refused("INVALID_FIELD", message, path="$.data.mapped_kind")
    return converted(data.mapped, types[0], "$.data.mapped"), converted(data.claims, types[1], "$.data.claims")
