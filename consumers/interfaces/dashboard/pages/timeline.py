"""`/timeline`: a lane for each agent, arrows for work that passes between them, bars for sessions, and totals."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime
from itertools import pairwise
from math import log2
from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.consumers.sdk.times import parse_since

operations_shown_max: Final = 60
lanes_shown_max: Final = 24
hour_ms: Final = 3_600_000

_step: Final = 20  # px from one event to the next; more if more time passed
_lane: Final = 48
_top: Final = 24
_label: Final = 44


def timeline(context: PageContext) -> Page:
    """Return the answer of `catalog.lanes` (`since`, `agent`, `after`) with its ``drawing``, from left to right.

    The drawing has ``width``, ``height``, the ``y`` of the ``lanes``, ``operations`` with ``x``, ``y`` and ``to_y``
    (None: not passed on), ``bars`` for sessions, and ``times``: the first, and then at least an hour apart.
    """
    text, agent, after = context.query.get("since"), context.query.get("agent") or None, context.number("after")
    since = parse_since(text, datetime.now(UTC)) if text else None
    answer = context.ask("catalog.lanes", limit=operations_shown_max, since=since, agent=agent, after=after)
    asked = {"since": text or None, "agent": agent, "after": after}
    return Page("timeline.html", "Timeline", answer | {"asked": asked, "drawing": _drawing(answer)})


def _drawing(answer: dict[str, Any]) -> dict[str, Any]:
    operations = answer["items"][::-1]
    # The agent that acted last is at the top.
    acting = dict.fromkeys(
        operation[role]
        for operation in answer["items"]
        for role in ("author", "passed_to")
        if operation[role] is not None
    )
    names = list(acting | dict.fromkeys(session["author"] for session in answer["sessions"]))[:lanes_shown_max]
    middles = {name: _top + number * _lane + 16 for number, name in enumerate(names)}
    xs, times = ([_step], [{"x": _step, "at_ms": operations[0]["accepted_ms"]}]) if operations else ([], [])
    for operation, following in pairwise(operations):
        passed_min = max(0, following["accepted_ms"] - operation["accepted_ms"]) / 60_000
        xs.append(xs[-1] + _step + min(40, round(6 * log2(1 + passed_min))))
        if following["accepted_ms"] - times[-1]["at_ms"] > hour_ms and xs[-1] - times[-1]["x"] > _label:
            times.append({"x": xs[-1], "at_ms": following["accepted_ms"]})
    indexes, width = [operation["event_index"] for operation in operations], (xs[-1] if xs else 0) + _step * 2

    def x_of(index: int | None) -> int:
        return width if index is None else ([0, *xs])[bisect_right(indexes, index)]

    bars = [
        {
            "id": session["id"],
            "task": session["task"],
            "status": session["status"],
            "x": start,
            "y": middles[session["author"]] + 14,
            "w": max(8, x_of(session["to_index"]) - start),
        }
        for session in answer["sessions"]
        if session["author"] in middles
        for start in (x_of(session["from_index"]),)
    ]
    next_x: dict[int, int] = {}  # by lane: the start of the next bar, which this bar must not cover
    for bar in sorted(bars, key=lambda bar: -bar["x"]):
        bar["w"] = max(8, min(bar["w"], next_x.get(bar["y"], width) - bar["x"]))
        next_x[bar["y"]] = bar["x"]
    drawn = [
        operation | {"x": x, "y": middles[operation["author"]], "to_y": middles.get(operation["passed_to"])}
        for operation, x in zip(operations, xs, strict=True)
        if operation["author"] in middles
    ]
    size = {"width": width, "height": _top + len(names) * _lane}
    return size | {"lanes": middles, "operations": drawn, "bars": bars, "times": times}
