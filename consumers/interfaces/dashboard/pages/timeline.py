"""`/timeline`: one lane an agent, what passes between them as arrows, sessions as bars, and what the team did."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from math import log2
from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.page import Page, Seen
from deedbook.consumers.sdk.times import parse_moment
from deedbook.ledger.errors import or_none

operations_shown_max: Final = 60
lanes_shown_max: Final = 24
hour_ms: Final = 3_600_000

_step: Final = 20  # px from one operation to the next, and more where more time passed
_lane: Final = 48
_top: Final = 24
_label: Final = 44


def timeline(seen: Seen) -> Page:
    """Return the answer of `catalog.lanes` (`since`, `agent`, `after`) with its ``drawing``, from left to right.

    That has ``width``, ``height``, the ``y`` of the ``lanes``, ``acts`` with their ``x``, ``y`` and ``to_y`` (None:
    passed to nobody), ``bars`` of sessions, and ``times``: the first, and each an hour after the one before.
    """
    asked = {"since": _since(seen), "agent": seen.query.get("agent") or None, "after": seen.number("after")}
    answer = seen.ask("catalog.lanes", limit=operations_shown_max, **asked)
    return Page("timeline.html", "Timeline", answer | {"asked": asked, "drawing": _drawing(answer)})


def _since(seen: Seen) -> int | None:
    """Return the first index that is asked for; of a time it is that of the first entry after it."""
    text = seen.query.get("since", "")
    if not text or text.isdecimal():
        return seen.number("since")
    there = or_none(seen.view, "catalog.instant", {"at": parse_moment(text, "since")})
    return 0 if there is None else int(there["event_index"]) + 1


def _drawing(answer: dict[str, Any]) -> dict[str, Any]:
    operations = answer["acts"][::-1]
    # Whoever acted last stands above.
    acting = dict.fromkeys(
        operation[of] for operation in answer["acts"] for of in ("author", "passed_to") if operation[of] is not None
    )
    names = list(acting | dict.fromkeys(one["author"] for one in answer["sessions"]))[:lanes_shown_max]
    middles = {name: _top + number * _lane + 16 for number, name in enumerate(names)}
    xs, times = ([_step], [{"x": _step, "at_ms": operations[0]["accepted_ms"]}]) if operations else ([], [])
    for operation, following in pairwise(operations):
        passed_min = max(0, following["accepted_ms"] - operation["accepted_ms"]) / 60_000
        xs.append(xs[-1] + _step + min(40, round(6 * log2(1 + passed_min))))
        if following["accepted_ms"] - times[-1]["at_ms"] > hour_ms and xs[-1] - times[-1]["x"] > _label:
            times.append({"x": xs[-1], "at_ms": following["accepted_ms"]})
    indexes, width = [operation["event_index"] for operation in operations], (xs[-1] if xs else 0) + _step * 2

    def place(index: int | None) -> int:
        return width if index is None else ([0, *xs])[bisect_right(indexes, index)]

    bars = [
        {
            "id": one["id"],
            "task": one["task"],
            "status": one["status"],
            "x": start,
            "y": middles[one["author"]] + 14,
            "w": max(8, place(one["to_index"]) - start),
        }
        for one in answer["sessions"]
        if one["author"] in middles
        for start in (place(one["from_index"]),)
    ]
    begun: dict[int, int] = {}  # by lane: where the next bar begins, which covers none
    for bar in sorted(bars, key=lambda one: -one["x"]):
        bar["w"] = max(8, min(bar["w"], begun.get(bar["y"], width) - bar["x"]))
        begun[bar["y"]] = bar["x"]
    drawn = [
        operation | {"x": x, "y": middles[operation["author"]], "to_y": middles.get(operation["passed_to"])}
        for operation, x in zip(operations, xs, strict=True)
        if operation["author"] in middles
    ]
    size = {"width": width, "height": _top + len(names) * _lane}
    return size | {"lanes": middles, "acts": drawn, "bars": bars, "times": times}
