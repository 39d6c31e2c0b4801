"""Queries about reasoning: a reasoning by its id, any graph version by its ref, and the payload for a receiver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import msgspec

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.projections.answers import query
from deedbook.projections.briefs.tokens import tokenizer
from deedbook.projections.reasoning.delta import (
    SentAs,
    choose,
    find_change,
    write_chain,
    write_full,
    write_squashed,
)
from deedbook.projections.reasoning.fold import marked
from deedbook.projections.reasoning.graph import (
    GraphState,
    apply_change,
    canonical_text,
    decode_change,
    memory_of,
    ref_of,
)
from deedbook.projections.reasoning.memory import ReasoningMemory

LISTING: Final = query.Listing("SELECT * FROM reasonings", "reasonings", "started_index")


REFS: Final = "SELECT DISTINCT ref FROM reasoning_versions"
_VERSIONS: Final = "SELECT reasoning_id, version, ref, event_index FROM reasoning_versions WHERE"


class Version(NamedTuple):
    """A graph version, and the event that made it."""

    reasoning_id: str
    version: int
    ref: str
    event_index: int


class FullReasoning(NamedTuple):
    """A graph version, and the bytes whose SHA-256 is its ref."""

    ref: str
    reasoning_id: str
    version: int
    event_index: int
    memory: ReasoningMemory
    canonical: bytes


class FetchArguments(query.Arguments, frozen=True):
    """The requested version, and the one that the receiver has; both as ``find_version`` takes them."""

    ref: str
    have: str | None = None


class ReasoningList(query.Page, frozen=True):
    """Filters of a list, newest first."""

    author: str | None = None
    session: str | None = None
    status: Literal["open", "concluded"] | None = None


def find_version(context: query.QueryContext, reference: str) -> Version:
    """Return the version of a ref or of an unambiguous beginning of one, or the latest version of an id.

    A ref takes precedence over an id: briefs abbreviate their refs, and anybody may name a reasoning like that. Raises
    Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``.
    """
    name = reference.removeprefix("reasoning/")
    refs = [row["ref"] for row in query.by_ref(context, REFS, "ref", "sha256", reference)]
    latest = f"{_VERSIONS} reasoning_id = ? ORDER BY version DESC LIMIT 1"
    for row in () if refs or query.is_whole_ref(reference) else context.rows(latest, (name,)):
        return Version(**row)
    ref = query.only_match(refs, reference, "reasoning", lambda: query.names_in(context, "reasonings"))
    (row,) = context.rows(f"{_VERSIONS} ref = ? ORDER BY event_index LIMIT 1", (ref,))
    return Version(**row)


def get_full_reasoning(context: query.QueryContext, reference: str) -> FullReasoning:
    """Return a whole graph version, with the bytes whose SHA-256 is its ref.

    Raises Refused: as ``find_version``. Corrupted: the stored deltas do not lead to their ref.
    """
    version = find_version(context, reference)
    return _whole(version, _deltas(context, version))


def show_reasoning(context: query.QueryContext, args: query.ById) -> query.Answer:
    """Return a reasoning at its latest version, with its ``versions`` and its whole ``memory``."""
    name, version, *_ = find_version(context, args.id)
    (row,) = context.rows("SELECT * FROM reasonings WHERE id = ?", (name,))
    sql = "SELECT version, ref, base, event_index, kind, steps FROM reasoning_versions WHERE reasoning_id = ? "
    memory = get_full_reasoning(context, name).memory.to_dict()
    return marked(row) | {
        "versions": context.rows(sql + "ORDER BY version", (name,)),
        "asked_version": version,
        "memory": msgspec.to_builtins(memory, str_keys=True),
    }


def full_reasoning(context: query.QueryContext, args: query.ByRef) -> query.Answer:
    """Return a whole version: ``memory`` and ``canonical``, the text whose SHA-256 is ``ref``."""
    full = get_full_reasoning(context, args.ref)
    (row,) = context.rows("SELECT * FROM reasonings WHERE id = ?", (full.reasoning_id,))
    fields = marked(row)
    return {name: fields[name] for name in ("author", "domain", "session", "status", "imported")} | {
        "ref": full.ref,
        "reasoning_id": full.reasoning_id,
        "version": full.version,
        "event_index": full.event_index,
        "memory": msgspec.to_builtins(full.memory.to_dict(), str_keys=True),
        "canonical": full.canonical.decode(),
    }


def fetch(context: query.QueryContext, args: FetchArguments) -> query.Answer:
    """Return the smallest ``payload`` for this receiver; ``sent_as`` is full, squashed or chain.

    ``ref`` and ``base`` are whole. ``sizes`` has bytes and tokens of all three, or None for one that needs a base which
    the receiver did not name, or out of which the requested version did not grow. Raises Refused: ``NOT_FOUND`` or
    ``REF_AMBIGUOUS``, for either.
    """
    version = find_version(context, args.ref)
    deltas = _deltas(context, version)
    full = _whole(version, deltas)
    payloads: dict[SentAs, str] = {"full": write_full(full.memory)}
    base = None
    if args.have is not None:
        base = get_full_reasoning(context, args.have)
        payloads["squashed"] = write_squashed(base.ref, full.ref, find_change(base.memory, full.memory))
        # The last version of the same reasoning that equals the base, if the requested one grew out of it.
        sql = (
            "SELECT max(version) AS newest FROM reasoning_versions WHERE reasoning_id = ? AND version <= ? AND ref = ?"
        )
        (row,) = context.rows(sql, (full.reasoning_id, full.version, base.ref))
        if row["newest"] is not None:
            payloads["chain"] = write_chain(base.ref, full.ref, deltas[row["newest"] :])
    sent_as, sizes = choose(payloads)
    return {
        "ref": full.ref,
        "reasoning_id": full.reasoning_id,
        "version": full.version,
        "base": None if base is None else base.ref,
        "sent_as": sent_as,
        "payload": payloads[sent_as],
        "sizes": dict.fromkeys(("full", "chain", "squashed")) | msgspec.to_builtins(sizes),
        "tokenizer": tokenizer().name,
        "exact": tokenizer().exact,
    }


def list_reasonings(context: query.QueryContext, args: ReasoningList) -> query.Answer:
    """Return ``{"reasonings", "total", "next"}``, newest first."""
    return query.list_of(
        context, LISTING, query.Where(args, "author", "session", "status"), args, of="reasonings", read=marked
    )


def existing(context: query.QueryContext, args: query.ByIds) -> query.Answer:
    """Return ``{"reasonings"}``: the rows of those of these ids that exist."""
    rows = [row for name in args.ids for row in context.rows("SELECT * FROM reasonings WHERE id = ?", (name,))]
    return {"reasonings": {row["id"]: marked(row) for row in rows}}


def origins(context: query.QueryContext, args: query.ByRef) -> query.Answer:
    """Return ``{"own", "imported", "ids"}``: how many reasonings with this version were recorded here, and imported."""
    try:
        ref = find_version(context, args.ref).ref
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return {"own": 0, "imported": 0, "ids": []}
    sql = (
        "SELECT DISTINCT id, original IS NULL AS is_own FROM reasonings JOIN reasoning_versions ON reasoning_id = id "
        "WHERE reasoning_versions.ref = ? ORDER BY id"
    )
    rows = context.rows(sql, (ref,))
    own = sum(row["is_own"] for row in rows)
    return {"own": own, "imported": len(rows) - own, "ids": [row["id"] for row in rows]}


def _deltas(context: query.QueryContext, version: Version) -> list[str]:
    sql = "SELECT delta FROM reasoning_versions WHERE reasoning_id = ? AND version <= ? ORDER BY version"
    return [row["delta"] for row in context.rows(sql, (version.reasoning_id, version.version))]


def _whole(target: Version, deltas: Iterable[str]) -> FullReasoning:
    """Return the version that the deltas lead to, after comparing its hash with the stored ref."""
    name, version, ref, index = target
    graph = GraphState()
    try:
        for delta in deltas:
            graph = apply_change(graph, decode_change(delta))
    except msgspec.DecodeError as error:
        message = f"a delta of {name} cannot be read: run `deed project --rebuild`"
        raise Corrupted("CORRUPTED", message, id=name) from error
    if ref_of(graph) != ref:
        message = f"version {version} of {name} is not {ref}: run `deed project --rebuild`"
        raise Corrupted("CORRUPTED", message, id=name)
    return FullReasoning(ref, name, version, index, memory_of(graph, name), canonical_text(graph))
