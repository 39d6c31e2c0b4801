"""The compressor as a service agent: when reasoning is concluded, it publishes signed briefs of it.

It reacts on the log like any subscriber. Its effect is an event in the same log, outside its own store, so it carries
an idempotency key made of the stream, the graph's ref and the level: however often it is tried, each brief is
published once. What happens if we crash here: between the briefs, or between them and the position, all of them are
tried again, and those that are there are recognised by their keys.

The graph is the one that stands when the worker gets to it, which may be newer than the conclusion it reacts to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import replace

from consumers.reasoning.compressor.compress import COMPRESSOR_NAME, COMPRESSOR_VERSION, compress
from consumers.sdk.reactor import Reactor
from consumers.sdk.subscriptions import Subscriptions
from ledger.author import Author, Draft
from ledger.bus.subjects import stream_token
from ledger.codec import encode_canonical
from ledger.errors import Refused, Unavailable
from ledger.events.reasoning import ReasoningBriefed
from ledger.limits import data_size_max_bytes
from projections.briefs.prompt import TransferLevel, to_context_prompt

if TYPE_CHECKING:
    import sqlite3
    import threading
    from pathlib import Path

    from consumers.sdk.llm.model import LlmClient
    from ledger.events.body import Event
    from projections.reader import Reader
    from projections.reasoning.memory import ReasoningMemory

log = structlog.get_logger("baton.compressor")

KINDS: Final = ("reasoning.concluded",)
LEVELS: Final = (TransferLevel.MINIMAL, TransferLevel.STANDARD)
stop_wait_s: Final = 0.1
prose_missing_max_chars: Final = 500


class CompressorWorker:
    """Publishes the briefs of every concluded reasoning, from the start of the log on."""

    def __init__(self, author: Author, reader: Reader, store: Path, llm: LlmClient | None = None) -> None:
        """Write as ``author`` (role service); read graphs from ``reader``; keep the position in ``store``.

        With ``llm`` a model writes prose beside the standard brief; the facts and figures never depend on it.
        """
        self._llm = llm
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
            reactor = Reactor(self._author.client, subscriptions, "compressor", wait_s=stop_wait_s)
            reactor.on(*KINDS)(self._brief)
            reactor.start_at(0)
            reactor.run(stop, until=until)
        finally:
            subscriptions.close()

    def _brief(self, event: Event, _: sqlite3.Connection) -> None:
        full = self._reader.full_reasoning(event.name)
        domain = self._reader.answer("reasoning.show", {"id": event.name})["domain"] or None
        maker = f"{COMPRESSOR_NAME}/{COMPRESSOR_VERSION}"
        for level in LEVELS:
            brief = compress(full.memory, level, domain=domain)
            prompt = to_context_prompt(brief)
            briefed = ReasoningBriefed(brief=brief, prompt=prompt.prompt, tokens=prompt.tokens)
            if level is TransferLevel.STANDARD:
                briefed = self._with_prose(briefed, full.memory)
            briefed = fitting(briefed)
            # The stream is part of the key: two agents may come to the very same graph.
            idem = f"{maker}:{level.value}:{stream_token(event.stream)}:{full.ref}"
            self._publish(Draft(stream=event.stream, data=briefed, causes=[event.id], idem=idem))

    def _with_prose(self, briefed: ReasoningBriefed, memory: ReasoningMemory) -> ReasoningBriefed:
        if self._llm is None:
            return briefed
        from consumers.reasoning.compressor.llm_compressor import write_prose  # noqa: PLC0415 - only where a model is configured

        try:
            return replace(briefed, prose=write_prose(memory, self._llm))
        except (Unavailable, Refused) as error:
            log.warning("no prose", code=error.code, error=error.message)
            return replace(briefed, prose_missing=f"{error.code}: {error.message}"[:prose_missing_max_chars])

    def _publish(self, draft: Draft) -> None:
        try:
            self._author.emit(draft)
        except Refused as refusal:
            if refusal.code != "IDEMPOTENCY_CONFLICT":
                raise
            # The same compressor made this brief before, with another tokenizer at hand: that one stands.
            log.warning("brief was published before", stream=draft.stream, idem=draft.idem)


def fitting(briefed: ReasoningBriefed) -> ReasoningBriefed:
    """Return a brief without its embedding where both together would not fit an entry: the facts come first."""
    if len(encode_canonical(briefed)) <= data_size_max_bytes:
        return briefed
    return replace(briefed, brief=replace(briefed.brief, embedding=None))
