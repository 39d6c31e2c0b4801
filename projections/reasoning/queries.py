"""Questions about reasoning: a reasoning by its id, and any version of a graph by its ref (seed 001)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from ledger.errors import Corrupted
from ledger.events import KINDS
from projections.query import Arguments, Limit, Query, Where, candidates_max, one
from projections.reasoning.graph import GraphState, apply_delta, canonical_text, memory_of, ref_of
from projections.refs import prefix_range

if TYPE_CHECKING:
    from projections.query import Answer, Moment
    from projections.reasoning.memory import ReasoningMemory


class FullReasoning(NamedTuple):
    """A version of a graph: the seed's structure, and the bytes whose SHA-256 is its ref."""

    ref: str
    reasoning_id: str
    version: int
    event_index: int
    memory: ReasoningMemory
    canonical: bytes


class ReasoningId(Arguments, frozen=True):
    """A reasoning by its id (its stream's name), or by the ref of any of its versions."""

    id: str


class ReasoningRef(Arguments, frozen=True):
    """A version by its ref, a beginning of 12 or more hex digits, or a reasoning's id for the latest version."""

    ref: str


class ReasoningList(Arguments, frozen=True):
    """Filters of a list; ``after`` is the ``next`` of the page before (newest first)."""

    author: str | None = None
    session: str | None = None
    status: Literal["open", "concluded"] | None = None
    after: int | None = None
    limit: Limit = 50


def find_version(moment: Moment, asked: str) -> tuple[str, int]:
    """Return (reasoning id, version) of a ref, of an unambiguous beginning of one, or the latest of an id.

    Raises:
        Refused: ``NOT_FOUND``, or ``REF_AMBIGUOUS`` with the candidates.
    """
    name = asked.removeprefix("reasoning/")
    for row in moment.rows("SELECT id, version FROM reasonings WHERE id = ?", (name,)):
        return row["id"], row["version"]
    refs: list[str] = []
    bounds = prefix_range(asked, "sha256")
    if bounds is not None:
        sql = "SELECT DISTINCT ref FROM reasoning_versions WHERE ref >= ? AND ref < ? ORDER BY ref LIMIT ?"
        refs = [row["ref"] for row in moment.rows(sql, (*bounds, candidates_max + 1))]
    ref = one(refs, asked, "reasoning")
    first = "SELECT reasoning_id, version FROM reasoning_versions WHERE ref = ? ORDER BY event_index LIMIT 1"
    (row,) = moment.rows(first, (ref,))
    return row["reasoning_id"], row["version"]


def get_full_reasoning(moment: Moment, asked: str) -> FullReasoning:
    """Return a version of a graph whole, with the bytes whose SHA-256 is its ref (DESIGN §9).

    Raises:
        Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``.
        Corrupted: the stored deltas do not lead to the ref they are stored under.
    """
    name, version = find_version(moment, asked)
    chain = moment.rows(
        "SELECT ref, event_index, kind, delta FROM reasoning_versions WHERE reasoning_id = ? AND version <= ? "
        "ORDER BY version",
        (name, version),
    )
    graph = GraphState()
    for row in chain:
        graph = apply_delta(graph, msgspec.json.decode(row["delta"], type=KINDS[row["kind"]].data))
    ref, last = ref_of(graph), chain[-1]
    if ref != last["ref"]:
        raise Corrupted("CORRUPTED", f"version {version} of {name} is not {last['ref']}: run `baton project`", id=name)
    return FullReasoning(ref, name, version, last["event_index"], memory_of(graph, name), canonical_text(graph))


def show_reasoning(moment: Moment, asked: ReasoningId) -> Answer:
    """Return a reasoning at its latest version, its ``versions`` and its whole ``memory``."""
    name, version = find_version(moment, asked.id)
    (row,) = moment.rows("SELECT * FROM reasonings WHERE id = ?", (name,))
    versions = moment.rows(
        "SELECT version, ref, base, event_index, kind, steps, delta_bytes FROM reasoning_versions "
        "WHERE reasoning_id = ? ORDER BY version",
        (name,),
    )
    full = get_full_reasoning(moment, name)
    return row | {"versions": versions, "asked_version": version, "memory": _plain(full.memory)}


def full_reasoning(moment: Moment, asked: ReasoningRef) -> Answer:
    """Return a version whole: ``memory`` and ``canonical``, the text whose SHA-256 is ``ref``."""
    full = get_full_reasoning(moment, asked.ref)
    (row,) = moment.rows("SELECT author, domain, session, status FROM reasonings WHERE id = ?", (full.reasoning_id,))
    return row | {
        "ref": full.ref,
        "reasoning_id": full.reasoning_id,
        "version": full.version,
        "event_index": full.event_index,
        "memory": _plain(full.memory),
        "canonical": full.canonical.decode(),
    }


def list_reasonings(moment: Moment, asked: ReasoningList) -> Answer:
    """Return ``{"reasonings", "total", "next"}``, newest first."""
    where = Where()
    for column in ("author", "session", "status"):
        where.equal(column, getattr(asked, column))
    total = moment.count(f"SELECT count(*) FROM reasonings{where.sql}", where.values)  # noqa: S608 - fixed texts
    if asked.after is not None:
        where.add("started_index < ?", asked.after)
    sql = f"SELECT * FROM reasonings{where.sql} ORDER BY started_index DESC LIMIT ?"  # noqa: S608 - fixed texts
    rows = moment.rows(sql, (*where.values, asked.limit + 1))
    page = rows[: asked.limit]
    return {"reasonings": page, "total": total, "next": page[-1]["started_index"] if len(rows) > asked.limit else None}


def _plain(memory: ReasoningMemory) -> dict[str, Any]:
    values = memory.to_dict()
    values["dependencies"] = {str(number): rests_on for number, rests_on in values["dependencies"].items()}
    return values


QUERIES: Final = {
    "reasoning.list": Query(ReasoningList, list_reasonings),
    "reasoning.show": Query(ReasoningId, show_reasoning),
    "reasoning.full": Query(ReasoningRef, full_reasoning),
}
