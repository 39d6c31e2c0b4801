"""Records of other tools, stored unchanged: they are shown as imported and grant nothing.

A record is on the stream of its mapped kind, or on ``record/ID`` if it is unmapped. A handoff is mapped to its
content, everything else to the data of its mapped kind, and folds read both alike (``body.read_as``).
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
    """A record of another tool: its original, stored byte for byte as a blob, and the data that it is mapped to.

    ``only_digest``: the original is not stored, because it has a secret or is too large. ``source`` is the place where
    the record was found, and ``format`` its format. ``mapped`` is data of ``mapped_kind``.
    ``claims`` is the state that the original claims. Author and time are claims, too: the importer signs the event.
    ``reason`` says why a record is unmapped, or which names were added to an imported handoff.
    ``body`` is the text of the original that ``mapped`` lacks, so that searches find it; a long one is shortened.
    """

    is_free = True
    blob_path = ("original",)

    original: Ref
    source: Line
    format: Label
    mapped_kind: Label | None = None
    mapped: dict[str, Any] = {}
    claimed_author: Line | None = None
    claimed_at: Label | None = None
    claims: dict[str, Any] = {}
    reason: OptionalText = ""
    only_digest: bool = False
    body: OptionalText = ""


class DirtyValue(EventData, frozen=True):
    """A value of the original that no field can hold: its path, its JSON text (shortened), and the reason."""

    path: Label
    value: Line
    why: Line


class RecordClaims(EventData, frozen=True):
    """Other values of the original: ``said`` has them by their names there, ``dirty`` those that could not be read."""

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
"""The kinds that can be imported."""


def mapped_types(kind: str) -> tuple[type[EventData], type[EventData]]:
    """Return the types of ``mapped`` and ``claims`` for one of the kinds that can be imported."""
    return (HandoffContent, HandoffClaims) if kind == "handoff.created" else (KINDS[kind].data, RecordClaims)


def read_mapped(data: RecordImported) -> tuple[EventData, EventData] | None:
    """Return the mapped data and the claims as their types; None for an unmapped record.

    Raises Refused: ``INVALID_FIELD`` or ``UNKNOWN_FIELD``.
    """
    if data.mapped_kind is None:
        if data.mapped or data.claims:
            message = "a record without mapped_kind must not have mapped or claims"
            raise Refused("INVALID_FIELD", message, path="$.data.mapped")
        return None
    if data.mapped_kind not in MAPPED:
        message = f"mapped_kind must be one of {', '.join(MAPPED)}"
        raise Refused("INVALID_FIELD", message, path="$.data.mapped_kind")
    types = mapped_types(data.mapped_kind)
    return converted(data.mapped, types[0], "$.data.mapped"), converted(data.claims, types[1], "$.data.claims")
