"""Decides how far a receiver may act on a snapshot or a reasoning, in one call.

    no rule fires                           → ``act`` on the prompt
    a rule fires, the graph is fetched, and
      another agent than its author
      validated it, nobody found it wrong   → ``act_on_full`` on the graph
    anything else                           → ``human_review_required``, and a signed request that a human answers

- The receiver trusts nobody: a fetched graph hashes to its ref, and a snapshot is compared with that graph before any
  rule reads it (``receive_snapshot``).
- The rules read the fidelity of the level that is sent, the evidence of the snapshot and of its facts, and the riskier
  of the snapshot's and the reasoning's domains: so the author of a short version cannot avoid a rule.
- The newest report of each independent validator counts (``validations.latest``), and one negative report blocks. A
  refuted assumption on which the conclusion rests blocks, too, even if it was refuted after the cited version. A
  redaction blocks as well: nobody can check a graph without its texts, so only a human can allow acting on it. If the
  receiver's own validation fails, a rule fires. If it passes, it is reported, but does not count as a proof.
- The id of a request is made of the asker, the subject, the task, the names of the reasons and the reports considered:
  asking again, at another level or with other numbers, finds the existing request.
- Another agent who reached the same conclusion is named in the reasons, beside the human, and opens no gate: the
  receiver may act on that reasoning, by its own gate (``validations.rederived`` says why).
- A human's answer is shown and never becomes ``act_on_full``, which needs a validation. ``may_act`` considers both.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from deedbook.consumers.reasoning.compressor.transfer import (
    fetch,
    find_answer,
    read_verdict,
    refuted_assumptions,
)
from deedbook.consumers.reasoning.snapshots.take import receive_snapshot
from deedbook.consumers.reasoning.validator.publication import validate_ref
from deedbook.consumers.sdk.text import counted, cut
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.client.local import now_ms
from deedbook.ledger.errors import Refused, or_none
from deedbook.ledger.events.review import ReviewRequested
from deedbook.ledger.format.codec import encode_canonical
from deedbook.projections.briefs import gates
from deedbook.projections.briefs.prompt import Prompt, TransferLevel, short_ref
from deedbook.projections.briefs.text import one_line
from deedbook.projections.reasoning.memory import ReasoningMemory
from deedbook.projections.snapshots.snapshot import EnhancedEpistemicSnapshot, to_context_prompt
from deedbook.projections.validations.answers import LatestVerdict, Outcome, Rederivation, Voice
from deedbook.projections.validations.queries import evidence_summary

if TYPE_CHECKING:
    from deedbook.consumers.reasoning.validator.report import ValidationReport
    from deedbook.consumers.reasoning.validator.trees import Tree

Action: TypeAlias = Literal["act", "act_on_full", "human_review_required"]

reasons_max: Final = 20
_reason_chars_max: Final = 2000
_task_chars_max: Final = 4000
_id_digits: Final = 16
_ids_max: Final = 8
_OWN: Final = "own_validation"


class Review(msgspec.Struct, frozen=True):
    """A request to a human and, once given, the answer."""

    id: str
    status: str
    author: str
    question: str
    rule: str
    reasoning_ref: str | None
    requested_index: int
    verdict: str | None = None
    comment: str = ""
    answered_by: str | None = None
    compromised: int | None = None


class Decision(msgspec.Struct, frozen=True):
    """The action that the receiver may take, the rule that fired (None for ``act``), the level sent and its gate.

    ``graph`` is the full reasoning if it was fetched. ``verdict`` is the validators' verdict on the reasoning
    (None if this ledger lacks the reasoning). ``validation`` is the report on which ``act_on_full`` relies. ``own`` is
    the report of the receiver's own validation. ``review`` is the request to a human; with ``human_review_required``,
    None means that nobody signed a request.
    ``is_imported``: only importers recorded this reasoning, and nobody here claims it as their own.
    """

    action: Action
    rule: gates.FetchRule | None
    level: str
    gate: gates.GateAnswer
    reasons: list[str]
    answer: gates.FetchAnswer
    prompt: Prompt
    snapshot: EnhancedEpistemicSnapshot
    verdict: LatestVerdict | None = None
    graph: ReasoningMemory | None = None
    validation: Voice | None = None
    review: Review | None = None
    own: ValidationReport | None = None
    is_imported: bool = False

    @property
    def may_act(self) -> bool:
        """Whether the gate, or a human's answer, lets the receiver act."""
        return self.action != "human_review_required" or (self.review is not None and self.review.verdict == "approved")


