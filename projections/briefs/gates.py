"""The rules for fetching the full graph if a brief is not enough, and the trust gates of levels.

Missing information never disables a rule. If no domain is named, the words of the reasoning decide it. A snapshot
without an assessed uncertainty or impact asks for the full graph, and so does a bare reasoning without domain, vectors
and validation. NaN is neither below nor above any limit, so the comparisons are written such that NaN makes a rule
fire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.brief import RefutedAssumption
from deedbook.ledger.format.chinese import simplified
from deedbook.projections.briefs.embedding import Embedder, Embedding, best_embedder, cosine_similarity, embed_text
from deedbook.projections.briefs.fidelity import value_digits
from deedbook.projections.briefs.prompt import TransferLevel, fidelity_text
from deedbook.projections.briefs.text import content_words, one_line, stem
from deedbook.projections.snapshots.snapshot import EnhancedEpistemicSnapshot

if TYPE_CHECKING:
    from deedbook.projections.validations.answers import LatestVerdict, Refuted, Voice

MIN_FIDELITY_FOR_MINIMAL: Final = 0.90
MIN_FIDELITY_FOR_STANDARD: Final = 0.75
MAX_INFORMATION_LOSS_TOLERANCE: Final = 0.15

THRESHOLDS_TO_FETCH: Final = {"UNCERTAINTY": 0.5, "IMPACT": 0.7}
LOW_FIDELITY: Final = "low_fidelity"
HIGH_RISK_DOMAINS: Final = frozenset({"medical", "legal", "security"})
_NOT_VALIDATED: Final = "No validation by another than its author has passed."
verdict_age_max_s: Final = 30 * 86_400
CRITICAL_EVIDENCE_WORDS: Final = ("secret", "credential")
_DOMAIN_TERMS: Final = {
    "security": "secret credential password vulnerability exploit encryption jwt csrf xss malware cve tls 密钥 密码"
    " 漏洞 加密 凭证 攻击",
    "medical": "patient medication dosage clinical surgery tumor 患者 病人 药物 剂量 手术 诊断",
    "legal": "lawsuit plaintiff defendant litigation attorney statute gdpr 诉讼 被告 原告 法律 律师 合规",
}


class FetchRule(msgspec.Struct, frozen=True):
    """The rule that asks for the full graph, and its observation."""

    name: str
    reason: str


class FetchAnswer(msgspec.Struct, frozen=True):
    """Whether to fetch: the rule that fired (or None), all rules that would fire, and the vectors that nobody assessed.

    True if a rule fired. ``similarity`` to the receiver's task is None without a task, or for the reason in
    ``not_compared``.
    """

    rule: FetchRule | None
    all_rules: list[FetchRule]
    not_assessed: list[str]
    similarity: float | None = None
    not_compared: str = ""

    @property
    def fetch(self) -> bool:
        """Whether any rule fired."""
        return self.rule is not None

    def __bool__(self) -> bool:
        return self.fetch


class GateAnswer(msgspec.Struct, frozen=True):
    """Whether a level is reliable: ``gate`` is passed or failed, with the level that would pass ("": none)."""

    gate: str
    level: str
    level_that_passes: str
    reason: str


def should_fetch_full_reasoning(
    snapshot: EnhancedEpistemicSnapshot | None = None,
    *,
    fidelity: float | None = None,
    domain: str | None = None,
    text: str = "",
    vectors: Mapping[str, float | None] | None = None,
    evidence_refs: Iterable[str] = (),
    embedding: Embedding | None = None,
    task: str | None = None,
    own_task: str = "",
    is_imported: bool = False,
    verdict: LatestVerdict | None = None,
) -> FetchAnswer:
    """Return the rules that ask for the full graph; vector names and domains ignore case.

    Pass a ``snapshot``, or the values that the rules read from one; values beside a snapshot replace those in it.
    ``text`` is the text of the reasoning, read if no domain is named. ``task`` is the receiver's task in words,
    ``own_task`` that of the reasoning. ``is_imported`` says that only importers have it; ``verdict`` is that of its
    validators.
    """
    if snapshot is not None:
        fidelity = snapshot.reasoning_fidelity if fidelity is None else fidelity
        domain = snapshot.domain if domain is None else domain
        vectors = snapshot.vectors if vectors is None else vectors
        text = text or f"{snapshot.context_summary}\n{snapshot.conclusion}\n{snapshot.reasoning_brief}"
        evidence_refs = tuple(evidence_refs) or snapshot.evidence_refs
        embedding = snapshot.reasoning_embedding if embedding is None else embedding
    assessed = {name.upper(): value for name, value in (vectors or {}).items() if value is not None}
    similarity, not_compared = _similarity(embedding, task, own_task)
    not_assessed = [name for name in THRESHOLDS_TO_FETCH if name not in assessed]
    own = [] if snapshot is None else [each for each in snapshot.refuted if each.is_ground]
    refuted: Sequence[Refuted | RefutedAssumption] = own if verdict is None else verdict.refuted_grounds
    fired = [FetchRule("redacted", gone)] if (gone := _redacted(verdict)) else []
    fired += [FetchRule("refuted_assumption", refuted_reason(refuted[0]))] if refuted else []
    fired += [FetchRule("found_wrong", wrong)] if (wrong := _found_wrong(verdict)) else []
    fired += _rules(domain, assessed, fidelity, evidence_refs, similarity, is_imported=is_imported)
    if not (domain or "").strip() and (implied := domain_implied(text)):
        fired.append(FetchRule("high_risk_domain", f"No domain is named, and its words imply {implied}."))
    if not_assessed and snapshot is not None and snapshot.reasoning_ref is not None:
        # Only the author of a taken snapshot assesses vectors. For a snapshot made on demand, a domain or a validation
        # is enough.
        is_validated = verdict is not None and verdict.outcome == "passed"
        is_known = bool((domain or "").strip()) or is_validated or len(not_assessed) < len(THRESHOLDS_TO_FETCH)
        if snapshot.snapshot_id or not is_known:
            fired.append(FetchRule("not_assessed", f"Nobody assessed {' or '.join(not_assessed)}."))
    return FetchAnswer(
        rule=fired[0] if fired else None,
        all_rules=fired,
        not_assessed=not_assessed,
        similarity=None if similarity is None else similarity[0],
        not_compared=not_compared,
    )


def domain_implied(text: str) -> str:
    """Return the high-risk domain that a word of a text implies; empty for none."""
    stems = set(content_words(simplified(text)))
    return next(
        (domain for domain, terms in _DOMAIN_TERMS.items() if not stems.isdisjoint(map(stem, terms.split()))), ""
    )


def is_critical_evidence(ref: str) -> bool:
    """Return whether a reference names a secret or credential, in any case."""
    return any(word in ref.lower() for word in CRITICAL_EVIDENCE_WORDS)


def check_level(
    level: TransferLevel, fidelities: Mapping[TransferLevel, float], verdict: LatestVerdict | None = None
) -> GateAnswer:
    """Return whether a level passes its gate, and the lowest level that does.

    If a reasoning was found wrong or redacted, or rests on a refuted assumption, none of its levels passes.
    """
    if wrong := _wrong(verdict):
        return GateAnswer("failed", level.value, "", wrong)
    passing = choose_level(fidelities)
    reason = _gate_problem(level, fidelities)
    return GateAnswer("failed" if reason else "passed", level.value, passing.value, reason)


def choose_level(fidelities: Mapping[TransferLevel, float]) -> TransferLevel:
    """Return the lowest level that passes its gate; FULL always does, because it leads to the graph."""
    for level in (TransferLevel.MINIMAL, TransferLevel.STANDARD):
        if level in fidelities and not _gate_problem(level, fidelities):
            return level
    return TransferLevel.FULL


def check_verdict(verdict: LatestVerdict | None, now_ms: int) -> tuple[Voice | None, list[str]]:
    """Return the passing report on which a graph may be acted on, or the reasons against it, in sentences.

    The sentences name entries and no ages. So equal citations always give the same request to a human.
    """
    if verdict is None:
        return None, [_NOT_VALIDATED]
    if gone := _redacted(verdict):
        return None, [gone]
    against = list(map(refuted_reason, verdict.refuted_grounds))
    if verdict.latest is None:
        return None, [*against, _NOT_VALIDATED]
    against += [
        f"{voice.by} found it wrong (entry {voice.event_index}): {'; '.join(voice.problems)}"
        for voice in verdict.voices("failed")
    ]
    passing = next(iter(verdict.voices("passed")), None)
    if passing is None:
        last = verdict.latest
        return None, against or [f"{last.by} could not check all of it (entry {last.event_index}): {last.counted}."]
    if now_ms - passing.at_ms > 1000 * verdict_age_max_s:
        against.append(f"The validation by {passing.by} (entry {passing.event_index}) is too old.")
    return passing, against


def refuted_reason(refuted: Refuted | RefutedAssumption) -> str:
    """Return a sentence on a refuted assumption on which the conclusion rests."""
    how = one_line(refuted.how).rstrip(".。")
    entry = "" if isinstance(refuted, RefutedAssumption) else f" (entry {refuted.event_index})"
    return f"{refuted.by} refuted the assumption of step {refuted.step}{entry}: {how}."


def _wrong(verdict: LatestVerdict | None) -> str:
    refuted = [] if verdict is None else verdict.refuted_grounds
    return _redacted(verdict) or (refuted_reason(refuted[0]) if refuted else _found_wrong(verdict))


def _redacted(verdict: LatestVerdict | None) -> str:
    erased = [] if verdict is None else verdict.erased
    return "".join(f"Entry {index} of it was redacted: nobody can check it any more." for index in erased[:1])


def _found_wrong(verdict: LatestVerdict | None) -> str:
    failed = [] if verdict is None else verdict.voices("failed")
    return "".join(f"{voice.by} found it wrong (entry {voice.event_index}): {voice.counted}." for voice in failed[:1])


def _rules(
    domain: str | None,
    assessed: Mapping[str, float],
    fidelity: float | None,
    evidence_refs: Iterable[str],
    similarity: tuple[float, Embedder] | None,
    *,
    is_imported: bool,
) -> Iterator[FetchRule]:
    if domain is not None and domain.strip().lower() in HIGH_RISK_DOMAINS:
        yield FetchRule("high_risk_domain", f"The domain is {domain.strip().lower()}.")
    for name, threshold in THRESHOLDS_TO_FETCH.items():
        if name in assessed and not assessed[name] < threshold:
            yield FetchRule(f"high_{name.lower()}", f"{name} is {assessed[name]:.2f}, at least {threshold}.")
    if fidelity is not None and not fidelity >= MIN_FIDELITY_FOR_STANDARD:
        yield FetchRule(LOW_FIDELITY, f"The fidelity is {fidelity_text(fidelity)}, below {MIN_FIDELITY_FOR_STANDARD}.")
    critical = next(filter(is_critical_evidence, evidence_refs), None)
    if critical is not None:
        yield FetchRule("critical_evidence", f"The evidence names a secret or credential: {critical}")
    if similarity is not None and not similarity[0] <= (by := similarity[1]).threshold:
        reason = f"The reasoning is about the task: similarity {similarity[0]:.2f}, above {by.threshold} by {by.name}."
        yield FetchRule("task_similarity", reason)
    if is_imported:
        yield FetchRule("imported", "The reasoning was imported: nobody here vouches for it.")


def _similarity(
    embedding: Embedding | None, task: str | None, own_task: str
) -> tuple[tuple[float, Embedder] | None, str]:
    """Return how near the reasoning's brief or own task is to the receiver's task, or why that is unknown.

    The threshold is that of the embedder here: the signer of a vector may write any threshold beside it.
    """
    if task is None or not task.strip():
        return None, ""
    vectors = [embed_text(own_task, best_embedder())] if own_task.strip() else []
    near, missing = [], ""
    for vector in [*vectors, *([] if embedding is None else [embedding])]:
        try:
            task_vector = embed_text(task, vector.embedder)
            near.append((cosine_similarity(vector, task_vector), task_vector.embedder))
        except Refused as refusal:
            missing = refusal.message
    return max(near, key=lambda candidate: candidate[0] - candidate[1].threshold, default=None), missing


def _gate_problem(level: TransferLevel, fidelities: Mapping[TransferLevel, float]) -> str:
    if level is TransferLevel.FULL:
        return ""
    minimum = MIN_FIDELITY_FOR_MINIMAL if level is TransferLevel.MINIMAL else MIN_FIDELITY_FOR_STANDARD
    own = fidelities.get(level)
    if own is None:
        return f"The fidelity for {level.value} was not measured."
    if not own >= minimum:
        return f"The fidelity is {fidelity_text(own)}, below {minimum} for {level.value}."
    above = TransferLevel.STANDARD if level is TransferLevel.MINIMAL else TransferLevel.FULL
    # Only measured levels are compared: FULL adds nothing to STANDARD unless it has the graph inline.
    loss = fidelities.get(above, own) - own
    if round(loss, value_digits) > MAX_INFORMATION_LOSS_TOLERANCE:
        return f"{level.value} loses {loss:.2f} against {above.value}, more than {MAX_INFORMATION_LOSS_TOLERANCE}."
    return ""
