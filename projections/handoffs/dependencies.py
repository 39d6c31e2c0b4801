"""Reads the facts for an answer about handoffs: those of the handoffs, and of the handoffs that they wait for."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice
from typing import Final

from deedbook.ledger.lifecycle.handoff_status import is_unlocked, stage_of
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.handoffs.facts import HandoffFacts, facts_of
from deedbook.projections.handoffs.record import HandoffRecord, records_of, state_of
from deedbook.projections.handoffs.why import chain_links_max

blockers_named_max: Final = 32
"""The most handoffs that are named because they block one, besides those in a chain of first blockers."""


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
    source: RowSource, records: Mapping[str, HandoffRecord], links: int = chain_links_max, *, blockers_max: int = 0
) -> tuple[dict[str, HandoffRecord], list[str]]:
    """Return the records of these handoffs and of those that they wait for, by id, and the ids of the blocking ones.

    From each dependency that blocks, a chain is followed for ``links`` links, level by level: it leads from a waiting
    handoff to the first one that blocks it. Up to ``blockers_max`` handoffs that also block are followed, the nearest
    first. All dependencies of a blocking handoff are known. Another handoff at the end of a chain may have unknown
    dependencies, so facts that need these are incomplete.
    """
    known = dict(records)
    chained, others = set[str](), set[str]()
    blocking: dict[str, None] = {}
    frontier = list(records.values())
    for depth in range(links + 1):
        # The handoff itself may also be work with an expired lease, which waits again.
        waiting = [record for record in frontier if not depth or stage_of(state_of(record).status) == "waiting"]
        if new := {on for record in waiting for on in state_of(record).depends_on} - known.keys():
            known |= records_of(source, new)
        blocking |= dict.fromkeys(record.id for record in frontier if depth)
        unmet = {record.id: _unmet(record, known) for record in waiting}
        firsts = (names[:1] if depth else names for name, names in unmet.items() if not depth or name in chained)
        following = dict.fromkeys(on for on in chain.from_iterable(firsts) if on in known and on not in chained)
        chained |= following.keys()
        rest = (on for names in unmet.values() for on in names if on in known and on not in chained | others)
        others |= (more := dict.fromkeys(islice(rest, blockers_max - len(others)))).keys()
        frontier = [known[on] for on in following | more]
    return known, list(blocking)


def _unmet(record: HandoffRecord, known: Mapping[str, HandoffRecord]) -> list[str]:
    """Return the dependencies that do not let a handoff start."""
    state = state_of(record)
    statuses = {on: state_of(known[on]).status if on in known else None for on in state.depends_on}
    return [on for on, status in statuses.items() if not is_unlocked(status, state.unlock_at)]
