"""What start-up checks before anything is read or written: finish or refuse, never guess.

LMDB drops the transaction of a process that died, so there is nothing to finish in the log itself. What is left
to check is that head, entries and tree end at the same place: they can only disagree when the file was damaged or
exchanged, and then nothing must be appended to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.errors import Corrupted
from ledger.merkle import Frontier

if TYPE_CHECKING:
    from ledger.log.read import Snapshot


def check_head(snapshot: Snapshot) -> None:
    """Check the end of the log in a few reads.

    Raises:
        Corrupted: head, entries or frontier do not end at the same place.
    """
    head = snapshot.head
    if head is None:
        return
    Frontier.from_bytes(head.size, head.frontier)
    if head.size == 0:
        raise Corrupted("CORRUPTED", "the log has a head and no entries: run `baton fsck`", index=0)
    snapshot.entry(head.size - 1)
    if snapshot.has_entry_beyond_end():
        raise Corrupted(
            "CORRUPTED", f"entries lie beyond the log's end at {head.size}: run `baton fsck`", index=head.size
        )
