"""The Python names of the proposals from which Deedbook was made, as their programs use them.

    from deedbook.seeds import ReasoningValidator, receive_snapshot, should_fetch_full_reasoning, snapshot_provider

    snapshot = receive_snapshot()
    if should_fetch_full_reasoning(snapshot):
        full = snapshot_provider.get_full_reasoning(snapshot.reasoning_ref)
        print(ReasoningValidator().validate(full).issues)

Each name is the one that Deedbook itself uses, or a function that opens the ledger which the environment names
(``DEEDBOOK_HOME``, ``DEEDBOOK_AGENT``) and closes it again. ``docs/python-names.md`` has the programs of the proposals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Unpack

from deedbook.consumers.interfaces.python.ledger import Ledger
from deedbook.consumers.reasoning.compressor.transfer import fetch, read_verdict, refuted_assumptions
from deedbook.consumers.reasoning.snapshots import take
from deedbook.consumers.reasoning.validator.report import ValidationReport
from deedbook.consumers.reasoning.validator.validator import ReasoningValidator as GraphValidator
from deedbook.consumers.sdk.thinking.extract import extract_reasoning_from_minimax, parse_thinking_process
from deedbook.consumers.sdk.thinking.steps import classify_step_type, infer_reasoning_type
from deedbook.consumers.sessions.api import (
    DatabaseHandoffStorage,
    EpistemicHandoffReportGenerator,
    GitHandoffStorage,
    LedgerOptions,
    MarkdownHandoffStorage,
    bootstrap_session,
    end_session,
    execute_postflight,
    execute_preflight,
    generate_handoff_report,
    load_handoff,
    query_handoff_reports,
    query_handoffs,
    resume_previous_session,
    submit_postflight_assessment,
    submit_preflight_assessment,
)
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, Unavailable, or_none
from deedbook.ledger.events.brief import Brief, RefutedAssumption
from deedbook.ledger.events.reasoning import EvidenceCheck
from deedbook.projections.briefs.embedding import cosine_similarity, embed_text
from deedbook.projections.briefs.gates import (
    MAX_INFORMATION_LOSS_TOLERANCE,
    MIN_FIDELITY_FOR_MINIMAL,
    MIN_FIDELITY_FOR_STANDARD,
    should_fetch_full_reasoning,
)
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep, compute_reasoning_ref
from deedbook.projections.snapshots.snapshot import EnhancedEpistemicSnapshot, to_context_prompt

__all__ = [
    "MAX_INFORMATION_LOSS_TOLERANCE",
    "MIN_FIDELITY_FOR_MINIMAL",
    "MIN_FIDELITY_FOR_STANDARD",
    "DatabaseHandoffStorage",
    "EnhancedEpistemicSnapshot",
    "EnhancedSnapshot",
    "EpistemicHandoffReportGenerator",
    "GitHandoffStorage",
    "MarkdownHandoffStorage",
    "ReasoningMemory",
    "ReasoningStep",
    "ReasoningValidator",
    "SnapshotProvider",
    "TransferLevel",
    "ValidationReport",
    "bootstrap_session",
    "classify_step_type",
    "compute_reasoning_ref",
    "cosine_similarity",
    "embed_text",
    "end_session",
    "execute_postflight",
    "execute_preflight",
    "extract_reasoning_from_minimax",
    "generate_handoff_report",
    "get_full_reasoning",
    "infer_reasoning_type",
    "load_handoff",
    "parse_thinking_process",
    "query_handoff_reports",
    "query_handoffs",
    "receive_snapshot",
    "resume_previous_session",
    "should_fetch_full_reasoning",
    "snapshot_provider",
    "submit_postflight_assessment",
    "submit_preflight_assessment",
    "take_snapshot",
    "to_context_prompt",
]

EnhancedSnapshot = EnhancedEpistemicSnapshot


def get_full_reasoning(reasoning_ref: str, **options: Unpack[LedgerOptions]) -> ReasoningMemory:
    """Return the whole graph of a ref or reasoning's id; its hash was recomputed.

    Raises Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``.
    """
    with Ledger(**options) as ledger:
        return fetch(ledger.client.view, reasoning_ref).memory


def take_snapshot(
    *,
    snapshot_id: str | None = None,
    session: str | None = None,
    reasoning: str | None = None,
    domain: str | None = None,
    context: str | None = None,
    vectors: Mapping[str, float] | None = None,
    **options: Unpack[LedgerOptions],
) -> EnhancedEpistemicSnapshot:
    """Sign a snapshot of a session, of a reasoning, or of both, and return it.

    Raises Refused: ``USAGE`` without session, reasoning and context; ``NOT_FOUND``; ``INVALID_FIELD`` for a vector.
    """
    given: dict[str, Any] = {"session": session, "reasoning": reasoning, "domain": domain, "context": context}
    with Ledger(**options) as ledger:
        return take.take_snapshot(
            ledger.author(), ledger.client.view, snapshot_id=snapshot_id, vectors=vectors, **given
        )


def receive_snapshot(snapshot_id: str | None = None, **options: Unpack[LedgerOptions]) -> EnhancedEpistemicSnapshot:
    """Return a snapshot by its id, or the newest one, after it was compared with its graph.

    Raises Refused: ``NOT_FOUND``, ``REF_AMBIGUOUS``.
    """
    with Ledger(**options) as ledger:
        view = ledger.client.view
        if snapshot_id is None:
            newest = view("snapshots.list", {"limit": 1})["items"]
            if not newest:
                raise Refused("NOT_FOUND", "nobody has taken a snapshot yet")
            snapshot_id = f"snapshot/{newest[0]['id']}"
        snapshot = take.receive_snapshot(view, snapshot_id)
        return replace(snapshot, refuted=_refuted(view, snapshot.reasoning_ref))


def _refuted(view: Ask, ref: str | None) -> list[RefutedAssumption]:
    """Return the refuted assumptions of a version, also if they were refuted after it."""
    verdict = None if ref is None else or_none(read_verdict, view, ref)
    return [] if verdict is None else refuted_assumptions(verdict)


class ReasoningValidator(GraphValidator):
    """Validates reasoning; in a project with a ledger, it also knows what was refuted after this version."""

    def validate(
        self, reasoning: ReasoningMemory | Brief, *, earlier: Iterable[EvidenceCheck] = (), validator: str = ""
    ) -> ValidationReport:
        """Return the report on a graph or a brief."""
        report = super().validate(reasoning, earlier=earlier, validator=validator)
        try:
            with Ledger() as ledger:
                report.add_refuted(_refuted(ledger.client.view, report.reasoning_ref))
        except Unavailable as error:
            if error.code != "NO_LEDGER":
                raise
        return report


class SnapshotProvider:
    """Answers for the prompts that say ``snapshot_provider.get_full_reasoning(reasoning_ref)``."""

    get_full_reasoning = staticmethod(get_full_reasoning)
    receive_snapshot = staticmethod(receive_snapshot)


snapshot_provider = SnapshotProvider()
