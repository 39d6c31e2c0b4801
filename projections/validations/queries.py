"""Questions about validations: all of a reasoning or version, and what they come to.

**The verdict is one value**, and every reader of a reasoning shows it. It is the newest independent report; where the
newest of another validator comes to something else, ``differing`` names that one too. One voice against is enough for
``failed``: who is right is for a human to say. A report that found nothing wrong, but could not look up a reference or
an assumption, or that a key signed which was called compromised since, vouches for nothing: ``unchecked``.

A report is *independent* when it stands on a reasoning that has this very version, and its author owns no reasoning
that has it. The gate refuses an owner's report on his own stream; what spans streams is seen here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from deedbook.ledger.events.reasoning import Counts, EvidenceCheck, ReasoningValidated
from deedbook.projections.agents.suspects import suspect_by
from deedbook.projections.answers.query import (
    Answer,
    Arguments,
    ByRef,
    Limit,
    Listing,
    QueryContext,
    Where,
    age_of,
    list_of,
)
from deedbook.projections.reasoning.queries import find_version

LISTING: Final = Listing("SELECT * FROM validations", "validations", "event_index")

_INDEPENDENT: Final = (
    " AND reasoning_id IN (SELECT reasoning_id FROM reasoning_versions WHERE ref = ?)"
    " AND author NOT IN (SELECT reasonings.author FROM reasonings"
    " JOIN reasoning_versions ON reasoning_versions.reasoning_id = reasonings.id WHERE reasoning_versions.ref = ?)"
)


Outcome: TypeAlias = Literal["none", "passed", "unchecked", "failed"]
_STRONGER: Final[tuple[Outcome, ...]] = ("none", "unchecked", "passed", "failed")
problems_named_max: Final = 3


class Voice(msgspec.Struct, frozen=True, kw_only=True):
    """What one validator's newest report comes to: ``stand`` of ``references``, against which tree, and since when."""

    outcome: Outcome
    by: str
    at_ms: int
    event_index: int
    event_id: str
    references: int
    stand: int
    assumptions_open: int
    tree: str
    commit: str
    problems: list[str]
    counted: str
    text: str


class LatestVerdict(msgspec.Struct, frozen=True):
    """What is known of a version of a graph; ``latest`` is None where nobody independent validated this version."""

    reasoning_ref: str
    outcome: Outcome
    text: str
    latest: Voice | None = None
    differing: list[Voice] = []

    def voices(self, outcome: Outcome) -> list[Voice]:
        """Return those that come to ``outcome``, the latest first."""
        return [one for one in (self.latest, *self.differing) if one is not None and one.outcome == outcome]


class ValidationsOf(Arguments, frozen=True):
    """The reports on a version, or on all versions of a reasoning named by its id; of one validator, that passed."""

    ref: str
    author: str | None = None
    passed: bool | None = None
    after: int | None = None
    limit: Limit = 50


def list_validations(context: QueryContext, args: ValidationsOf) -> Answer:
    """Return ``{"validations", "total", "next"}``, each with its ``data``, newest first."""
    found = find_version(context, args.ref)
    where = Where(args, "author", "passed")
    if args.ref.removeprefix("reasoning/") == found.reasoning_id:
        where.add("reasoning_ref IN (SELECT ref FROM reasoning_versions WHERE reasoning_id = ?)", found.reasoning_id)
    else:
        where.equal("reasoning_ref", found.ref)

    def read(row: Answer) -> Answer:
        return row | {"passed": bool(row["passed"]), "data": msgspec.json.decode(row["data"])}

    return list_of(context, LISTING, where, args, of="validations", read=read)


def latest_verdict(context: QueryContext, args: ByRef) -> Answer:
    """Return the ``LatestVerdict`` on a version."""
    ref = find_version(context, args.ref).ref
    voices = _voices(context, ref)
    if not voices:
        return cast("Answer", msgspec.to_builtins(LatestVerdict(ref, "none", "not validated")))
    latest = voices[0]
    differing = [one for one in voices if one.outcome != latest.outcome]
    strongest = max((latest, *differing), key=lambda one: _STRONGER.index(one.outcome))
    text = "; but ".join(one.text for one in (latest, *differing))
    return cast("Answer", msgspec.to_builtins(LatestVerdict(ref, strongest.outcome, text, latest, differing)))


def _voices(context: QueryContext, ref: str) -> list[Voice]:
    newest = f"SELECT max(event_index) FROM validations WHERE reasoning_ref = ?{_INDEPENDENT} GROUP BY author"  # noqa: S608
    key = "(SELECT key FROM events WHERE events.event_index = v.event_index)"
    suspect = suspect_by(key, "v.event_index")
    sql = f"SELECT v.*, {suspect} AS suspect FROM validations v WHERE v.event_index IN ({newest})"  # noqa: S608 - fixed texts
    rows = sorted(context.rows(sql, (ref, ref, ref)), key=lambda row: -int(row["event_index"]))
    return [_voice(row, context.now_ms) for row in rows]


def _voice(row: dict[str, Any], now_ms: int) -> Voice:
    data = msgspec.json.decode(row["data"], type=ReasoningValidated)
    counts = data.counts
    missing = counts.assumptions - counts.assumptions_held - counts.assumptions_refuted - counts.assumptions_settled
    is_whole = 0 < counts.evidence == counts.evidence_ok and not missing  # who saw nothing vouches for nothing
    is_sure = is_whole and row["suspect"] is None
    outcome: Outcome = "failed" if not row["passed"] else "passed" if is_sure else "unchecked"
    stand = counted_words(counts, data.evidence)
    if counts.assumptions_settled:
        stand += f", {counts.assumptions_settled} settled by its author"
    if missing > 0:
        stand += f", {missing} assumption{'s' * (missing > 1)} unchecked"
    if row["suspect"] is not None:
        stand += f", signed with a key that entry {row['suspect']} says is compromised"
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


def counted_words(counts: Counts, evidence: Iterable[EvidenceCheck], stand: str = "stand") -> str:
    """Return how much of the evidence stood; where nobody could look, that says so, for "0 of 2" would be a finding."""
    if not counts.evidence:
        return "no evidence"
    if {check.status for check in evidence} == {"not_checked"}:  # those that do not hold are listed first
        return f"nothing was looked up of {counts.evidence} reference{'s' * (counts.evidence > 1)}"
    return f"{counts.evidence_ok} of {counts.evidence} {stand}"
