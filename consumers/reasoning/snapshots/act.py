"""How far a receiver may act on a snapshot or a reasoning, as one call.

    no rule fires                           → ``act`` on the prompt
    a rule fires, the graph is fetched, and
      somebody else than its author
      validated it, nobody found it wrong   → ``act_on_full`` on the graph
    anything else                           → ``human_review_required``, and a signed request that a human answers

- The receiver trusts nobody: a fetched graph hashes to its ref, and what a snapshot says of its reasoning was compared
  with that graph before any rule reads it (``receive_snapshot``).
- The rules read the fidelity of the level that is sent, the evidence of the snapshot and of its facts, and the domain
  that is more at risk of the snapshot's and the reasoning's own: the one who shortens cannot talk a rule away.
- Of each independent validator the newest report counts (``validations.latest``), and one voice against is enough. A
  receiver's own validation that fails fires a rule, and one that passes is told: it is no voucher.
- A request's id is made of who asks, what about and for which task, of the names of its reasons and of the reports that
  were weighed: asking again, at another level or with other numbers, finds the request that is there.
- A human's answer is shown and never turned into ``act_on_full``: that needs a validation. ``may_act`` counts both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from deedbook.consumers.reasoning.compressor.transfer import fetch, find_answer
from deedbook.consumers.reasoning.snapshots.take import receive_snapshot
from deedbook.consumers.reasoning.validator.publication import validate_ref
from deedbook.consumers.sdk.text import cut
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.client.local import now_ms
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.review import ReviewRequested
from deedbook.ledger.format.codec import encode_canonical
from deedbook.projections.briefs import gates
from deedbook.projections.briefs.prompt import Prompt, TransferLevel, short_ref
from deedbook.projections.briefs.text import one_line
from deedbook.projections.reasoning.memory import ReasoningMemory
from deedbook.projections.snapshots.snapshot import EnhancedEpistemicSnapshot, to_context_prompt
from deedbook.projections.validations.queries import LatestVerdict, Outcome, Voice, counted_words

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
    """A request and, once a human gave it, the answer."""

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
    suspect: int | None = None


class Decision(msgspec.Struct, frozen=True):
    """What the receiver may do, and why: the rule that fired (None for ``act``), the level sent and its gate.

    ``graph`` is the full reasoning where it was fetched, ``verdict`` what its validators say last (None where it is not
    in this ledger), ``validation`` the report that ``act_on_full`` rests on, ``own`` the receiver's own run,
    ``review`` the human's request; None there with ``human_review_required`` means that nobody signed one.
    ``is_imported``: only importers have this reasoning, and nobody here vouches for it.
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
        """Whether the gate, or the human who was asked, lets the receiver act."""
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
    """Return the decision on a snapshot as it was taken or received (or its id, or the id or ref of a reasoning).

    Without a ``level`` the lowest that passes its gate is sent. ``task`` is what the receiver is about to do;
    ``vectors`` replace those of the snapshot; with a ``tree`` the receiver also validates the fetched graph itself;
    ``fidelity`` is that of what he was sent, where it is not what the snapshot has for the level.
    ``author`` signs the request for a human, if it comes to that; by the name of the ``asker`` alone an earlier request
    and its answer are found, and nothing is signed. ``clock_ms`` says whether a validation is too old. Raises Refused:
    ``NOT_FOUND`` or ``REF_AMBIGUOUS``; the request was not admitted. Corrupted: ``VERIFICATION_FAILED`` when a graph,
    a brief or an answer is not what it claims to be.
    """
    snapshot = receive_snapshot(view, subject) if isinstance(subject, str) else subject
    ref = snapshot.reasoning_ref
    verdict = None if ref is None else find_answer(view, "validations.latest", {"ref": ref}, LatestVerdict)
    gate = _gate(snapshot, level, verdict)
    sent = TransferLevel(gate.level)
    is_imported = _is_imported(view, snapshot)
    shown = (text for brief in snapshot.briefs for fact in brief.facts for text in fact.evidence)
    evidence = list(dict.fromkeys([*snapshot.evidence_refs, *snapshot.top_evidence_refs, *shown]))
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
    if rule is None and own is not None and not own.passed:
        rule = gates.FetchRule(_OWN, "The receiver's own validation failed.")
    versions = [] if verdict is None else view("reasoning.show", {"id": verdict.reasoning_ref})["versions"]
    for entry in [one["suspect"] for one in versions if "suspect" in one][:1] if rule is None else ():
        rule = gates.FetchRule("suspect_key", f"A key that signed it is compromised, says entry {entry}.")
    prompt = to_context_prompt(snapshot, sent)
    decided = Decision("act", rule, sent.value, gate, [], answer, prompt, snapshot, verdict, own=own)
    decided = replace(decided, is_imported=is_imported, reasons=[] if own is None else [_said(own)])
    return decided if rule is None else _held_up(view, decided, author or asker, task, clock_ms())


