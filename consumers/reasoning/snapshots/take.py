"""Takes a snapshot, and receives one.

The reasoning is compressed for both levels, with the snapshot's own context, and measured. If the snapshot is too large
for an entry, it leaves out in this order: the embedding, the MINIMAL brief, then both briefs (the snapshot's own fields
remain, and their fidelity is measured again). It has at most ``evidence_size_max_bytes`` of evidence, references to
secrets first, because a gate reads them. ``evidence_count`` counts all references.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace as with_changed
from itertools import chain
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from deedbook.consumers.reasoning.compressor.certificate import check_certificate, differences, is_comparable
from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.consumers.reasoning.compressor.transfer import FetchedGraph, fetch
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import AS_A_BLOB, Refused, or_none
from deedbook.ledger.events.brief import Fidelity, Sizes
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.session import Vectors
from deedbook.ledger.events.snapshot import SnapshotTaken
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.limits import data_size_max_bytes
from deedbook.projections.answers.checked import formed
from deedbook.projections.answers.query import is_whole_ref
from deedbook.projections.briefs.embedding import is_embedding_of
from deedbook.projections.briefs.fidelity import LOSSLESS, WEIGHTS, band_of, measure
from deedbook.projections.briefs.gates import is_critical_evidence
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.briefs.rejection import CertificateProblem, RejectedBrief
from deedbook.projections.reasoning.memory import ReasoningMemory
from deedbook.projections.snapshots.answers import ShownSnapshot
from deedbook.projections.snapshots.snapshot import (
    EnhancedEpistemicSnapshot,
    derive_context,
    snapshot_of,
    to_context_prompt,
)
from deedbook.projections.snapshots.vectors import read_vectors

evidence_size_max_bytes: Final = 6 * 1024
_id_bytes: Final = 6
_UNMEASURED: Final = Fidelity(0.0, band_of(0.0), None, None, None, 1.0, [], WEIGHTS)
_OF_AUTHOR: Final = ("vectors", "context_source", "session_id", "context_summary", "domain")
_SHARED: Final = ("conclusion", "reasoning_brief", "top_assumptions", "top_evidence_refs", "level")


def take_snapshot(
    author: Author,
    view: Ask,
    *,
    snapshot_id: str | None = None,
    session: str | None = None,
    reasoning: str | None = None,
    domain: str | None = None,
    context: str | None = None,
    vectors: Mapping[str, Any] | None = None,
) -> EnhancedEpistemicSnapshot:
    """Sign and append a snapshot, and return it (see ``assemble``)."""
    data, causes = assemble(view, session=session, reasoning=reasoning, domain=domain, context=context, vectors=vectors)
    name = snapshot_id or secrets.token_hex(_id_bytes)
    ids = [read_event(index, author.client.entry(index)).id for index in causes]
    accepted = author.emit(Draft(stream=f"snapshot/{name}", data=data, causes=ids))[0]
    return snapshot_of(data, snapshot_id=name, author=author.name, event_id=accepted.id)


def assemble(
    view: Ask,
    *,
    session: str | None = None,
    reasoning: str | None = None,
    domain: str | None = None,
    context: str | None = None,
    vectors: Mapping[str, Any] | None = None,
) -> tuple[SnapshotTaken, list[int]]:
    """Return the data of a snapshot, and the indexes of the events that caused it.

    The vectors are the session's latest, and ``vectors`` override them. The default domain is the reasoning's. The
    default context is derived from the session, else from the reasoning's task. Raises Refused: ``USAGE`` without
    session, reasoning and context; ``NOT_FOUND``; ``INVALID_FIELD`` for a vector; ``TOO_LARGE`` if context and
    conclusion alone are too large for an entry.
    """
    if session is None and reasoning is None and not (context or "").strip():
        raise Refused("USAGE", "a snapshot needs a session, a reasoning or a context: name one")
    answer = None if session is None else view("sessions.show", {"id": session})
    fetched = None if reasoning is None else fetch(view, reasoning)
    assessed: dict[str, float] = {}
    for assessment in () if answer is None else answer["assessments"]:
        assessed |= assessment["vectors"]
    assessed |= msgspec.to_builtins(read_vectors(vectors or {}))
    own = (context or "").strip()
    summary = own or derive_context(answer, task="" if fetched is None else fetched.memory.task)
    data = SnapshotTaken(
        vectors=Vectors(**assessed),
        session_id="" if answer is None else answer["id"],
        context_source="author" if own else "derived" if summary else "none",
        context_summary=summary,
        domain=domain or "",
    )
    causes = [] if answer is None else [answer["updated_index"]]
    if fetched is None:
        return _fitting([data]), causes
    version = view("reasoning.full", {"id": fetched.ref})
    data = replace(data, domain=domain or version["domain"])
    return _fitting(_with_reasoning(data, fetched)), [*causes, version["event_index"]]


def receive_snapshot(view: Ask, name: str) -> EnhancedEpistemicSnapshot:
    """Return a snapshot by its id; if there is none, an unsigned snapshot of a reasoning by its id or ref.

    ``snapshot/ID`` and ``reasoning/ID`` choose one of the two; a whole ref is a reasoning's. A signed snapshot is
    compared with its graph, and made again if it is wrong: ``rejected`` names its signer and the problems.
    """
    if not name.startswith("reasoning/") and not is_whole_ref(name):
        try:
            answer = formed(view("snapshots.show", {"id": name}), ShownSnapshot)
            data, problems = _checked(view, answer.data)
            snapshot = snapshot_of(data, snapshot_id=answer.id, author=answer.author, event_id=answer.event_id)
            rejected = RejectedBrief(answer.event_id, answer.author, problems)
            return with_changed(snapshot, rejected=rejected) if problems else snapshot
        except Refused as refusal:
            if refusal.code != "NOT_FOUND" or name.startswith("snapshot/"):
                raise
    try:
        data, _ = assemble(view, reasoning=name)
    except Refused as refusal:
        if refusal.code != "NOT_FOUND" or "redacted" in refusal.details:
            raise
        lists = "`deed snapshot list` and `deed reasoning list` show them"
        raise Refused("NOT_FOUND", f"no snapshot and no reasoning is named {name}: {lists}", asked=name) from refusal
    return snapshot_of(data, snapshot_id="")


def _checked(view: Ask, data: SnapshotTaken) -> tuple[SnapshotTaken, list[CertificateProblem]]:
    """Return a snapshot that agrees with its graph, and its problems. A snapshot that does not agree is made again.

    If the graph is not here, nothing can be checked: the fidelity is then 0, so a rule asks for the graph. A snapshot
    that names no graph has no reasoning, whatever its fields say.
    """
    base = SnapshotTaken(**{name: getattr(data, name) for name in _OF_AUTHOR})
    if data.reasoning_ref is None:
        return base, list(differences(data, base, SnapshotTaken.__struct_fields__))
    fetched = or_none(fetch, view, data.reasoning_ref)
    if fetched is None:
        briefs = [replace(brief, fidelity=_UNMEASURED) for brief in data.briefs]
        return replace(data, reasoning_fidelity=0.0, briefs=briefs), []
    problems = _problems(data, fetched)
    # A snapshot with another tokenizer, or without a brief that shows which facts were chosen, may be genuine, but
    # cannot be checked.
    if not problems and data.briefs and all(map(is_comparable, data.briefs)):
        return data, []
    return _fitting(_with_reasoning(base, fetched)), problems


def _problems(data: SnapshotTaken, fetched: FetchedGraph) -> list[CertificateProblem]:
    """Return the differences between a snapshot and its graph; the gate checked that its fields match its briefs."""
    memory, context, domain = fetched.memory, data.context_summary, data.domain or None
    briefs = [replace(brief, context=context) for brief in data.briefs]
    checks = (check_certificate(brief, memory, context=context, domain=domain) for brief in briefs)
    true = replace(data, conclusion=memory.conclusion.strip(), **_evidence(memory))
    vector = data.reasoning_embedding
    if vector is not None and not is_embedding_of(vector, data.reasoning_brief):
        true = replace(true, reasoning_embedding=None)
    return [*chain.from_iterable(checks), *differences(data, true, SnapshotTaken.__struct_fields__)]


def _with_reasoning(data: SnapshotTaken, fetched: FetchedGraph) -> Iterator[SnapshotTaken]:
    """Yield the snapshot with its reasoning, each time with fewer parts."""
    memory, context, domain = fetched.memory, data.context_summary, data.domain or None
    minimal = compress(memory, TransferLevel.MINIMAL, context=context, domain=domain)
    briefs = [minimal]
    if minimal.fidelity.value < LOSSLESS:
        briefs.append(compress(memory, TransferLevel.STANDARD, context=context, domain=domain))
    last = briefs[-1]
    whole = replace(
        data,
        **{name: getattr(last, name) for name in _SHARED},
        **_evidence(memory),
        reasoning_ref=fetched.ref,
        reasoning_tags=[tag.tag for tag in last.tags],
        reasoning_fidelity=last.fidelity.value,
        reasoning_size=last.sizes,
        reasoning_embedding=last.embedding,
        # The snapshot stores these two once for all its briefs.
        briefs=[replace(brief, context="", embedding=None) for brief in briefs],
    )
    yield whole
    whole = replace(whole, reasoning_embedding=None)
    yield whole
    yield replace(whole, briefs=whole.briefs[-1:])
    yield _measured_bare(replace(whole, briefs=[]), memory)


def _evidence(memory: ReasoningMemory) -> dict[str, Any]:
    references = list(dict.fromkeys(text for step in memory.steps for text in step.evidence))
    return {"evidence_refs": _most_telling(references), "evidence_count": len(references)}


def _measured_bare(data: SnapshotTaken, memory: ReasoningMemory) -> SnapshotTaken:
    """Return a snapshot without briefs, with the fidelity and size of its rendered prompt."""
    assert data.level is not None  # noqa: S101 - there is a reasoning
    prompt = to_context_prompt(snapshot_of(data, snapshot_id=""), TransferLevel(data.level))
    full = data.reasoning_size.full if data.reasoning_size is not None else 0
    fidelity = measure(memory, prompt.prompt).value
    return replace(data, reasoning_fidelity=fidelity, reasoning_size=Sizes(compressed=prompt.tokens, full=full))


def _most_telling(references: list[str]) -> list[str]:
    """Return the references that fit: those to secrets first, the others in the order of the graph."""
    telling: list[str] = []
    room = evidence_size_max_bytes
    for reference in sorted(references, key=lambda text: not is_critical_evidence(text)):
        room -= len(reference.encode()) + len('"",')
        if room < 0:
            break
        telling.append(reference)
    return telling


def _fitting(candidates: Iterator[SnapshotTaken] | list[SnapshotTaken]) -> SnapshotTaken:
    size = 0
    for data in candidates:
        size = len(encode_canonical(data))
        if size <= data_size_max_bytes:
            return data
    message = f"context and conclusion have {size} bytes; a snapshot holds {data_size_max_bytes}: shorten the context"
    raise Refused("TOO_LARGE", f"{message}, or {AS_A_BLOB}", size=size, limit=data_size_max_bytes)
