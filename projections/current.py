"""Whether the views of a store hold everything that is in the log: asked without loading any fold.

Most commands ask one question of views that nobody has to fold, because nothing happened since the last one. What is
compared is what the runner compares: versions, positions, and the id of the last event, so that a log that was rolled
back and grew again is not taken for the one that was folded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.envelope import decode_entry, event_id, pae
from projections.versions import ON_DEMAND, VIEW_VERSIONS

if TYPE_CHECKING:
    from ledger.client import Client
    from projections.store.store import Store


def are_current(client: Client, store: Store, *, on_demand: bool = False) -> bool:
    """Return whether every view is there in its present version, and folded up to the end of the log.

    Those that are folded ``on_demand`` count only when they are what is asked.
    """
    wanted = {name: version for name, version in VIEW_VERSIONS.items() if on_demand or name not in ON_DEMAND}
    with store.reading() as reading:
        slots = [slot for slot in reading.slots() if slot.view in wanted]
    live = {slot.view: slot for slot in slots if slot.is_live}
    if len(live) != len(slots) or {name: slot.version for name, slot in live.items()} != wanted:
        return False
    ends = {(slot.position, slot.last_id) for slot in live.values()}
    if len(ends) != 1:
        return False
    position, last_id = ends.pop()
    if position == 0:
        return False
    page = client.entries(position - 1, limit=1)
    return page.size == position and event_id(pae(decode_entry(page.entries[0][1]).body)) == last_id
