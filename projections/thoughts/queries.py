"""Queries about Trees of Thoughts: lists, one task, its tree, and whether its agents really ran."""

from __future__ import annotations

from typing import Any, Final, Literal

from deedbook.projections.answers.query import (
    ById,
    ListArguments,
    Listing,
    Plain,
    QueryContext,
    Where,
    plain_list_of,
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
    """Filters of a list, newest first."""

    status: Literal["started", "searching", "paused", "solved", "failed", "unverified"] | None = None
    task_type: str | None = None


def list_tasks(context: QueryContext, args: TaskList) -> Plain:
    """Return ``{"tasks", "total", "next"}``, newest first."""
    return plain_list_of(context, LISTING, Where(args, "status", "task_type"), args, of="tasks", read=_task)


def show_task(context: QueryContext, args: ById) -> Plain:
    """Return a task: roles, configuration, stats (``claimed_stats``: the explorer's own), solution or ``failure``."""
    return _task_of(context, args.id)


def show_tree(context: QueryContext, args: ById) -> Plain:
    """Return the whole tree as a ``ThoughtTree``: every field of every node, in the order of addition.

    ``search_config`` is None before the search began, ``root_id`` before there is a root.
    """
    task = _task_of(context, args.id)
    rows = context.rows("SELECT * FROM tot_nodes WHERE task_id = ? ORDER BY position", (task["id"],))
    about = {name: task[name] for name in ("problem", "task_type", "search_config", "root_id", "search_state")}
    return {"task_id": task["id"], **about, "nodes": {row["id"]: _node(row) for row in rows}}


def prove_task(context: QueryContext, args: ById) -> Plain:
    """Return for each answer its request, signer, key and index, and whether six agents really ran.

    ``answered_itself`` lists answers by the agent or the key that sent the request. ``never_ran`` lists the roles that
    sent nothing; ``missing`` those of them that got a request, or all of them once there is a solution. ``passed``: no
    agent answered itself and none is missing. ``unanswered`` requests may still be open.
    """
    task = _task_of(context, args.id)
    sql = "SELECT * FROM tot_messages WHERE task_id = ? ORDER BY event_index"
    messages = context.rows(sql, (task["id"],))
    requests = {row["event_id"]: row for row in messages if row["request_id"] == row["event_id"]}
    answers = [
        _answer(requests[row["request_id"]], row)
        for row in messages
        if row["request_id"] not in (None, row["event_id"])
    ]
    answered = {answer["request_id"] for answer in answers}
    itself = [row["answer_id"] for row in answers if row["signer"] == row["asked_by"] or row["key"] == row["asked_key"]]
    ran = {row["sender"] for row in messages}
    never_ran = [binding["role"] for binding in task["roles"] if binding["role"] not in ran]
    is_whole = task["solution"] is not None
    receivers = {row["receiver"] for row in requests.values()}
    missing = [role for role in never_ran if is_whole or role in receivers]
    unanswered = [
        {"request_id": id_, "type": row["type"], "receiver": row["receiver"], "request_index": row["event_index"]}
        for id_, row in requests.items()
        if id_ not in answered
    ]
    return {
        "id": task["id"],
        "status": task["status"],
        "roles": task["roles"],
        "answers": answers,
        "unanswered": unanswered,
        "answered_itself": itself,
        "never_ran": never_ran,
        "missing": missing,
        "passed": not itself and not missing,
    }


def _task_of(context: QueryContext, reference: str) -> dict[str, Any]:
    return _task(row_of_id(context, "tot_tasks", reference, "task", "tot"))


def _task(row: dict[str, Any]) -> dict[str, Any]:
    return with_json(row, *_JSON)


def _node(row: dict[str, Any]) -> dict[str, Any]:
    names = ("score", "confidence", "reasoning", "dimension_scores")
    judged = with_json({name: row[name] for name in names}, "dimension_scores")
    columns = ("id", "parent_id", "depth", "content", "action_type", "status", "children_ids", "metadata")
    node = with_json({name: row[name] for name in columns}, "children_ids", "metadata")
    return node | {"evaluation": None if row["score"] is None else judged}


def _answer(request: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    columns = ("type", "signer", "key", "accepted_ms", "error", "usage")
    return with_json({name: row[name] for name in columns}, "error", "usage") | {
        "role": row["sender"],
        "answer_id": row["event_id"],
        "answer_index": row["event_index"],
        "request_id": request["event_id"],
        "request_index": request["event_index"],
        "asked_by": request["signer"],
        "asked_key": request["key"],
    }
