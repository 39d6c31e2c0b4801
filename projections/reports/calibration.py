"""The change between PREFLIGHT and POSTFLIGHT, and whether the agent judged itself correctly.

Pure. The rules of this module:

- A delta exists only if a vector was assessed on both sides; "not assessed" is never 0.
- Every difference is rounded to 4 decimals before it is compared. Otherwise a common case (0.90 - 0.80 and a limit of
  0.10) would fall on the wrong side of binary floating point.
- **Signs**: dk is how much knowledge grew, du how much uncertainty fell. An agent is *overconfident* if its uncertainty
  fell by more than its knowledge grew, and *underconfident* if its knowledge grew by more than its uncertainty fell.
  The bias dk - du is negative for the first, positive for the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from deedbook.ledger.events.session import Calibration, ReportType, Vectors

VECTOR_NAMES: Final = Vectors.__struct_fields__
INVERTED: Final = frozenset({"uncertainty"})  # for these, less is better
OVERALL: Final = "overall_confidence"
bias_above: Final = 0.20
decimals: Final = 4


class AssessmentPair(NamedTuple):
    """The assessments that a session's report compares (None if there is none), and whether there is a CHECK."""

    preflight: Mapping[str, Any] | None
    postflight: Mapping[str, Any] | None
    has_check: bool

    @property
    def report_type(self) -> ReportType:
        """The type of report that follows; a POSTFLIGHT alone makes a planning report."""
        if self.preflight is None:
            return "planning"
        if self.postflight is not None:
            return "complete"
        return "investigation" if self.has_check else "preflight_only"

    @property
    def comparison(self) -> Comparison:
        """The comparison of both assessments."""
        before, after = self.preflight or {}, self.postflight or {}
        overall = before.get(OVERALL), after.get(OVERALL)
        return compare(before.get("vectors"), after.get("vectors"), given_before=overall[0], given_after=overall[1])


class Comparison(NamedTuple):
    """The comparison of two assessments of a session. ``deltas`` has ``overall_confidence`` if it is known."""

    deltas: dict[str, float]
    overall_confidence_before: float | None
    overall_confidence_after: float | None
    is_overall_given: bool
    calibration_status: Calibration


def difference(before: float, after: float) -> float:
    """Return after minus before, rounded to 4 decimals, never minus zero."""
    return round(after - before, decimals) + 0.0


def deltas_of(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return after minus before for each vector assessed on both sides, in the order of the kind."""
    return {name: difference(before[name], after[name]) for name in VECTOR_NAMES if name in before and name in after}


def overall_of(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[float, float] | tuple[None, None]:
    """Return the means over vectors assessed on both sides, 4 decimals, uncertainty as 1 - u; None if none."""
    names = list(deltas_of(before, after))
    return (_mean(before, names), _mean(after, names)) if names else (None, None)


def bias_of(delta_know: float | None, delta_uncertainty: float | None) -> float | None:
    """Return dk - du, 4 decimals: how much more knowledge grew than uncertainty fell (negative: less)."""
    if delta_know is None or delta_uncertainty is None:
        return None
    return difference(-round(delta_uncertainty, decimals), round(delta_know, decimals))


def label_of_bias(bias: float | None) -> Calibration:
    """Return the label of a bias. None (an assessment is missing) is ``not_assessable``."""
    if bias is None:
        return "not_assessable"
    if abs(bias) <= bias_above:
        return "well_calibrated"
    return "overconfident" if bias < 0 else "underconfident"


def compare(
    before: Mapping[str, float] | None,
    after: Mapping[str, float] | None,
    *,
    given_before: float | None = None,
    given_after: float | None = None,
) -> Comparison:
    """Return the comparison of two assessments. If both have the author's own overall values, these take precedence."""
    before, after = before or {}, after or {}
    deltas = deltas_of(before, after)
    is_given = given_before is not None and given_after is not None
    overall_before, overall_after = (given_before, given_after) if is_given else overall_of(before, after)
    status = label_of_bias(bias_of(deltas.get("know"), deltas.get("uncertainty")))
    if overall_before is not None and overall_after is not None:
        deltas[OVERALL] = difference(overall_before, overall_after)
    return Comparison(deltas, overall_before, overall_after, is_given, status)


def assessment_pair(assessments: Sequence[Mapping[str, Any]]) -> AssessmentPair:
    """Return the two assessments to compare, out of a session's assessments in log order (as in ``sessions.show``).

    These are the last POSTFLIGHT and the last PREFLIGHT before it, or the last PREFLIGHT if there is no POSTFLIGHT.
    A PREFLIGHT after the last POSTFLIGHT belongs to work that has not ended. An assessment without any vector only
    opened its phase: it counts only if there is no other.
    """
    position, postflight = _last(assessments, "POSTFLIGHT")
    _position, preflight = _last(assessments if postflight is None else assessments[:position], "PREFLIGHT")
    has_check = any(row["phase"] == "CHECK" for row in assessments)
    return AssessmentPair(preflight, postflight, has_check)


def _last(assessments: Sequence[Mapping[str, Any]], phase: str) -> tuple[int, Mapping[str, Any] | None]:
    matches = [
        (position, assessment) for position, assessment in enumerate(assessments) if assessment["phase"] == phase
    ]
    return next(
        ((position, assessment) for position, assessment in reversed(matches) if assessment["vectors"]),
        matches[-1] if matches else (0, None),
    )


def _mean(values: Mapping[str, float], names: Sequence[str]) -> float:
    total = sum(1 - values[name] if name in INVERTED else values[name] for name in names)
    return round(total / len(names), decimals)
