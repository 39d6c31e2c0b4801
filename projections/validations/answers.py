"""The types of answers about validations."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from deedbook.ledger.events.reasoning import ReasoningValidated, TreeType
from deedbook.projections.answers.answer import Answer, Checked, Compromised, Head, Index, Marked, Ms, Page, Untrusted

Outcome: TypeAlias = Literal["none", "passed", "unchecked", "failed"]


class ValidationLine(Marked, frozen=True, kw_only=True):
    """A validator's report on a version of a reasoning, and the ``data`` of its event.

    ``issues`` is their number, and ``unlinked`` that of inferences which name nothing that they rest on. ``tree`` and
    ``commit_id`` name the files that it was checked against, and ``key`` (hex) signed it.
    """

    event_index: Index
    event_id: str
    reasoning_id: str
    reasoning_ref: str
    passed: bool
    issues: int
    unlinked: int
    tree: TreeType
    commit_id: str
    validator: Untrusted
    validator_version: Untrusted
    author: str
    key: str
    accepted_ms: Ms
    data: ReasoningValidated


class Validations(Page[ValidationLine], frozen=True, kw_only=True):
    """A page of reports, newest first; ``compromised`` and ``as_of`` are those of a checked answer."""

    compromised: Compromised | UnsetType = UNSET
    as_of: Head | UnsetType = UNSET


class Voice(Marked, frozen=True, kw_only=True):
    """The outcome of a validator's newest report: how many ``references`` hold (``stand``), in which tree, and when."""

    outcome: Outcome
    by: str
    at_ms: Ms
    event_index: Index
    event_id: str
    references: int
    stand: int
    assumptions_open: int
    tree: TreeType
    commit: str
    problems: list[Untrusted]
    counted: str
    text: str


class Refuted(Answer, frozen=True, kw_only=True):
    """A refuted assumption of a graph version: its step and text, and the event by which an agent refuted it, and how.

    ``rests`` are the steps that rest on it; ``is_ground`` says whether the conclusion does.
    """

    reasoning_id: str
    event_index: Index
    step: int
    text: Untrusted
    by: str
    how: Untrusted
    rests: list[int]
    is_ground: bool


class Rederivation(Answer, frozen=True, kw_only=True):
    """Another agent's reasoning that reaches the same conclusion (the entry ``event_index``).

    ``doubt`` says why it is not independent; empty if nothing in the ledger speaks against that.
    """

    reasoning_id: str
    reasoning_ref: str
    event_index: Index
    by: str
    doubt: str


class LatestVerdict(Checked, frozen=True, kw_only=True):
    """The verdict on a graph version; ``latest`` is null if nobody independent validated this version.

    ``differing`` has the newest reports of other validators with another outcome than ``latest``. ``refuted`` are the
    assumptions of this version that were refuted, in this version or since. ``rederived`` are the reasonings of other
    agents that reach the same conclusion; they do not change the outcome. ``erased`` are the entries behind this
    version whose texts were redacted: then nobody can check it, nothing passes, and a human decides.
    """

    reasoning_ref: str
    outcome: Outcome
    text: str
    latest: Voice | None = None
    differing: list[Voice] = []
    refuted: list[Refuted] = []
    rederived: list[Rederivation] = []
    erased: list[Index] = []

    @property
    def refuted_grounds(self) -> list[Refuted]:
        """The refuted assumptions on which the conclusion rests."""
        return [refuted for refuted in self.refuted if refuted.is_ground]

    def voices(self, outcome: Outcome) -> list[Voice]:
        """Return the voices with an ``outcome``, the latest first."""
        return [voice for voice in (self.latest, *self.differing) if voice is not None and voice.outcome == outcome]
