"""Receives reasoning: the brief at a level, the rule that says whether it is enough, and the full graph if it is not.

The receiver trusts nobody. A fetched graph must hash to the requested reference, and a published brief, with its prose,
is compared with that graph before it is passed on. A wrong brief is made again here, and its signer is named. A caller
who asks by a reasoning's id trusts the server on which graph has that id.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from deedbook.consumers.reasoning.compressor.certificate import check_certificate, is_comparable
from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.consumers.reasoning.compressor.prose import holds
from deedbook.consumers.reasoning.validator.evidence import citations_of
from deedbook.consumers.sdk.text import counted
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Corrupted, Refused, or_none
from deedbook.ledger.events.brief import Brief, Fidelity, Prose, RefutedAssumption
from deedbook.ledger.events.reasoning import MISSING
from deedbook.ledger.format.codec import check_strict, read_msgpack
from deedbook.ledger.limits import content_size_max_bytes
from deedbook.ledger.system.files import replacing
from deedbook.projections.answers.answer import Answer, Untrusted
from deedbook.projections.answers.checked import formed
from deedbook.projections.answers.query import is_whole_ref, prefix_range
from deedbook.projections.briefs.gates import FetchAnswer, FetchRule, should_fetch_full_reasoning
from deedbook.projections.briefs.prompt import LEVEL_TOKENS, Prompt, TransferLevel, to_context_prompt
from deedbook.projections.briefs.rejection import CertificateProblem, RejectedBrief
from deedbook.projections.reasoning.answers import PayloadSizes, ReasoningPayload
from deedbook.projections.reasoning.delta import SentAs, Size, read_payload, write_full
from deedbook.projections.reasoning.delta import measure as measure_payload
from deedbook.projections.reasoning.memory import (
    ReasoningMemory,
    canonical_json,
    compute_reasoning_ref,
    memory_from_dict,
)
from deedbook.projections.validations.answers import LatestVerdict

T = TypeVar("T")

IMPORTED: Final = "Imported: nobody here vouches for it."

graphs_cached_max: Final = 256
briefs_kept_max: Final = 8
graph_size_max_bytes: Final = content_size_max_bytes


class _BriefData(msgspec.Struct):
    brief: Brief
    prose: Prose | None = None
    prose_missing: str = ""


class _BriefAnswer(msgspec.Struct):
    data: _BriefData
    event_id: str
    author: str


class ReceivedBrief(msgspec.Struct, frozen=True):
    """A checked brief as a receiver gets it: rendered, with the decision of the gate.

    It was published, or made here. ``rejected`` is the published brief that was wrong; ``memory`` the graph that it was
    compared with; ``prose`` a model's text beside a published brief; ``imported`` the origin of an imported reasoning;
    ``author`` and ``at_ms`` those of the reasoning; ``verdict`` that of its validators on this version; ``newer`` the
    number of newer versions.
    """

    brief: Brief
    memory: ReasoningMemory
    prompt: Prompt
    answer: FetchAnswer
    domain: str
    is_published: bool
    author: str
    at_ms: int
    verdict: LatestVerdict
    newer: int
    prose: Prose | None = None
    prose_missing: str = ""
    imported: dict[str, Any] | None = None
    rejected: RejectedBrief | None = None


class GraphTransfer(msgspec.Struct, frozen=True):
    """How a graph was sent: its form, its base, its size, and the size of the full graph.

    Both sizes are measured here; ``sizes`` are the sender's.
    """

    sent_as: SentAs
    base: str | None
    transferred: Size
    full: Size
    sizes: PayloadSizes


class FetchedGraph(msgspec.Struct, frozen=True):
    """A full graph; its hash was recomputed and is ``ref``."""

    ref: str
    memory: ReasoningMemory
    canonical: str
    sent: GraphTransfer


class BaseGraph(msgspec.Struct, frozen=True):
    """The graph that a receiver already has, its origin, and its size if it was fetched just now."""

    memory: ReasoningMemory | None = None
    origin: Literal["file", "cache", "ledger"] | None = None
    transferred: Size | None = None


def receive_brief(
    view: Ask,
    ref: str,
    level: TransferLevel,
    *,
    budget: int | None = None,
    memory: ReasoningMemory | None = None,
    context: str = "",
) -> ReceivedBrief:
    """Return a checked brief of a reasoning (id, ref or prefix of a ref), and the rule that fired, if any.

    The published brief is used if there is one for this level, no budget was requested and it is right; otherwise it is
    made here. For imported reasoning it is always made here, because its CONTEXT must say that nobody vouches for it.
    ``memory`` is the graph, if the caller has already fetched it by ``ref``. With a ``context``, such as that of a
    snapshot, the brief is made here, too.
    """
    reasoning = view("reasoning.show", {"id": ref})
    imported, domain = reasoning.get("imported"), reasoning["domain"]
    memory = fetch(view, ref).memory if memory is None else memory
    data, rejected = None, None
    if budget is None and imported is None and not context:
        data, rejected = published(view, level, memory, domain)
    is_published = data is not None
    if data is None:
        context = context if imported is None else f"{IMPORTED} {context or memory.task}"
        data = _BriefData(_compressed(canonical_json(memory), level, budget, context or None, domain or None))
    verdict = read_verdict(view, compute_reasoning_ref(memory))
    answer = should_fetch_full_reasoning(
        verdict=verdict,
        fidelity=data.brief.fidelity.value,
        domain=domain or None,
        text="\n".join([memory.task, memory.conclusion, *(step.content for step in memory.steps)]),
        evidence_refs=data.brief.top_evidence_refs,
        is_imported=imported is not None,
    )
    # An assumption may have been refuted after this version, and after the brief was published.
    data = replace(data, brief=replace(data.brief, refuted=refuted_assumptions(verdict)))
    prompt = to_context_prompt(data.brief, level, budget)
    newer = reasoning["version"] - reasoning["asked_version"]
    own = (reasoning["author"], reasoning["updated_ms"], verdict, newer, data.prose, data.prose_missing)
    return ReceivedBrief(data.brief, memory, prompt, answer, domain, is_published, *own, imported, rejected)


@lru_cache(briefs_kept_max)
def _compressed(
    canonical: bytes, level: TransferLevel, budget: int | None, context: str | None, domain: str | None
) -> Brief:
    """Return the brief of the graph with these bytes; cached, because a graph of 2,000 steps takes a second."""
    return compress(read_graph(canonical), level, budget, context=context, domain=domain)


@lru_cache(briefs_kept_max)
def _problems(packed: bytes, canonical: bytes, domain: str | None) -> list[CertificateProblem]:
    """Return the differences between a published brief and the graph with these bytes; cached like ``_compressed``."""
    return check_certificate(read_msgpack(packed, Brief), read_graph(canonical), domain=domain)


def published(
    view: Ask, level: TransferLevel, memory: ReasoningMemory, domain: str
) -> tuple[_BriefData | None, RejectedBrief | None]:
    """Return the published brief of a level, or the rejection of a wrong one; neither if none can be used."""
    # Search by the graph's own ref: its id may have a newer graph by now, whose brief would not match this one.
    ref = compute_reasoning_ref(memory)
    answer = find_answer(view, "briefs.best", {"id": ref, "level": level.value}, _BriefAnswer)
    if answer is None:
        return None, None
    brief, prose = answer.data.brief, answer.data.prose
    packed, canonical = msgspec.msgpack.encode(brief), canonical_json(memory)
    problems = _problems(packed, canonical, domain or None)
    if [problem.field for problem in problems] == ["tags"]:
        # The same graph may also have been recorded and briefed under another domain.
        domains = view("snapshots.domains", {"reasoning_ref": ref})["domains"]
        tried = (_problems(packed, canonical, other or None) for other in domains)
        problems = min(tried, key=len, default=problems)
    if prose is not None and not problems and not holds(prose, memory):
        problems = [CertificateProblem("prose", None, "Its sentences or their fidelity do not match the graph.")]
    if problems:
        return None, RejectedBrief(answer.event_id, answer.author, problems)
    # A brief for another budget, or counted by another tokenizer, is genuine, but it cannot be checked here.
    usable = brief.level == level.value and brief.budget == LEVEL_TOKENS[level][1] and is_comparable(brief)
    return (answer.data if usable else None), None


def fetch(view: Ask, ref: str, *, have: ReasoningMemory | None = None) -> FetchedGraph:
    """Return the full graph of a reasoning with a recomputed hash; parts that ``have`` contains are not sent again.

    Raises Refused: ``NOT_FOUND`` (also if the ledger does not know ``have``) or ``REF_AMBIGUOUS``;
    ``VERSION_MISMATCH`` if a delta for another base than ``have`` was sent. Corrupted: ``VERIFICATION_FAILED`` if
    the graph does not match the reference.
    """
    base = None if have is None else compute_reasoning_ref(have)
    arguments = {"id": ref} if base is None else {"id": ref, "have": base}
    answer = formed(view("reasoning.fetch", arguments), ReasoningPayload)
    canonical = canonical_json(read_payload(answer.sent_as, answer.payload, have))
    computed = "sha256:" + hashlib.sha256(canonical).hexdigest()
    bounds = prefix_range(ref, "sha256")
    if ref in {answer.reasoning_id, f"reasoning/{answer.reasoning_id}"} and not is_whole_ref(ref):
        bounds = None
    if computed != answer.ref or (bounds is not None and not bounds[0] <= computed < bounds[1]):
        wanted = answer.ref if bounds is None else ref
        raise Corrupted("VERIFICATION_FAILED", f"the graph hashes to {computed}, not {wanted}", ref=wanted)
    memory, _ = memory_from_dict(msgspec.json.decode(canonical))
    used = None if answer.sent_as == "full" else base
    sent = GraphTransfer(
        answer.sent_as, used, measure_payload(answer.payload), measure_payload(write_full(memory)), answer.sizes
    )
    return FetchedGraph(computed, memory, canonical.decode(), sent)


class GraphCache:
    """A cache of fetched graphs by their refs, so that only a delta must be fetched for their next versions.

    ``cache/graphs/HEX.json`` holds the bytes whose SHA-256 is HEX; they are hashed again when they are read, so a
    changed file is ignored. Beyond ``graphs_cached_max`` the oldest are deleted; all of them may be deleted any time.
    """

    def __init__(self, home: Path) -> None:
        """Store graphs below the ledger's folder ``home``, here or on a remote agent's machine."""
        self._folder = home / "cache" / "graphs"

    def find(self, ref: str) -> ReasoningMemory | None:
        """Return the graph of a ref, or of a prefix that fits only one graph; None if it is not cached."""
        bounds = prefix_range(ref, "sha256")
        files = [] if bounds is None else list(self._folder.glob(f"{bounds[0].removeprefix('sha256:')}*.json"))
        if len(files) != 1:
            return None
        try:
            text = files[0].read_bytes()
            return read_graph(text) if hashlib.sha256(text).hexdigest() == files[0].stem else None
        except (OSError, Refused):
            return None

    def keep(self, fetched: FetchedGraph) -> bool:
        """Store a fetched graph; return whether it could be written."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A crash here leaves a file without a graph's name, which is deleted once it is the oldest.
            with replacing(self._folder / f"{fetched.ref.removeprefix('sha256:')}.json") as file:
                file.write(fetched.canonical.encode())
            entries = sorted(os.scandir(self._folder), key=lambda entry: entry.stat().st_mtime, reverse=True)
            for entry in entries[graphs_cached_max:]:
                Path(entry.path).unlink(missing_ok=True)
        except OSError:
            return False
        return True


