"""The types of answers about published briefs."""

from __future__ import annotations

from deedbook.ledger.events.brief import Band, Level
from deedbook.ledger.events.reasoning import ReasoningBriefed
from deedbook.projections.answers.answer import Index, Marked, Ms, Untrusted


class PublishedBrief(Marked, frozen=True, kw_only=True):
    """A published brief of a version of a reasoning, and the ``data`` of its event.

    ``budget`` and ``tokens`` are tokens, as many as allowed and as used; they are an estimate unless the count is
    ``exact``. ``fidelity`` is from 0 to 1.
    """

    event_index: Index
    event_id: str
    reasoning_ref: str
    level: Level
    budget: int
    tokens: int
    exact: bool
    fidelity: float
    band: Band
    compressor: Untrusted
    compressor_version: Untrusted
    author: str
    accepted_ms: Ms
    data: ReasoningBriefed
