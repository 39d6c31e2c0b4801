"""Queries about validations: all of a reasoning or version, and the verdict.

**The verdict is one value**, which every reader of a reasoning shows. It is the outcome of the newest independent
report. If the newest report of another validator has another outcome, ``differing`` has that report, too. A single
negative report makes the verdict ``failed``, and a human decides who is right. A refuted assumption on which the
conclusion rests makes it ``failed``, too, even if it was refuted after this version. A report is ``unchecked`` if it
found nothing wrong but could not look up a reference or an assumption, if an inference names nothing that it rests on,
or if its key was later reported compromised.

A report is *independent* if it is on a reasoning with this very version, and its author owns no reasoning with it. The
gate refuses an owner's report that passes on their own stream; the rule across streams is applied here. An owner's
report that something is wrong counts until somebody independent reports.

A re-derivation by another agent (``rederived``) is named in the verdict's text and does not change the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import asdict, replace

from deedbook.ledger.events.brief import RefutedAssumption
from deedbook.ledger.events.reasoning import Counts, EvidenceCheck, ReasoningValidated
from deedbook.ledger.format.codec import read_json
from deedbook.ledger.lifecycle.authority import Agents, report_on_signature
from deedbook.projections.answers.query import Arguments, ById, Limit, age_of
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.briefs.critical import refutations
from deedbook.projections.briefs.prompt import short_ref
from deedbook.projections.reasoning.fold import VERSIONS
from deedbook.projections.reasoning.graph import decode_change
from deedbook.projections.reasoning.queries import erased_entries, find_version, get_graph, with_version
from deedbook.projections.redactions.fold import FORMER_VERSIONS
from deedbook.projections.validations.answers import (
    LatestVerdict,
    Outcome,
    Refuted,
    ValidationLine,
    Validations,
    Voice,
)
from deedbook.projections.validations.fold import VALIDATIONS
from deedbook.projections.validations.rederived import rederivations

_STRONGER: Final[tuple[Outcome, ...]] = ("none", "unchecked", "passed", "failed")
problems_named_max: Final = 3
rederived_named_max: Final = 3


class ValidationFilter(Arguments, frozen=True):
    """``id`` is a version, or a reasoning with all of its versions; ``author`` or ``passed`` selects some reports."""

    id: str
    author: str | None = None
    passed: bool | None = None
    after: int | None = None
    limit: Limit = 50


def list_validations(source: RowSource, args: ValidationFilter) -> Validations:
    """Return reports, newest first."""
    version = find_version(source, args.id)
    refs = [version.former or version.ref]
    if args.id.removeprefix("reasoning/") == version.reasoning_id:
        refs = [row["ref"] for row in source.select(VERSIONS, "version", reasoning_id=version.reasoning_id)]
        entries = erased_entries(source, version)
        refs += [row["ref"] for entry in entries for row in source.select(FORMER_VERSIONS, "version", entry=entry)]
    rows = source.select(
        VALIDATIONS, "event_index", newest_first=True, author=args.author, passed=args.passed, reasoning_ref=refs
    )
    following = [row for row in rows if args.after is None or row["event_index"] < args.after]
    page = following[: args.limit]
    after = page[-1]["event_index"] if len(following) > args.limit else None
    return Validations(items=[_line(row) for row in page], total=len(rows), next=after)


def _line(row: dict[str, Any]) -> ValidationLine:
    data = read_json(row["data"], ReasoningValidated)
    return ValidationLine(**row | {"passed": bool(row["passed"]), "data": data})


def latest_verdict(source: RowSource, args: ById) -> LatestVerdict:
    """Return the verdict on a version."""
    version = find_version(source, args.id)
    ref, erased = version.ref, erased_entries(source, version)
    if erased:  # no report can be compared with the graph, and its conclusion may be erased
        text = f"redacted (entry {erased[0]}): nobody can check it any more"
        refuted = refuted_in(source, ref)
        return LatestVerdict(reasoning_ref=ref, outcome="unchecked", text=text, refuted=refuted, erased=erased)
    refuted = refuted_in(source, ref)
    voices = _voices(source, ref, {each.step for each in refuted})
    latest = next(iter(voices), None)
    differing = [voice for voice in voices[1:] if latest is not None and voice.outcome != latest.outcome]
    heard = [voice for voice in (latest, *differing) if voice is not None]
    outcome: Outcome = max((voice.outcome for voice in heard), key=_STRONGER.index, default="none")
    texts = [each.text for each in heard] or ["not validated"]
    verdict = LatestVerdict(reasoning_ref=ref, outcome=outcome, text="", latest=latest, differing=differing)
    owners = [row["id"] for row in with_version(source, ref)]
    verdict = replace(verdict, refuted=refuted, rederived=rederivations(source, ref, owners))
    independent = [each for each in verdict.rederived if not each.doubt][:rederived_named_max]
    named = [f"rederived by {each.by} in {short_ref(each.reasoning_ref)}" for each in independent]
    if grounds := verdict.refuted_grounds:
        return replace(verdict, outcome="failed", text="; ".join([*map(refuted_sentence, grounds), *texts, *named]))
    return replace(verdict, text="; ".join(["; but ".join(texts), *named]))


def refuted_sentence(refuted: Refuted) -> str:
    """Return a sentence about the refuted assumption, without the words of its author."""
    by = f"{refuted.by} refuted (entry {refuted.event_index})"
    return f"it rests on an assumption (step {refuted.step}) that {by}"


def refuted_in(source: RowSource, ref: str) -> list[Refuted]:
    """Return the refuted assumptions of a graph version, as each reasoning with this version has settled them."""
    settling = source.select(
        VERSIONS,
        "event_index",
        reasoning_id=[row["id"] for row in with_version(source, ref)],
        kind="reasoning.assumption_settled",
    )
    if not settling:
        return []
    asked = get_graph(source, ref).memory
    found: dict[tuple[int, str], Refuted] = {}
    for name in dict.fromkeys(row["reasoning_id"] for row in settling):
        later = {step.step_number: step.settled for step in get_graph(source, f"reasoning/{name}").memory.steps}
        steps = [replace(step, settled=later.get(step.step_number, step.settled)) for step in asked.steps]
        for each in refutations(replace(asked, steps=steps)):
            # Only the newest refutation by this agent counts.
            index = max(row["event_index"] for row in settling if _refutes(row, name, each))
            found[each.step, each.by] = Refuted(reasoning_id=name, event_index=index, **asdict(each))
    return list(found.values())


def _refutes(row: dict[str, Any], name: str, refuted: RefutedAssumption) -> bool:
    settlements = decode_change(row["delta"]).assumptions_updated.get(refuted.step, [])
    return row["reasoning_id"] == name and any(each.by == refuted.by and not each.holds for each in settlements)


def _voices(source: RowSource, ref: str, refuted: set[int]) -> list[Voice]:
    """Return the newest report that counts of each validator on a version, the newest first.

    ``refuted`` are the steps whose assumption somebody refuted.
    """
    reasonings = with_version(source, ref)
    ids, owners = ({row[column] for row in reasonings} for column in ("id", "author"))
    newest: dict[str, dict[str, Any]] = {}
    for row in source.select(VALIDATIONS, "event_index", newest_first=True, reasoning_ref=ref):
        is_warning = not row["passed"] and not newest.keys() - owners
        if row["reasoning_id"] in ids and (row["author"] not in owners or is_warning):
            newest.setdefault(row["author"], row)
    agents = source.agents(newest)
    return [_voice(row, _report_on(row, agents), source.now_ms, refuted) for row in newest.values()]


def _report_on(row: dict[str, Any], agents: Agents) -> int | None:
    """Return the entry because of which a report proves nothing: its key was stolen, or its author's role is void."""
    stream = f"reasoning/{row['reasoning_id']}"
    return report_on_signature(agents, row["key"], "reasoning.validated", stream, row["event_index"])


