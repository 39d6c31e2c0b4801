"""Queries about reasoning: a reasoning by its id, any graph version by its ref, and the payload for a receiver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.projections.answers import query
from deedbook.projections.answers.rows import Range, RowSource
from deedbook.projections.briefs.tokens import tokenizer
from deedbook.projections.reasoning.delta import (
    SentAs,
    choose,
    find_change,
    write_chain,
    write_full,
    write_squashed,
)
from deedbook.projections.reasoning.fold import REASONINGS, VERSIONS, marked
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
_SHOWN: Final = ("version", "ref", "base", "event_index", "kind", "steps")


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


class ReasoningList(query.ListArguments, frozen=True):
    """Filters of a list, newest first."""

    author: str | None = None
    session: str | None = None
    status: Literal["open", "concluded"] | None = None


def find_version(source: RowSource, reference: str) -> Version:
    """Return the version of a ref or of an unambiguous beginning of one, or the latest version of an id.

    A ref takes precedence over an id: briefs abbreviate their refs, and anybody may name a reasoning like that. Raises
    Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``.
    """
    name = reference.removeprefix("reasoning/")
    refs = _refs(source, reference)
    if not refs and not query.is_whole_ref(reference):
        for row in source.select(VERSIONS, "version", newest_first=True, limit=1, reasoning_id=name):
            return _version(row)
    ref = query.only_match(refs, reference, "reasoning", lambda: source.names(REASONINGS))
    (row,) = source.select(VERSIONS, "event_index", limit=1, ref=ref)
    return _version(row)


def _refs(source: RowSource, reference: str) -> list[str]:
    """Return the refs that a reference may abbreviate, at most eleven."""
    refs: list[str] = []
    first, end = query.prefix_range(reference, "sha256") or ("", "")
    while len(refs) <= query.candidates_max and (
        rows := source.select(VERSIONS, "ref", limit=1, ref=Range(first, end))
    ):
        refs.append(rows[0]["ref"])
        first = refs[-1] + "0"  # all refs have the same length: this is before the next one
    return refs


def _version(row: dict[str, Any]) -> Version:
    return Version(row["reasoning_id"], row["version"], row["ref"], row["event_index"])


def get_full_reasoning(source: RowSource, reference: str) -> FullReasoning:
    """Return a whole graph version, with the bytes whose SHA-256 is its ref.

    Raises Refused: as ``find_version``. Corrupted: the stored deltas do not lead to their ref.
    """
    version = find_version(source, reference)
    return _whole(version, [row["delta"] for row in _versions(source, version)])


def show_reasoning(source: RowSource, args: query.ById) -> query.Plain:
    """Return a reasoning at its latest version, with its ``versions`` and its whole ``memory``."""
    name, version, *_ = find_version(source, args.id)
    versions = source.select(VERSIONS, "version", reasoning_id=name)
    memory = _whole(_version(versions[-1]), [row["delta"] for row in versions]).memory.to_dict()
    return _described(source, name) | {
        "versions": [{column: row[column] for column in _SHOWN} for row in versions],
        "asked_version": version,
        "memory": msgspec.to_builtins(memory, str_keys=True),
    }


def full_reasoning(source: RowSource, args: query.ByRef) -> query.Plain:
    """Return a whole version: ``memory`` and ``canonical``, the text whose SHA-256 is ``ref``."""
    full = get_full_reasoning(source, args.ref)
    fields = _described(source, full.reasoning_id)
    return {name: fields[name] for name in ("author", "domain", "session", "status", "imported")} | {
        "ref": full.ref,
        "reasoning_id": full.reasoning_id,
        "version": full.version,
        "event_index": full.event_index,
        "memory": msgspec.to_builtins(full.memory.to_dict(), str_keys=True),
        "canonical": full.canonical.decode(),
    }


def fetch(source: RowSource, args: FetchArguments) -> query.Plain:
    """Return the smallest ``payload`` for this receiver; ``sent_as`` is full, squashed or chain.

    ``ref`` and ``base`` are whole. ``sizes`` has bytes and tokens of all three, or None for one that needs a base which
    the receiver did not name, or out of which the requested version did not grow. Raises Refused: ``NOT_FOUND`` or
    ``REF_AMBIGUOUS``, for either.
    """
    version = find_version(source, args.ref)
    rows = _versions(source, version)
    deltas = [row["delta"] for row in rows]
    full = _whole(version, deltas)
    payloads: dict[SentAs, str] = {"full": write_full(full.memory)}
    base = None
    if args.have is not None:
        base = get_full_reasoning(source, args.have)
        payloads["squashed"] = write_squashed(base.ref, full.ref, find_change(base.memory, full.memory))
        # The last version of the same reasoning that equals the base, if the requested one grew out of it.
        newest = max((row["version"] for row in rows if row["ref"] == base.ref), default=None)
        if newest is not None:
            payloads["chain"] = write_chain(base.ref, full.ref, deltas[newest:])
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


def list_reasonings(context: query.QueryContext, args: ReasoningList) -> query.Plain:
    """Return ``{"reasonings", "total", "next"}``, newest first."""
    return query.plain_list_of(
        context, LISTING, query.Where(args, "author", "session", "status"), args, of="reasonings", read=marked
    )


def existing(context: query.QueryContext, args: query.ByIds) -> query.Plain:
    """Return ``{"reasonings"}``: the rows of those of these ids that exist."""
    rows = [row for name in args.ids for row in context.rows("SELECT * FROM reasonings WHERE id = ?", (name,))]
    return {"reasonings": {row["id"]: marked(row) for row in rows}}


def origins(source: RowSource, args: query.ByRef) -> query.Plain:
    """Return ``{"own", "imported", "ids"}``: how many reasonings with this version were recorded here, and imported."""
    try:
        ref = find_version(source, args.ref).ref
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return {"own": 0, "imported": 0, "ids": []}
    rows = with_version(source, ref)
    own = sum(row["original"] is None for row in rows)
    return {"own": own, "imported": len(rows) - own, "ids": [row["id"] for row in rows]}


def with_version(source: RowSource, ref: str) -> list[dict[str, Any]]:
    """Return the rows of the reasonings that have a version with this whole ref, by their ids."""
    ids = {row["reasoning_id"] for row in source.select(VERSIONS, "reasoning_id", ref=ref)}
    return source.select(REASONINGS, "id", id=sorted(ids)) if ids else []


def _described(source: RowSource, name: str) -> dict[str, Any]:
    (row,) = source.select(REASONINGS, "id", id=name)
    return marked(row)


def _versions(source: RowSource, version: Version) -> list[dict[str, Any]]:
    """Return the rows of a reasoning's versions up to this one."""
    versions = Range(0, version.version + 1)
    return source.select(VERSIONS, "version", reasoning_id=version.reasoning_id, version=versions)


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
