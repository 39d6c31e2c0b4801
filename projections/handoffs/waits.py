"""The agents that a handoff waits for, with the reason and since when, as rows that lists filter by.

Pure. ``waiting`` decides by the table ``WAITS``. `deed next` and every list of what is ready show that decision, which
the fold of handoffs writes as rows. Only the passage of time changes it without an event: a row is valid always, only
while a lease holds, or only once it lapsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final, Literal, assert_never

import msgspec

from deedbook.ledger.lifecycle.authority import Agents
from deedbook.ledger.lifecycle.handoff_status import FINAL, Status
from deedbook.ledger.lifecycle.rules import rules_of
from deedbook.projections.handoffs.answers import Action
from deedbook.projections.handoffs.facts import HandoffFacts, facts_of
from deedbook.projections.handoffs.record import HandoffRecord
from deedbook.projections.views.projection import Row, Table

Party = Literal["sender", "receiver", "reviewer", "asked", "asker"]
Case = Literal[
    "orphaned",
    "unreviewed",
    "unreceived",
    "stuck",
    "pending",
    "claimable",
    "changes",
    "asked",
    "in_progress",
    "blocked",
    "completed",
    "imported",
    "question",
    "answered",
    "held",
]


class Wait(msgspec.Struct, frozen=True):
    """The party that must act in a case, and the action; a smaller ``rank`` is more urgent.

    ``why`` is a format string over the facts, or None where ``next`` writes the text. ``act`` is the operation by which
    this party moves the handoff on; None where it has the name of the action, or where ``next`` chooses it. A party
    that only gets a notice can do nothing.
    """

    case: Case
    party: Party
    action: Action
    rank: int
    why: str | None
    act: Literal["show"] | None = None
    is_notice: bool = False


QUESTION_RANK: Final = 0
REVIEW_RANK: Final = 2
ANSWER_RANK: Final = 4
_BLOCKED: Final = "{handoff.receiver} is blocked: {handoff.reason}"
# Questions come first, because somebody waits for them and they take a minute. Then come items that stopped somebody's
# work, then items that wait at a gate, then work in progress, then work that can start. Imported history is last: a
# hundred claims of old files must not come before what agents wait for.
WAITS: Final = (
    Wait("question", "asked", "answer", QUESTION_RANK, None),
    Wait("blocked", "reviewer", "unblock", 1, _BLOCKED),
    Wait("orphaned", "sender", "amend", 1, None, "show"),  # its receiver was removed
    Wait("unreviewed", "sender", "amend", 1, None, "show"),  # the reviewer who must act was removed, or cannot
    Wait("unreceived", "sender", "amend", 1, None, "show"),  # approved, and nobody can claim it
    Wait("stuck", "sender", "amend", 1, None),  # a dependency does not exist, or will never be done
    Wait("asked", "reviewer", "waive", 2, None),
    Wait("changes", "receiver", "continue", 3, None),
    Wait("answered", "asker", "settle", ANSWER_RANK, None),
    Wait("held", "reviewer", "settle", ANSWER_RANK, None),  # only open questions block its completion
    Wait("completed", "reviewer", "verify", 4, None),
    Wait("pending", "reviewer", "approve", 5, None),
    Wait("in_progress", "receiver", "continue", 6, None),
    Wait("asked", "receiver", "continue", 6, None),
    Wait("claimable", "receiver", "claim", 7, None),
    Wait(
        "blocked",
        "sender",
        "unblock",
        8,
        _BLOCKED + " (for information: {handoff.reviewer} can unblock it)",
        "show",
        is_notice=True,
    ),
    Wait("imported", "reviewer", "approve", 9, None),
)


class WaitRow(Row, frozen=True):
    """An agent that a handoff waits for, since an event.

    The row is valid while the lease holds (``leased`` is 1), once it lapsed (0), or always (NULL).
    """

    handoff_id: str
    position: int
    agent: str
    action: Action
    rank: int
    since_index: int
    leased: bool | None
    lease_from_ms: int | None
    lease_until_ms: int | None


WAITING: Final = Table(
    "handoff_waits",
    WaitRow,
    primary_key=("handoff_id", "position"),
    owner="handoff_id",
    indexes=(("agent", "rank", "since_index", "handoff_id"), ("action", "handoff_id")),
    long=("agent",),
)

# The kinds of events that lead to each state.
_KINDS_TO: Final = {
    name: tuple({row.kind: None for row in rules_of("handoff").rows if row.to == name})
    for name in rules_of("handoff").states
}


def is_stuck(facts: HandoffFacts) -> bool:
    """Return whether the sender must amend it, because its dependencies will never be done."""
    # For an imported handoff, the reviewer learns of the dependencies. Until it is confirmed, nobody has to change it.
    is_pending = facts.status == "pending" and facts.sender != facts.reviewer and not facts.is_imported
    is_open = facts.status == "approved" or is_pending
    is_amended_anyway = facts.is_orphaned or facts.is_unreviewed or facts.is_unreceived
    return is_open and facts.stuck_on is not None and facts.compromised_approval is None and not is_amended_anyway


def case_of(facts: HandoffFacts) -> Case | None:
    """Return the case in which a handoff waits for somebody, apart from being stuck; None: it waits for nobody."""
    if facts.is_history:
        return None
    if facts.is_orphaned:
        return "orphaned"
    if facts.is_unreviewed:
        return "unreviewed"
    if facts.waits_for_approval:
        return "imported" if facts.is_imported else "pending"
    status: Status = facts.status
    match status:
        case "in_progress" if not facts.is_lapsed:
            return "asked" if facts.is_waiver_asked else "changes" if facts.reason else "in_progress"
        case "approved" | "in_progress":
            if facts.is_unreceived:
                return "unreceived"
            return "claimable" if facts.is_unlocked else None
        case "verified" if facts.compromised_verification is not None:
            return "completed"
        case "blocked" | "completed":
            return status
        case "pending" | "rejected" | "verified" | "cancelled" | "superseded":  # the tuple above contains "pending"
            return None
        case _:
            assert_never(status)


def waiting(facts: HandoffFacts) -> list[tuple[str, Wait]]:
    """Return the agents that a handoff waits for. The sender of a blocked one, who only gets a notice, comes last."""
    cases: set[Case | None] = {case_of(facts)} | ({"stuck"} if is_stuck(facts) else set())
    agents: list[tuple[str, Wait]] = []
    is_over = facts.status in FINAL
    for wait in WAITS:
        if wait.party in ("asked", "asker"):
            agents += [] if is_over else [(name, wait) for name in dict.fromkeys(_questioned(wait, facts))]
            continue
        if wait.case == "held":  # the reviewer first settles the answers to their own questions
            is_settling = any(other.action == "settle" and by == facts.reviewer for by, other in agents)
            if not is_settling and _questions_that_hold(facts):
                cases.add("held")
        name: str = facts.amender if wait.action == "amend" else getattr(facts, wait.party)
        is_judge_of_own_work = wait.party == "reviewer" and name == facts.receiver
        is_informed = wait.party == "sender" and wait.action != "amend" and name in (facts.reviewer, facts.receiver)
        if wait.case in cases and name and not is_judge_of_own_work and not is_informed:
            agents.append((name, wait))
    return agents


def questions_for(agent: str, facts: HandoffFacts, case: Case) -> list[int]:
    """Return the numbers of the questions on which an agent must act in this case (``answered``, ``held`` or asked)."""
    if case == "held":
        return _questions_that_hold(facts)
    is_answered = case == "answered"
    of = [question for question in facts.questions if question.is_answered == is_answered]
    return [question.number for question in of if agent == (question.by if is_answered else question.to)]


def _questions_that_hold(facts: HandoffFacts) -> list[int]:
    """Return the numbers of other agents' questions that the reviewer may settle, so that the work can be completed.

    Empty while something else also blocks its completion.
    """
    if case_of(facts) not in ("in_progress", "changes") or facts.criteria_left:
        return []
    of_others = {question.number for question in facts.questions if question.by != facts.reviewer}
    return [number for number in facts.questions_left if number in of_others]


def _questioned(wait: Wait, facts: HandoffFacts) -> list[str]:
    """Return the agents that must act on a question: the asked agent, or its author once there is an answer."""
    return [
        question.to if wait.party == "asked" else question.by
        for question in facts.questions
        if question.is_answered == (wait.party == "asker")
    ]


def since_of(case: Case, record: HandoffRecord, facts: HandoffFacts, agent: str) -> int:
    """Return the index of the event since which a handoff waits for an agent."""
    # A handoff of a human owner needs no approval.
    approved = record.content_index if record.approved_index is None else record.approved_index
    match case:
        case "orphaned" | "unreviewed":
            index = _removed_index(case, record, facts)
        case "stuck" | "unreceived":
            index = approved
        case "pending" | "imported":
            index = record.content_index
        case "claimable":  # the latest of its approval, the end of a claim (even one that lapsed), and its unlocking
            ended = record.index_of("handoff.claimed", "handoff.released")
            index = max(approved, -1 if ended is None else ended, facts.unlocked_index)
        case "changes":
            index = record.index_of("handoff.changes_requested")
        case "asked":
            index = record.index_of("handoff.waiver_asked")
        case "question" | "answered" | "held":
            texts = [record.questions[number - 1] for number in questions_for(agent, facts, case)]
            index = min(asked.answered_index or asked.index if case == "answered" else asked.index for asked in texts)
        case "in_progress" | "blocked" | "completed":
            index = record.index_of(*_KINDS_TO[case])
        case _:
            assert_never(case)
    return record.updated_index if index is None else index


def _removed_index(case: Literal["orphaned", "unreviewed"], record: HandoffRecord, facts: HandoffFacts) -> int | None:
    if case == "orphaned" or facts.reviewer_removed is None:
        return facts.receiver_removed
    begun = record.content_index if record.completed_index is None else record.completed_index
    return max(begun, facts.reviewer_removed)  # it may have been completed after the removal


def wait_rows(record: HandoffRecord, known: Mapping[str, HandoffRecord], agents: Agents) -> Iterator[WaitRow]:
    """Yield the rows of a handoff that exists; ``known`` has those that it depends on."""
    lease = None if record.lifecycle is None else record.lifecycle.lease
    facts = facts_of(record, known, agents, 0 if lease is None else lease.from_ms)
    from_ms, until_ms = (None, None) if lease is None else (lease.from_ms, lease.until_ms)
    positions = count()
    for leased in (None,) if lease is None else (True, False):
        as_then = msgspec.structs.replace(facts, is_lapsed=leased is False)
        for agent, wait in waiting(as_then):
            since = since_of(wait.case, record, as_then, agent)
            yield WaitRow(record.id, next(positions), agent, wait.action, wait.rank, since, leased, from_ms, until_ms)