def _held_up(view: Ask, decided: Decision, who: Author | str | None, task: str | None, now_ms: int) -> Decision:
    """Return the decision where a rule fired: on the graph if it was validated, else a human's."""
    verdict, own, found, rule = decided.verdict, decided.own, decided.reasons, decided.rule
    assert rule is not None  # noqa: S101 - as is said
    ref, passing = decided.snapshot.reasoning_ref, None
    if ref is None:
        problems = ["There is no reasoning that somebody could validate."]
    elif verdict is None:
        problems = [f"The full reasoning {short_ref(ref)} is not in this ledger."]
    else:
        passing, problems = gates.check_verdict(verdict, now_ms)
        decided = replace(decided, graph=fetch(view, ref).memory)
    if not problems and passing is not None and (own is None or own.passed):
        said = f"{passing.by} validated the reasoning (entry {passing.event_index}): {passing.counted}."
        return replace(decided, action="act_on_full", reasons=[rule.reason, said, *found], validation=passing)
    found += [] if own is None else [f"The receiver's own validation: {issue.message}" for issue in own.issues]
    reasons = [rule.reason, *problems, *found]
    request = _request(decided, reasons, verdict, task)
    causes = [event_id for event_id in (decided.snapshot.event_id, *request.validations) if event_id]
    review = None if who is None else _ask_human(who, view, request, _citations(decided), causes)
    if review is not None and review.verdict is not None:
        comment = f": {review.comment}" if review.comment else "."
        reasons.append(f"{review.answered_by}, a human, has answered: {review.verdict}{comment}")
    return replace(decided, action="human_review_required", reasons=reasons, review=review)


def describe(decision: Decision) -> dict[str, Any]:
    """Return what a receiver wants to know of a decision, as plain values."""
    snapshot, report, own = decision.snapshot, decision.validation, decision.own
    graph = decision.graph if decision.may_act else None
    plain: dict[str, Any] = msgspec.to_builtins(decision.prompt)
    voucher = report and {"event_index": report.event_index, "event_id": report.event_id, "author": report.by}
    decided = ("rule", "gate", "reasons", "verdict", "review")
    plain |= msgspec.to_builtins({name: getattr(decision, name) for name in decided})
    plain |= {"rule_fired": plain.pop("rule"), "action": decision.action, "may_act": decision.may_act}
    answer: dict[str, Any] = msgspec.to_builtins(decision.answer)
    answer.pop("rule")  # the receiver's own validation may have fired another
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
            "own_validation": None if own is None else {"passed": own.passed, "text": _said(own)},
            "graph": None if graph is None else msgspec.to_builtins(graph.to_dict(), str_keys=True),
        }
    )


def _gate(
    snapshot: EnhancedEpistemicSnapshot, level: TransferLevel | None, verdict: LatestVerdict | None
) -> gates.GateAnswer:
    if snapshot.reasoning_ref is None:
        # There is no reasoning that a lower level could lose.
        sent = (level or TransferLevel.MINIMAL).value
        return gates.GateAnswer("passed", sent, TransferLevel.MINIMAL.value, "")
    return gates.check_level(level or gates.choose_level(snapshot.fidelities), snapshot.fidelities, verdict)