def find_base(view: Ask, cache: GraphCache, have: str | None, file: Path | None) -> BaseGraph:
    """Return the version that the receiver has: from a file, from the cache, or fetched in full now; empty for None."""
    if file is not None:
        memory = read_graph_file(file)
        ref = compute_reasoning_ref(memory)
        bounds = (ref, ref + "g") if have is None else prefix_range(have, "sha256")
        if bounds is None or not bounds[0] <= ref < bounds[1]:
            raise Refused("VERSION_MISMATCH", f"{file} holds {ref}, not {have}", held=ref, wanted=have)
        return BaseGraph(memory, "file")
    if have is None:
        return BaseGraph()
    if (cached := cache.find(have)) is not None:
        return BaseGraph(cached, "cache")
    fetched = fetch(view, have)
    cache.keep(fetched)
    return BaseGraph(fetched.memory, "ledger", fetched.sent.transferred)


def read_graph_file(path: Path) -> ReasoningMemory:
    """Return the graph in a file, as `deed reasoning fetch` prints it."""
    try:
        with path.open("rb") as file:
            text = file.read(graph_size_max_bytes + 1)
    except OSError as error:
        raise Refused("NOT_FOUND", f"{path} cannot be read: {error.strerror}", path=str(path)) from error
    if len(text) > graph_size_max_bytes:
        raise Refused("TOO_LARGE", f"{path} is larger than {graph_size_max_bytes} bytes", path=str(path))
    return read_graph(text)


