"""The types of answers about snapshots."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from deedbook.ledger.events.brief import Level
from deedbook.ledger.events.snapshot import ContextSource, SnapshotTaken
from deedbook.projections.answers.answer import Checked, Head, Index, Marked, Ms, Untrusted


class SnapshotLine(Marked, frozen=True, kw_only=True):
    """A snapshot in a list. ``reasoning_fidelity`` is from 0 to 1; it is null for a snapshot without a reasoning."""

    event_index: Index
    id: str
    event_id: str
    author: str
    session_id: str
    domain: Untrusted
    reasoning_ref: str | None
    reasoning_fidelity: float | None
    level: Level | None
    context_source: ContextSource
    context_summary: Untrusted
    conclusion: Untrusted
    accepted_ms: Ms


class ShownSnapshot(SnapshotLine, frozen=True, kw_only=True):
    """A snapshot, and the ``data`` of its event, as its author signed it."""

    as_of: Head | UnsetType = UNSET
    data: SnapshotTaken


class GraphDomains(Checked, frozen=True, kw_only=True):
    """The domains of the reasonings with a graph, which no snapshot of it may hide."""

    domains: list[Untrusted]
