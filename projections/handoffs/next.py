"""The queue of each agent: the waiting items, the reasons, and the operation for each (`deed next`).

``waits.waiting`` decides, and the fold of handoffs has written its decisions as rows. SQL finds, orders and counts
these rows, so showing ten handoffs never reads ten thousand. An open review waits for every human. A question about no
handoff waits for the asked agent, and its answer for its author. Only registered agents have a queue: an imported file
may name anybody.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events.fields import Name
from deedbook.ledger.format.codec import json_decoder
from deedbook.ledger.lifecycle.handoff import MET
from deedbook.projections.answers.answer import Page
from deedbook.projections.answers.query import Arguments, Limit, QueryContext, names_in
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.handoffs.answers import (
    Criterion,
    Queue,
    QueueAction,
    QueueCounts,
    QueueItem,
    QueueOperation,
    WaitingRow,
)
from deedbook.projections.handoffs.dependencies import known_facts
from deedbook.projections.handoffs.facts import HandoffFacts
from deedbook.projections.handoffs.queries import VALID
from deedbook.projections.handoffs.record import HandoffRecord, content_of, records_of, state_of
from deedbook.projections.handoffs.waits import (
    ANSWER_RANK,
    QUESTION_RANK,
    REVIEW_RANK,
    Wait,
    questions_for,
    since_of,
    waiting,
)
from deedbook.projections.handoffs.why import (
    approval_rests_text,
    compromised_approval_text,
    compromised_completion_text,
    compromised_verification_text,
    reasons_of_receiver,
    receiver_removed_text,
    reviewer_removed_text,
    stuck_text,
)
from deedbook.projections.questions.fold import QuestionRow
from deedbook.projections.reasoning.route import Domain, Route, Tag
from deedbook.projections.reviews.fold import ReviewRow
from deedbook.projections.reviews.queries import SUPERSEDED_BY
from deedbook.projections.stores.store import Value

criteria_named_max: Final = 5
_Index: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
_cursor: Final = json_decoder(tuple[str, _Index, _Index, str])
_WAITS: Final = (
    "SELECT w.agent AS agent, w.rank AS rank, w.since_index AS since_index, w.handoff_id AS id, 'handoff' AS kind, "  # noqa: S608 - fixed texts
    f"w.action AS action FROM handoff_waits w JOIN agents a ON a.name = w.agent WHERE {VALID.replace('?', '?1')}"
)
_REVIEWS: Final = (
    f"SELECT a.name AS agent, {REVIEW_RANK} AS rank, r.requested_index AS since_index, r.id AS id, 'review' AS kind, "  # noqa: S608 - fixed texts
    "'review' AS action FROM reviews r JOIN agents a ON a.roles LIKE '%\"human\"%' "
    f"WHERE r.status = 'open' AND {SUPERSEDED_BY} IS NULL AND a.name = coalesce(?2, a.name)"
)
_QUESTIONS: Final = (
    f"SELECT q.receiver AS agent, {QUESTION_RANK} AS rank, q.asked_index AS since_index, q.id AS id, "  # noqa: S608 - fixed texts
    "'question' AS kind, 'answer' AS action FROM questions q JOIN agents a ON a.name = q.receiver "
    "WHERE q.status = 'open' AND q.receiver = coalesce(?2, q.receiver) UNION ALL "
    f"SELECT q.author AS agent, {ANSWER_RANK} AS rank, q.answered_index AS since_index, q.id AS id, "
    "'question' AS kind, 'settle' AS action FROM questions q JOIN agents a ON a.name = q.author "
    "WHERE q.status = 'answered' AND q.author = coalesce(?2, q.author)"
)
# The items with their senders and titles, joined only for a filter by these or for counts.
_DESCRIBED: Final = (
    "SELECT c.*, coalesce(h.sender, r.author, q.author) AS sender, "
    "coalesce(h.title, r.question, q.question) AS title, "
    "CASE WHEN h.status = 'pending' AND h.claimed_status IS NOT NULL THEN 1 ELSE 0 END AS is_imported FROM ({}) AS c "
    "LEFT JOIN handoffs h ON c.kind = 'handoff' AND h.id = c.id "
    "LEFT JOIN reviews r ON c.kind = 'review' AND r.id = c.id "
    "LEFT JOIN questions q ON c.kind = 'question' AND q.id = c.id"
)
_REASONED_REVIEW: Final = (
    " AND r.reasoning_ref IN (SELECT v.ref FROM reasoning_versions v WHERE v.reasoning_id IN ({}))"
)


class QueueCountFilter(Arguments, frozen=True, rename={"sender": "from", "is_imported": "imported"}):
    """``agent`` selects one queue (default: all queues); the others filter its items.

    ``tag`` and ``domain`` keep the work that cites reasonings with these. ``text`` is a part of the title or id.
    ``imported`` selects only items that nobody here has confirmed, or (false) leaves them out.
    """

    agent: Name | None = None
    tag: Tag | None = None
    domain: Domain | None = None
    action: QueueAction | None = None
    sender: str | None = None
    text: str | None = None
    is_imported: bool | None = None


class QueueFilter(QueueCountFilter, frozen=True):
    """``agent`` selects one queue (default: all, one after another); the others are filters.

    ``after`` is the ``next`` of the previous page.
    """

    after: str | None = None
    limit: Limit = 50


def next_items(source: RowSource, args: QueueFilter) -> Queue:
    """Return what waits, most urgent first; without an agent, one agent's queue after another's.

    Raises Refused: ``AGENT_UNKNOWN``, and ``INVALID_FIELD`` for an ``after`` that no page returned.
    """
    page = source.view("handoffs.waits", msgspec.to_builtins(args), Page[WaitingRow])
    items = items_of(source, page.items)
    return Queue(items=items, total=page.total - len(page.items) + len(items), next=page.next)


def waits(context: QueryContext, args: QueueFilter) -> Page[WaitingRow]:
    """Return kind, id and agent of the items that ``handoffs.next`` describes."""
    candidates, bound = _candidates(context, args)
    listed, cursor = candidates, tuple[Value, ...]()
    if args.after is not None:
        marks = ", ".join(f"?{len(bound) + number}" for number in range(2, 6))
        listed = f"SELECT * FROM ({candidates}) AS candidates WHERE (agent, rank, since_index, id) > ({marks})"  # noqa: S608 - fixed texts
        cursor = _read_cursor(args.after)
    paging = f"{listed} ORDER BY agent, rank, since_index, id LIMIT ?{len(bound) + 1}"
    (rows,) = _read(context, args, (paging, (*bound, args.limit + 1, *cursor)))
    page, total = rows[: args.limit], len(rows)
    if args.after is not None or total > args.limit:
        # Count in a second query: a window function would read and order all items, but an index has the order of a
        # page.
        total = context.count(f"SELECT count(*) FROM ({candidates}) AS candidates", bound)  # noqa: S608 - as above
    following = None
    if len(rows) > args.limit:
        last = [page[-1][name] for name in ("agent", "rank", "since_index", "id")]
        following = msgspec.json.encode(last).decode()
    items = [WaitingRow(kind=row["kind"], id=row["id"], agent=row["agent"], action=row["action"]) for row in page]
    return Page(items=items, total=total, next=following)


def counts(context: QueryContext, args: QueueCountFilter) -> QueueCounts:
    """Return how many items a queue has by action, by sender, and imported; each count ignores its own filter."""
    open_ended = msgspec.structs.replace(args, action=None, sender=None, is_imported=None)
    candidates, bound = _candidates(context, open_ended, is_described=True)
    columns = "action, sender, is_imported"
    sql = f"SELECT {columns}, count(*) AS total FROM ({candidates}) AS described GROUP BY {columns}"  # noqa: S608
    wanted = {"action": args.action, "sender": args.sender, "is_imported": args.is_imported}
    sums = {name: Counter[Any]() for name in ("", *wanted)}
    (rows,) = _read(context, args, (sql, bound))
    for row in rows:
        failed = [name for name, value in wanted.items() if value is not None and row[name] != value]
        for name, numbers in sums.items():
            if not set(failed) - {name}:
                numbers[row[name] if name else ""] += row["total"]
    actions, senders = (dict(sorted(sums[name].items())) for name in ("action", "sender"))
    return QueueCounts(total=sums[""][""], actions=actions, senders=senders, imported=sums["is_imported"][1])


def _read(
    context: QueryContext, args: QueueCountFilter, *queries: tuple[str, Sequence[Value]]
) -> list[list[dict[str, Any]]]:
    """Return the rows of queries about a queue. Raises Refused: ``AGENT_UNKNOWN``: nobody has it."""
    registered, *found = context.together(("SELECT name FROM agents WHERE name = ?", (args.agent,)), *queries)
    if args.agent is not None and not registered:
        alike = near(args.agent, names_in(context, "agents", "name"))
        hint = did_you_mean(alike) or ": `deed agent list` shows them"
        message = f"{args.agent!r} is not registered in this ledger{hint}"
        raise Refused("AGENT_UNKNOWN", message, name=args.agent, near=alike)
    return found


def _candidates(
    context: QueryContext, args: QueueCountFilter, *, is_described: bool = False
) -> tuple[str, tuple[Value, ...]]:
    """Return the SELECT of the items that pass the filters, and the values that it binds."""
    route = Route(args.tag, args.domain)
    bound: list[Value] = [context.now_ms, args.agent, *route.values]
    of_handoffs = "" if args.agent is None else " AND w.agent = ?2"
    of_reviews = ""
    if route.values:
        of_handoffs += f" AND w.handoff_id IN ({route.handoffs(first=3)})"
        of_reviews = _REASONED_REVIEW.format(route.reasonings(first=3))
    candidates = f"{_WAITS}{of_handoffs} UNION ALL {_REVIEWS}{of_reviews}"
    if not route.values:  # a question cites no reasoning
        candidates += f" UNION ALL {_QUESTIONS}"
    conditions: list[str] = []
    imported = None if args.is_imported is None else int(args.is_imported)
    text = None if args.text is None else "%" + re.sub("[!%_]", r"!\g<0>", args.text.lower()) + "%"
    for column, value in (("action = ", args.action), ("sender = ", args.sender), ("is_imported = ", imported)):
        if value is not None:
            bound.append(value)
            conditions.append(f"{column}?{len(bound)}")
    if text is not None:
        bound.append(text)
        conditions.append(f"lower(title || ' ' || id) LIKE ?{len(bound)} ESCAPE '!'")
    if is_described or conditions:
        candidates = _DESCRIBED.format(candidates)
    if conditions:
        candidates = f"SELECT * FROM ({candidates}) AS described WHERE {' AND '.join(conditions)}"  # noqa: S608 - fixed texts
    return candidates, tuple(bound)


def _read_cursor(text: str) -> tuple[Value, ...]:
    try:
        return _cursor.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise Refused(
            "INVALID_FIELD", "this is no cursor: pass the `next` of a previous page", path="$.after"
        ) from error


def items_of(source: RowSource, waiting_rows: Sequence[WaitingRow]) -> list[QueueItem]:
    """Return the items of a queue, without those that do not wait for this agent."""
    records = records_of(source, {row.id for row in waiting_rows if row.kind == "handoff"})
    facts = known_facts(source, records, links=0)
    reviews = source.states("reviews", ReviewRow, [row.id for row in waiting_rows if row.kind == "review"])
    questions = source.states("questions", QuestionRow, [row.id for row in waiting_rows if row.kind == "question"])
    agents = source.agents({row.agent for row in waiting_rows})
    items: list[QueueItem] = []
    for row in waiting_rows:
        name, agent = row.id, row.agent
        registered = agents.agent(agent)
        if registered is None:
            continue
        if row.kind == "review" and name in reviews and "human" in registered.roles:
            items += [_review(reviews[name], agent)] if reviews[name].status == "open" else []
        elif row.kind == "question" and name in questions:
            items += _question(questions[name], agent, row.action)
        elif name in records and row.kind == "handoff":
            waits = [(by, wait) for by, wait in waiting(facts[name]) if (by, wait.action) == (agent, row.action)]
            items += items_of_handoff(records[name], facts[name], waits)
    return dated(source, items)


def dated(source: RowSource, items: Sequence[QueueItem]) -> list[QueueItem]:
    """Return the items with the times since which they wait."""
    times = source.times({item.since_index for item in items})
    return [msgspec.structs.replace(item, since_ms=times[item.since_index]) for item in items]


def _review(review: ReviewRow, agent: str) -> QueueItem:
    return QueueItem(
        kind="review",
        id=review.id,
        title=review.question,
        action="review",
        agent=agent,
        status="open",
        is_imported=False,
        sender=review.author,
        author=review.author,
        receiver=agent,
        reviewer=agent,
        version=None,
        why=f"{review.author} asks a human, by the rule {review.rule}",
        act="answer",
        arguments={"approve": True},
        reasoning_refs=[review.reasoning_ref] if review.reasoning_ref else [],
        since_index=review.requested_index,
    )


def _question(question: QuestionRow, agent: str, action: str) -> list[QueueItem]:
    """Return the item of a question; nothing if it does not wait for this agent."""
    is_open = question.status == "open"
    if (agent, action, question.status) not in (
        (question.receiver, "answer", "open"),
        (question.author, "settle", "answered"),
    ):
        return []
    place = f" about {question.place}" if question.place else ""
    item = QueueItem(
        kind="question",
        id=question.id,
        title=question.question,
        action="answer" if is_open else "settle",
        agent=agent,
        status="open" if is_open else "answered",
        is_imported=False,
        sender=question.author,
        author=question.author if is_open else question.receiver,
        receiver=question.receiver,
        reviewer=question.author,
        version=None,
        why=f"{question.author} asks{place}" if is_open else f"{question.receiver} answers: {question.answer}",
        act="answer" if is_open else "settle",
        arguments={},
        reasoning_refs=[],
        since_index=question.asked_index if is_open else question.answered_index or question.asked_index,
    )
    return [item]


def _handoff(record: HandoffRecord, facts: HandoffFacts, agent: str, wait: Wait) -> QueueItem:
    state, content = state_of(record), content_of(record)
    operation, arguments = _operation_of(wait, agent, facts, criteria_of(record))
    results = record.result_refs if wait.action == "verify" else ()  # the reasoning of the result comes first
    return QueueItem(
        kind="handoff",
        id=facts.id,
        title=content.title,
        action=wait.action,
        agent=agent,
        status=facts.status,
        is_imported=facts.is_imported,
        sender=facts.sender,
        author=state.importer or facts.sender,
        receiver=facts.receiver,
        reviewer=facts.reviewer,
        version=facts.version,
        why=_why(wait, agent, facts, record),
        act=operation,
        arguments=arguments,
        reasoning_refs=list(dict.fromkeys([*results, *content.reasoning_refs])),
        since_index=since_of(wait.case, record, facts, agent),
    )


def criteria_of(record: HandoffRecord) -> list[Criterion]:
    """Return the acceptance criteria, in order."""
    rows = zip(content_of(record).criteria, state_of(record).criteria, record.remarks, strict=True)
    return [
        Criterion(position=at, text=text, mark=mark, evidence=remark.evidence, waiver_reason=remark.waiver_reason)
        for at, (text, mark, remark) in enumerate(rows)
    ]


def items_of_handoff(record: HandoffRecord, facts: HandoffFacts, waits: Iterable[tuple[str, Wait]]) -> list[QueueItem]:
    """Return the items of these waits of a handoff."""
    return [_handoff(record, facts, agent, wait) for agent, wait in waits]


def _operation_of(
    wait: Wait, agent: str, facts: HandoffFacts, criteria: Sequence[Criterion]
) -> tuple[QueueOperation, dict[str, Any]]:
    """Return the operation by which an agent continues a handoff (``show`` if it can only look), and its arguments.

    Criteria and questions count from 1.
    """
    waiver_numbers = [criterion.position + 1 for criterion in criteria if criterion.mark == "asked"]
    match wait.action:
        case "continue":
            left = [number for number in facts.criteria_left if number not in waiver_numbers]
            if not left and waiver_numbers:  # the reviewer must act
                return "show", {}
            if not left and facts.questions_left:
                mine = questions_for(agent, facts, "question")
                return ("answer", {"question_numbers": mine[:1]}) if mine else ("show", {})
            if left or facts.tasks_left:
                return "check", {"criterion_numbers": left[:1]} if left else {"task_numbers": [facts.tasks_left[0]]}
            return "complete", {}
        case "answer" | "settle":
            numbers = questions_for(agent, facts, wait.case)
            return wait.action, {"question_numbers": numbers if wait.action == "settle" else numbers[:1]}
        case "waive":
            return "waive", {"criterion_numbers": waiver_numbers[:1]}
        case _:  # every other action is an operation
            return wait.act or wait.action, {}


def _why_of_question(wait: Wait, agent: str, facts: HandoffFacts, record: HandoffRecord) -> str:
    numbers = questions_for(agent, facts, wait.case)
    question = next(question for question in facts.questions if question.number == numbers[0])
    told = record.questions[question.number - 1]
    more = f" (and {len(numbers) - 1} more)" if len(numbers) > 1 else ""
    if wait.case == "answered":
        return f"{question.to} answers question {question.number}: {told.answer}{more}"
    asks = f"{question.by} asks{f' about {told.place}' if told.place else ''}: {told.question}"
    if wait.case == "question":
        return f"{asks}{more}"
    answer = (
        f" ({question.to} answers: {told.answer})" if question.is_answered else f" ({question.to} has not answered)"
    )
    return f"it holds the completion that {asks}{answer}{more}"


def _why(wait: Wait, agent: str, facts: HandoffFacts, record: HandoffRecord) -> str:
    if wait.why is not None:
        return wait.why.format(handoff=facts)
    criteria = [criterion for criterion in criteria_of(record) if criterion.mark not in MET]
    match wait.action:
        case "amend":
            return _why_to_amend(facts)
        case "approve":
            return _why_to_approve(facts)
        case "claim" if facts.is_lapsed:
            return f"the lease of {facts.receiver} expired"
        case "claim":
            return "it is approved and nothing blocks it"
        case "continue":
            return _why_to_continue(facts, criteria, has_criteria=bool(record.remarks))
        case "answer" | "settle":
            return _why_of_question(wait, agent, facts, record)
        case "waive":
            criterion = next(criterion for criterion in criteria if criterion.mark == "asked")
            asks = f"{facts.receiver} asks to waive criterion {criterion.position + 1}. {criterion.text}"
            return f"{asks}: {criterion.waiver_reason}"
        case "verify":
            if facts.compromised_verification is not None:
                return compromised_verification_text(facts)
            completed = f"{facts.receiver} has completed it" + (f": {record.summary}" if record.summary else "")
            doubts = [approval_rests_text(facts)] if facts.compromised_approval is not None else []
            doubts += [compromised_completion_text(facts)] if facts.compromised_completion is not None else []
            return "; ".join([completed, *doubts])
        case _:  # for every other wait, the table has the reason
            raise AssertionError(f"the table of waits says no reason for {wait.case}")


def _why_to_amend(facts: HandoffFacts) -> str:
    if facts.is_orphaned:
        return receiver_removed_text(facts)
    if facts.is_unreceived:
        return "; ".join(reason.text for reason in reasons_of_receiver(facts))
    return reviewer_removed_text(facts) if facts.is_unreviewed else f"{stuck_text(facts)}: amend its dependencies"


def _why_to_approve(facts: HandoffFacts) -> str:
    if facts.compromised_approval is not None:
        return compromised_approval_text(facts)
    # This comes first: an approver must know that nobody will be able to claim the handoff.
    stuck = "" if facts.stuck_on is None else f"{stuck_text(facts)}; "
    if facts.claimed_status is not None:
        claim = f" as {facts.claimed_status!r}" if facts.claimed_status else ""
        return f"{stuck}it was imported{claim}, and nobody here has approved or verified it: confirm it"
    return f"{stuck}{facts.sender} hands it to {facts.receiver}, and it is not approved"


def _why_to_continue(facts: HandoffFacts, criteria: Sequence[Criterion], *, has_criteria: bool) -> str:
    parts = [f"changes requested: {facts.reason}"] if facts.reason else []
    if criteria:
        waits = {"asked": " (a waiver is requested)"}
        named = [
            f"{criterion.position + 1}. {criterion.text}{waits.get(criterion.mark, '')}"
            for criterion in criteria[:criteria_named_max]
        ]
        left = len(criteria) - len(named)
        parts.append("open criteria: " + ", ".join([*named, *([f"and {left} more"] if left else [])]))
    if facts.tasks_left and not criteria:
        parts.append(f"open tasks: {', '.join(map(str, facts.tasks_left))}")
    if facts.questions_left:
        parts.append(f"open questions to {facts.receiver}: {', '.join(map(str, facts.questions_left))}")
    met = "every criterion is met" if has_criteria else "it has no criterion"
    return "; ".join(parts) or f"{met}: complete it"
