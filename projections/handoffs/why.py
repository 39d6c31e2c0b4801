"""The one answer to "why is this not ready": a sentence for people, reasons for programs.

Pure. A handoff is *ready* if its receiver may claim it now. A reason has the code with which the gate would refuse the
claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from deedbook.ledger.lifecycle.handoff_status import Status, stage_of
from deedbook.ledger.lifecycle.rules import rules_of
from deedbook.projections.handoffs.answers import Reason, Why, WorkLeft
from deedbook.projections.handoffs.facts import HandoffFacts

chain_links_max: Final = 32


def explain(handoff: HandoffFacts, known: Mapping[str, HandoffFacts], links: int = chain_links_max) -> Why:
    """Return why a handoff is ready or not, without the items that move it on.

    ``known`` has the facts of its dependencies, and of chains of ``links`` links (``dependencies.known_records``).
    """
    reasons = _own_reasons(handoff)
    is_waiting = handoff.status in ("pending", "approved") and not handoff.is_history
    if is_waiting or not reasons:  # work with an expired lease waits again, too
        reasons += [reason for on in handoff.depends_on if (reason := _dependency(handoff, on, known, links))]
    # While a dependency does not exist, nothing else about it matters.
    reasons.sort(key=lambda reason: reason.code != "DEPENDENCY_MISSING")
    sentence = f"{handoff.id} is ready: {handoff.receiver} can claim it."
    codes = {reason.code for reason in reasons}
    if handoff.status == "rejected" or codes in ({"ALREADY_CLAIMED"}, {"TRANSITION_NOT_ALLOWED"}):  # no work is waiting
        sentence = f"{handoff.id} is {handoff.status.replace('_', ' ')}: {reasons[0].text}."
    elif reasons:
        sentence = f"{handoff.id} is not ready: {'; '.join(reason.text for reason in reasons)}."
    return Why(
        id=handoff.id,
        status=handoff.status,
        version=handoff.version,
        is_ready=not reasons,
        sentence=sentence,
        reasons=reasons,
        left=WorkLeft(
            tasks=list(handoff.tasks_left),
            criteria=list(handoff.criteria_left),
            questions=handoff.questions_left,
        ),
        waits=[],
    )


def _own_reasons(handoff: HandoffFacts) -> list[Reason]:
    if handoff.is_history:
        return _reasons_of_status(handoff)
    if handoff.is_orphaned:
        return [Reason(code="AGENT_UNKNOWN", text=receiver_removed_text(handoff), by=handoff.sender)]
    if handoff.is_unreviewed:
        code = "NOT_APPROVED" if handoff.waits_for_approval else "TRANSITION_NOT_ALLOWED"
        return [Reason(code=code, text=reviewer_removed_text(handoff), by=handoff.amender)]
    if handoff.waits_for_approval and handoff.status != "pending":
        return [Reason(code="NOT_APPROVED", text=compromised_approval_text(handoff), by=handoff.reviewer)]
    return _reasons_of_status(handoff)


def _reasons_of_status(handoff: HandoffFacts) -> list[Reason]:
    # A verified handoff may keep the reason of changes that were requested before.
    because = f" ({handoff.reason})" if handoff.reason and handoff.status != "verified" else ""
    match handoff.status:
        case "approved":
            return reasons_of_receiver(handoff)
        case "pending":
            return [Reason(code="NOT_APPROVED", text=_pending_text(handoff), by=handoff.reviewer)]
        case "rejected":
            text = f"{_ended_text(handoff)}{because}; nothing comes next: create another"
            return [Reason(code="NOT_APPROVED", text=text, by=handoff.reviewer)]
        case "in_progress" if handoff.is_lapsed:
            return []  # the work can be claimed again
        case "in_progress":
            again = f", changes were requested{because}" if because else ""
            waiver = f"; {handoff.reviewer} is asked to waive a criterion" if handoff.is_waiver_asked else ""
            doubt = f", but {approval_rests_text(handoff)}" if handoff.compromised_approval is not None else ""
            text = f"{_working_text(handoff)}{again}{doubt}; {open_work_text(handoff)}{waiver}"
            return [Reason(code="ALREADY_CLAIMED", text=text, by=handoff.receiver)]
        case "verified" if handoff.compromised_verification is not None:
            text = f"{_ended_text(handoff)}, but {compromised_verification_text(handoff)}"
            return [Reason(code="TRANSITION_NOT_ALLOWED", text=text, by=handoff.reviewer)]
        case "completed":
            reviewer = f"{handoff.reviewer}{_handover_text(handoff)}"
            text = f"{_ended_text(handoff)}{_but(handoff)}; {reviewer} verifies it or requests changes"
            return [Reason(code="TRANSITION_NOT_ALLOWED", text=text, by=handoff.reviewer)]
        case _ if stage_of(handoff.status) == "working":
            text = f"{_working_text(handoff)}, but cannot continue{because}; {open_work_text(handoff)}"
            return [Reason(code="ALREADY_CLAIMED", text=text, by=handoff.receiver)]
        case _:  # verified, cancelled, superseded, or a status that needs no text of its own
            left = rules_of("handoff").states[handoff.status].next or "nothing is left to do"
            return [Reason(code="TRANSITION_NOT_ALLOWED", text=f"{_ended_text(handoff)}{because}; {left}")]


def reasons_of_receiver(handoff: HandoffFacts) -> list[Reason]:
    """Return why its receiver cannot claim an approved handoff; empty if they can."""
    if not handoff.receiver:
        return [Reason(code="NOT_AUTHORIZED", text="it has no receiver: amend it to name one")]
    if not handoff.is_receiver_registered:
        text = f"its receiver {handoff.receiver} is not registered: register it, or amend the handoff to name another"
        return [Reason(code="AGENT_UNKNOWN", text=text, by=handoff.sender)]
    if handoff.receiver_void:
        text = f"its receiver {handoff.receiver} may not claim it: {handoff.receiver_void}"
        return [Reason(code="NOT_AUTHORIZED", text=text)]
    return []


def _ended_text(handoff: HandoffFacts) -> str:
    return f"{handoff.status_by or 'somebody'} {handoff.status} it{_time('at', handoff.status_ms)}"


def _working_text(handoff: HandoffFacts) -> str:
    return f"{handoff.receiver} works on it{_time('since', handoff.claimed_ms)}"


def _time(preposition: str, at_ms: int | None) -> str:
    return "" if at_ms is None else f" {preposition} {datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%d %H:%M} UTC"


def open_work_text(handoff: HandoffFacts) -> str:
    """Return a text about the remaining work, with the numbers of its tasks, criteria and questions.

    >>> parties = {"sender": "a", "receiver": "b", "reviewer": "c"}
    >>> open_work_text(HandoffFacts(id="h", status="approved", tasks_left=(2, 3), **parties))
    'tasks 2, 3 are open'
    """
    left = handoff.tasks_left, handoff.criteria_left, handoff.questions_left
    labels = ("task", "tasks"), ("criterion", "criteria"), ("question", "questions")
    parts = [f"{names[len(on) > 1]} {', '.join(map(str, on))}" for on, names in zip(left, labels, strict=True) if on]
    is_one = sum(map(len, left)) == 1
    return f"{' and '.join(parts)} {'is' if is_one else 'are'} open" if parts else "nothing is left but to complete it"


def compromised_approval_text(handoff: HandoffFacts) -> str:
    """Return why an approval does not count."""
    return f"{approval_rests_text(handoff)}: {handoff.reviewer}{_handover_text(handoff)} must approve it again"


def approval_rests_text(handoff: HandoffFacts) -> str:
    """Return a text about the invalid key on which an approval rests."""
    rests = f"its approval (entry {handoff.approval_index}) rests on a compromised key"
    return f"{rests}, as entry {handoff.compromised_approval} reports"


def compromised_verification_text(handoff: HandoffFacts) -> str:
    """Return why a verification does not count."""
    rests = f"its verification (entry {handoff.verification_index}) rests on a compromised key"
    reviewer = f"{handoff.reviewer}{_handover_text(handoff)}"
    return f"{rests}, as entry {handoff.compromised_verification} reports: {reviewer} must verify it again"


def _handover_text(handoff: HandoffFacts) -> str:
    """Return why the reviewer is not the one that the handoff names."""
    if handoff.compromised_handover is None:
        return ""
    rests = f"the hand-over to {handoff.handed_to}, entry {handoff.handover_index}, rests on a compromised key"
    return f" ({rests}, as entry {handoff.compromised_handover} reports)"


def compromised_completion_text(handoff: HandoffFacts) -> str:
    """Return why a completion does not count."""
    rests = f"its completion (entry {handoff.completion_index}) rests on a compromised key"
    return f"{rests}, as entry {handoff.compromised_completion} reports"


def compromised_waivers_text(handoff: HandoffFacts) -> str:
    """Return which waivers do not count."""
    numbers, reports = handoff.compromised_waivers, sorted({*handoff.compromised_waivers.values()})
    waiver = f"the waiver of criterion {', '.join(map(str, numbers))} rests on a compromised key"
    return f"{waiver}, as entry {', '.join(map(str, reports))} reports"


def _but(handoff: HandoffFacts) -> str:
    """Return the parts of work or of its result that do not count."""
    texts = [approval_rests_text(handoff)] if handoff.compromised_approval is not None else []
    texts += [compromised_completion_text(handoff)] if handoff.compromised_completion is not None else []
    texts += [compromised_waivers_text(handoff)] if handoff.compromised_waivers else []
    return f", but {', and '.join(texts)}" if texts else ""


def stuck_text(handoff: HandoffFacts) -> str:
    """Return why the handoff will never be ready with its present dependencies."""
    status, reason = handoff.stuck_status, handoff.stuck_reason
    if handoff.stuck_claim is not None:
        claim = f"was imported as {handoff.stuck_claim!r}"
        return f"it waits for {handoff.stuck_on}, which {claim} and not verified here (its reviewer can verify it)"
    state = "does not exist" if status is None else f"is {_never_text(status, reason)}"
    return f"it waits for {handoff.stuck_on}, which {state}"


def _never_text(status: Status, reason: str) -> str:
    because = f" ({reason})" if reason else ""
    return f"{status}{because} and will never unlock it"


def receiver_removed_text(handoff: HandoffFacts) -> str:
    """Return what to do with work whose receiver was removed."""
    advice = "amend it to name another" if stage_of(handoff.status) == "waiting" else "cancel it and hand it to another"
    return f"its receiver {handoff.receiver} was removed at entry {handoff.receiver_removed}: {advice}"


def reviewer_removed_text(handoff: HandoffFacts) -> str:
    """Return what to do with a handoff whose reviewer must act, and was removed or cannot."""
    is_done = handoff.status == "completed"
    advice = "cancel it and hand it over again" if is_done else "amend it to name another"
    if handoff.is_own_import:
        return f"its reviewer {handoff.reviewer} sent or imported it, and cannot confirm it: {advice}"
    return f"its reviewer {handoff.reviewer} was removed at entry {handoff.reviewer_removed}: {advice}"


def _pending_text(handoff: HandoffFacts) -> str:
    reviewer = handoff.reviewer or "a reviewer (its file names none)"
    if handoff.claimed_status is None:
        ended = handoff.approval_ended_by
        because = f", because the amendment by {ended} ended the approval of the earlier version" if ended else ""
        return f"it waits for the approval of {reviewer}{_handover_text(handoff)}{because}"
    claim = f" as {handoff.claimed_status!r}" if handoff.claimed_status else ""
    if handoff.is_history:
        return f"it was imported{claim} and waits for nobody; to make that count here, {reviewer} can verify it"
    return f"it was imported{claim} and waits for {reviewer} to confirm it, by approving or verifying"


def _dependency(handoff: HandoffFacts, on: str, known: Mapping[str, HandoffFacts], links_max: int) -> Reason | None:
    dependency = known.get(on)
    if dependency is None:
        text = f"it depends on {on}, which does not exist"
        return Reason(code="DEPENDENCY_MISSING", text=text, on=on, status=None, chain=[on])
    if handoff.is_unlocked_by(dependency):
        return None
    chain, links = _chain(dependency, known, links_max)
    text = f"it waits for {links}"
    return Reason(code="DEPENDENCY_PENDING", text=text, on=on, status=dependency.status, chain=chain)


def _chain(first: HandoffFacts, known: Mapping[str, HandoffFacts], links_max: int) -> tuple[list[str], str]:
    """Follow the first dependency that each handoff waits for, to the one that only its own parties can continue."""
    chain: list[str] = []
    links: list[str] = []
    handoff: HandoffFacts | None = first
    while handoff is not None and handoff.id not in chain and len(chain) < links_max:
        chain.append(handoff.id)
        waits_for = [on for on in handoff.depends_on if not handoff.is_unlocked_by(known.get(on))]
        is_waiting = handoff.status in ("pending", "approved") and bool(waits_for)
        links.append(f"{handoff.id}, which is {_state_text(handoff, is_waiting=is_waiting)}")
        handoff = known.get(waits_for[0]) if is_waiting else None
        if is_waiting and handoff is None:
            chain.append(waits_for[0])
            links.append(f"{waits_for[0]}, which does not exist")
    return chain, " and waits for ".join(links)


def _state_text(handoff: HandoffFacts, *, is_waiting: bool) -> str:
    match handoff.status:
        case "pending" if handoff.is_history:
            return f"imported as {handoff.claimed_status!r}, and not verified here by {handoff.reviewer}"
        case "pending":
            return f"pending (the approval of {handoff.reviewer} is missing)"
        case "approved":
            return "approved" if is_waiting else f"approved and not yet claimed by {handoff.receiver}"
        case "completed":
            judge = f"{handoff.reviewer} must verify it or request changes"
            doubt = _but(handoff)
            return f"completed{doubt}: {judge}" if doubt else f"completed but not yet verified by {handoff.reviewer}"
        case "superseded":
            return f"{_never_text(handoff.status, handoff.reason)}: depend on its replacement"
        case "rejected" | "cancelled":
            return _never_text(handoff.status, "")
        case "in_progress" if handoff.is_lapsed:
            return f"in progress, but the lease of {handoff.receiver} has expired"
        case "in_progress":
            return f"in progress with {handoff.receiver}"
        case "verified":  # its verification does not count, because otherwise it would block nothing
            return f"verified, but {compromised_verification_text(handoff)}"
        case _:  # blocked, or a status that needs no text of its own
            return f"{handoff.status} ({handoff.reason})" if handoff.reason else handoff.status
