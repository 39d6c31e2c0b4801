"""Which round of a search an event belongs to: one generation, with the evaluation of what it gave (seed 003).

The seed numbers the calls of an agent; nodes tie the evaluator's calls to the generator's. An evaluation over several
generations counts to the last of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.events import tot as kinds

if TYPE_CHECKING:
    from ledger.events.body import Event


class Rounds:
    """Follows a task's events, one after the other, and tells the round of each."""

    def __init__(self) -> None:
        """Start before the first round."""
        self._count = 0
        self._of_event: dict[str, int] = {}
        self._of_node: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def see(self, event: Event) -> None:
        """Take note of an event."""
        data = event.data
        if isinstance(data, kinds.GenerateThoughts):
            self._count += 1
            found = self._count
        elif isinstance(data, kinds.EvaluateThoughts):
            found = max((self._of_node.get(node.id, 0) for node in data.payload.candidates), default=0) or self._count
        else:
            found = next((self._of_event[cause] for cause in event.causes if cause in self._of_event), 0)
            if isinstance(data, kinds.TotLogWritten):
                found = found or data.round
        if isinstance(data, kinds.TotNodesAdded):
            self._of_node |= dict.fromkeys((node.id for node in data.nodes), found)
        if found:
            self._of_event[event.id] = found
            self._last[event.author] = found

    def of(self, event: Event) -> int:
        """Return the round of an event that was seen; one that names nothing of a round is of its author's last."""
        return self._of_event.get(event.id) or self._last.get(event.author) or 1