def _fidelity_at(snapshot: EnhancedEpistemicSnapshot, level: TransferLevel) -> float | None:
    """Return the fidelity of what is sent: FULL shows what STANDARD does; unmeasured counts as nothing kept."""
    if snapshot.reasoning_ref is None:
        return None
    shown = TransferLevel.STANDARD if level is TransferLevel.FULL else level
    return snapshot.fidelities.get(shown, 0.0)


def _riskier_domain(view: Ask, snapshot: EnhancedEpistemicSnapshot) -> str:
    if snapshot.domain.strip().lower() in gates.HIGH_RISK_DOMAINS or snapshot.reasoning_ref is None:
        return snapshot.domain
    own = view("snapshots.domains", {"reasoning_ref": snapshot.reasoning_ref})["domains"]
    risky = (domain for domain in own if domain.strip().lower() in gates.HIGH_RISK_DOMAINS)
    return next(risky, snapshot.domain)


def _is_imported(view: Ask, snapshot: EnhancedEpistemicSnapshot) -> bool:
    """Tell whether this reasoning was only ever imported; who recorded the same as his own vouches for it."""
    if snapshot.reasoning_ref is None:
        return False
    found = view("reasoning.origins", {"ref": snapshot.reasoning_ref})
    return bool(found["imported"]) and not found["own"]


def _said(own: ValidationReport) -> str:
    counts, word = own.counts(), "passed" if own.passed else "failed"
    return f"The receiver's own validation {word}: {counted_words(counts, own.evidence, 'references stand')}."


def _citations(decided: Decision) -> list[str]:
    """Return the names of what speaks against acting; a low fidelity counts alone, because each level has its own."""
    names = {rule.name for rule in decided.answer.all_rules}
    if decided.own is not None and not decided.own.passed:
        names.add(_OWN)
    return sorted(names - {gates.LOW_FIDELITY} or names)


def _request(decided: Decision, reasons: list[str], verdict: LatestVerdict | None, task: str | None) -> ReviewRequested:
    snapshot, rule = decided.snapshot, decided.rule
    assert rule is not None  # noqa: S101 - as is said
    ref = snapshot.reasoning_ref
    about = f"snapshot {snapshot.snapshot_id}" if ref is None else f"reasoning {short_ref(ref)}"
    concluded = f": {one_line(snapshot.conclusion)}" if snapshot.conclusion else ""
    outcomes: tuple[Outcome, ...] = ("failed", "passed")
    validations = [] if verdict is None else [one.event_id for of in outcomes for one in verdict.voices(of)]
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
    who: Author | str, view: Ask, asked: ReviewRequested, citations: list[str], causes: list[str]
) -> Review | None:
    """Return the review of a question: the one that stands, or one appended now if an author can sign it.

    If we crash after the request was appended, the next call finds it by its id. Anybody may take any id: where
    somebody else opened the stream under ours, the next number is tried.
    """
    asker = who if isinstance(who, str) else who.name
    for number in range(_ids_max):
        name = review_id(asker, asked, citations, number)
        review = find_answer(view, "reviews.show", {"id": name}, Review)
        if review is None:
            if isinstance(who, str):
                return None
            try:
                who.emit(Draft(stream=f"review/{name}", data=asked, causes=causes))
            except Refused as refusal:
                # Between our look and our request another process of ours, or a stranger, opened the stream.
                if refusal.code != "TRANSITION_NOT_ALLOWED":
                    raise
            review = find_answer(view, "reviews.show", {"id": name}, Review)
        # What a thief may have answered is asked again.
        is_own = review is not None and review.author == asker and review.suspect is None
        if review is not None and is_own and review.reasoning_ref == asked.reasoning_ref:
            return review
    raise Refused("TRANSITION_NOT_ALLOWED", f"somebody else took every id for the review of {asked.question}")


def review_id(name: str, asked: ReviewRequested, citations: list[str], number: int = 0) -> str:
    """Return the id of ``name``'s request on these citations."""
    same = [name, asked.reasoning_ref, asked.snapshot_id, asked.task, citations, asked.validations, number]
    return f"{name}-{hashlib.sha256(encode_canonical(same)).hexdigest()[:_id_digits]}"