def act_on(
    view: Ask,
    subject: EnhancedEpistemicSnapshot | str,
    *,
    author: Author | None = None,
    asker: str | None = None,
    level: TransferLevel | None = None,
    task: str | None = None,
    vectors: Mapping[str, float | None] | None = None,
    tree: Tree | None = None,
    fidelity: float | None = None,
    clock_ms: Callable[[], int] = now_ms,
) -> Decision:
    """Return the decision on a snapshot (taken, received, or its id), or on a reasoning (its id or ref).

    - ``author`` signs the request to a human, if one is needed.
    - ``asker`` replaces ``author`` if only the name is known. An earlier request of this agent is found, with its
      answer, and nothing is signed.
    - ``level`` is the level to send (default: the lowest level that passes its gate).
    - ``task`` is the task of the receiver.
    - ``vectors`` replace the vectors of the snapshot.
    - ``tree`` has the files against which the receiver validates the fetched graph (default: no such validation).
    - ``fidelity`` is the fidelity of the received text (default: the snapshot's fidelity for the level).

    Raises Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``; the codes with which the ledger refuses the request. Corrupted:
    ``VERIFICATION_FAILED`` if a graph, a brief or an answer is not what it claims to be.
    """
    snapshot = receive_snapshot(view, subject) if isinstance(subject, str) else subject
    ref = snapshot.reasoning_ref
    verdict = None if ref is None else or_none(read_verdict, view, ref)
    if verdict is not None:
        snapshot = dataclasses.replace(snapshot, refuted=refuted_assumptions(verdict))
    gate = _gate(snapshot, level, verdict)
    sent = TransferLevel(gate.level)
    is_imported = _is_imported(view, snapshot)
    texts = (text for brief in snapshot.briefs for fact in brief.facts for text in fact.evidence)
    evidence = list(dict.fromkeys([*snapshot.evidence_refs, *snapshot.top_evidence_refs, *texts]))
    answer = gates.should_fetch_full_reasoning(
        snapshot,
        fidelity=_fidelity_at(snapshot, sent) if fidelity is None else fidelity,
        domain=_riskier_domain(view, snapshot),
        vectors=vectors,
        evidence_refs=evidence,
        task=task,
        own_task="" if task is None or verdict is None else fetch(view, verdict.reasoning_ref).memory.task,
        is_imported=is_imported,
        verdict=verdict,
    )
    own = None
    if tree is not None and verdict is not None:
        own = validate_ref(view, verdict.reasoning_ref, tree=tree).report
    rule = answer.rule
    if rule is None and own is not None and (fault := _fault_of(own)):
        rule = gates.FetchRule(_OWN, fault)
    versions = [] if verdict is None else view("reasoning.show", {"id": verdict.reasoning_ref})["versions"]
    for entry in (
        [version["compromised"] for version in versions if "compromised" in version][:1] if rule is None else ()
    ):
        rule = gates.FetchRule("suspect_key", f"A key that signed it is compromised, says entry {entry}.")
    prompt = to_context_prompt(snapshot, sent)
    decision = Decision("act", rule, sent.value, gate, [], answer, prompt, snapshot, verdict, own=own)
    decision = replace(decision, is_imported=is_imported, reasons=[] if own is None else [_summary(own)])
    return decision if rule is None else _restricted(view, decision, author or asker, task, clock_ms())


