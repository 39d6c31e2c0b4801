"""Receiving a snapshot: the signed one of an id, or an unsigned one that is made now of a reasoning (seed 001)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from consumers.reasoning.snapshots.take import assemble
from ledger.errors import Corrupted, Refused
from ledger.events.snapshot import SnapshotTaken
from projections.snapshots.snapshot import snapshot_of

if TYPE_CHECKING:
    from ledger.client import Ask
    from projections.snapshots.snapshot import EnhancedEpistemicSnapshot


class _Shown(msgspec.Struct):
    id: str
    author: str
    event_id: str
    data: SnapshotTaken


def receive_snapshot(view: Ask, name: str) -> EnhancedEpistemicSnapshot:
    """Return a snapshot by its id; where there is none, an unsigned one of a reasoning by its id or ref.

    ``snapshot/ID`` and ``reasoning/ID`` say which of the two is meant.

    Raises:
        Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``.
        Corrupted: ``VERIFICATION_FAILED`` when the answer is no snapshot.
    """
    if not name.startswith("reasoning/"):
        try:
            return _taken(view, name)
        except Refused as refusal:
            if refusal.code != "NOT_FOUND" or name.startswith("snapshot/"):
                raise
    try:
        data, _ = assemble(view, reasoning=name)
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        raise Refused("NOT_FOUND", f"there is no snapshot and no reasoning {name}", asked=name) from refusal
    return snapshot_of(data, snapshot_id="")


def _taken(view: Ask, name: str) -> EnhancedEpistemicSnapshot:
    answer = view("snapshots.show", {"id": name})
    try:
        shown = msgspec.convert(answer, _Shown)
    except msgspec.ValidationError as error:
        raise Corrupted("VERIFICATION_FAILED", f"the answer is not what was asked for: {error}") from error
    return snapshot_of(shown.data, snapshot_id=shown.id, author=shown.author, event_id=shown.event_id)
