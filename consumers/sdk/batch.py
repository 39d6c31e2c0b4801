"""The drafts of one call of ``publish``, and batches that collect the drafts of several calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from deedbook.consumers.sdk.declared import only_kind_on, plain_values
from deedbook.consumers.sdk.kinds import check_kinds
from deedbook.consumers.sdk.own_event import OwnEvent
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.forms import is_own

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.client import Ask
    from deedbook.ledger.events.fields import EventData


class Batch:
    """The events published inside ``batch()``. After the block, ``accepted`` holds their positions in the log."""

    def __init__(self, ledger: object, outer: Batch | None) -> None:
        self.accepted: list[Accepted] = []
        self._ledger = ledger
        self._outer = outer
        self._drafts: list[Draft] | None = []
        self._lock = threading.Lock()  # tasks of one event loop may call `add` from several threads

    def add(self, drafts: Sequence[Draft]) -> None:
        """Add events. Raises Refused: ``USAGE`` after the block, for example in a task that outlives it."""
        with self._lock:
            if self._drafts is None:
                raise Refused("USAGE", "this batch is closed: publish outside of it, or open another")
            self._drafts.extend(drafts)

    def pending(self, stream: str) -> list[EventData | dict[str, Any]]:
        """Return the batch's drafts for a stream; no view shows them yet."""
        return [draft.data for draft in self._drafts or () if draft.stream == stream]

    def close(self) -> list[Draft]:
        """Close the batch and return its drafts."""
        with self._lock:
            drafts, self._drafts = self._drafts or [], None
        return drafts

    def of(self, ledger: object) -> Batch | None:
        """Return the innermost batch of ``ledger``."""
        return self if self._ledger is ledger else self._outer and self._outer.of(ledger)


_batch: ContextVar[Batch | None] = ContextVar("deedbook_batch", default=None)


@contextlib.contextmanager
def collected(ledger: object) -> Iterator[Batch]:
    """Collect the events that the block publishes to ``ledger``, in this thread or task and those that it starts.

    Raises Refused: ``USAGE`` if a batch is already open.
    """
    outer = _batch.get()
    if outer is not None and outer.of(ledger) is not None:
        raise Refused("USAGE", "a batch is already open here: publish in it, because batches do not nest")
    batch = Batch(ledger, outer)
    token = _batch.set(batch)
    try:
        yield batch
    except BaseException:
        batch.close()
        raise
    finally:
        _batch.reset(token)


def present_batch(ledger: object) -> Batch | None:
    """Return the batch that is open for ``ledger`` in this thread or task, or None."""
    batch = _batch.get()
    return None if batch is None else batch.of(ledger)


def drafts_of(
    stream: str,
    data: tuple[EventData | dict[str, Any], ...],
    *,
    kind: str,
    causes: Sequence[str],
    corr: str | None,
    expect: int | None,
    idem: str | None,
    ask: Ask,
) -> list[Draft]:
    """Return the drafts of one call of ``publish``. Raises Refused: ``USAGE``; ``UNKNOWN_KIND``."""
    if not data:
        raise Refused("USAGE", "there is nothing to publish: pass at least one event")
    if not kind and any(isinstance(item, dict) for item in data):
        if not is_own(stream):
            raise Refused("USAGE", 'data in a dict needs a kind: publish(stream, {…}, kind="handoff.logged")')
        kind = only_kind_on(ask, stream)
    if kind:
        check_kinds((kind,))
    # The events of one call are committed together, so only the first carries the expected version and the key.
    return [
        Draft(
            stream=stream,
            data=plain_values(item) if isinstance(item, OwnEvent) or is_own(kind) else item,
            kind=item.kind if isinstance(item, OwnEvent) else kind,
            causes=list(causes),
            corr=corr,
            expect=expect if number == 0 else None,
            idem=idem if number == 0 or idem is None else f"{idem}#{number}",
        )
        for number, item in enumerate(data)
    ]
