"""The list of every kind of event in the ledger.

``KINDS`` maps a kind to the type of its ``data`` and the type of its stream: the core's kinds, and those of the
families that installed packages bring (``ledger.families``). Tests compare JSON Schemas, AsyncAPI, admission rules,
documentation and examples with this table. Kinds are past-tense facts. A published kind is never changed: a new version
is a new kind. The modules of types are loaded when their kinds are first used. Packages are searched only for a kind
that the core does not have.

To add a kind: write its ``EventData`` in the module of its family, add it here, add its row to the rules of its family
in ``proto/rules`` (or handle it in ``ledger.admission.rules``: without either it is refused), fold it in the views that
show it, and run ``make contract``.

    >>> from deedbook.ledger.events import KINDS
    >>> KINDS["handoff.claimed"].data.__name__
    'HandoffClaimed'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from deedbook.ledger.families import installed, load
from deedbook.ledger.packages import families_cached_max, family_of, part_of

if TYPE_CHECKING:
    from deedbook.ledger.events.fields import EventData


@cache
def _load(module: str, name: str) -> Any:
    return load(f"{module}:{name}")


class Kind(msgspec.Struct, frozen=True):
    """The module and name of the data type of a kind, and the type of its stream: ``handoff`` for ``handoff/ID``.

    Only ``record.imported`` may be on another stream: that of its mapped kind (``ledger.events.imported``). ``family``
    is the name of the family whose package brings the kind.
    """

    module: str
    name: str
    stream: str
    family: str = ""

    @property
    def data(self) -> type[EventData]:
        """The type of its data. Raises Refused: ``FAMILY_UNUSABLE``: the package has no such type."""
        family = family_of(self.family) if self.family else None
        data = _load(self.module, self.name) if family is None else part_of(family, f"{self.module}:{self.name}")
        return cast("type[EventData]", data)

    @property
    def id_type(self) -> Any:
        """The type of the ID in the stream's name; None if the name has no ID."""
        if self.stream == "handoff":  # its id is a file name, and other handoffs depend on it by that id
            return _load(f"{__name__}.handoff", "HandoffId")
        if self.stream == "kind":
            return _load(f"{__name__}.declared", "OwnKind")
        if self.stream == "subject":
            return _load(f"{__name__}.subject", "SubjectName")
        return None if self.stream == "ledger" else str  # there is one stream ``ledger``


