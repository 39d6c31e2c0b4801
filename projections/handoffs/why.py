"""The one answer to "why is this not ready": a sentence for people, reasons for programs (DESIGN §10).

Pure: it decides from rows that were read before. A handoff is *ready* when its receiver may claim it now. The reasons
carry the codes with which the gate would refuse the claim, so the answer and the refusal agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

chain_links_max: Final = 32


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What deciding needs to know of one handoff."""

    id: str
    status: str
    receiver: str
    reviewer: str | None
    unlock_at: str
    reason: str
    lease_until_ms: int | None
    claimed_status: str | None = None
    depends_on: tuple[str, ...] = ()

    def is_unlocked_by(self, other: Standing) -> bool:
        """Whether this handoff may start as far as ``other`` goes (as the gate's ``HandoffState`` says)."""
        return other.status in ("verified", self.unlock_at)


def explain(handoff: Standing, known: Mapping[str, Standing], now_ms: int) -> dict[str, Any]:
    """Return ``{"id", "status", "is_ready", "sentence", "reasons"}``; ``known`` holds all it waits for, transitively.

    A reason is ``{"code", "text"}`` and, for a dependency, ``on``, ``status`` and ``chain``: the ids from that
    dependency to the first one that nothing but its own parties can move.
    """
    reasons = _own_reasons(handoff, now_ms)
    if handoff.status in ("pending", "approved") or not reasons:  # also work whose lease ran out waits anew
        reasons += [reason for on in handoff.depends_on if (reason := _dependency(handoff, on, known, now_ms))]
    sentence = f"{handoff.id} is ready: {handoff.receiver} can claim it."
    if reasons:
        sentence = f"{handoff.id} is not ready: {'; '.join(reason['text'] for reason in reasons)}."
    return {
        "id": handoff.id,
        "status": handoff.status,
        "is_ready": not reasons,
        "sentence": sentence,
        "reasons": reasons,
    }


def _own_reasons(handoff: Standing, now_ms: int) -> list[dict[str, Any]]:
    because = f" ({handoff.reason})" if handoff.reason else ""
    match handoff.status:
        case "approved" if not handoff.receiver:
            return [{"code": "NOT_AUTHORIZED", "text": "its file names nobody to do it: amend it with --to NAME"}]
        case "approved":
            return []
        case "pending":
            return [{"code": "NOT_APPROVED", "text": _pending_words(handoff), "by": handoff.reviewer}]
        case "rejected":
            text = f"{handoff.reviewer} rejected it{because}"
            return [{"code": "NOT_APPROVED", "text": text, "by": handoff.reviewer}]
        case "in_progress":
            if handoff.lease_until_ms is not None and now_ms >= handoff.lease_until_ms:
                return []  # the lease ran out: it can be claimed again
            text = f"{handoff.receiver} has claimed it already"
            return [{"code": "ALREADY_CLAIMED", "text": text, "by": handoff.receiver}]
        case "blocked":
            text = f"{handoff.receiver} has claimed it and is blocked{because}"
            return [{"code": "ALREADY_CLAIMED", "text": text, "by": handoff.receiver}]
        case _:
            text = f"it is {handoff.status} already" + because * (handoff.status in ("cancelled", "superseded"))
            return [{"code": "TRANSITION_NOT_ALLOWED", "text": text}]


def _pending_words(handoff: Standing) -> str:
    who = handoff.reviewer or "a reviewer (its file names none)"
    if handoff.claimed_status is None:
        return f"it waits for the approval of {who}"
    said = f" as {handoff.claimed_status!r}" if handoff.claimed_status else ""
    return f"it was imported{said} and waits for {who} to confirm it, by approving or verifying"


def _dependency(handoff: Standing, on: str, known: Mapping[str, Standing], now_ms: int) -> dict[str, Any] | None:
    wanted = known.get(on)
    if wanted is None:
        return {
            "code": "DEPENDENCY_MISSING",
            "text": f"it depends on {on}, which does not exist",
            "on": on,
            "status": None,
            "chain": [on],
        }
    if handoff.is_unlocked_by(wanted):
        return None
    chain, words = _chain(wanted, known, now_ms)
    return {
        "code": "DEPENDENCY_PENDING",
        "text": f"it waits for {words}",
        "on": on,
        "status": wanted.status,
        "chain": chain,
    }


def _chain(wanted: Standing, known: Mapping[str, Standing], now_ms: int) -> tuple[list[str], str]:
    """Follow the first thing that each one waits for, to the one that only its parties can move."""
    chain: list[str] = []
    words: list[str] = []
    here: Standing | None = wanted
    while here is not None and here.id not in chain and len(chain) < chain_links_max:
        chain.append(here.id)
        waits_for = [on for on in here.depends_on if (there := known.get(on)) is None or not here.is_unlocked_by(there)]
        is_held_up = here.status in ("pending", "approved") and bool(waits_for)
        words.append(f"{here.id}, which is {_standing_words(here, now_ms, is_held_up=is_held_up)}")
        here = known.get(waits_for[0]) if is_held_up else None
        if is_held_up and here is None:
            chain.append(waits_for[0])
            words.append(f"{waits_for[0]}, which does not exist")
    return chain, " and waits for ".join(words)


def _standing_words(handoff: Standing, now_ms: int, *, is_held_up: bool) -> str:
    match handoff.status:
        case "pending":
            return f"pending (the approval of {handoff.reviewer} is missing)"
        case "approved":
            return "approved" if is_held_up else f"approved and not yet claimed by {handoff.receiver}"
        case "blocked":
            return f"blocked ({handoff.reason})" if handoff.reason else "blocked"
        case "completed":
            return f"completed but not yet verified by {handoff.reviewer}"
        case "superseded":
            return f"superseded ({handoff.reason}) and will never unlock it: depend on what took its place"
        case "rejected" | "cancelled":
            return f"{handoff.status} and will never unlock it"
        case "in_progress" if handoff.lease_until_ms is not None and now_ms >= handoff.lease_until_ms:
            return f"in progress, though the lease of {handoff.receiver} has run out"
        case _:
            return f"in progress with {handoff.receiver}"
