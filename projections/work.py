"""One view's share of a batch: which states the events change, and what has to be written for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from ledger.errors import Corrupted, Refused
from projections.store.store import Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from projections.projection import Logged, Projection, Row

S = TypeVar("S", bound=msgspec.Struct)

_encoder = msgspec.msgpack.Encoder()


class Work(Generic[S]):
    """Folds batches into one view, keeping in memory the states it left in the store."""

    def __init__(self, view: Projection[S]) -> None:
        """Fold into ``view``, with no state in memory yet."""
        self._view = view
        self._states: dict[str, S] = {}
        self._decoder = msgspec.msgpack.Decoder(view.state)

    def fold(self, events: Sequence[Logged], load: Callable[[Iterable[str]], dict[str, bytes]]) -> Changes:
        """Return what ``events`` change; ``load`` reads the packed states of keys that are not in memory.

        Raises:
            Corrupted: an event does not follow from those before it, which no admitted event can do.
        """
        view, states, fold = self._view, self._states, self._view.fold
        handled = events if view.handles is None else [one for one in events if one.event.kind in view.handles]
        keyed = [(one, view.keys(one.event)) for one in handled]
        touched = dict.fromkeys(key for _, keys in keyed for key in keys)
        stored = load([key for key in touched if key not in states])
        replaced = [key for key in touched if key in states or key in stored]
        for key in touched:
            if key in stored:
                states[key] = self._decoder.decode(stored[key])
            elif key not in states:
                states[key] = view.initial(key)
        added: dict[str, list[Row]] = {}
        for one, keys in keyed:
            try:
                for key in keys:
                    states[key] = fold(states[key], one.event)
            except Refused as error:
                message = f"entry {one.event.index} does not follow from those before it: {error.message}"
                raise Corrupted("CORRUPTED", message, index=one.event.index) from error
            for table, rows in view.added(states[keys[0]] if keys else None, one).items():
                added.setdefault(table, []).extend(rows)
        replacing: dict[str, list[Row]] = {}
        for key in touched:
            for table, rows in view.rows(states[key]).items():
                replacing.setdefault(table, []).extend(rows)
        packed = [(key, _encoder.encode(states[key])) for key in touched]
        return Changes(replacing, added, packed, replaced)

    def shrink(self, limit: int) -> None:
        """Forget all states when there are more than ``limit``: they are in the store."""
        if len(self._states) > limit:
            self._states.clear()