def _restricted(view: Ask, decision: Decision, asker: Author | str | None, task: str | None, now_ms: int) -> Decision:
    """Return the decision after a rule fired: act on the graph if it was validated, else ask a human."""
    verdict, own, rule = decision.verdict, decision.own, decision.rule
    notes = [*decision.reasons, *([] if verdict is None else map(rederived_sentence, verdict.rederived))]
    assert rule is not None  # noqa: S101 - a rule fired
    ref, passing = decision.snapshot.reasoning_ref, None
    if ref is None:
        problems = ["There is no reasoning that somebody could validate."]
    elif verdict is None:
        problems = [f"The full reasoning {short_ref(ref)} is not in this ledger."]
    else:
        passing, problems = gates.check_verdict(verdict, now_ms)
        decision = decision if verdict.erased else replace(decision, graph=fetch(view, ref).memory)
    if not problems and passing is not None and (own is None or not _fault_of(own)):
        voucher = f"{passing.by} validated the reasoning (entry {passing.event_index}): {passing.counted}."
        return replace(decision, action="act_on_full", reasons=[rule.reason, voucher, *notes], validation=passing)
    notes += [] if own is None else [f"The receiver's own validation: {issue.message}" for issue in own.issues]
    reasons = list(dict.fromkeys([rule.reason, *problems, *notes]))
    request = _request(decision, reasons, verdict, task)
    causes = [event_id for event_id in (decision.snapshot.event_id, *request.validations) if event_id]
    review = None if asker is None else _ask_human(asker, view, request, _reason_names(decision), causes)
    if review is not None and review.verdict is not None:
        comment = f": {review.comment}" if review.comment else "."
        reasons.append(f"{review.answered_by}, a human, has answered: {review.verdict}{comment}")
    return replace(decision, action="human_review_required", reasons=reasons, review=review)


def rederived_sentence(other: Rederivation) -> str:
    """Return in words that another agent reached the same conclusion, and what that is worth."""
    ref = short_ref(other.reasoning_ref)
    if other.doubt:
        return f"{other.by} reached the same conclusion in {ref}, but not independently: {other.doubt}."
    return f"rederived by {other.by} in {ref}: it opens no gate here; act on it by its own (`snapshot receive {ref}`)."


def _fault_of(own: ValidationReport) -> str:
    """Return why the receiver's own validation forbids to act; empty if it does not."""
    if not own.passed:
        return "The receiver's own validation failed."
    unlinked = own.counts().inferences_unlinked
    return f"The receiver's own validation found {counted(unlinked, 'unlinked inference')}." if unlinked else ""


def describe(decision: Decision) -> dict[str, Any]:
    """Return the fields of a decision as plain values."""
    snapshot, report, own = decision.snapshot, decision.validation, decision.own
    graph = decision.graph if decision.may_act else None
    plain: dict[str, Any] = msgspec.to_builtins(decision.prompt)
    voucher = report and {"event_index": report.event_index, "event_id": report.event_id, "author": report.by}
    names = ("rule", "gate", "reasons", "verdict", "review")
    plain |= msgspec.to_builtins({name: getattr(decision, name) for name in names})
    plain |= {"rule_fired": plain.pop("rule"), "action": decision.action, "may_act": decision.may_act}
    answer: dict[str, Any] = msgspec.to_builtins(decision.answer)
    answer.pop("rule")  # the receiver's own validation may have fired another rule
    return (
        plain
        | answer
        | {
            "snapshot_id": snapshot.snapshot_id,
            "reasoning_ref": snapshot.reasoning_ref,
            "fidelity": _fidelity_at(snapshot, TransferLevel(decision.level)),
            "imported": decision.is_imported,
            "rejected": msgspec.to_builtins(snapshot.rejected),
            "validation": voucher,
            "own_validation": None if own is None else {"passed": own.passed, "text": _summary(own)},
            "graph": None if graph is None else msgspec.to_builtins(graph.to_dict(), str_keys=True),
        }
    )


def _gate(
    snapshot: EnhancedEpistemicSnapshot, level: TransferLevel | None, verdict: LatestVerdict | None
) -> gates.GateAnswer:
    if snapshot.reasoning_ref is None:
        # There is no reasoning here, so a lower level loses nothing.
        sent = (level or TransferLevel.MINIMAL).value
        return gates.GateAnswer("passed", sent, TransferLevel.MINIMAL.value, "")
    return gates.check_level(level or gates.choose_level(snapshot.fidelities), snapshot.fidelities, verdict)


def _fidelity_at(snapshot: EnhancedEpistemicSnapshot, level: TransferLevel) -> float | None:
    """Return the fidelity at a level. FULL has the fidelity of STANDARD; an unmeasured fidelity counts as 0."""
    if snapshot.reasoning_ref is None:
        return None
    prompt_level = TransferLevel.STANDARD if level is TransferLevel.FULL else level
    return snapshot.fidelities.get(prompt_level, 0.0)


