"""When the brief is not enough: the seed's rules for fetching the full graph, and its trust gates, in one place.

Both of the seed's lists (``should_fetch_full_reasoning`` and "Trust Gates") are one rule set here (SEEDS, 001). The
answer names the rule that fired first, in the seed's order, and every vector that nobody assessed: such a vector
fires nothing, because "not assessed" is not zero, and the receiver has to see that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from projections.briefs.fidelity import value_digits
from projections.briefs.prompt import TransferLevel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MIN_FIDELITY_FOR_MINIMAL: Final = 0.90
MIN_FIDELITY_FOR_STANDARD: Final = 0.75
MAX_INFORMATION_LOSS_TOLERANCE: Final = 0.15

UNCERTAINTY_TO_FETCH: Final = 0.5
IMPACT_TO_FETCH: Final = 0.7
HIGH_RISK_DOMAINS: Final = frozenset({"medical", "legal", "security"})
CRITICAL_EVIDENCE_WORDS: Final = ("secret", "credential")
VECTORS_READ: Final = ("UNCERTAINTY", "IMPACT")


class FetchRule(msgspec.Struct, frozen=True):
    """The rule that asks for the full graph, and what it saw."""

    name: str
    reason: str


class FetchAnswer(msgspec.Struct, frozen=True):
    """Whether to fetch: the rule that fired (or None), all that would, and the vectors nobody assessed."""

    rule: FetchRule | None
    all_rules: list[FetchRule]
    not_assessed: list[str]

    @property
    def fetch(self) -> bool:
        """Whether any rule fired."""
        return self.rule is not None


class GateAnswer(msgspec.Struct, frozen=True):
    """Whether a level's fidelity may be relied on: ``gate`` is passed or failed, with the level that would pass."""

    gate: str
    level: str
    level_that_passes: str
    reason: str


def should_fetch_full_reasoning(
    *,
    fidelity: float,
    domain: str | None = None,
    vectors: Mapping[str, float | None] | None = None,
    evidence_refs: Iterable[str] = (),
) -> FetchAnswer:
    """Return which of the seed's rules asks for the full graph; vector names and domains ignore case."""
    assessed = {name.upper(): value for name, value in (vectors or {}).items() if value is not None}
    fired: list[FetchRule] = []
    if domain is not None and domain.strip().lower() in HIGH_RISK_DOMAINS:
        fired.append(FetchRule("high_risk_domain", f"The domain is {domain.strip().lower()}."))
    for name, threshold in (("UNCERTAINTY", UNCERTAINTY_TO_FETCH), ("IMPACT", IMPACT_TO_FETCH)):
        if name in assessed and assessed[name] >= threshold:
            fired.append(FetchRule(f"high_{name.lower()}", f"{name} is {assessed[name]:.2f}, at least {threshold}."))
    if fidelity < MIN_FIDELITY_FOR_STANDARD:
        reason = f"The fidelity is {fidelity:.2f}, below {MIN_FIDELITY_FOR_STANDARD}."
        fired.append(FetchRule("low_fidelity", reason))
    critical = [ref for ref in evidence_refs if any(word in ref.lower() for word in CRITICAL_EVIDENCE_WORDS)]
    if critical:
        fired.append(FetchRule("critical_evidence", f"The evidence names a secret or credential: {critical[0]}"))
    return FetchAnswer(
        rule=fired[0] if fired else None,
        all_rules=fired,
        not_assessed=[name for name in VECTORS_READ if name not in assessed],
    )


def check_level(level: TransferLevel, fidelities: Mapping[TransferLevel, float]) -> GateAnswer:
    """Return whether a level asked by name passes its gate, and the lowest level that does."""
    passing = choose_level(fidelities)
    reason = _gate_problem(level, fidelities)
    return GateAnswer("failed" if reason else "passed", level.value, passing.value, reason)


def choose_level(fidelities: Mapping[TransferLevel, float]) -> TransferLevel:
    """Return the lowest level that passes its gate (SEEDS, 001); FULL always does, because it leads to the graph."""
    for level in (TransferLevel.MINIMAL, TransferLevel.STANDARD):
        if level in fidelities and not _gate_problem(level, fidelities):
            return level
    return TransferLevel.FULL


def _gate_problem(level: TransferLevel, fidelities: Mapping[TransferLevel, float]) -> str:
    if level is TransferLevel.FULL:
        return ""
    minimum = MIN_FIDELITY_FOR_MINIMAL if level is TransferLevel.MINIMAL else MIN_FIDELITY_FOR_STANDARD
    own = fidelities[level]
    if own < minimum:
        return f"The fidelity is {own:.2f}, below {minimum} for {level.value}."
    above = TransferLevel.STANDARD if level is TransferLevel.MINIMAL else TransferLevel.FULL
    # Only what was measured is compared: FULL costs nothing over STANDARD unless it carries the graph inline.
    loss = fidelities.get(above, own) - own
    if round(loss, value_digits) > MAX_INFORMATION_LOSS_TOLERANCE:
        return f"{level.value} loses {loss:.2f} against {above.value}, more than {MAX_INFORMATION_LOSS_TOLERANCE}."
    return ""
