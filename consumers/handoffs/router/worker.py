"""The router as a service agent: signs the handoffs that events cause, and announces handoffs that are ready.

If we crash between the handoffs of an event, or between them and the position, the event is handled again. Handoffs
that exist already are recognised: this agent's by the idempotency key, another router's by their first event. A step
that the gate refuses becomes a dead letter with the reason; the other steps are made.

``handoff.ready`` is only an announcement. It is signed after each event that can make a handoff ready, and by a sweep
at the start and every few seconds, because a lease expires without an event. If it is refused, somebody else was faster
or the handoff changed; the next sweep decides again.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import structlog

from deedbook.consumers.handoffs.agent_names import read_agents
from deedbook.consumers.handoffs.operations import KINDS_OF_HANDOFFS, READY_KINDS
from deedbook.consumers.handoffs.router.chains import Chain
from deedbook.consumers.handoffs.router.chains_file import ChainsFile
from deedbook.consumers.handoffs.router.plans import (
    Facts,
    Lineage,
    PlannedHandoff,
    mismatch,
    plan_step,
    read_lineage,
    stopped,
)
from deedbook.consumers.sdk.reactor import Reactor
from deedbook.consumers.sdk.subscription_store import DeadLetter
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask, Client, every_row
from deedbook.ledger.errors import Refused, or_none
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.handoff import HandoffCompleted, HandoffContent, HandoffReady
from deedbook.ledger.events.imported import RecordImported, read_mapped
from deedbook.projections.briefs.tags import tags_of
from deedbook.projections.reasoning.memory import memory_from_dict

CONTENT_KINDS: Final = frozenset({"handoff.created", "handoff.amended", "record.imported"})
WAITING_KINDS: Final = frozenset({*CONTENT_KINDS, "handoff.approved", "handoff.claimed", "handoff.released"})
"""The kinds after which a handoff waits for its receiver, or will wait once the lease expires."""
SERVICE: Final = "service"


class LedgerSource:
    """Reads the facts that chains need: from the log up to an event, because a view shows only the present."""

    def __init__(self, client: Client, answer: Ask, router: str) -> None:
        """Read events through ``client`` and find them through ``answer``, on behalf of the agent ``router``."""
        self._client = client
        self._answer = answer
        self._router = router

    def default_reviewer(self, configured: str | None) -> str | None:
        """Return the reviewer of handoffs whose chain names none: the ``configured`` one, else the only human."""
        return read_agents(self._answer, configured).reviewer

    def facts(self, event: Event) -> Facts:
        """Return the facts of ``event``, which is on a handoff's stream."""
        rows = self._rows(event.stream, event.index)
        contents = [row["event_index"] for row in rows if row["kind"] in CONTENT_KINDS] or [event.index]
        completed = max((row["event_index"] for row in rows if row["kind"] == "handoff.completed"), default=event.index)
        first = self._event(contents[0])
        last = first if first.index == contents[-1] else self._event(contents[-1])
        data, sender = _content_of(last, first)
        done = self._event(completed).data if completed != event.index else event.data
        done = done if isinstance(done, HandoffCompleted) else HandoffCompleted()
        # Anybody may write a ``corr``. If the router believed every agent, an author could prevent a chain from firing.
        lineage = read_lineage(first.corr)
        lineage = lineage if lineage.chain and self._is_router(first.author) else Lineage()
        refs = tuple(done.reasoning_refs or data.reasoning_refs)
        tags, domains = self._route(dict.fromkeys((*done.reasoning_refs, *data.reasoning_refs)))
        return Facts(
            event_id=event.id,
            index=event.index,
            kind=event.kind,
            author=event.author,
            day=f"{datetime.fromtimestamp(event.accepted_ms / 1000, UTC):%Y-%m-%d}",
            id=event.name,
            title=data.title,
            sender=sender,
            receiver=data.to or "",
            reviewer=data.reviewer or (sender if isinstance(last.data, RecordImported) else last.author),
            summary=done.summary,
            reasoning_refs=refs,
            tags=tags,
            domains=domains,
            artifacts=tuple(done.artifacts),
            lineage=lineage,
        )

    def _route(self, refs: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tags and domains of versions of reasonings, each once; a version that is not here has none."""
        tags: dict[str, None] = {}
        domains: dict[str, None] = {}
        for ref in refs:
            if (graph := or_none(self._answer, "reasoning.full", {"id": ref})) is not None:
                memory, _ = memory_from_dict(graph["memory"])
                tags.update((tag.tag, None) for tag in tags_of(memory, graph["domain"]))
                domains.update({graph["domain"]: None} if graph["domain"] else {})
        return tuple(tags), tuple(domains)

    def is_made_by_step(self, name: str, idem: str) -> bool:
        """Return whether the handoff ``name`` is the one that a router made under the key ``idem``."""
        for row in self._rows(f"handoff/{name}", None):
            opened = self._event(row["event_index"])
            return opened.idem == idem and self._is_router(opened.author)
        return False

    def exists(self, name: str) -> bool:
        """Return whether there is a handoff of this id."""
        return bool(self._answer("catalog.find", {"stream": f"handoff/{name}", "limit": 1})["items"])

    def unlocked_by(self, name: str) -> list[str]:
        """Return the id of the event that made a handoff claimable, in a list. The handoff must be ready now."""
        # This is the last event after which it waited (approval, release, a claim whose lease expired), or which
        # unlocked it.
        own = self._rows(f"handoff/{name}", None)
        content = self._event(max(row["event_index"] for row in own if row["kind"] in CONTENT_KINDS))
        data, _ = _content_of(content, content)
        causes = [row for row in own if row["kind"] in WAITING_KINDS]
        for wanted in data.depends_on:
            rows = self._rows(f"handoff/{wanted}", None)
            done = [row for row in rows if row["kind"] == f"handoff.{data.unlock_at}"]
            # A handoff imported as done is verified without having been completed here.
            done = done or [row for row in rows if row["kind"] == "handoff.verified"]
            causes += done[-1:]
        return [max(causes, key=lambda row: int(row["event_index"]))["id"]] if causes else []

    def ready(self, about: str | None, limit: int) -> list[dict[str, Any]]:
        """Return ``{"id", "to", "version"}`` of handoffs to announce as ready: those related to ``about``, or all."""
        rows: list[dict[str, Any]] = self._answer("handoffs.unannounced", {"id": about, "limit": limit})["handoffs"]
        return rows

    def _is_router(self, name: str) -> bool:
        return name == self._router or any(
            agent.name == name and SERVICE in agent.roles for agent in self._client.agents()
        )

    def _rows(self, stream: str, until: int | None) -> list[dict[str, Any]]:
        """Return the rows of a stream's events, up to and with the index ``until``."""
        rows = every_row(self._answer, "catalog.find", {"stream": stream})
        return list(rows if until is None else takewhile(lambda row: row["event_index"] <= until, rows))

    def _event(self, index: int) -> Event:
        return read_event(index, self._client.entry(index))


def _content_of(last: Event, first: Event) -> tuple[HandoffContent, str]:
    """Return the content that an event set, and the name of the handoff's sender."""
    origin = last.data if isinstance(last.data, RecordImported) else first.data
    sender = (origin.claimed_author or "") if isinstance(origin, RecordImported) else first.author
    mapped = read_mapped(last.data) if isinstance(last.data, RecordImported) else None
    content = mapped[0] if mapped else last.data
    assert isinstance(content, HandoffContent)  # noqa: S101 - the kinds that set content hold it
    return content, sender


log = structlog.get_logger("deedbook.router")

NAME: Final = "router"
stop_wait_s: Final = 0.2
sweep_interval_s: Final = 5.0
ready_page_rows: Final = 200

# Refusals that mean that the handoff changed, or that another router announced it first.
_CHANGED: Final = frozenset(
    {"TRANSITION_NOT_ALLOWED", "VERSION_MISMATCH", "DEPENDENCY_PENDING", "DEPENDENCY_MISSING", "NOT_APPROVED"}
)


class RouterWorker:
    """Runs the chains of a file on new events, and announces handoffs that are ready."""

    def __init__(self, author: Author, answer: Ask, store: Path, chains: ChainsFile) -> None:
        """Write as ``author`` (role service); ask views through ``answer``; keep the position in ``store``."""
        self._author = author
        self._source = LedgerSource(author.client, answer, author.name)
        self._store = store
        self._chains = chains

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """Route until ``stop`` is set, or until everything before index ``until`` was handled."""
        client = self._author.client
        with closing(Subscriptions(self._store)) as subscriptions:
            reactor = self._reactor(subscriptions)
            reactor.start_at(client.head().size)
            swept: float | None = None
            while not stop.is_set():
                size = client.head().size if until is None else until
                if self._chains.current() is not None:
                    reactor.run(stop, until=size)
                if swept is None or time.monotonic() - swept >= sweep_interval_s:
                    self.announce()
                    swept = time.monotonic()
                if until is not None:
                    return
                client.entries(size, limit=1, kinds=KINDS_OF_HANDOFFS, wait_s=stop_wait_s)

    def retry(self, index: int) -> None:
        """Handle the event of a dead letter again; if it is refused again, it stays a dead letter.

        Raises Refused: ``NOT_FOUND`` if it is no dead letter; as ``ChainsFile.read``. Unavailable: the ledger or the
        store cannot be used.
        """
        if self._chains.current() is None:
            self._chains.read()  # Raises the reason; without chains the event would make nothing and be forgotten.
        with closing(Subscriptions(self._store)) as subscriptions:
            self._reactor(subscriptions).retry(index)

    def _reactor(self, subscriptions: Subscriptions) -> Reactor:
        reactor = Reactor(self._author.client, subscriptions, NAME, wait_s=stop_wait_s)

        @reactor.on(*sorted(KINDS_OF_HANDOFFS))
        def route(event: Event, _: sqlite3.Connection) -> None:
            if event.stream.startswith("handoff/"):  # An unmapped record is on another stream.
                reasons = self._run_chains(event)
                if event.kind in READY_KINDS:
                    self.announce(event.name)
                if reasons:
                    log.error("not routed", index=event.index, id=event.id, error="; ".join(reasons))
                    subscriptions.keep_aside(NAME, DeadLetter(event.index, event.id, "; ".join(reasons)))

        return reactor

    def _run_chains(self, event: Event) -> list[str]:
        """Create the handoffs that an event causes; return the reasons why others were not created."""
        chains = [chain for chain in self._chains.current() or () if event.kind in chain.kinds]
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
        reviewer = self._source.default_reviewer(self._chains.default_reviewer)
        for number in range(1, len(chain.steps) + 1):
            try:
                self._create(plan_step(chain, number, facts, reviewer), facts)
            except Refused as refusal:
                yield f"chain {chain.name}, step {number}: {refusal.code}: {refusal.message}"

    def _create(self, planned: PlannedHandoff, facts: Facts) -> None:
        """Create a handoff unless it exists already; under its spare id if another handoff has its id."""
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
                    # This agent already made the handoff of this step, from an older text of the chain: that handoff
                    # counts.
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
        message = f"{planned.id} and {planned.spare_id} are both ids of other handoffs"
        raise Refused("TRANSITION_NOT_ALLOWED", message, chain=planned.chain, step=planned.step, id=planned.id)

    def announce(self, about: str | None = None) -> int:
        """Sign ``handoff.ready`` for one handoff and those that wait for it, or for all; return how many."""
        announced, refused = 0, set[str]()
        while True:
            page = self._source.ready(about, ready_page_rows)
            due = [row for row in page if row["id"] not in refused]
            for row in due:
                ready = HandoffReady(to=row["to"], version=row["version"])
                causes = self._source.unlocked_by(row["id"])
                try:
                    self._author.emit(Draft(stream=f"handoff/{row['id']}", data=ready, causes=causes))
                    announced += 1
                except Refused as refusal:
                    refused.add(row["id"])
                    say = log.info if refusal.code in _CHANGED else log.warning
                    say("not announced", handoff=row["id"], code=refusal.code, error=refusal.message)
            # A full page may hide more; a page full of refused handoffs is left for the next sweep.
            if len(page) < ready_page_rows or not due:
                return announced
