"""The router as a service agent: it signs the handoffs that chains make of events, and tells when a handoff is ready.

It reacts on the log like any subscriber. What happens if we crash here: between the handoffs of an event, or between
them and the position, the event is handled again, and what is there already is recognised: by its idempotency key when
this agent made it, by what its first event says when another router did. A step that the gate refuses is a dead letter
with the reason, and the other steps of the event are made all the same.

``handoff.ready`` only tells. It is signed after each event that can make a handoff ready, and by a sweep at the start
and every few seconds, because a lease runs out without any event. A refusal there means that somebody was faster or
that it changed meanwhile, and the next look decides anew.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import structlog

from consumers.handoffs.acts import KINDS_OF_HANDOFFS, READY_KINDS
from consumers.handoffs.router.facts import Source
from consumers.handoffs.router.matching import mismatch, not_created, plan_step, stopped
from consumers.sdk.reactor import Reactor
from consumers.sdk.subscriptions import DeadLetter, Subscriptions
from ledger.author import Author, Draft
from ledger.errors import Refused
from ledger.events.handoff import HandoffReady

if TYPE_CHECKING:
    import sqlite3
    import threading
    from collections.abc import Iterator
    from pathlib import Path

    from consumers.handoffs.router.chains import Chain
    from consumers.handoffs.router.matching import Facts, Planned
    from consumers.handoffs.router.reading import ChainsFile
    from ledger.client import Ask
    from ledger.events.body import Event

log = structlog.get_logger("baton.router")

NAME: Final = "router"
stop_wait_s: Final = 0.2
sweep_interval_s: Final = 5.0
ready_page_rows: Final = 200

# Why a handoff is not announced after all: it changed, or another router has told.
_CHANGED: Final = frozenset(
    {"TRANSITION_NOT_ALLOWED", "VERSION_MISMATCH", "DEPENDENCY_PENDING", "DEPENDENCY_MISSING", "NOT_APPROVED"}
)


class RouterWorker:
    """Runs the chains of a file on what happens from now on, and announces what is ready."""

    def __init__(self, author: Author, answer: Ask, store: Path, chains: ChainsFile) -> None:
        """Write as ``author`` (role service); ask views through ``answer``; keep the position in ``store``."""
        self._author = author
        self._source = Source(author.client, answer, author.name)
        self._store = store
        self._chains = chains
        self._subscriptions: Subscriptions | None = None

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """Route until ``stop`` is set, or until everything before index ``until`` was handled.

        Raises:
            Unavailable: the ledger or the store cannot be used; call again to go on.
        """
        client = self._author.client
        subscriptions = Subscriptions(self._store)
        try:
            reactor = self._reactor(subscriptions)
            reactor.start_at(client.head().size)
            swept: float | None = None
            while not stop.is_set():
                size = client.head().size if until is None else until
                if self._chains.current() is not None:
                    reactor.run(stop, until=size)
                if swept is None or time.monotonic() - swept >= sweep_interval_s:
                    self.sweep()
                    swept = time.monotonic()
                if until is not None:
                    return
                client.entries(size, limit=1, wait_s=stop_wait_s)
        finally:
            subscriptions.close()

    def retry(self, index: int) -> None:
        """Handle the event of a dead letter again; what is refused again is a dead letter again.

        Raises:
            Refused: ``NOT_FOUND`` when it is none, and what is wrong with the chains file.
            Unavailable: the ledger or the store cannot be used.
        """
        if self._chains.current() is None:
            self._chains.read()  # Says why; without chains nothing would come of the event, and it would be forgotten.
        subscriptions = Subscriptions(self._store)
        try:
            self._reactor(subscriptions).retry(index)
        finally:
            subscriptions.close()

    def sweep(self) -> int:
        """Announce everything that is ready and was not announced; return how many."""
        return self._announce(None)

    def _reactor(self, subscriptions: Subscriptions) -> Reactor:
        reactor = Reactor(self._author.client, subscriptions, NAME, wait_s=stop_wait_s)

        @reactor.on(*sorted(KINDS_OF_HANDOFFS))
        def route(event: Event, _: sqlite3.Connection) -> None:
            if event.stream.startswith("handoff/"):  # A record that stands for no handoff is only kept.
                reasons = self._run_chains(event)
                if event.kind in READY_KINDS:
                    self._announce(event.name)
                if reasons:
                    log.error("not routed", index=event.index, id=event.id, error="; ".join(reasons))
                    subscriptions.keep_aside(NAME, DeadLetter(event.index, event.id, "; ".join(reasons)))

        return reactor

    def _run_chains(self, event: Event) -> list[str]:
        """Create the handoffs that an event causes; return why others could not be."""
        found = self._chains.current()
        chains = [chain for chain in (found.chains if found else ()) if event.kind in chain.kinds]
        if not chains:
            return []
        facts = self._source.facts(event)
        reasons: list[str] = []
        for chain in chains:
            if mismatch(chain, facts) is not None:
                continue
            reason = stopped(chain, facts)
            reasons += [reason] if reason is not None else self._run_steps(chain, facts)
        return reasons

    def _run_steps(self, chain: Chain, facts: Facts) -> Iterator[str]:
        for number in range(1, len(chain.steps) + 1):
            try:
                planned = plan_step(chain, number, facts, self._chains.default_reviewer)
                self._create(planned, facts)
            except Refused as refusal:
                yield f"chain {chain.name}, step {number}: {refusal.code}: {refusal.message}"

    def _create(self, planned: Planned, facts: Facts) -> None:
        """Create a handoff unless it was created before; under its spare id when its id is another handoff's."""
        for name in (planned.id, planned.spare_id):
            draft = Draft(
                stream=f"handoff/{name}",
                data=planned.data,
                causes=[facts.event_id],
                corr=planned.corr,
                idem=planned.idem,
            )
            try:
                accepted = self._author.emit(draft)[0]
            except Refused as refusal:
                if refusal.code == "IDEMPOTENCY_CONFLICT":
                    # This agent made this step of this event before, from an older text of the chain: that one stands.
                    log.info("created before", chain=planned.chain, step=planned.step, cause=facts.event_id)
                    return
                if refusal.code != "TRANSITION_NOT_ALLOWED":
                    raise
                if self._source.is_made_by_step(name, planned.idem):
                    return  # Another router was faster.
            else:
                if not accepted.is_repeat:
                    log.info("handoff created", handoff=name, chain=planned.chain, step=planned.step)
                return
        raise not_created(planned, planned.id)

    def _announce(self, about: str | None) -> int:
        """Sign ``handoff.ready`` for one handoff and those that wait for it, or for all; return how many."""
        announced, refused = 0, set[str]()
        while True:
            found = self._source.ready(about, ready_page_rows)
            due = [one for one in found if one["id"] not in refused]
            for one in due:
                ready = HandoffReady(to=one["to"], version=one["version"])
                causes = self._source.unlocked_by(one["id"])
                try:
                    self._author.emit(Draft(stream=f"handoff/{one['id']}", data=ready, causes=causes))
                    announced += 1
                except Refused as refusal:
                    refused.add(one["id"])
                    changed = refusal.code in _CHANGED
                    say = log.info if changed else log.warning
                    say("not announced", handoff=one["id"], code=refusal.code, error=refusal.message)
            # A full page may hide more; one that is full of what was refused is left for the next sweep.
            if len(found) < ready_page_rows or not due:
                return announced
