"""The one answer to "why is this not ready": a sentence for people, reasons for programs.

Pure. *Ready*: its receiver may claim it now. Reasons carry the codes with which the gate would refuse the claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, assert_never

from deedbook.projections.handoffs.facts import HandoffFacts, stage_of

chain_links_max: Final = 32


def explain(handoff: HandoffFacts, known: Mapping[str, HandoffFacts]) -> dict[str, Any]:
    """Return ``{"id", "status", "version", "is_ready", "sentence", "reasons", "left"}``; ``known`` is all it waits for.

    A reason is ``{"code", "text"}`` and, for a dependency, ``on``, ``status`` and ``chain``: the ids from that
    dependency to the first one that nothing but its own parties can move.
    """
    reasons = _own_reasons(handoff)
    if handoff.status in ("pending", "approved") or not reasons:  # also work whose lease ran out waits anew
        reasons += [reason for on in handoff.depends_on if (reason := _dependency(handoff, on, known))]
    sentence = f"{handoff.id} is ready: {handoff.receiver} can claim it."
    codes = {reason["code"] for reason in reasons}
    if handoff.status == "rejected" or codes in ({"ALREADY_CLAIMED"}, {"TRANSITION_NOT_ALLOWED"}):  # no work is waiting
        sentence = f"{handoff.id} is {handoff.status.replace('_', ' ')}: {reasons[0]['text']}."
    elif reasons:
        sentence = f"{handoff.id} is not ready: {'; '.join(reason['text'] for reason in reasons)}."
    answer = {"id": handoff.id, "status": handoff.status, "version": handoff.version, "is_ready": not reasons}
    left = {"tasks": list(handoff.tasks_left), "criteria": list(handoff.criteria_left)}
    return answer | {"sentence": sentence, "reasons": reasons, "left": left}


def _own_reasons(handoff: HandoffFacts) -> list[dict[str, Any]]:
    if handoff.is_orphaned:
        return [{"code": "AGENT_UNKNOWN", "text": receiver_removed_words(handoff), "by": handoff.sender}]
    if handoff.waits_for_approval and handoff.status != "pending":
        return [{"code": "NOT_APPROVED", "text": suspect_approval_words(handoff), "by": handoff.reviewer}]
    return _reasons_of_status(handoff)


def _reasons_of_status(handoff: HandoffFacts) -> list[dict[str, Any]]:
    # What is verified may keep the reason of changes that were requested before.
    because = f" ({handoff.reason})" if handoff.reason and handoff.status != "verified" else ""
    match handoff.status:
        case "approved" if not handoff.receiver:
            return [{"code": "NOT_AUTHORIZED", "text": "its file names nobody to do it: amend it with --to NAME"}]
        case "approved":
            return []
        case "pending":
            return [{"code": "NOT_APPROVED", "text": _pending_words(handoff), "by": handoff.reviewer}]
        case "rejected":
            text = f"{_ended_words(handoff)}{because}; nothing comes next: create another"
            return [{"code": "NOT_APPROVED", "text": text, "by": handoff.reviewer}]
        case "in_progress" if handoff.is_lapsed:
            return []  # it can be claimed again
        case "in_progress":
            again = f", changes were requested{because}" if because else ""
            args = f"; {handoff.reviewer} is asked to waive a criterion" if handoff.is_waiver_asked else ""
            text = f"{_working_words(handoff)}{again}; {left_words(handoff)}{args}"
            return [{"code": "ALREADY_CLAIMED", "text": text, "by": handoff.receiver}]
        case "blocked":
            text = f"{_working_words(handoff)} and cannot go on{because}; {left_words(handoff)}"
            return [{"code": "ALREADY_CLAIMED", "text": text, "by": handoff.receiver}]
        case "completed":
            text = f"{_ended_words(handoff)}; {handoff.reviewer} verifies it or requests changes"
            return [{"code": "TRANSITION_NOT_ALLOWED", "text": text, "by": handoff.reviewer}]
        case "verified" | "cancelled" | "superseded":
            text = f"{_ended_words(handoff)}{because}; nothing is left to do"
            return [{"code": "TRANSITION_NOT_ALLOWED", "text": text}]
        case _:
            assert_never(handoff.status)


def _ended_words(handoff: HandoffFacts) -> str:
    return f"{handoff.status_by or 'somebody'} {handoff.status} it{_time('at', handoff.status_ms)}"


def _working_words(handoff: HandoffFacts) -> str:
    return f"{handoff.receiver} works on it{_time('since', handoff.claimed_ms)}"


def _time(word: str, at_ms: int | None) -> str:
    return "" if at_ms is None else f" {word} {datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%d %H:%M} UTC"


def left_words(handoff: HandoffFacts) -> str:
    """Return what is left of work, by the numbers of its tasks and criteria.

    >>> left_words(HandoffFacts(id="h", status="approved", sender="a", receiver="b", reviewer="c", tasks_left=(2, 3)))
    'tasks 2, 3 are open'
    """
    left, of = (handoff.tasks_left, handoff.criteria_left), (("task", "tasks"), ("criterion", "criteria"))
    parts = [f"{names[len(on) > 1]} {', '.join(map(str, on))}" for on, names in zip(left, of, strict=True) if on]
    is_one = sum(map(len, left)) == 1
    return f"{' and '.join(parts)} {'is' if is_one else 'are'} open" if parts else "nothing is left but to complete it"


def suspect_approval_words(handoff: HandoffFacts) -> str:
    """Return what is wrong with an approval that does not count."""
    signed = f"its approval (entry {handoff.approval_index}) was signed with a compromised key"
    return f"{signed}, as entry {handoff.suspect_approval} says: {handoff.reviewer} approves it again"


def stuck_words(handoff: HandoffFacts) -> str:
    """Return why it will never be ready as it is."""
    return f"it waits for {handoff.stuck_on}, which does not exist or was given up"


def receiver_removed_words(handoff: HandoffFacts) -> str:
    """Return what to do with work that is handed to nobody."""
    advice = "amend it with --to NAME" if stage_of(handoff.status) == "waiting" else "cancel it and hand it to another"
    return f"its receiver {handoff.receiver} was removed at entry {handoff.receiver_removed}: {advice}"


def _pending_words(handoff: HandoffFacts) -> str:
    who = handoff.reviewer or "a reviewer (its file names none)"
    if handoff.claimed_status is None:
        return f"it waits for the approval of {who}"
    claim = f" as {handoff.claimed_status!r}" if handoff.claimed_status else ""
    return f"it was imported{claim} and waits for {who} to confirm it, by approving or verifying"


def _dependency(handoff: HandoffFacts, on: str, known: Mapping[str, HandoffFacts]) -> dict[str, Any] | None:
    wanted = known.get(on)
    if wanted is None:
        text = f"it depends on {on}, which does not exist"
        return {"code": "DEPENDENCY_MISSING", "text": text, "on": on, "status": None, "chain": [on]}
    if handoff.is_unlocked_by(wanted):
        return None
    chain, words = _chain(wanted, known)
    text = f"it waits for {words}"
    return {"code": "DEPENDENCY_PENDING", "text": text, "on": on, "status": wanted.status, "chain": chain}


def _chain(wanted: HandoffFacts, known: Mapping[str, HandoffFacts]) -> tuple[list[str], str]:
    """Follow the first thing that each one waits for, to the one that only its parties can move."""
    chain: list[str] = []
    words: list[str] = []
    here: HandoffFacts | None = wanted
    while here is not None and here.id not in chain and len(chain) < chain_links_max:
        chain.append(here.id)
        waits_for = [on for on in here.depends_on if not here.is_unlocked_by(known.get(on))]
        is_held_up = here.status in ("pending", "approved") and bool(waits_for)
        words.append(f"{here.id}, which is {_words(here, is_held_up=is_held_up)}")
        here = known.get(waits_for[0]) if is_held_up else None
        if is_held_up and here is None:
            chain.append(waits_for[0])
            words.append(f"{waits_for[0]}, which does not exist")
    return chain, " and waits for ".join(words)


def _words(handoff: HandoffFacts, *, is_held_up: bool) -> str:
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
        case "in_progress" if handoff.is_lapsed:
            return f"in progress, though the lease of {handoff.receiver} has run out"
        case "in_progress":
            return f"in progress with {handoff.receiver}"
        case "verified":
            raise AssertionError("unreachable: what is verified holds up nothing")
        case _:
            assert_never(handoff.status)