def outcome_of(counts: Counts, *, passed: bool, is_compromised: bool) -> Outcome:
    """Return the outcome of one report: ``unchecked`` if it passed without a check of everything."""
    # Without evidence, or with an inference from nothing, a report proves nothing.
    is_whole = 0 < counts.evidence == counts.evidence_ok and not counts.inferences_unlinked
    is_sure = is_whole and not _unchecked_assumptions(counts) and not is_compromised
    return "failed" if not passed else "passed" if is_sure else "unchecked"


def _unchecked_assumptions(counts: Counts) -> int:
    # An assumption that only others settled was not checked here: authors must not raise trust by settling their own.
    return counts.assumptions - counts.assumptions_held - counts.assumptions_refuted


def _voice(row: dict[str, Any], compromised: int | None, now_ms: int, refuted: set[int]) -> Voice:
    data = read_json(row["data"], ReasoningValidated)
    counts = data.counts
    missing = _unchecked_assumptions(counts)
    outcome = outcome_of(counts, passed=row["passed"], is_compromised=compromised is not None)
    stand = evidence_summary(counts, data.evidence)
    if missing > 0:
        stand += f", {missing} assumption{'s' * (missing > 1)} unchecked"
    if counts.inferences_unlinked:
        stand += f", {counts.inferences_unlinked} inference{'s' * (counts.inferences_unlinked > 1)} unlinked"
    if counts.assumptions_settled:
        stand += f" ({_settled_text(data, refuted)}, but not by this validator)"
    if compromised is not None:
        stand += f", rests on a key that entry {compromised} reports as compromised"
    tried = "tried" if counts.evidence and not counts.evidence_ok else "checked"
    done = {"failed": "found wrong", "passed": "validated", "unchecked": tried}[outcome]
    problems = [issue.message for issue in data.issues[:problems_named_max]]
    if counts.issues > problems_named_max:
        problems.append(f"and {counts.issues - problems_named_max} more")
    return Voice(
        outcome=outcome,
        by=row["author"],
        at_ms=row["accepted_ms"],
        event_index=row["event_index"],
        event_id=row["event_id"],
        references=counts.evidence,
        stand=counts.evidence_ok,
        assumptions_open=missing,
        tree=row["tree"],
        commit=row["commit_id"],
        problems=problems,
        counted=stand,
        text=f"{stand}, {done} by {row['author']} {age_of(row['accepted_ms'], now_ms)}",
    )


def _settled_text(data: ReasoningValidated, refuted: set[int]) -> str:
    """Return how many assumptions of a report others settled, and how many of these they refuted."""
    settled = data.counts.assumptions_settled
    wrong = sum(check.status == "settled" and check.step in refuted for check in data.assumptions)
    if wrong < settled:
        return f"{settled} settled" + (f", {wrong} of them refuted" if wrong else "")
    return f"{wrong} refuted"


def evidence_summary(counts: Counts, evidence: Iterable[EvidenceCheck], stand: str = "stand") -> str:
    """Return how much of the evidence holds. If nothing was looked up, say so instead of "0 of 2"."""
    if not counts.evidence:
        return "no evidence"
    # Failed checks come first. A path without a line is not checked, too, but was looked up: it has a ``file``.
    if {(check.status, check.file) for check in evidence} == {("not_checked", None)}:
        return f"nothing was looked up of {counts.evidence} reference{'s' * (counts.evidence > 1)}"
    return f"{counts.evidence_ok} of {counts.evidence} {stand}"
