"""Every kind of event the ledger knows: the only list.

``KINDS`` maps a kind to the type of its ``data`` and what its stream is of. JSON Schemas, AsyncAPI, admission rules,
documentation and examples are counted against this table by tests. Kinds are past-tense facts; a published kind is
never changed: a new version is a new kind.

To add a kind: write its ``EventData`` in the module of its family, add the line here, let its stream's machine in
``ledger.lifecycle`` take it (or give it a rule in ``ledger.admission.rules``: without either it is refused), fold it
where it matters, run ``make contract``.

    >>> from ledger.events import KINDS
    >>> KINDS["handoff.claimed"].data.__name__
    'HandoffClaimed'
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ledger.events import authority, blob, handoff, imported, reasoning, review, session, snapshot, tot
from ledger.events.fields import EventData


class Kind(NamedTuple):
    """A kind's data type and what the stream is of that it stands on: ``handoff`` for ``handoff/ID``.

    ``record.imported`` alone may stand elsewhere: on a stream of the kind it stands for (``ledger.events.imported``).
    """

    data: type[EventData]
    stream: str

    @property
    def id_type(self) -> Any:
        """The type of ID in the stream's name; None where the name has none."""
        return _ID_TYPES.get(self.stream, str)


# The id of a handoff names a file, and other handoffs depend on it by that form; there is one stream ``ledger``.
_ID_TYPES: Final[dict[str, Any]] = {"handoff": handoff.HandoffId, "ledger": None}


KINDS: Final[dict[str, Kind]] = {
    "ledger.created": Kind(authority.LedgerCreated, "ledger"),
    "ledger.epoch_started": Kind(authority.EpochStarted, "ledger"),
    "ledger.clock_set": Kind(authority.ClockSet, "ledger"),
    "ledger.term_started": Kind(authority.TermStarted, "ledger"),
    "record.imported": Kind(imported.RecordImported, imported.KEPT_ASIDE),
    "agent.invited": Kind(authority.AgentInvited, "agent"),
    "agent.invitation_revoked": Kind(authority.AgentInvitationRevoked, "agent"),
    "agent.registered": Kind(authority.AgentRegistered, "agent"),
    "role.granted": Kind(authority.RoleGranted, "agent"),
    "role.revoked": Kind(authority.RoleRevoked, "agent"),
    "key.delegated": Kind(authority.KeyDelegated, "agent"),
    "key.revoked": Kind(authority.KeyRevoked, "agent"),
    "key.rotated": Kind(authority.KeyRotated, "agent"),
    "key.compromised": Kind(authority.KeyCompromised, "agent"),
    "agent.removed": Kind(authority.AgentRemoved, "agent"),
    "checkpoint_key.rotated": Kind(authority.CheckpointKeyRotated, "ledger"),
    "blob.stored": Kind(blob.BlobStored, "blob"),
    "session.started": Kind(session.SessionStarted, "session"),
    "assessment.recorded": Kind(session.AssessmentRecorded, "session"),
    "finding.logged": Kind(session.FindingLogged, "session"),
    "unknown.logged": Kind(session.UnknownLogged, "session"),
    "dead_end.logged": Kind(session.DeadEndLogged, "session"),
    "finding.retracted": Kind(session.FindingRetracted, "session"),
    "dead_end.retracted": Kind(session.DeadEndRetracted, "session"),
    "unknown.resolved": Kind(session.UnknownResolved, "session"),
    "tool.used": Kind(session.ToolUsed, "session"),
    "report.generated": Kind(session.ReportGenerated, "session"),
    "session.ended": Kind(session.SessionEnded, "session"),
    "reasoning.started": Kind(reasoning.ReasoningStarted, "reasoning"),
    "reasoning.extended": Kind(reasoning.ReasoningExtended, "reasoning"),
    "reasoning.concluded": Kind(reasoning.ReasoningConcluded, "reasoning"),
    "reasoning.briefed": Kind(reasoning.ReasoningBriefed, "reasoning"),
    "reasoning.validated": Kind(reasoning.ReasoningValidated, "reasoning"),
    "snapshot.taken": Kind(snapshot.SnapshotTaken, "snapshot"),
    "review.requested": Kind(review.ReviewRequested, "review"),
    "review.answered": Kind(review.ReviewAnswered, "review"),
    "tot.started": Kind(tot.TotStarted, "tot"),
    "tot.decompose_task": Kind(tot.DecomposeTask, "tot"),
    "tot.decomposition_result": Kind(tot.DecompositionResult, "tot"),
    "tot.initialize_search": Kind(tot.InitializeSearch, "tot"),
    "tot.generate_thoughts": Kind(tot.GenerateThoughts, "tot"),
    "tot.generated_thoughts": Kind(tot.GeneratedThoughts, "tot"),
    "tot.nodes_added": Kind(tot.TotNodesAdded, "tot"),
    "tot.evaluate_thoughts": Kind(tot.EvaluateThoughts, "tot"),
    "tot.evaluation_results": Kind(tot.EvaluationResults, "tot"),
    "tot.nodes_marked": Kind(tot.TotNodesMarked, "tot"),
    "tot.backtracked": Kind(tot.TotBacktracked, "tot"),
    "tot.synthesize_solution": Kind(tot.SynthesizeSolution, "tot"),
    "tot.final_solution": Kind(tot.FinalSolution, "tot"),
    "tot.search_complete": Kind(tot.SearchComplete, "tot"),
    "tot.model_answered": Kind(tot.TotModelAnswered, "tot"),
    "tot.paused": Kind(tot.TotPaused, "tot"),
    "tot.resumed": Kind(tot.TotResumed, "tot"),
    "tot.error": Kind(tot.TotError, "tot"),
    "tot.log_written": Kind(tot.TotLogWritten, "tot"),
    "handoff.created": Kind(handoff.HandoffCreated, "handoff"),
    "handoff.amended": Kind(handoff.HandoffAmended, "handoff"),
    "handoff.approved": Kind(handoff.HandoffApproved, "handoff"),
    "handoff.rejected": Kind(handoff.HandoffRejected, "handoff"),
    "handoff.claimed": Kind(handoff.HandoffClaimed, "handoff"),
    "handoff.task_checked": Kind(handoff.HandoffTaskChecked, "handoff"),
    "handoff.criterion_checked": Kind(handoff.HandoffCriterionChecked, "handoff"),
    "handoff.waiver_asked": Kind(handoff.HandoffWaiverAsked, "handoff"),
    "handoff.criterion_waived": Kind(handoff.HandoffCriterionWaived, "handoff"),
    "handoff.released": Kind(handoff.HandoffReleased, "handoff"),
    "handoff.logged": Kind(handoff.HandoffLogged, "handoff"),
    "handoff.blocked": Kind(handoff.HandoffBlocked, "handoff"),
    "handoff.unblocked": Kind(handoff.HandoffUnblocked, "handoff"),
    "handoff.completed": Kind(handoff.HandoffCompleted, "handoff"),
    "handoff.changes_requested": Kind(handoff.HandoffChangesRequested, "handoff"),
    "handoff.verified": Kind(handoff.HandoffVerified, "handoff"),
    "handoff.cancelled": Kind(handoff.HandoffCancelled, "handoff"),
    "handoff.superseded": Kind(handoff.HandoffSuperseded, "handoff"),
    "handoff.ready": Kind(handoff.HandoffReady, "handoff"),
}

KIND_OF: Final[dict[type[EventData], str]] = {kind.data: name for name, kind in KINDS.items()}

__all__ = ["KINDS", "KIND_OF", "EventData", "Kind"]