def read_graph(text: bytes) -> ReasoningMemory:
    """Return the graph that its canonical bytes describe."""
    memory, unknown = memory_from_dict(check_strict(text))
    if unknown:
        raise Refused(
            "UNKNOWN_FIELD", f"a graph does not have the field {', '.join(unknown)}", field=next(iter(unknown))
        )
    return memory


class Omissions(Answer, frozen=True, kw_only=True):
    """The parts of a graph that a brief leaves out: steps by number, and sections of the prompt; and the cut parts."""

    steps: list[int]
    sections: list[str]
    shortened: list[str]


class DescribedBrief(Answer, frozen=True, kw_only=True, rename={"budget_needed_for_090": "budget_needed_for_0.90"}):
    """A checked brief: its ``prompt`` and tokens, its measured ``fidelity`` (0 to 1), and the parts that it lacks.

    The other fields are those of ``Prompt``, ``ReceivedBrief`` and ``Brief``. ``fetch_full``: the brief is not enough,
    by the rule ``rule_fired``. ``is_concluded`` says whether the graph has a conclusion yet, ``evidence_missing`` how
    many of its references named nothing when their author cited them.
    """

    prompt: Untrusted
    expanded: Untrusted
    tokens: int
    exact: bool
    tokenizer: str
    level: str
    budget: int
    reasoning_ref: str
    fidelity: float
    parts: Fidelity
    dropped: Omissions
    budget_needed_for_090: int | None
    published: bool
    rejected: RejectedBrief | None
    imported: dict[str, Any] | None
    verdict: LatestVerdict
    newer: int
    fetch_full: bool
    rule_fired: FetchRule | None
    not_assessed: list[str]
    brief: Brief
    prose: Prose | None
    prose_missing: str
    is_concluded: bool
    evidence_missing: int


