"""What marks reasoning of another tool in every answer: where it came from, and that nobody here vouches for it.

The row of an imported reasoning has its importer as ``author``; what its original says of itself is a claim. Answers
show both under ``imported``, which is None for reasoning that an agent of this ledger recorded.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ledger.events.body import Event
from ledger.events.imported import RecordImported
from projections.projection import json_text


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Where imported reasoning came from, and what its original says of itself; ``claims`` is JSON."""

    source: str
    format: str
    original: str
    claimed_author: str | None
    claimed_at: str | None
    claims: str


def origin_of(event: Event) -> Origin | None:
    """Return where the data of an event came from; None for an agent's own event."""
    data = event.data
    if not isinstance(data, RecordImported):
        return None
    claims = json_text(data.claims)
    return Origin(data.source, data.format, data.original, data.claimed_author, data.claimed_at, claims)


def kind_of(event: Event) -> str:
    """Return the kind of an event, or the kind that an imported one stands for."""
    data = event.data
    return (data.mapped_kind or event.kind) if isinstance(data, RecordImported) else event.kind


def marked(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a reasoning with its mark in place of the columns."""
    columns = Origin.__struct_fields__
    kept = {name: value for name, value in row.items() if name not in columns}
    if row["original"] is None:
        return kept | {"imported": None}
    origin = {name: row[name] for name in columns} | {"claims": msgspec.json.decode(row["claims"])}
    return kept | {"imported": {"importer": row["author"], **origin}}
