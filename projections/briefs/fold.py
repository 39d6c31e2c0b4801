"""The fold of briefs: a row for each ``reasoning.briefed``; ``data`` is the event's data as JSON."""

from __future__ import annotations

from typing import Final

from deedbook.projections.views.projection import Logged, Row, Rows, Table, event_rows, json_text, row_of
from deedbook.projections.views.registry import VIEW_VERSIONS


class BriefRow(Row, frozen=True):
    """A published brief."""

    event_index: int
    event_id: str
    reasoning_ref: str
    level: str
    budget: int
    tokens: int
    exact: bool
    fidelity: float
    band: str
    compressor: str
    compressor_version: str
    author: str
    accepted_ms: int
    data: str


BRIEFS: Final = Table("briefs", BriefRow, primary_key=("event_index",), indexes=(("reasoning_ref", "level"),))


def added(logged: Logged) -> Rows:
    """Return the brief's row."""
    event, brief = logged.event, logged.event.data.brief
    row = row_of(
        BriefRow,
        event,
        brief,
        event_index=event.index,
        event_id=event.id,
        tokens=event.data.tokens,
        fidelity=brief.fidelity.value,
        band=brief.fidelity.band,
        compressor=brief.compressor_name,
        data=json_text(event.data),
    )
    return (row,)


VIEW: Final = event_rows("briefs", VIEW_VERSIONS["briefs"], frozenset({"reasoning.briefed"}), (BRIEFS,), added)
