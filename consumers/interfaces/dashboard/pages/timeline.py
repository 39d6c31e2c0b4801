"""`/timeline`: a lane for each agent, arrows for work that passes between them, bars for sessions, and totals."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.facets import Facets, read
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.answers.answer import UNDATED_MS
from deedbook.projections.answers.query import age_of
from deedbook.projections.catalog.lanes import OPERATIONS, sessions_shown_max

operations_shown_max: Final = 60
lanes_shown_max: Final = 20
team_shown_max: Final = 40
hour_ms: Final = 3_600_000

_step: Final = 24  # px from lane to lane
_others: Final = "others"


def timeline(context: PageContext) -> Page:
    """Return the answer of `catalog.lanes` with ``facets``, and a ``drawing`` of one row an operation, newest first.

    ``events`` is the number of all events with these filters, of which the timeline draws only some kinds.
    The drawing has the ``lanes`` with their ``x``, its ``width``, and ``rows``: the ``x`` of the operation, ``to_x`` of
    the agent to whom it passes work (None: nobody), the ``bars`` of the sessions at that time, the ``day`` if it is
    another than that of the row above, the ``pause`` between them if it is longer than an hour, and the bars that are
    also ``above``. ``team`` are the lanes of agents, and ``services`` those of services and of names without a role;
    ``span`` is the part of the past whose events they count: its beginning and its end as texts (None: the first event,
    now).
    """
    facets, after = read(context, "/timeline"), context.number("after")
    answer = context.ask("catalog.lanes", limit=operations_shown_max, after=after, **facets.arguments)
    counts = context.ask("catalog.facets", types=list(OPERATIONS), **facets.arguments)
    events = context.ask("catalog.find", limit=1, **facets.arguments)["total"]
    data = answer | {"facets": facets.form(counts), "drawing": _drawing(answer, facets), "after": after}
    data |= _team(context, answer)
    limits = {"sessions_max": sessions_shown_max, "team_max": team_shown_max}
    return Page("timeline.html", "Timeline", data | limits | {"events": events})


def _team(context: PageContext, answer: dict[str, Any]) -> dict[str, Any]:
    agents = context.ask("agents.list", all=True)["agents"]
    names = {agent["name"] for agent in agents if set(agent["roles"]) <= {"service"}}
    parts: dict[str, list[dict[str, Any]]] = {"team": [], "services": []}
    for lane in answer["lanes"]:
        parts["services" if lane["agent"] in names else "team"].append(lane)
    since, until = answer["first_ms"], answer["last_ms"]
    begin = None if since == UNDATED_MS else clock_text(since)
    return parts | {"span": (begin, None if until > context.now_ms else clock_text(until))}


def _drawing(answer: dict[str, Any], facets: Facets) -> dict[str, Any]:
    operations = answer["items"]
    # The agent that acted last is at the left.
    acting = dict.fromkeys(
        operation[role] for operation in operations for role in ("agent", "passed_to") if operation[role] is not None
    )
    names = list(acting)[:lanes_shown_max]
    xs = {name: number * _step + _step // 2 for number, name in enumerate(names)}
    if len(acting) > len(names):
        others = len(names) * _step + _step // 2
        xs |= dict.fromkeys(list(acting)[lanes_shown_max:], others)
        names.append(_others)
    lanes = [
        {"name": name, "x": number * _step + _step // 2, "is_claimed": name not in {*facets.registered, _others}}
        for number, name in enumerate(names)
    ]
    rows = [_row(operation, xs, answer["sessions"]) for operation in operations]
    for above, row in zip([None, *rows], rows, strict=False):
        row["day"], row["pause"] = _distance(above, row)
        ids = {bar["id"] for bar in above["bars"]} if above is not None else ()
        row["above"] = [bar for bar in row["bars"] if bar["id"] in ids]
    return {"lanes": lanes, "width": len(lanes) * _step, "rows": rows}


def _row(operation: dict[str, Any], xs: dict[str, int], sessions: list[dict[str, Any]]) -> dict[str, Any]:
    at_ms, to_x = operation["happened_ms"], xs.get(operation["passed_to"])
    bars = {
        session["agent"]: {"x": xs[session["agent"]], "is_imported": session["status"] == "imported", **session}
        for session in reversed(sessions)  # if a lane has several sessions, the last one that began
        if session["agent"] in xs
        and session["from_ms"] <= at_ms
        and (session["to_ms"] is None or at_ms <= session["to_ms"])
    }
    x = xs[operation["agent"]]
    return operation | {"x": x, "to_x": None if to_x == x else to_x, "bars": list(bars.values())}


def _distance(above: dict[str, Any] | None, row: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the day of a row if it differs from the row above, and the time between them if it exceeds an hour."""
    at_ms = row["happened_ms"]
    if above is None:
        return _day(at_ms), None
    above_ms = above["happened_ms"]
    is_pause = at_ms != UNDATED_MS and above_ms - at_ms > hour_ms
    pause = age_of(at_ms, above_ms).removesuffix(" ago") if is_pause else None
    return (None if _day(at_ms) == _day(above_ms) else _day(at_ms)), pause


def _day(at_ms: int) -> str:
    return "undated" if at_ms == UNDATED_MS else clock_text(at_ms)[:10]
