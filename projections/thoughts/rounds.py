"""Which round of a search an event belongs to: one generation, with the evaluation of what it gave (seed 003).

The seed numbers the calls of an agent; nodes tie the evaluator's calls to the generator's. An evaluation over several
generations counts to the last of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ledger.events import tot as kinds

if TYPE_CHECKING:
    from ledger.events.body import Event

# What follows the last round, whatever it names as its cause.
_AFTER: Final = (kinds.SynthesizeSolution, kinds.FinalSolution, kinds.SearchComplete)


class Rounds(msgspec.Struct, frozen=True, array_like=True):
    """How many rounds there were, and to which the events, the nodes and the last event of each author belong."""

    count: int = 0
    of_event: dict[str, int] = {}
    of_node: dict[str, int] = {}
    last: dict[str, int] = {}


def seen(rounds: Rounds, event: Event) -> Rounds:
    """Return the rounds after one more event of the task."""
    data, count, of_node = event.data, rounds.count, rounds.of_node
    if isinstance(data, kinds.GenerateThoughts):
        count += 1
        found = count
    elif isinstance(data, kinds.EvaluateThoughts):
        found = max((of_node.get(node.id, 0) for node in data.payload.candidates), default=0) or count
    elif isinstance(data, _AFTER):
        found = 0
    else:
        found = next((rounds.of_event[cause] for cause in event.causes if cause in rounds.of_event), 0)
        if isinstance(data, kinds.TotLogWritten):
            found = found or data.round
    if not found:
        return rounds
    if isinstance(data, kinds.TotNodesAdded):
        of_node = of_node | dict.fromkeys((node.id for node in data.nodes), found)
    return Rounds(count, rounds.of_event | {event.id: found}, of_node, rounds.last | {event.author: found})


def round_of(rounds: Rounds, event: Event) -> int:
    """Return the round of an event that was seen; 0 when it belongs to none."""
    return rounds.of_event.get(event.id, 0)


def round_of_file(rounds: Rounds, event: Event) -> int:
    """Return the round in whose log file the event just seen stands: without one of its own, its author's last."""
    return round_of(rounds, event) or rounds.last.get(event.author) or 1
