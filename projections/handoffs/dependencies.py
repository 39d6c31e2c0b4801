"""Reads the facts for an answer about handoffs: those of the handoffs, and of the handoffs that they wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deedbook.ledger.lifecycle.handoff_status import is_unlocked, stage_of
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.handoffs.facts import HandoffFacts, facts_of
from deedbook.projections.handoffs.record import HandoffRecord, records_of, state_of
from deedbook.projections.handoffs.why import chain_links_max

blockers_followed_max: Final = 32
"""The number of handoffs of one level that are followed to the handoffs that block them."""


def known_facts(
    source: RowSource, records: Mapping[str, HandoffRecord], links: int = chain_links_max
) -> dict[str, HandoffFacts]:
    """Return the facts of these handoffs and of those that they wait for, by id. ``known_records`` decides which."""
    return facts_from(source, known_records(source, records, links)[0])


def facts_from(source: RowSource, known: Mapping[str, HandoffRecord]) -> dict[str, HandoffFacts]:
    """Return the facts of these records, by id."""
    agents = source.agents({name for record in known.values() for name in record.people})
    now_ms = source.now_ms
    return {name: facts_of(record, known, agents, now_ms) for name, record in known.items()}


def known_records(
    source: RowSource, records: Mapping[str, HandoffRecord], links: int = chain_links_max, *, is_every: bool = False
) -> tuple[dict[str, HandoffRecord], list[str]]:
    """Return the records of these handoffs and of those that they wait for, by id, and the ids of the blocking ones.

    Chains of waiting handoffs are followed for ``links`` more links, level by level. From a waiting dependency, only
    the first one that blocks it is followed, or with ``is_every`` every one. So for the last handoffs of a chain, facts
    that depend on their own dependencies are not complete.
    """
    known = dict(records)
    blocking: dict[str, None] = {}
    frontier = list(records.values())
    for depth in range(links + 1):
        # The handoff itself may also be work with an expired lease, which waits again.
        waiting = [record for record in frontier if not depth or stage_of(state_of(record).status) == "waiting"]
        if new := {on for record in waiting for on in state_of(record).depends_on} - known.keys():
            known |= records_of(source, new)
        unmet = [[on for on in state_of(record).depends_on if _blocks(known.get(on), record)] for record in waiting]
        following = dict.fromkeys(on for names in unmet for on in (names[:1] if depth and not is_every else names))
        frontier = [known[on] for on in following if on in known and on not in blocking]
        frontier = frontier[:blockers_followed_max] if depth else frontier
        blocking |= dict.fromkeys(record.id for record in frontier)
    return known, list(blocking)


def _blocks(dependency: HandoffRecord | None, record: HandoffRecord) -> bool:
    status = None if dependency is None else state_of(dependency).status
    return not is_unlocked(status, state_of(record).unlock_at)
