"""The report of a validation: filled by the checks, then turned into the event that is published.

``passed`` means that there is no issue. Any check can add an issue, and nothing can remove one: so a judge, which only
adds, cannot turn a failed check into a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

import msgspec

from deedbook.consumers.reasoning.validator.evidence import HOLDING, cut
from deedbook.ledger.events import reasoning
from deedbook.ledger.events.brief import RefutedAssumption

VALIDATOR_NAME: Final = "deedbook-validator"
VALIDATOR_VERSION: Final = "1"
ASSUMPTION_REFUTED: Final = "ASSUMPTION_REFUTED"
report_size_max_bytes: Final = 36 * 1024


@dataclass
class ValidationReport:
    """The checks and their issues; only a brief has ``checkable`` and ``not_checkable`` steps (their numbers)."""

    reasoning_ref: str = ""
    steps: int = 0
    of_brief: bool = False
    issues: list[reasoning.Issue] = field(default_factory=list)
    evidence: list[reasoning.EvidenceCheck] = field(default_factory=list)
    assumptions: list[reasoning.AssumptionCheck] = field(default_factory=list)
    inferences: list[reasoning.InferenceCheck] = field(default_factory=list)
    checkable: list[int] = field(default_factory=list)
    not_checkable: list[int] = field(default_factory=list)
    tree: reasoning.CheckedTree = field(default_factory=lambda: reasoning.CheckedTree(type="none"))
    judge: reasoning.JudgeMark | None = None

    @property
    def passed(self) -> bool:
        """Whether there is no issue."""
        return not self.issues

    @property
    def coverage(self) -> float | None:
        """The share of a brief's inferences that the brief alone can prove; None for a graph, or without inferences."""
        seen = len(self.checkable) + len(self.not_checkable)
        return round(len(self.checkable) / seen, 4) if self.of_brief and seen else None

    def add_issue(self, message: str, *, code: str = "INVALID", step: int | None = None) -> None:
        """Add an issue; the report no longer passes."""
        self.issues.append(reasoning.Issue(code, cut(message), step))

    def add_refuted(self, refuted: Iterable[RefutedAssumption]) -> None:
        """Add an issue for each assumption of the conclusion that was refuted after the validated version."""
        known = {issue.step for issue in self.issues if issue.code == ASSUMPTION_REFUTED}
        for each in refuted:
            if each.is_ground and each.step not in known:
                message = f"Invalid: {cut(each.text, 160)} (Refuted by {each.by}: {each.how})"
                self.add_issue(message, code=ASSUMPTION_REFUTED, step=each.step)

    def counts(self) -> reasoning.Counts:
        """Return the complete numbers."""
        assumed = Counter(check.status for check in self.assumptions)
        return reasoning.Counts(
            steps=self.steps,
            issues=len(self.issues),
            evidence=len(self.evidence),
            evidence_ok=sum(check.status in HOLDING for check in self.evidence),
            assumptions=len(self.assumptions),
            assumptions_held=assumed["held"],
            assumptions_refuted=assumed["refuted"],
            assumptions_settled=assumed["settled"],
            inferences=len(self.inferences),
            inferences_sound=sum(check.status == "sound" for check in self.inferences),
            inferences_unlinked=sum(check.status == "unlinked" and check.is_ground for check in self.inferences),
            inferences_judged=sum(check.method == "judged" for check in self.inferences),
            inferences_doubted=sum(check.opinion == "does_not_follow" for check in self.inferences),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as plain values."""
        values: dict[str, Any] = msgspec.to_builtins(self._fields())
        if self.of_brief:
            values |= {"checkable": self.checkable, "not_checkable": self.not_checkable, "coverage": self.coverage}
        return values

    def to_event(self, *, whole: str | None = None) -> reasoning.ReasoningValidated:
        """Return the event's data, the worst checks first; ``whole`` is the blob of the full report, if needed."""
        ordered: dict[str, Sequence[Any]] = {
            "issues": self.issues,
            "evidence": sorted(self.evidence, key=lambda check: check.status in HOLDING),
            "assumptions": sorted(self.assumptions, key=lambda check: _ASSUMPTIONS.index(check.status)),
            "inferences": sorted(self.inferences, key=_of_inferences),
        }
        left, omitted, listed = report_size_max_bytes, 0, dict[str, Any]()
        # Each list takes at most half of the space that is left, so the lists after it get some, too.
        for name, lines in ordered.items():
            sizes = accumulate(len(msgspec.json.encode(line)) + 1 for line in lines[: reasoning.listed_max])
            half = left // 2
            fitting = [size for size in sizes if size <= half]
            listed[name] = list(lines[: len(fitting)])
            left -= max(fitting, default=0)
            omitted += len(lines) - len(fitting)
        blob = whole if omitted else None
        return reasoning.ReasoningValidated(**self._fields() | listed, omitted=omitted, whole=blob)

    def _fields(self) -> dict[str, Any]:
        """Return the fields that the report and its event have in common."""
        names = ("reasoning_ref", "passed", "issues", "evidence", "assumptions", "inferences", "tree")
        fields = {name: getattr(self, name) for name in names} | {"counts": self.counts(), "judge": self.judge}
        return fields | {"validator_name": VALIDATOR_NAME, "validator_version": VALIDATOR_VERSION}


_ASSUMPTIONS: Final = ("refuted", "not_checked", "held", "settled")
_INFERENCES: Final = ("unsound", "unlinked", "sound")


def _of_inferences(check: reasoning.InferenceCheck) -> tuple[int, bool]:
    return _INFERENCES.index(check.status), check.opinion != "does_not_follow"