def described(received: ReceivedBrief) -> DescribedBrief:
    """Return a received brief as every interface shows it."""
    prompt, brief = received.prompt, received.brief
    return DescribedBrief(
        prompt=prompt.prompt,
        expanded=prompt.expanded,
        tokens=prompt.tokens,
        exact=prompt.exact,
        tokenizer=prompt.tokenizer,
        level=prompt.level,
        budget=prompt.budget,
        reasoning_ref=brief.reasoning_ref,
        fidelity=brief.fidelity.value,
        parts=brief.fidelity,
        dropped=Omissions(steps=brief.dropped_steps, sections=prompt.dropped, shortened=prompt.shortened),
        budget_needed_for_090=brief.budget_needed_for_090,
        published=received.is_published,
        rejected=received.rejected,
        imported=received.imported,
        verdict=received.verdict,
        newer=received.newer,
        fetch_full=received.answer.fetch,
        rule_fired=received.answer.rule,
        not_assessed=received.answer.not_assessed,
        brief=brief,
        prose=received.prose,
        prose_missing=received.prose_missing,
        is_concluded=bool(received.memory.conclusion.strip()),
        evidence_missing=evidence_missing(received.memory),
    )


def evidence_missing_text(missing: int) -> str:
    """Return a sentence on the number of ``evidence_missing``.

    >>> evidence_missing_text(2)
    '2 references of its evidence named nothing when its author cited them'
    """
    them = "it" if missing == 1 else "them"
    return f"{counted(missing, 'reference')} of its evidence named nothing when its author cited {them}"


def evidence_missing(memory: ReasoningMemory) -> int:
    """Return how many references of a graph named nothing when their author cited them."""
    digests = (digest for step in memory.steps for _, digest in citations_of(step))
    return sum(digest == MISSING for digest in digests)


def read_verdict(view: Ask, ref: str) -> LatestVerdict:
    """Return the verdict on a version. Raises Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``."""
    verdict = formed(view("validations.latest", {"id": ref}), LatestVerdict)
    # The decision rests on several answers, and each has a head of its own: so no single ``as_of`` is right.
    return msgspec.structs.replace(verdict, as_of=msgspec.UNSET)


def refuted_assumptions(verdict: LatestVerdict) -> list[RefutedAssumption]:
    """Return the refuted assumptions of a verdict as a brief has them."""
    return [
        RefutedAssumption(**{name: getattr(each, name) for name in RefutedAssumption.__struct_fields__})
        for each in verdict.refuted
    ]


def find_answer(view: Ask, query: str, arguments: dict[str, Any], form: type[T]) -> T | None:
    """Return the answer of a view as its type; None if it refuses with ``NOT_FOUND``."""
    answer = or_none(view, query, arguments)
    return None if answer is None else formed(answer, form)
