"""Queries about reasoning: a reasoning by its id, any graph version by its ref, and the payload for a receiver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.imported import RecordClaims
from deedbook.ledger.format.codec import read_json
from deedbook.projections.answers import query
from deedbook.projections.answers.answer import Page
from deedbook.projections.answers.rows import Range, RowSource, ViewRows
from deedbook.projections.briefs.tokens import tokenizer
from deedbook.projections.reasoning.answers import (
    ExistingReasonings,
    FullReasoning,
    ImportedReasoning,
    Origins,
    PayloadSizes,
    ReasoningLine,
    ReasoningPayload,
    ReasoningStatus,
    ReasoningVersion,
    ShownReasoning,
)
from deedbook.projections.reasoning.delta import (
    SentAs,
    choose,
    find_change,
    write_chain,
    write_full,
    write_squashed,
)
from deedbook.projections.reasoning.fold import REASONINGS, VERSIONS, ImportOrigin, conclusion_key
from deedbook.projections.reasoning.graph import (
    GraphState,
    apply_change,
    canonical_text,
    decode_change,
    memory_of,
    ref_of,
)
from deedbook.projections.reasoning.memory import ReasoningMemory
from deedbook.projections.reasoning.route import Domain, Route, Tag
from deedbook.projections.redactions.fold import FORMER_VERSIONS
from deedbook.projections.views.projection import Table

if TYPE_CHECKING:
    from deedbook.projections.answers.view_reader import ViewReader

LISTING: Final = query.Listing(
    "SELECT * FROM reasonings", "reasonings", "started_index", time="happened_ms", cursors="reasonings"
)
_BY_CHANGE: Final = msgspec.structs.replace(LISTING, time="changed_ms")


REFS: Final = "SELECT DISTINCT ref FROM reasoning_versions"
_SHOWN: Final = ("version", "ref", "base", "event_index", "kind", "steps")


class Version(NamedTuple):
    """A graph version, and the event that made it.

    ``former`` is the requested ref if the version does not have it any more, because texts were erased.
    """

    reasoning_id: str
    version: int
    ref: str
    event_index: int
    former: str = ""


class WholeGraph(NamedTuple):
    """A graph version, and the bytes whose SHA-256 is its ref."""

    ref: str
    reasoning_id: str
    version: int
    event_index: int
    memory: ReasoningMemory
    canonical: bytes


class FetchArguments(query.Arguments, frozen=True):
    """``id`` is the requested version, ``have`` the one that the receiver has; both as ``find_version`` takes them."""

    id: str
    have: str | None = None


class ReasoningList(query.ListArguments, frozen=True):
    """The filters of a list, newest first. ``conclusion`` selects reasonings whose conclusion has these words.

    ``agent`` is the author, or the agent that an imported reasoning claims. ``since`` and ``until`` limit the time of
    the last change; ``by_change`` sorts by this time, so a page may repeat reasonings that changed after the previous
    page.
    """

    author: str | None = None
    agent: str | None = None
    session: str | None = None
    status: ReasoningStatus | None = None
    conclusion: str | None = None
    tag: Tag | None = None
    domain: Domain | None = None
    since: query.Since | None = None
    until: query.Until | None = None
    entries: query.Entries | None = None
    by_change: bool = False


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
    if not refs and (former := _former(source, reference)) is not None:
        return former
    ref = query.only_match(refs, reference, "reasoning", lambda: source.names(REASONINGS))
    (row,) = source.select(VERSIONS, "event_index", limit=1, ref=ref)
    return _version(row)


def _former(source: RowSource, reference: str) -> Version | None:
    """Return the version that had a ref before texts of it were erased; None if no redaction names it."""
    refs = _refs(source, reference, FORMER_VERSIONS)
    if not refs:
        return None
    ref = query.only_match(refs, reference, "reasoning")
    for row in source.select(FORMER_VERSIONS, "redaction", newest_first=True, ref=ref):
        for erased in source.select(VERSIONS, "version", limit=1, event_index=row["entry"]):
            name = erased["reasoning_id"]
            for version in source.select(VERSIONS, "version", limit=1, reasoning_id=name, version=row["version"]):
                return _version(version)._replace(former=ref)
    return None  # nobody checked this statement of the redaction


def erased_entries(source: RowSource, version: Version) -> list[int]:
    """Return the erased entries behind a version."""
    rows = source.select(VERSIONS, "version", reasoning_id=version.reasoning_id, is_erased=1)
    return [row["event_index"] for row in rows if row["version"] <= version.version]


def _refs(source: RowSource, reference: str, table: Table = VERSIONS) -> list[str]:
    """Return the refs of a table that a reference may abbreviate, at most eleven."""
    refs: list[str] = []
    first, end = query.prefix_range(reference, "sha256") or ("", "")
    while len(refs) <= query.candidates_max and (rows := source.select(table, "ref", limit=1, ref=Range(first, end))):
        refs.append(rows[0]["ref"])
        first = refs[-1] + "0"  # all refs have the same length: this is before the next one
    return refs


def _version(row: dict[str, Any]) -> Version:
    return Version(row["reasoning_id"], row["version"], row["ref"], row["event_index"])


def get_graph(source: RowSource, reference: str) -> WholeGraph:
    """Return a whole graph version, with the bytes whose SHA-256 is its ref.

    Raises Refused: as ``find_version``; ``NOT_FOUND`` if texts of it were erased, so that nothing has this ref.
    Corrupted: the stored deltas do not lead to their ref.
    """
    version = find_version(source, reference)
    _check_whole(source, version)
    return _whole(version, [row["delta"] for row in _versions(source, version)])


def read_graph(reader: ViewReader, ref: str) -> WholeGraph:
    """Return a version from the views, as ``get_graph`` does."""
    return reader.ask(lambda context: get_graph(ViewRows(context), ref))


def _check_whole(source: RowSource, version: Version) -> None:
    if version.former:
        entries = erased_entries(source, version)
        message = (
            f"version {version.version} of reasoning {version.reasoning_id} was redacted (entry {entries[0]}): nothing "
            f"has the ref {version.former} any more, and nobody can check it"
        )
        raise Refused("NOT_FOUND", message, id=version.reasoning_id, ref=version.former, redacted=entries)


def show_reasoning(source: RowSource, args: query.ById) -> ShownReasoning:
    """Return a reasoning at its latest version, with its versions and its whole graph."""
    # A redacted version is found, too: the answer shows its remnant.
    name, version, ref, _, former = find_version(source, args.id)
    versions = source.select(VERSIONS, "version", reasoning_id=name)
    return ShownReasoning(
        **_described(source, name),
        versions=[ReasoningVersion(**{column: row[column] for column in _SHOWN}) for row in versions],
        # Two entries can make the same graph, for example if the same conclusion is drawn again.
        asked_version=max((row["version"] for row in versions if row["ref"] == ref and not former), default=version),
        memory=_whole(_version(versions[-1]), [row["delta"] for row in versions]).memory,
    )


def full_reasoning(source: RowSource, args: query.ById) -> FullReasoning:
    """Return a whole version."""
    graph = get_graph(source, args.id)
    fields = _described(source, graph.reasoning_id)
    return FullReasoning(
        **{name: fields[name] for name in ("author", "domain", "session", "status", "imported")},
        ref=graph.ref,
        reasoning_id=graph.reasoning_id,
        version=graph.version,
        event_index=graph.event_index,
        memory=graph.memory,
        canonical=graph.canonical.decode(),
    )


def fetch(source: RowSource, args: FetchArguments) -> ReasoningPayload:
    """Return the smallest payload for this receiver.

    Raises Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``, for either.
    """
    version = find_version(source, args.id)
    _check_whole(source, version)
    rows = _versions(source, version)
    deltas = [row["delta"] for row in rows]
    graph = _whole(version, deltas)
    payloads: dict[SentAs, str] = {"full": write_full(graph.memory)}
    base = None
    if args.have is not None:
        base = get_graph(source, args.have)
        payloads["squashed"] = write_squashed(base.ref, graph.ref, find_change(base.memory, graph.memory))
        # The last version of the same reasoning that equals the base, if the requested one grew out of it.
        newest = max((row["version"] for row in rows if row["ref"] == base.ref), default=None)
        if newest is not None:
            payloads["chain"] = write_chain(base.ref, graph.ref, deltas[newest:])
    sent_as, sizes = choose(payloads)
    return ReasoningPayload(
        ref=graph.ref,
        reasoning_id=graph.reasoning_id,
        version=graph.version,
        base=None if base is None else base.ref,
        sent_as=sent_as,
        payload=payloads[sent_as],
        sizes=PayloadSizes(full=sizes["full"], chain=sizes.get("chain"), squashed=sizes.get("squashed")),
        tokenizer=tokenizer().name,
        exact=tokenizer().exact,
    )


def list_reasonings(context: query.QueryContext, args: ReasoningList) -> Page[ReasoningLine]:
    """Return reasonings, newest first."""
    where = query.Where(args, "author", "session", "status")
    where.equal("CASE WHEN original IS NULL THEN author ELSE claimed_author END", args.agent)
    where.within("changed_ms", args.since, args.until)
    where.of_entries("id", args.entries, "reasoning")
    where.equal("conclusion_key", None if args.conclusion is None else conclusion_key(args.conclusion))
    route = Route(args.tag, args.domain)
    if route.values:
        where.add(f"id IN ({route.reasonings()})", *route.values)
    return query.list_of(context, _BY_CHANGE if args.by_change else LISTING, where, args, _line)


def existing(context: query.QueryContext, args: query.ByIds) -> ExistingReasonings:
    """Return those of these reasonings that exist."""
    rows = [row for name in args.ids for row in context.rows("SELECT * FROM reasonings WHERE id = ?", (name,))]
    return ExistingReasonings(reasonings={row["id"]: _line(row) for row in rows})


def origins(source: RowSource, args: query.ById) -> Origins:
    """Return which reasonings have this version, and how many were recorded here, and imported."""
    try:
        ref = find_version(source, args.id).ref
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return Origins(own=0, imported=0, ids=[])
    rows = with_version(source, ref)
    own = sum(row["original"] is None for row in rows)
    return Origins(own=own, imported=len(rows) - own, ids=[row["id"] for row in rows])


def with_version(source: RowSource, ref: str) -> list[dict[str, Any]]:
    """Return the rows of the reasonings that have a version with this whole ref, by their ids."""
    ids = {row["reasoning_id"] for row in source.select(VERSIONS, "reasoning_id", ref=ref)}
    return source.select(REASONINGS, "id", id=sorted(ids)) if ids else []


def _described(source: RowSource, name: str) -> dict[str, Any]:
    (row,) = source.select(REASONINGS, "id", id=name)
    return _with_origin(row)


def _line(row: dict[str, Any]) -> ReasoningLine:
    return ReasoningLine(**_with_origin(row))


def _with_origin(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a reasoning with ``imported`` in place of the origin's columns; None if it is not imported."""
    columns = {*ImportOrigin.__struct_fields__, "conclusion_key"}
    fields = {name: value for name, value in row.items() if name not in columns}
    fields |= {"tags": read_json(row["tags"], list[str]), "is_refuted": bool(row["is_refuted"])}
    if row["original"] is None:
        return fields | {"imported": None}
    claims = read_json(row["claims"], RecordClaims)
    origin = {name: row[name] for name in ImportOrigin.__struct_fields__} | {"claims": claims}
    return fields | {"imported": ImportedReasoning(importer=row["author"], **origin)}


def _versions(source: RowSource, version: Version) -> list[dict[str, Any]]:
    """Return the rows of a reasoning's versions up to this one."""
    versions = Range(0, version.version + 1)
    return source.select(VERSIONS, "version", reasoning_id=version.reasoning_id, version=versions)


def _whole(target: Version, deltas: Iterable[str]) -> WholeGraph:
    """Return the version that the deltas lead to, after comparing its hash with the stored ref."""
    name, version, ref, index, _ = target
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
    return WholeGraph(ref, name, version, index, memory_of(graph, name), canonical_text(graph))