def _riskier_domain(view: Ask, snapshot: EnhancedEpistemicSnapshot) -> str:
    if snapshot.domain.strip().lower() in gates.HIGH_RISK_DOMAINS or snapshot.reasoning_ref is None:
        return snapshot.domain
    own = view("snapshots.domains", {"reasoning_ref": snapshot.reasoning_ref})["domains"]
    risky = (domain for domain in own if domain.strip().lower() in gates.HIGH_RISK_DOMAINS)
    return next(risky, snapshot.domain)


def _is_imported(view: Ask, snapshot: EnhancedEpistemicSnapshot) -> bool:
    """Return whether only importers recorded this reasoning.

    If an agent recorded the same as their own, it is not imported.
    """
    if snapshot.reasoning_ref is None:
        return False
    origins = view("reasoning.origins", {"id": snapshot.reasoning_ref})
    return bool(origins["imported"]) and not origins["own"]


def _summary(own: ValidationReport) -> str:
    counts, word = own.counts(), "passed" if own.passed else "failed"
    return f"The receiver's own validation {word}: {evidence_summary(counts, own.evidence, 'references stand')}."


def _reason_names(decision: Decision) -> list[str]:
    """Return the names of the reasons not to act. Low fidelity differs by level, so it counts only if it is alone."""
    names = {rule.name for rule in decision.answer.all_rules}
    # A human who answered before an assumption was refuted did not know of the refutation.
    grounds = [] if decision.verdict is None else decision.verdict.refuted_grounds
    names |= {f"refuted_assumption {refuted.event_index}" for refuted in grounds}
    if decision.own is not None and _fault_of(decision.own):
        names.add(_OWN)
    return sorted(names - {gates.LOW_FIDELITY} or names)


def _request(
    decision: Decision, reasons: list[str], verdict: LatestVerdict | None, task: str | None
) -> ReviewRequested:
    snapshot, rule = decision.snapshot, decision.rule
    assert rule is not None  # noqa: S101 - a rule fired
    ref = snapshot.reasoning_ref
    about = f"snapshot {snapshot.snapshot_id}" if ref is None else f"reasoning {short_ref(ref)}"
    concluded = f": {one_line(snapshot.conclusion)}" if snapshot.conclusion else ""
    outcomes: tuple[Outcome, ...] = ("failed", "passed")
    validations = [] if verdict is None else [voice.event_id for kind in outcomes for voice in verdict.voices(kind)]
    return ReviewRequested(
        question=cut(f"May {about} be acted on{concluded}", _reason_chars_max - 1) + "?",
        rule=rule.name,
        reasons=[cut(one_line(reason), _reason_chars_max) for reason in reasons[:reasons_max]],
        task=cut((task or "").strip(), _task_chars_max),
        reasoning_ref=ref,
        snapshot_id=snapshot.snapshot_id,
        validations=validations[:reasons_max],
    )


def _ask_human(
    asker: Author | str, view: Ask, request: ReviewRequested, reasons: list[str], causes: list[str]
) -> Review | None:
    """Return the review of a question: the existing one, or one appended now if an author can sign it.

    If we crash after the request was appended, the next call finds it by its id. Anybody may take any id: if another
    agent opened the stream with our id, the next number is tried.
    """
    asker_name = asker if isinstance(asker, str) else asker.name
    for number in range(_ids_max):
        name = review_id(asker_name, request, reasons, number)
        review = find_answer(view, "reviews.show", {"id": name}, Review)
        if review is None:
            if isinstance(asker, str):
                return None
            try:
                asker.emit(Draft(stream=f"review/{name}", data=request, causes=causes))
            except Refused as refusal:
                # After our query, another process of ours or a stranger opened the stream.
                if refusal.code != "TRANSITION_NOT_ALLOWED":
                    raise
            review = find_answer(view, "reviews.show", {"id": name}, Review)
        # If the answer may have been signed with a stolen key, the human is asked again.
        is_own = review is not None and review.author == asker_name and review.compromised is None
        if review is not None and is_own and review.reasoning_ref == request.reasoning_ref:
            return review
    raise Refused("TRANSITION_NOT_ALLOWED", f"other agents took every id for the review of {request.question}")


def review_id(name: str, request: ReviewRequested, reasons: list[str], number: int = 0) -> str:
    """Return the id of ``name``'s request for these reasons."""
    same = [name, request.reasoning_ref, request.snapshot_id, request.task, reasons, request.validations, number]
    return f"{name}-{hashlib.sha256(encode_canonical(same)).hexdigest()[:_id_digits]}"
