"""Bare ids and shortened refs: what a text that somebody typed stands for."""

from __future__ import annotations

import re
from typing import Any, Final

from ledger.errors import Refused
from projections.catalog.queries import matching_events
from projections.query import Answer, ByRef, Moment, candidates_max, names_in, only_match, prefix_range
from projections.reasoning.graph import decode_change
from projections.reasoning.queries import find_version

_STEP: Final = re.compile(r"(.+)#([0-9]{1,7})")


def resolve(moment: Moment, asked: ByRef) -> Answer:
    """Return ``{"sort", "ref", "stream", "event_index", …}``; ``sort`` is event, reasoning, step or stream.

    Asked for is an index, an event's id, a digest, a graph's ref, ``REF#STEP``, a stream or its bare name. An event has
    its ``id``, a reasoning its ``reasoning_id`` and ``version``, a step its ``step`` too; a stream's ``event_index`` is
    that of its last event.

    Raises:
        Refused: ``NOT_FOUND``, or ``REF_AMBIGUOUS`` with the candidates.
    """
    found_step = _STEP.fullmatch(asked.ref)
    if found_step is not None:
        return _step(moment, found_step[1], int(found_step[2]))
    matches = {row["id"]: _event(row) for row in matching_events(moment, asked.ref)}
    bounds = prefix_range(asked.ref, "sha256")
    if bounds is not None:
        sql = "SELECT DISTINCT ref FROM reasoning_versions WHERE ref >= ? AND ref < ? ORDER BY ref LIMIT ?"
        for row in moment.rows(sql, (*bounds, candidates_max + 1)):
            matches[row["ref"]] = _version(moment, row["ref"])
    name = asked.ref.removesuffix(".md")
    if not matches and name:
        sql = "SELECT * FROM streams WHERE stream IN (?, ?) OR name IN (?, ?) ORDER BY stream LIMIT ?"
        rows = moment.rows(sql, (asked.ref, name, asked.ref, name, candidates_max + 1))
        matches = {row["stream"]: _stream(row) for row in rows}
    column = "stream" if "/" in name else "name"
    what = "event, reasoning or stream"
    return matches[only_match(list(matches), asked.ref, what, lambda: names_in(moment, "streams", column))]


def _event(row: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "body_ref", "kind", "stream", "stream_version", "author", "event_index")
    return {"sort": "event", "ref": row["id"]} | {name: row[name] for name in names}


def _version(moment: Moment, ref: str) -> dict[str, Any]:
    name, version = find_version(moment, ref)
    sql = "SELECT ref, event_index FROM reasoning_versions WHERE reasoning_id = ? AND version = ?"
    (row,) = moment.rows(sql, (name, version))
    stream = {"stream": f"reasoning/{name}", "event_index": row["event_index"]}
    return {"sort": "reasoning", "ref": row["ref"], **stream, "reasoning_id": name, "version": version}


def _step(moment: Moment, ref: str, number: int) -> dict[str, Any]:
    """Return the event that added a step, as the version ``ref`` holds it."""
    name, version = find_version(moment, ref)
    sql = (
        "SELECT v.event_index, d.delta FROM reasoning_versions v JOIN reasoning_deltas d USING (reasoning_id, version) "
        "WHERE reasoning_id = ? AND version <= ? AND v.kind = 'reasoning.extended' ORDER BY version"
    )
    for row in moment.rows(sql, (name, version)):
        if any(step.step_number == number for step in decode_change(row["delta"]).steps_added):
            whole = _version(moment, ref)
            return whole | {"sort": "step", "version": version, "step": number, "event_index": row["event_index"]}
    raise Refused("NOT_FOUND", f"{ref} has no step {number}", ref=ref, step=number)


def _stream(row: dict[str, Any]) -> dict[str, Any]:
    place = {"event_index": row["last_index"], "stream_version": row["version"]}
    return {"sort": "stream", "ref": row["stream"], "stream": row["stream"]} | place
