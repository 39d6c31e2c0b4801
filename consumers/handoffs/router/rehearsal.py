"""A rehearsal: what the chains would make of an event, in words, with nothing signed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from consumers.handoffs.router.matching import mismatch, plan_step, stopped
from ledger.errors import Refused

if TYPE_CHECKING:
    from consumers.handoffs.router.chains import Chain, Chains
    from consumers.handoffs.router.facts import Source
    from consumers.handoffs.router.matching import Facts
    from ledger.events.body import Event


def rehearse(
    chains: Chains, event: Event, source: Source, default_reviewer: str | None, *, every_chain: bool = False
) -> dict[str, Any]:
    """Return ``{"index", "id", "kind", "handoff", "hop", "chains"}`` with what each chain would make of ``event``.

    A chain that is about other kinds is only named with ``every_chain``. ``why_not`` says why a chain makes nothing;
    a step has its handoff, or ``refused``; ``is_there`` says that it was made, or that its id is taken.

    Raises:
        Refused: ``USAGE`` when the event is none of a handoff.
    """
    if not event.stream.startswith("handoff/"):
        raise Refused("USAGE", f"entry {event.index} is {event.kind} on {event.stream}: chains are about handoffs")
    facts = source.facts(event)
    asked = [chain for chain in chains.chains if every_chain or event.kind in chain.kinds]
    return {
        "index": event.index,
        "id": event.id,
        "kind": event.kind,
        "handoff": event.name,
        "hop": facts.lineage.hop,
        "chains": [_chain(chain, facts, source, default_reviewer) for chain in asked],
    }


def _chain(chain: Chain, facts: Facts, source: Source, default_reviewer: str | None) -> dict[str, Any]:
    why_not = mismatch(chain, facts) or stopped(chain, facts)
    numbers = range(1, len(chain.steps) + 1) if why_not is None else ()
    steps = [_step(chain, number, facts, source, default_reviewer) for number in numbers]
    return {"chain": chain.name, "fires": why_not is None, "why_not": why_not, "steps": steps}


def _step(chain: Chain, number: int, facts: Facts, source: Source, default_reviewer: str | None) -> dict[str, Any]:
    try:
        planned = plan_step(chain, number, facts, default_reviewer)
    except Refused as refusal:
        return {"step": number, "refused": {"code": refusal.code, "message": refusal.message}}
    data = planned.data
    made = next((name for name in (planned.id, planned.spare_id) if source.is_made_by_step(name, planned.idem)), None)
    name = made or (planned.spare_id if source.exists(planned.id) else planned.id)
    return {
        "step": number,
        "id": name,
        "to": data.to,
        "reviewer": data.reviewer,
        "title": data.title,
        "depends_on": list(data.depends_on),
        "tasks": len(data.tasks),
        "criteria": len(data.criteria),
        "hop": facts.lineage.hop + 1,
        "is_there": made is not None,
    }
