"""Questions about trees of thoughts: lists, one task, its tree, its timeline, and whether its agents really ran."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from projections.query import Answer, Arguments, Limit, Listing, Moment, Where, by_beginning, page_of, page_rows_max

LISTING: Final = Listing("SELECT * FROM tot_tasks", "tot_tasks", "started_index")
TIMELINE: Final = Listing("SELECT * FROM tot_messages", "tot_messages", "event_index", newest_first=False)
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


class TaskList(Arguments, frozen=True):
    """Filters of a list; ``after`` is the ``next`` of the page before (newest first)."""

    status: Literal["started", "searching", "solved", "failed", "unverified"] | None = None
    task_type: str | None = None
    after: int | None = None
    limit: Limit = 50


class TaskId(Arguments, frozen=True):
    """A task by its id or an unambiguous beginning of it."""

    id: str


class TaskTimeline(Arguments, frozen=True):
    """A task by its id or an unambiguous beginning of it; ``after`` is the ``next`` of the page before."""

    id: str
    after: int | None = None
    limit: Limit = page_rows_max


def list_tasks(moment: Moment, asked: TaskList) -> Answer:
    """Return ``{"tasks", "total", "next"}``, newest first."""
    where = Where()
    where.equal("status", asked.status)
    where.equal("task_type", asked.task_type)
    page, total, following = page_of(moment, LISTING, where, asked.after, asked.limit)
    return {"tasks": [_task(row) for row in page], "total": total, "next": following}


def show_task(moment: Moment, asked: TaskId) -> Answer:
    """Return a task: roles, configuration, stats (``claimed_stats``: the explorer's own), solution or ``failure``."""
    return _task_of(moment, asked.id)


def show_tree(moment: Moment, asked: TaskId) -> Answer:
    """Return the whole tree as a ``ThoughtTree``: every field of every node, in the order in which nodes were added.

    ``search_config`` is None before the search was asked for, ``root_id`` before there is a root.
    """
    task = _task_of(moment, asked.id)
    rows = moment.rows("SELECT * FROM tot_nodes WHERE task_id = ? ORDER BY position", (task["id"],))
    return {
        "task_id": task["id"],
        "problem": task["problem"],
        "task_type": task["task_type"],
        "search_config": task["search_config"],
        "nodes": {row["id"]: _node(row) for row in rows},
        "root_id": task["root_id"],
        "search_state": task["search_state"],
    }


def show_timeline(moment: Moment, asked: TaskTimeline) -> Answer:
    """Return ``{"id", "status", "timeline", "total", "next"}``: what was said, in the order of the log.

    ``text`` is a line for people; ``entries`` are those of a log. ``round`` is that of the log files, 0 outside them.
    """
    task = _task_of(moment, asked.id)
    where = Where()
    where.equal("task_id", task["id"])
    page, total, following = page_of(moment, TIMELINE, where, asked.after, asked.limit)
    timeline = [_message(row) for row in page]
    return {"id": task["id"], "status": task["status"], "timeline": timeline, "total": total, "next": following}


def prove_task(moment: Moment, asked: TaskId) -> Answer:
    """Return for each answer its request, signer, key and index, and whether six agents really ran.

    ``answered_itself`` lists answers by the agent or the key that had asked; ``never_ran`` the roles that said nothing,
    ``missing`` those of them that were asked, or all of them once there is a solution. ``passed``: nobody answered
    himself and nobody is missing. ``unanswered`` requests may still wait.
    """
    task = _task_of(moment, asked.id)
    sql = "SELECT * FROM tot_messages WHERE task_id = ? ORDER BY event_index"
    messages = moment.rows(sql, (task["id"],))
    requests = {row["event_id"]: row for row in messages if row["request_id"] == row["event_id"]}
    answers = [_answer(requests[row["request_id"]], row) for row in messages if row["answer_id"] is not None]
    answered = {answer["request_id"] for answer in answers}
    itself = [row["answer_id"] for row in answers if row["signer"] == row["asked_by"] or row["key"] == row["asked_key"]]
    ran = {row["sender"] for row in messages}
    never_ran = [binding["role"] for binding in task["roles"] if binding["role"] not in ran]
    is_whole = task["solution"] is not None
    wanted = {row["receiver"] for row in requests.values()}
    missing = [role for role in never_ran if is_whole or role in wanted]
    return {
        "id": task["id"],
        "status": task["status"],
        "roles": task["roles"],
        "answers": answers,
        "unanswered": [
            {"request_id": id_, "type": row["type"], "receiver": row["receiver"], "request_index": row["event_index"]}
            for id_, row in requests.items()
            if id_ not in answered
        ],
        "answered_itself": itself,
        "never_ran": never_ran,
        "missing": missing,
        "passed": not itself and not missing,
    }


def _task_of(moment: Moment, asked: str) -> dict[str, Any]:
    whole = by_beginning(moment, "tot_tasks", asked.removeprefix("tot/"), asked, "task")
    (row,) = moment.rows("SELECT * FROM tot_tasks WHERE id = ?", (whole,))
    return _task(row)


def _task(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: msgspec.json.decode(row[name]) for name in _JSON if row[name] is not None}


def _node(row: dict[str, Any]) -> dict[str, Any]:
    judged = {name: row[name] for name in ("score", "confidence", "reasoning")}
    plain = {name: row[name] for name in ("id", "parent_id", "depth", "content", "action_type", "status")}
    return plain | {
        "children_ids": msgspec.json.decode(row["children_ids"]),
        "evaluation": None if row["score"] is None else judged,
        "metadata": msgspec.json.decode(row["metadata"]),
    }


def _message(row: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in row.items() if name != "task_id"}
    error = None if row["error"] is None else msgspec.json.decode(row["error"])
    return shown | {"entries": msgspec.json.decode(row["entries"]), "error": error}


def _answer(request: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": row["type"],
        "role": row["sender"],
        "request_id": request["event_id"],
        "request_index": request["event_index"],
        "asked_by": request["signer"],
        "asked_key": request["key"],
        "answer_id": row["event_id"],
        "answer_index": row["event_index"],
        "signer": row["signer"],
        "key": row["key"],
        "accepted_ms": row["accepted_ms"],
        "error": None if row["error"] is None else msgspec.json.decode(row["error"]),
    }
