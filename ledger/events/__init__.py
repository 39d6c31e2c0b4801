"""The list of every kind of event in the ledger.

``KINDS`` maps a kind to the type of its ``data`` and the type of its stream. Tests compare JSON Schemas, AsyncAPI,
admission rules, documentation and examples with this table. Kinds are past-tense facts. A published kind is never
changed: a new version is a new kind. The modules of the families are loaded when their kinds are first used.

To add a kind: write its ``EventData`` in the module of its family, add it here, add its row to the rules of its family
in ``proto/rules`` (or handle it in ``ledger.admission.rules``: without either it is refused), fold it in the views that
show it, and run ``make contract``.

    >>> from deedbook.ledger.events import KINDS
    >>> KINDS["handoff.claimed"].data.__name__
    'HandoffClaimed'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

if TYPE_CHECKING:
    from deedbook.ledger.events.fields import EventData


@cache
def _load(module: str, name: str) -> Any:
    return getattr(import_module(f"deedbook.ledger.events.{module}"), name)


class Kind(msgspec.Struct, frozen=True):
    """The module and name of the data type of a kind, and the type of its stream: ``handoff`` for ``handoff/ID``.

    Only ``record.imported`` may be on another stream: that of its mapped kind (``ledger.events.imported``).
    """

    module: str
    name: str
    stream: str

    @property
    def data(self) -> type[EventData]:
        """The type of its data."""
        return cast("type[EventData]", _load(self.module, self.name))

    @property
    def id_type(self) -> Any:
        """The type of the ID in the stream's name; None if the name has no ID."""
        if self.stream == "handoff":  # its id is a file name, and other handoffs depend on it by that id
            return _load("handoff", "HandoffId")
        if self.stream == "subject":
            return _load("subject", "SubjectName")
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
            "ledger.term_started": "TermStarted",
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
        "tot",
        "tot",
        {
            "tot.started": "TotStarted",
            "tot.decompose_task": "DecomposeTask",
            "tot.decomposition_result": "DecompositionResult",
            "tot.initialize_search": "InitializeSearch",
            "tot.generate_thoughts": "GenerateThoughts",
            "tot.generated_thoughts": "GeneratedThoughts",
            "tot.nodes_added": "TotNodesAdded",
            "tot.evaluate_thoughts": "EvaluateThoughts",
            "tot.evaluation_results": "EvaluationResults",
            "tot.nodes_marked": "TotNodesMarked",
            "tot.backtracked": "TotBacktracked",
            "tot.synthesize_solution": "SynthesizeSolution",
            "tot.final_solution": "FinalSolution",
            "tot.search_complete": "SearchComplete",
            "tot.model_answered": "TotModelAnswered",
            "tot.paused": "TotPaused",
            "tot.resumed": "TotResumed",
            "tot.error": "TotError",
            "tot.log_written": "TotLogWritten",
        },
    ),
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
KINDS: Final = {kind: Kind(module, name, stream) for module, stream, names in _FAMILIES for kind, name in names.items()}


class _KindOf(Mapping["type[EventData]", str]):
    """Maps each data type to its kind."""

    _kinds: Final = {(f"{__name__}.{kind.module}", kind.name): name for name, kind in KINDS.items()}

    def __getitem__(self, data: type[EventData]) -> str:
        return self._kinds[data.__module__, data.__name__]

    def __iter__(self) -> Iterator[type[EventData]]:
        return (kind.data for kind in KINDS.values())

    def __len__(self) -> int:
        return len(KINDS)


KIND_OF: Final[Mapping[type[EventData], str]] = _KindOf()

__all__ = ["KINDS", "KIND_OF", "Kind"]
