"""The auditor: replays a ledger from its first entry, offline, and trusts nobody while doing it (DESIGN §4 to §6).

Words: a *problem* makes the verdict fail, and names the index it was found at; a *note* is worth knowing and fails
nothing; a report is *anchored* when the auditor brought knowledge of its own (the fingerprint of the root key, or a
checkpoint kept from earlier), else all that was checked is that the ledger agrees with itself: *self-asserted*.

    from consumers.auditor import verify_bundle, verify_log

    with open_client(settings) as client:
        report = verify_log(client, root="5d41…")
    for problem in report.problems:
        print(problem.index, problem.code, problem.message)
    print(report.verdict)

``baton fsck`` is ``consumers.auditor.fsck.fsck``: not re-exported, because the module's name would hide it.

Options refused: threads for signatures (measured: the interpreter lock leaves them little), forked workers (LMDB and
locks do not survive a fork), and stopping at the first problem (an auditor wants to know how far the damage goes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consumers.auditor.report import AuditReport, Problem
    from consumers.auditor.verify import verify_bundle, verify_log

_HOMES = {
    "AuditReport": "report",
    "Problem": "report",
    "verify_bundle": "verify",
    "verify_log": "verify",
}

__all__ = ["AuditReport", "Problem", "verify_bundle", "verify_log"]


def __getattr__(name: str) -> Any:
    """Load what is asked for: importing the package loads nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only when something is asked for

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
