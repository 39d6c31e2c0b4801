"""The fold of redactions: a row for each, and one for each ref that a version of the erased reasoning had."""

from __future__ import annotations

from typing import Final

from deedbook.projections.views.projection import Logged, Row, Rows, Table, event_rows, row_of
from deedbook.projections.views.registry import VIEW_VERSIONS


class RedactionRow(Row, frozen=True):
    """A redaction. ``remnant`` is the ``body_ref`` that the erased entry now has."""

    event_index: int
    entry: int
    event: str
    remnant: str
    author: str
    accepted_ms: int
    reason: str


class FormerVersionRow(Row, frozen=True):
    """A ref that a version of a reasoning had before ``entry`` of its stream was erased, as the redaction says.

    Answers about the past need these rows, too, because the refs of past versions are computed from the remnants.
    """

    redaction: int
    version: int
    entry: int
    ref: str


REDACTIONS: Final = Table("redactions", RedactionRow, primary_key=("event_index",), indexes=(("entry",),))
FORMER_VERSIONS: Final = Table(
    "former_versions", FormerVersionRow, primary_key=("redaction", "version"), indexes=(("ref",), ("entry",))
)


def added(logged: Logged) -> Rows:
    """Return the redaction's row, and those of the refs that it names."""
    event, data = logged.event, logged.event.data
    row = row_of(RedactionRow, data, event_index=event.index, author=event.author, accepted_ms=event.accepted_ms)
    versions = sorted(data.versions.items())
    return (row, *(FormerVersionRow(event.index, version, data.entry, ref) for version, ref in versions))


VIEW: Final = event_rows(
    "redactions", VIEW_VERSIONS["redactions"], frozenset({"entry.redacted"}), (REDACTIONS, FORMER_VERSIONS), added
)