# Grouped by the module of the types and the type of the stream.
_FAMILIES: Final[tuple[tuple[str, str, dict[str, str]], ...]] = (
    (
        "authority",
        "ledger",
        {
            "ledger.created": "LedgerCreated",
            "ledger.history_reset": "HistoryReset",
            "ledger.clock_set": "ClockSet",
            "entry.redaction_proposed": "RedactionProposed",
            "entry.redacted": "EntryRedacted",
        },
    ),
    ("imported", "record", {"record.imported": "RecordImported"}),
    (
        "authority",
        "agent",
        {
            "agent.invited": "AgentInvited",
            "agent.invitation_revoked": "AgentInvitationRevoked",
            "agent.registered": "AgentRegistered",
            "role.granted": "RoleGranted",
            "role.revoked": "RoleRevoked",
            "key.delegated": "KeyDelegated",
            "key.revoked": "KeyRevoked",
            "key.rotated": "KeyRotated",
            "key.compromised": "KeyCompromised",
            "agent.removed": "AgentRemoved",
        },
    ),
    ("authority", "ledger", {"checkpoint_key.rotated": "CheckpointKeyRotated"}),
    ("declared", "kind", {"kind.declared": "KindDeclared"}),
    ("blob", "blob", {"blob.stored": "BlobStored"}),
    (
        "session",
        "session",
        {
            "session.started": "SessionStarted",
            "assessment.recorded": "AssessmentRecorded",
            "finding.logged": "FindingLogged",
            "unknown.logged": "UnknownLogged",
            "dead_end.logged": "DeadEndLogged",
            "finding.retracted": "FindingRetracted",
            "dead_end.retracted": "DeadEndRetracted",
            "unknown.resolved": "UnknownResolved",
            "tool.used": "ToolUsed",
            "report.generated": "ReportGenerated",
            "session.ended": "SessionEnded",
        },
    ),
    (
        "reasoning",
        "reasoning",
        {
            "reasoning.started": "ReasoningStarted",
            "reasoning.extended": "ReasoningExtended",
            "reasoning.assumption_settled": "AssumptionSettled",
            "reasoning.step_retracted": "StepRetracted",
            "reasoning.concluded": "ReasoningConcluded",
            "reasoning.briefed": "ReasoningBriefed",
            "reasoning.validated": "ReasoningValidated",
        },
    ),
    ("snapshot", "snapshot", {"snapshot.taken": "SnapshotTaken"}),
    ("decision", "decision", {"decision.made": "DecisionMade", "decision.withdrawn": "DecisionWithdrawn"}),
    (
        "question",
        "question",
        {
            "question.asked": "QuestionAsked",
            "question.answered": "QuestionAnswered",
            "question.settled": "QuestionSettled",
        },
    ),
    ("subject", "subject", {"subject.erased": "SubjectErased"}),
    ("review", "review", {"review.requested": "ReviewRequested", "review.answered": "ReviewAnswered"}),
    (
        "handoff",
        "handoff",
        {
            "handoff.created": "HandoffCreated",
            "handoff.amended": "HandoffAmended",
            "handoff.approved": "HandoffApproved",
            "handoff.rejected": "HandoffRejected",
            "handoff.claimed": "HandoffClaimed",
            "handoff.task_checked": "HandoffTaskChecked",
            "handoff.criterion_checked": "HandoffCriterionChecked",
            "handoff.waiver_asked": "HandoffWaiverAsked",
            "handoff.criterion_waived": "HandoffCriterionWaived",
            "handoff.question_asked": "HandoffQuestionAsked",
            "handoff.question_answered": "HandoffQuestionAnswered",
            "handoff.question_settled": "HandoffQuestionSettled",
            "handoff.released": "HandoffReleased",
            "handoff.logged": "HandoffLogged",
            "handoff.blocked": "HandoffBlocked",
            "handoff.unblocked": "HandoffUnblocked",
            "handoff.completed": "HandoffCompleted",
            "handoff.changes_requested": "HandoffChangesRequested",
            "handoff.verified": "HandoffVerified",
            "handoff.cancelled": "HandoffCancelled",
            "handoff.superseded": "HandoffSuperseded",
            "handoff.ready": "HandoffReady",
        },
    ),
)
CORE_KINDS: Final = {
    kind: Kind(f"{__name__}.{module}", name, stream)
    for module, stream, names in _FAMILIES
    for kind, name in names.items()
}
"""The kinds that every Deedbook has. The file ``verify.py`` knows exactly these."""


@lru_cache(families_cached_max)
def _kinds_of_family(name: str) -> dict[str, Kind]:
    family = family_of(name)
    kinds = {} if family is None else family.kinds
    parts = {kind: data.partition(":") for kind, data in kinds.items()}
    return {kind: Kind(module, data, name, name) for kind, (module, _, data) in parts.items()}


class _Kinds(Mapping[str, Kind]):
    """The core's kinds, then those of families. A complete list loads all usable families."""

    def __getitem__(self, name: str) -> Kind:
        return CORE_KINDS.get(name) or _kinds_of_family(name.partition(".")[0])[name]

    def __iter__(self) -> Iterator[str]:
        return chain(CORE_KINDS, *(family.kinds for family in installed()))

    def __len__(self) -> int:
        return len(CORE_KINDS) + sum(len(family.kinds) for family in installed())


KINDS: Final[Mapping[str, Kind]] = _Kinds()


def kinds_on(stream_type: str) -> Mapping[str, Kind]:
    """Return the kinds of events on streams ``stream_type/ID``."""
    core = {name: kind for name, kind in CORE_KINDS.items() if kind.stream == stream_type}
    return core or _kinds_of_family(stream_type)


class _KindOf(Mapping["type[EventData]", str]):
    """Maps each data type to its kind."""

    _core: Final = {(kind.module, kind.name): name for name, kind in CORE_KINDS.items()}

    def __getitem__(self, data: type[EventData]) -> str:
        key = data.__module__, data.__name__
        if (core := self._core.get(key)) is not None:
            return core
        reference = ":".join(key)
        kinds = (kind for family in installed() for kind, named in family.kinds.items() if named == reference)
        if (kind := next(kinds, None)) is None:
            raise KeyError(data)
        return kind

    def __iter__(self) -> Iterator[type[EventData]]:
        return (kind.data for kind in KINDS.values())

    def __len__(self) -> int:
        return len(KINDS)


KIND_OF: Final[Mapping[type[EventData], str]] = _KindOf()

__all__ = ["CORE_KINDS", "KINDS", "KIND_OF", "Kind", "kinds_on"]
