"""Questions about single handoffs and lists of them: list, show, why, ready (seed 002, DESIGN §10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ledger.lifecycle.handoff import Status
from projections.handoffs.why import Standing, chain_links_max, explain
from projections.query import Answer, Arguments, Limit, Listing, Moment, Where, by_beginning, page_of

ids_in_query_max: Final = 500

UNLOCKED: Final = (
    "NOT EXISTS (SELECT 1 FROM handoff_dependencies d LEFT JOIN handoffs o ON o.id = d.depends_on "
    "WHERE d.handoff_id = h.id AND (o.id IS NULL OR (o.status <> 'verified' AND o.status <> h.unlock_at)))"
)
# An imported file may name nobody in To: then nobody can claim it, approved or not.
CLAIMABLE: Final = (
    "(h.receiver <> '' AND (h.status = 'approved' OR (h.status = 'in_progress' AND h.lease_until_ms <= ?)))"
)
SUMMARY: Final = f"""
    SELECT h.id, h.status, h.title, h.sender, h.receiver, h.reviewer, h.created, h.tasks_done, h.tasks_total,
        h.criteria_done, h.criteria_total, h.claimed_status, h.reason, h.created_index,
        h.updated_index,
        ({CLAIMABLE} AND {UNLOCKED}) AS is_ready
    FROM handoffs h"""  # noqa: S608 - fixed texts, never a caller's value
_STANDING: Final = (
    "SELECT id, status, receiver, coalesce(reviewer, sender) AS reviewer, unlock_at, reason, lease_until_ms, "
    "claimed_status FROM handoffs WHERE id IN"
)
_EDGES: Final = "SELECT handoff_id, depends_on FROM handoff_dependencies WHERE handoff_id IN"
LISTING: Final = Listing(SUMMARY, "handoffs h", "h.created_index")


class HandoffList(Arguments, frozen=True, rename={"sender": "from", "receiver": "to"}):
    """Filters of a list; ``after`` is the ``next`` of the page before (newest first)."""

    status: Status | None = None
    receiver: str | None = None
    sender: str | None = None
    reviewer: str | None = None
    ready: bool | None = None
    after: int | None = None
    limit: Limit = 50


class HandoffId(Arguments, frozen=True):
    """A handoff by its id, its file's name (``ID.md``) or an unambiguous beginning of it."""

    id: str


class Unannounced(Arguments, frozen=True):
    """What could be announced as ready: all of it, or one handoff (by its whole id) and those that wait for it."""

    about: str | None = None
    limit: Limit = 50


def find_handoff(moment: Moment, asked: str) -> str:
    """Return the whole id of a handoff.

    Raises:
        Refused: ``NOT_FOUND``, or ``REF_AMBIGUOUS`` with the candidates.
    """
    name = asked.removeprefix("handoff/")
    if moment.rows("SELECT id FROM handoffs WHERE id = ?", (name,)):
        return name
    return by_beginning(moment, "handoffs", name.removesuffix(".md"), asked, "handoff")


def list_handoffs(moment: Moment, asked: HandoffList) -> Answer:
    """Return ``{"handoffs", "total", "next"}``, newest first."""
    where = Where()
    for column, value in (("status", asked.status), ("receiver", asked.receiver), ("sender", asked.sender)):
        where.equal(f"h.{column}", value)
    where.equal("coalesce(h.reviewer, h.sender)", asked.reviewer)
    if asked.ready is not None:
        where.add(f"coalesce({CLAIMABLE} AND {UNLOCKED}, 0) = ?", moment.now_ms, int(asked.ready))
    page, total, following = page_of(moment, LISTING, where, asked.after, asked.limit, moment.now_ms)
    return {"handoffs": with_dependencies(moment, page), "total": total, "next": following}


def show_handoff(moment: Moment, asked: HandoffId) -> Answer:
    """Return everything about one handoff: content, checks, log, dependencies with their status, and ``why``."""
    name = find_handoff(moment, asked.id)
    (row,) = moment.rows("SELECT * FROM handoffs WHERE id = ?", (name,))
    shown = _renamed(row)
    shown["artifacts"] = msgspec.json.decode(row["artifacts"])
    tasks = moment.rows("SELECT * FROM handoff_tasks WHERE handoff_id = ? ORDER BY position", (name,))
    shown["tasks"] = [{"position": one["position"], "text": one["text"], "done": bool(one["is_done"])} for one in tasks]
    shown["criteria"] = moment.rows(
        "SELECT position, text, mark, evidence, waived_because FROM handoff_criteria WHERE handoff_id = ? "
        "ORDER BY position",
        (name,),
    )
    shown["depends_on"] = moment.rows(
        "SELECT d.depends_on AS id, o.status FROM handoff_dependencies d LEFT JOIN handoffs o ON o.id = d.depends_on "
        "WHERE d.handoff_id = ? ORDER BY d.position",
        (name,),
    )
    shown["dependents"] = moment.rows(
        "SELECT DISTINCT o.id, o.status FROM handoff_dependencies d JOIN handoffs o ON o.id = d.handoff_id "
        "WHERE d.depends_on = ? ORDER BY o.id",
        (name,),
    )
    shown["answered_by"] = moment.rows("SELECT id, status FROM handoffs WHERE answers = ? ORDER BY id", (name,))
    shown["log"] = [
        line | {"line": f"- {line['day']} [{line['author']}] {line['text']}"}
        for line in moment.rows(
            "SELECT event_index, day, at, author, kind, text FROM handoff_log WHERE handoff_id = ? "
            "ORDER BY event_index",
            (name,),
        )
    ]
    shown["why"] = why_handoff(moment, HandoffId(id=name))
    shown["is_ready"] = shown["why"]["is_ready"]
    return shown


