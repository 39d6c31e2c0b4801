"""Queries about Trees of Thoughts: lists, one task, its tree, and whether its agents really ran."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.thoughts.views.answers import (
    ProvenAnswer,
    ShownEvaluation,
    ShownNode,
    ShownTree,
    TaskProof,
    TaskStatus,
    ThoughtOrigin,
    ThoughtTask,
    UnansweredRequest,
)
from deedbook.ledger.format.codec import convert
from deedbook.projections.answers.answer import Page
from deedbook.projections.answers.query import (
    ById,
    ListArguments,
    Listing,
    QueryContext,
    Where,
    list_of,
    row_of_id,
    with_json,
)

LISTING: Final = Listing("SELECT * FROM tot_tasks", "tot_tasks", "started_index")
_JSON: Final = (
    "roles",
    "options",
    "search_config",
    "search_state",
    "stats",
    "claimed_stats",
    "solution",
    "failure",
    "waiting",
)


class TaskList(ListArguments, frozen=True):
    """The filters of a list, newest first."""

    status: TaskStatus | None = None
    task_type: str | None = None


def list_tasks(context: QueryContext, args: TaskList) -> Page[ThoughtTask]:
    """Return tasks, newest first."""
    return list_of(context, LISTING, Where(args, "status", "task_type"), args, _task)


def show_task(context: QueryContext, args: ById) -> ThoughtTask:
    """Return a task."""
    return _task_of(context, args.id)


def show_tree(context: QueryContext, args: ById) -> ShownTree:
    """Return the whole tree of a task."""
    task = _task_of(context, args.id)
    rows = context.rows("SELECT * FROM tot_nodes WHERE task_id = ? ORDER BY position", (task.id,))
    return ShownTree(
        task_id=task.id,
        problem=task.problem,
        task_type=task.task_type,
        search_config=task.search_config,
        root_id=task.root_id,
        search_state=task.search_state,
        nodes={row["id"]: _node(row) for row in rows},
    )


def prove_task(context: QueryContext, args: ById) -> TaskProof:
    """Return for each answer its request and signer, for each node its origin, and whether six agents really ran."""
    task = _task_of(context, args.id)
    sql = "SELECT * FROM tot_messages WHERE task_id = ? ORDER BY event_index"
    messages = context.rows(sql, (task.id,))
    requests = {row["event_id"]: row for row in messages if row["request_id"] == row["event_id"]}
    answers = [
        _answer(requests[row["request_id"]], row)
        for row in messages
        if row["request_id"] not in (None, row["event_id"])
    ]
    answered = {answer.request_id for answer in answers}
    itself = [row.answer_id for row in answers if row.signer == row.asked_by or row.key == row.asked_key]
    ran = {row["sender"] for row in messages}
    never_ran = [binding.role for binding in task.roles if binding.role not in ran]
    receivers = {row["receiver"] for row in requests.values()}
    missing = [role for role in never_ran if task.solution is not None or role in receivers]
    unanswered = [
        UnansweredRequest(request_id=id_, type=row["type"], receiver=row["receiver"], request_index=row["event_index"])
        for id_, row in requests.items()
        if id_ not in answered
    ]
    return TaskProof(
        id=task.id,
        status=task.status,
        roles=task.roles,
        answers=answers,
        origins=_origins(context, task.id, messages),
        unanswered=unanswered,
        answered_itself=itself,
        never_ran=never_ran,
        missing=missing,
        passed=not itself and not missing,
    )


def _origins(context: QueryContext, task_id: str, messages: list[dict[str, Any]]) -> dict[str, ThoughtOrigin]:
    signers = {row["event_index"]: row["signer"] for row in messages}
    indexes = {row["event_id"]: row["event_index"] for row in messages}
    sql = "SELECT id, source_id, added_index, evaluated_index FROM tot_nodes WHERE task_id = ? ORDER BY position"
    return {
        row["id"]: ThoughtOrigin(
            proposed_index=(proposed := indexes.get(row["source_id"])),
            proposed_by=None if proposed is None else signers[proposed],
            added_index=row["added_index"],
            added_by=signers[row["added_index"]],
            evaluated_index=row["evaluated_index"],
            evaluated_by=signers.get(row["evaluated_index"]),
        )
        for row in context.rows(sql, (task_id,))
    }


def _task_of(context: QueryContext, reference: str) -> ThoughtTask:
    return _task(row_of_id(context, "tot_tasks", reference, "task", "tot"))


def _task(row: dict[str, Any]) -> ThoughtTask:
    return convert(with_json(row, *_JSON), ThoughtTask)


def _node(row: dict[str, Any]) -> ShownNode:
    row = with_json(row, "dimension_scores", "children_ids", "metadata")
    evaluation = None if row["score"] is None else convert(row, ShownEvaluation)
    return convert(row | {"evaluation": evaluation}, ShownNode)


def _answer(request: dict[str, Any], row: dict[str, Any]) -> ProvenAnswer:
    fields = {
        "role": row["sender"],
        "answer_id": row["event_id"],
        "answer_index": row["event_index"],
        "request_id": request["event_id"],
        "request_index": request["event_index"],
        "asked_by": request["signer"],
        "asked_key": request["key"],
    }
    return convert(with_json(row, "error", "usage") | fields, ProvenAnswer)
