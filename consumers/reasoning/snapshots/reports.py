"""Weighing the validations of a graph: whether others than its author found that it holds (SEEDS, 001).

Of each independent validator the newest report counts. One that passed speaks for the graph. One that did not speaks
against it, unless all it says is that it had no tree to look into: that is no finding. Who is right, where validators
disagree, is for a human to decide; so one voice against is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ledger.errors import Corrupted
from ledger.events.validation import ReasoningValidated

if TYPE_CHECKING:
    from ledger.client import Ask

NOT_LOOKED: Final = "EVIDENCE_NOT_CHECKED"
issues_named_max: Final = 3


class Report(msgspec.Struct, frozen=True):
    """A published validation: who signed it, where it stands in the log, and what it says."""

    event_index: int
    event_id: str
    author: str
    data: ReasoningValidated

    @property
    def is_against(self) -> bool:
        """Whether the report found something wrong with the graph."""
        if self.data.passed:
            return False
        named = {issue.code for issue in self.data.issues}
        # What a long report had to leave out is taken for a finding, unless there was no tree to find anything in.
        return bool(named - {NOT_LOOKED}) or (self.data.omitted > 0 and self.data.tree.sort != "none") or not named


class Weighed(msgspec.Struct, frozen=True):
    """The reports that count: those for the graph, newest first, and those against it."""

    passing: list[Report]
    against: list[Report]

    @property
    def holds(self) -> bool:
        """Whether somebody independent found that the graph holds, and nobody that it does not."""
        return bool(self.passing) and not self.against

    def problems(self) -> list[str]:
        """Return in sentences why the graph may not be acted on; empty when it may."""
        if not self.passing and not self.against:
            return ["No validation by another than its author has passed."]
        return [
            f"{report.author} found it wrong (entry {report.event_index}): {_named(report.data)}"
            for report in self.against
        ]


class _Answer(msgspec.Struct):
    validations: list[Report]


def weigh(view: Ask, ref: str) -> Weighed:
    """Return the independent reports on one version of a graph that count.

    Raises:
        Refused: ``NOT_FOUND``.
        Corrupted: ``VERIFICATION_FAILED`` when the answer is none.
    """
    try:
        answer = msgspec.convert(view("validations.list", {"ref": ref, "independent": True}), _Answer)
    except msgspec.ValidationError as error:
        raise Corrupted("VERIFICATION_FAILED", f"the answer is not what was asked for: {error}") from error
    newest = {report.author: report for report in answer.validations if report.data.reasoning_ref == ref}
    counted = sorted(newest.values(), key=lambda report: -report.event_index)
    return Weighed(
        passing=[report for report in counted if report.data.passed],
        against=[report for report in counted if report.is_against],
    )


def _named(data: ReasoningValidated) -> str:
    messages = [issue.message for issue in data.issues[:issues_named_max]]
    more = data.counts.issues - len(messages)
    return "; ".join([*messages, *([f"and {more} more"] if more > 0 else [])])
