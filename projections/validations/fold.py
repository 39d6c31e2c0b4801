"""The fold of validations: a row for each ``reasoning.validated``; ``data`` is the event's data as JSON."""

from __future__ import annotations

from typing import Final

from deedbook.projections.views.projection import Logged, Row, Rows, Table, event_rows, json_text, row_of
from deedbook.projections.views.registry import VIEW_VERSIONS


class ValidationRow(Row, frozen=True):
    """A report on a graph version; ``tree`` is the tree it was checked against, ``issues`` their number.

    ``unlinked`` counts the inferences that name nothing that they rest on; ``key`` (hex) signed it.
    """

    event_index: int
    event_id: str
    reasoning_id: str
    reasoning_ref: str
    passed: bool
    issues: int
    unlinked: int
    tree: str
    commit_id: str
    validator: str
    validator_version: str
    author: str
    key: str
    accepted_ms: int
    data: str


VALIDATIONS: Final = Table(
    "validations", ValidationRow, primary_key=("event_index",), indexes=(("reasoning_ref", "event_index"),)
)


def added(logged: Logged) -> Rows:
    """Return the report's row."""
    event, data = logged.event, logged.event.data
    row = row_of(
        ValidationRow,
        event,
        data,
        event_index=event.index,
        event_id=event.id,
        reasoning_id=event.name,
        issues=data.counts.issues,
        unlinked=data.counts.inferences_unlinked,
        tree=data.tree.type,
        commit_id=data.tree.commit,
        validator=data.validator_name,
        data=json_text(data),
    )
    return (row,)


VIEW: Final = event_rows(
    "validations", VIEW_VERSIONS["validations"], frozenset({"reasoning.validated"}), (VALIDATIONS,), added
)
