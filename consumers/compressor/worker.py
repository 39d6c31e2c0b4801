"""The compressor as a service agent: when reasoning is concluded, it publishes signed briefs of it.

It reacts on the log like any subscriber. Its effect is an event in the same log, outside its own store, so it carries an
idempotency key made of the graph's ref and the level: however often it is tried, each brief is published once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from consumers.compressor.compress import COMPRESSOR_NAME, COMPRESSOR_VERSION, compress
from consumers.reactor import Reactor, Subscriptions
from ledger.author import Author, Draft
from ledger.events.reasoning import ReasoningBriefed
from projections.briefs.prompt import TransferLevel, to_context_prompt

if TYPE_CHECKING:
    import sqlite3
    import threading
    from pathlib import Path

    from ledger.events.body import Event
    from projections.reader import Reader

KINDS: Final = ("reasoning.concluded",)
LEVELS: Final = (TransferLevel.MINIMAL, TransferLevel.STANDARD)


class CompressorWorker:
    """Publishes the briefs of every concluded reasoning, from the start of the log on."""

    def __init__(self, author: Author, reader: Reader, store: Path) -> None:
        """Write as ``author`` (role service); read graphs from ``reader``; keep the position in ``store``."""
        self._author = author
        self._reader = reader
        self._store = store

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """Publish until ``stop`` is set, or until everything before index ``until`` was handled.

        Raises:
            Unavailable: the ledger or the store cannot be used.
        """
        subscriptions = Subscriptions(self._store)
        try:
            reactor = Reactor(self._author.client, subscriptions, "compressor")
            reactor.on(*KINDS)(self._brief)
            reactor.start_at(0)
            reactor.run(stop, until=until)
        finally:
            subscriptions.close()

    def _brief(self, event: Event, _: sqlite3.Connection) -> None:
        full = self._reader.full_reasoning(event.name)
        domain = self._reader.answer("reasoning.show", {"id": event.name})["domain"] or None
        drafts = []
        for level in LEVELS:
            brief = compress(full.memory, level, domain=domain)
            prompt = to_context_prompt(brief)
            briefed = ReasoningBriefed(brief=brief, prompt=prompt.prompt, tokens=prompt.tokens)
            maker = f"{COMPRESSOR_NAME}/{COMPRESSOR_VERSION}"
            idem = f"{maker}:{level.value}:{full.ref}"
            drafts.append(Draft(stream=event.stream, data=briefed, causes=[event.id], idem=idem))
        self._author.emit(*drafts)