def why_handoff(moment: Moment, asked: HandoffId) -> Answer:
    """Return why a handoff is ready or not: ``{"id", "status", "is_ready", "sentence", "reasons"}``."""
    name = find_handoff(moment, asked.id)
    known = _standings(moment, [name])
    frontier, is_root = [known[name]], True
    # A level at a time: all that this one waits for, then of each only the first that holds it up, as `explain` says.
    for _ in range(chain_links_max + 1):
        # What is asked about may also be work whose lease ran out: it waits anew.
        held = [here for here in frontier if is_root or here.status in ("pending", "approved")]
        known |= _standings(moment, list({on for here in held for on in here.depends_on} - known.keys()))
        following: dict[str, Standing] = {}
        for here in held:
            unmet = [on for on in here.depends_on if on not in known or not here.is_unlocked_by(known[on])]
            following |= {on: known[on] for on in (unmet if is_root else unmet[:1]) if on in known}
        frontier, is_root = list(following.values()), False
    return explain(known[name], known, moment.now_ms)


def _standings(moment: Moment, ids: Sequence[str]) -> dict[str, Standing]:
    """Return where handoffs stand, and what they wait for, by id; those that do not exist are left out."""
    found: dict[str, Standing] = {}
    for start in range(0, len(ids), ids_in_query_max):
        some = ids[start : start + ids_in_query_max]
        places = ", ".join("?" for _ in some)
        depends_on: dict[str, list[str]] = {}
        for edge in moment.rows(f"{_EDGES} ({places}) ORDER BY handoff_id, position", some):
            depends_on.setdefault(edge["handoff_id"], []).append(edge["depends_on"])
        for row in moment.rows(f"{_STANDING} ({places})", some):
            found[row["id"]] = Standing(**row, depends_on=tuple(depends_on.get(row["id"], ())))
    return found


def unannounced_handoffs(moment: Moment, asked: Unannounced) -> Answer:
    """Return ``{"handoffs": [{"id", "to", "version"}]}``: what can be claimed and was not announced as ready."""
    where = Where()
    where.add(f"h.status IN ('approved', 'in_progress') AND h.is_announced = 0 AND {CLAIMABLE}", moment.now_ms)
    where.add(UNLOCKED)
    if asked.about is not None:
        where.add(
            "(h.id = ? OR h.id IN (SELECT d.handoff_id FROM handoff_dependencies d WHERE d.depends_on = ?))",
            asked.about,
            asked.about,
        )
    # Fixed texts; what is asked for is bound.
    sql = f"SELECT h.id, h.receiver AS 'to', h.version FROM handoffs h{where.sql} ORDER BY h.created_index LIMIT ?"  # noqa: S608
    return {"handoffs": moment.rows(sql, (*where.values, asked.limit))}


def with_dependencies(moment: Moment, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of ``SUMMARY`` as they are answered, each with ``depends_on``: ids and their status."""
    sql = (
        "SELECT d.handoff_id, d.depends_on AS id, o.status FROM handoff_dependencies d "
        "LEFT JOIN handoffs o ON o.id = d.depends_on WHERE d.handoff_id IN (SELECT value FROM json_each(?)) "
        "ORDER BY d.handoff_id, d.position"
    )
    found: dict[str, list[dict[str, Any]]] = {row["id"]: [] for row in rows}
    for wanted in moment.rows(sql, (msgspec.json.encode(list(found)).decode(),)):
        found[wanted.pop("handoff_id")].append(wanted)
    return [summary(row) | {"depends_on": found[row["id"]]} for row in rows]


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    names = {"sender": "from", "receiver": "to"}
    return {names.get(name, name): value for name, value in row.items()}


def summary(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of ``SUMMARY`` as it is answered."""
    return _renamed(row) | {"is_ready": bool(row["is_ready"])}
