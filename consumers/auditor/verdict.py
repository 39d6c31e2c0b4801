"""The verdict on a bundle, as ``deedbook.audit`` returns it to a Python program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from deedbook.consumers.auditor.report import AuditedAgent, AuditReport, ErasedEntry, Outcome, Problem
from deedbook.ledger.errors import refuse_name
from deedbook.ledger.lifecycle.gate_state import GateState


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a bundle.

    ``word`` is VALID, VALID_WITH_ERASURES, SUSPECT_KEY, PARTIAL, HISTORY_CHANGED or INVALID (the package
    ``consumers.auditor`` explains them), ``sentence`` the line that `deed verify` prints, and ``problems`` say why it
    is INVALID, by index of the entry; ``notes`` do not change the verdict. ``size`` is the number of entries of the
    log, and ``root`` its Merkle root (hex), None if an entry cannot be read; ``ledger`` and ``root_fingerprint`` (hex,
    of the root key) are None if entry 0 cannot be read. ``stream`` is the stream of a bundle of one, else None.
    ``missing`` names everything that the bundle lacks, and ``missing_blobs`` the refs of the blobs among it.
    ``compromised`` are the indexes of the first compromised signatures, of ``compromised_total``. ``agents`` could sign
    events, in the order of their registration. ``erased`` are the first of ``erased_total`` entries whose bodies were
    erased, as root or two humans signed. ``gate`` says whether somebody must enter a passphrase before anything is
    approved; None if that is not known.

    ``is_anchored`` says that the caller passed a matching fingerprint or checkpoint. Without one, anybody could have
    made the whole ledger.
    """

    word: Outcome
    sentence: str
    ledger: str | None
    size: int
    root: str | None
    root_fingerprint: str | None
    is_anchored: bool
    stream: str | None
    signatures: int
    problems: list[Problem]
    notes: list[Problem]
    missing: list[str]
    missing_blobs: list[str]
    compromised: list[int]
    compromised_total: int
    agents: list[AuditedAgent]
    gate: GateState | None
    erased: list[ErasedEntry]
    erased_total: int

    @property
    def is_valid(self) -> bool:
        """Whether the word is VALID or VALID_WITH_ERASURES. Otherwise something is wrong, missing or in doubt."""
        return self.word in ("VALID", "VALID_WITH_ERASURES")

    if not TYPE_CHECKING:  # if a type checker saw it, it would accept any attribute name
        __getattr__ = refuse_name


def verdict_of(report: AuditReport) -> Verdict:
    """Return the verdict in the report on a bundle."""
    blobs = [name.removeprefix("blobs/") for name in report.missing_files if name.startswith("blobs/")]
    return Verdict(
        word=report.outcome,
        sentence=report.verdict,
        ledger=report.ledger,
        size=report.size,
        root=report.tree_head,
        root_fingerprint=report.root_fingerprint,
        is_anchored=report.anchored,
        stream=report.stream,
        signatures=report.signatures,
        problems=report.problems,
        notes=report.notes,
        missing=report.missing_names,
        missing_blobs=[name.replace("/", ":") for name in blobs],
        compromised=report.compromised_signatures,
        compromised_total=report.compromised_signatures_total,
        agents=report.agents,
        gate=report.gate,
        erased=report.erased,
        erased_total=report.erased_total,
    )
