"""The seed's runtime flow as one call: what a receiver may do with a snapshot or a reasoning (001, "Runtime Flow").

    no rule fires                           → ``act`` on the prompt
    a rule fires, the graph is fetched, and
      somebody else than its author
      validated it, nobody found it wrong   → ``act_on_full`` on the graph
    anything else                           → ``human_review_required``, and a signed request that a human answers

Rules this module keeps:

- the receiver trusts nobody: a fetched graph hashes to its ref, and each brief of the snapshot is, byte for byte and in
  its fidelity, what that graph says (``VERIFICATION_FAILED`` otherwise);
- the rules read the fidelity of the level that is sent, the evidence of the snapshot and of its facts, and the domain
  that is more at risk of the snapshot's and the reasoning's own: the one who shortens cannot talk a rule away;
- what was only imported is never acted on by the prompt alone (``imported``), whatever its fidelity;
- a human's answer is shown and never turned into ``act_on_full``: that needs a validation. ``may_act`` says whether
  the receiver may go on, by the gate's word or by the human's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from consumers.reasoning.compressor.transfer import Fetched, fetch, verify_brief
from consumers.reasoning.snapshots.asking import Review, ask_human
from consumers.reasoning.snapshots.receive import receive_snapshot
from consumers.reasoning.snapshots.reports import Report, Weighed, weigh
from consumers.sdk.text import cut
from ledger.errors import Corrupted, Refused
from ledger.events.review import ReviewRequested
from projections.briefs.embedding import is_embedding_of, pack
from projections.briefs.gates import (
    HIGH_RISK_DOMAINS,
    FetchAnswer,
    FetchRule,
    GateAnswer,
    check_level,
    choose_level,
    should_fetch_full_reasoning,
)
from projections.briefs.prompt import Prompt, TransferLevel, short_ref
from projections.briefs.text import one_line
from projections.reasoning.memory import ReasoningMemory
from projections.snapshots.snapshot import EnhancedEpistemicSnapshot, to_context_prompt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from consumers.reasoning.validator.trees import Tree
    from ledger.author import Author
    from ledger.client import Ask

Action: TypeAlias = Literal["act", "act_on_full", "human_review_required"]

reasons_max: Final = 20
_reason_chars_max: Final = 2000
_task_chars_max: Final = 4000


class Decision(msgspec.Struct, frozen=True):
    """What the receiver may do, and why: the rule that fired (None for ``act``), the level sent and its gate.

    ``graph`` is the full reasoning where it was fetched, ``validation`` the report that ``act_on_full`` rests on,
    ``review`` the human's request; None there with ``human_review_required`` means that nobody signed one.
    ``is_imported``: only importers have this reasoning, and nobody here vouches for it.
    """

    action: Action
    rule: FetchRule | None
    level: str
    gate: GateAnswer
    reasons: list[str]
    answer: FetchAnswer
    prompt: Prompt
    snapshot: EnhancedEpistemicSnapshot
    graph: ReasoningMemory | None = None
    validation: Report | None = None
    review: Review | None = None
    is_imported: bool = False

    @property
    def may_act(self) -> bool:
        """Whether the gate, or the human who was asked, lets the receiver act."""
        return self.action != "human_review_required" or (self.review is not None and self.review.verdict == "approved")


def act_on(
    view: Ask,
    subject: EnhancedEpistemicSnapshot | str,
    *,
    author: Author | None = None,
    level: TransferLevel | None = None,
    task: str | None = None,
    vectors: Mapping[str, float | None] | None = None,
    tree: Tree | None = None,
) -> Decision:
    """Return the decision on a snapshot (or its id, or the id or ref of a reasoning).

    Without a ``level`` the lowest that passes its gate is sent. ``task`` is what the receiver is about to do;
    ``vectors`` replace those of the snapshot; with a ``tree`` the receiver also validates the fetched graph itself.
    ``author`` signs the request for a human, if it comes to that.

    Raises:
        Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``; the request was not admitted.
        Corrupted: ``VERIFICATION_FAILED`` when a graph, a brief or an answer is not what it claims to be.
    """
    snapshot = receive_snapshot(view, subject) if isinstance(subject, str) else subject
    _check_embedding(snapshot)
    gate = _gate(snapshot, level)
    sent = TransferLevel(gate.level)
    is_imported = _is_imported(view, snapshot)
    answer = should_fetch_full_reasoning(
        snapshot,
        fidelity=_fidelity_at(snapshot, sent),
        domain=_riskier_domain(view, snapshot),
        vectors=vectors,
        evidence_refs=_evidence_of(snapshot),
        task=task,
        is_imported=is_imported,
    )
    prompt = to_context_prompt(snapshot, sent)
    decided = Decision("act", answer.rule, sent.value, gate, [], answer, prompt, snapshot, is_imported=is_imported)
    if answer.rule is None:
        return decided
    weighed, fetched, problems = _validate(view, snapshot, tree)
    decided = replace(decided, graph=None if fetched is None else fetched.memory)
    if not problems:
        report = weighed.passing[0]
        said = f"{report.author} validated the reasoning (entry {report.event_index}): it holds."
        return replace(decided, action="act_on_full", reasons=[answer.rule.reason, said], validation=report)
    reasons = [answer.rule.reason, *problems]
    asked = _request(decided, reasons, weighed, task)
    review = None
    if author is not None:
        causes = [one for one in (snapshot.event_id, *asked.validations) if one]
        review = ask_human(author, view, asked, causes)
        if review.verdict is not None:
            comment = f": {review.comment}" if review.comment else "."
            reasons.append(f"{review.answered_by}, a human, has answered: {review.verdict}{comment}")
    return replace(decided, action="human_review_required", reasons=reasons, review=review)


def describe(decision: Decision) -> dict[str, Any]:
    """Return what a receiver wants to know of a decision, as plain values."""
    snapshot, report, review = decision.snapshot, decision.validation, decision.review
    plain: dict[str, Any] = msgspec.to_builtins(decision.prompt)
    return plain | {
        "snapshot_id": snapshot.snapshot_id,
        "reasoning_ref": snapshot.reasoning_ref,
        "fidelity": _fidelity_at(snapshot, TransferLevel(decision.level)),
        "action": decision.action,
        "may_act": decision.may_act,
        "rule_fired": msgspec.to_builtins(decision.rule),
        "all_rules": msgspec.to_builtins(decision.answer.all_rules),
        "not_assessed": decision.answer.not_assessed,
        "similarity": decision.answer.similarity,
        "not_compared": decision.answer.not_compared,
        "imported": decision.is_imported,
        "gate": msgspec.to_builtins(decision.gate),
        "reasons": decision.reasons,
        "validation": None
        if report is None
        else {"event_index": report.event_index, "event_id": report.event_id, "author": report.author},
        "review": msgspec.to_builtins(review),
    }


def _gate(snapshot: EnhancedEpistemicSnapshot, level: TransferLevel | None) -> GateAnswer:
    if snapshot.reasoning_ref is None:
        # There is no reasoning that a lower level could lose.
        sent = (level or TransferLevel.MINIMAL).value
        return GateAnswer("passed", sent, TransferLevel.MINIMAL.value, "")
    return check_level(level or choose_level(snapshot.fidelities), snapshot.fidelities)


def _fidelity_at(snapshot: EnhancedEpistemicSnapshot, level: TransferLevel) -> float | None:
    """Return the fidelity of what is sent: FULL shows what STANDARD does; unmeasured counts as nothing kept."""
    if snapshot.reasoning_ref is None:
        return None
    shown = TransferLevel.STANDARD if level is TransferLevel.FULL else level
    return snapshot.fidelities.get(shown, 0.0)


def _riskier_domain(view: Ask, snapshot: EnhancedEpistemicSnapshot) -> str:
    if snapshot.domain.strip().lower() in HIGH_RISK_DOMAINS or snapshot.reasoning_ref is None:
        return snapshot.domain
    own = view("snapshots.domains", {"reasoning_ref": snapshot.reasoning_ref})["domains"]
    risky = (domain for domain in own if domain.strip().lower() in HIGH_RISK_DOMAINS)
    return next(risky, snapshot.domain)


def _is_imported(view: Ask, snapshot: EnhancedEpistemicSnapshot) -> bool:
    """Tell whether this reasoning was only ever imported; who recorded the same as his own vouches for it."""
    if snapshot.reasoning_ref is None:
        return False
    found = view("reasoning.origins", {"ref": snapshot.reasoning_ref})
    return bool(found["imported"]) and not found["own"]


def _evidence_of(snapshot: EnhancedEpistemicSnapshot) -> list[str]:
    shown = [text for brief in snapshot.briefs for fact in brief.facts for text in fact.evidence]
    return list(dict.fromkeys([*snapshot.evidence_refs, *snapshot.top_evidence_refs, *shown]))


def _check_embedding(snapshot: EnhancedEpistemicSnapshot) -> None:
    vector = snapshot.reasoning_embedding
    if vector is not None and not is_embedding_of(pack(vector), snapshot.reasoning_brief):
        raise Corrupted("VERIFICATION_FAILED", "the snapshot's embedding is not that of its reasoning brief")


def _validate(
    view: Ask, snapshot: EnhancedEpistemicSnapshot, tree: Tree | None
) -> tuple[Weighed, Fetched | None, list[str]]:
    """Fetch the graph, compare the briefs with it, and return what speaks against acting on it (nothing: it holds)."""
    nobody = Weighed([], [])
    if snapshot.reasoning_ref is None:
        return nobody, None, ["There is no reasoning that somebody could validate."]
    try:
        fetched = fetch(view, snapshot.reasoning_ref)
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return nobody, None, [f"The full reasoning {short_ref(snapshot.reasoning_ref)} is not in this ledger."]
    for brief in snapshot.briefs:
        verify_brief(replace(brief, context=snapshot.context_summary), fetched)
    weighed = weigh(view, fetched.ref)
    problems = [] if weighed.holds else weighed.problems()
    if tree is not None:
        from consumers.reasoning.validator import ReasoningValidator  # noqa: PLC0415 - only who brings a tree needs it

        report = ReasoningValidator(tree).validate(fetched.memory)
        problems += [f"The receiver's own validation: {issue.message}" for issue in report.issues]
    return weighed, fetched, problems


def _request(decided: Decision, reasons: list[str], weighed: Weighed, task: str | None) -> ReviewRequested:
    snapshot, rule = decided.snapshot, decided.answer.rule
    assert rule is not None  # noqa: S101 - without a rule nobody is asked
    about = (
        f"snapshot {snapshot.snapshot_id}"
        if snapshot.reasoning_ref is None
        else f"reasoning {short_ref(snapshot.reasoning_ref)}"
    )
    concluded = f": {one_line(snapshot.conclusion)}" if snapshot.conclusion else ""
    validations = [report.event_id for report in (*weighed.against, *weighed.passing)]
    return ReviewRequested(
        question=cut(f"May {about} be acted on{concluded}", _reason_chars_max - 1) + "?",
        rule=rule.name,
        reasons=[cut(one_line(reason), _reason_chars_max) for reason in reasons[:reasons_max]],
        task=cut((task or "").strip(), _task_chars_max),
        reasoning_ref=snapshot.reasoning_ref,
        snapshot_id=snapshot.snapshot_id,
        validations=validations[:reasons_max],
    )
