"""The ledgers with the subjects' nouns: handoffs, reasoning, sessions, and the audit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from deedbook.consumers.auditor.verify import verify_log
from deedbook.consumers.interfaces.python.nouns import Handoff, Reasoning, Session
from deedbook.consumers.sdk.async_ledger import AsyncLedger as SdkAsyncLedger
from deedbook.consumers.sdk.reactions import ReactingLedger
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from deedbook.consumers.auditor.report import AuditReport
    from deedbook.ledger.client.client import Client
    from deedbook.projections.handoffs.answers import ShownHandoff, Why
    from deedbook.projections.reasoning.answers import ShownReasoning
    from deedbook.projections.sessions.answers import ShownSession

Progress = Callable[[int, int], None]
V = TypeVar("V")


class _Audited(Generic[V]):
    """The audit of both ledgers. With an ``AsyncLedger`` the report is awaited."""

    def verify(
        self,
        *,
        root: str | None = None,
        checkpoint: str | None = None,
        views: bool = False,
        resume: bool = False,
        progress: Progress | None = None,
    ) -> V:
        """Return the audit of every signature, rule and tree hash in the log.

        ``root`` is the fingerprint of the root key, as ``deed init`` printed it: without it the verdict is
        "self-asserted". ``checkpoint`` is a note that was kept from earlier; with ``views`` the views are rebuilt from
        the log and compared, which needs the ledger's own folder. With ``resume`` what is found right is kept in the
        user's state folder (40 to 90 bytes an event); the next one hashes it again, and verifies only what is new.
        ``progress`` is called with entries done and to do (of an ``AsyncLedger`` in a thread).

        Raises Refused: ``INVALID_FORMAT`` when the checkpoint is none; ``USAGE`` for views behind a server.
        Unavailable: the ledger could not be read.
        """
        ledger: Any = self

        def audit(client: Client) -> AuditReport:
            if views and ledger.settings.server is not None:
                raise Refused(
                    "USAGE",
                    "views can be compared only in the ledger's own folder: open the ledger there, without a server",
                )
            settings = ledger.settings if views else None
            cache = client.trust_store.audit_file if resume else None
            return verify_log(
                client, root=root, trusted_checkpoint=checkpoint, views=settings, cache=cache, progress=progress
            )

        report: V = ledger.compute(audit)
        return report


class Ledger(_Audited["AuditReport"], ReactingLedger):
    """An open ledger, in a folder on this machine or behind a server; threads may share it."""

    def handoff(self, id: str) -> Handoff[list[Accepted], ShownHandoff, Why]:  # noqa: A002 - the word that all use
        """Return a handoff by its id, whether it is there or about to be created."""
        return Handoff(self, id)

    def reasoning(self, id: str) -> Reasoning[list[Accepted], ShownReasoning, dict[str, Any]]:  # noqa: A002
        """Return a reasoning by its id; what reads it takes the ref of any version too."""
        return Reasoning(self, id)

    def session(self, id: str) -> Session[list[Accepted], ShownSession]:  # noqa: A002
        """Return a session by its id."""
        return Session(self, id)


class AsyncLedger(_Audited[Awaitable["AuditReport"]], SdkAsyncLedger):
    """A ``Ledger`` for programs with an event loop; ``async with`` opens it."""

    def handoff(self, id: str) -> Handoff[Awaitable[list[Accepted]], Awaitable[ShownHandoff], Awaitable[Why]]:  # noqa: A002
        """Return a handoff by its id, whether it is there or about to be created."""
        return Handoff(self, id)

    def reasoning(
        self,
        id: str,  # noqa: A002
    ) -> Reasoning[Awaitable[list[Accepted]], Awaitable[ShownReasoning], Awaitable[dict[str, Any]]]:
        """Return a reasoning by its id; what reads it takes the ref of any version too."""
        return Reasoning(self, id)

    def session(self, id: str) -> Session[Awaitable[list[Accepted]], Awaitable[ShownSession]]:  # noqa: A002
        """Return a session by its id."""
        return Session(self, id)
