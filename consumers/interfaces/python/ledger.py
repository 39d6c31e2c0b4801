"""The ledger with the subjects' nouns: handoffs, decisions, reasoning, sessions, and the audit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from deedbook.consumers.auditor.verify import verify_log
from deedbook.consumers.interfaces.python.near_names import Spelled
from deedbook.consumers.interfaces.python.nouns import AskedQuestion, Decision, Handoff, Reasoning, Session
from deedbook.consumers.interfaces.python.queries import QueryingLedger
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from deedbook.consumers.auditor.report import AuditReport

Progress = Callable[[int, int], None]


class Ledger(QueryingLedger, Spelled):
    """An open ledger, in a folder on this machine or behind a server; threads may share it."""

    def handoff(self, id: str) -> Handoff:  # noqa: A002 - the word that all use
        """Return a handoff by its id, also one that you are about to create."""
        return Handoff(self, id)

    def decision(self, id: str) -> Decision:  # noqa: A002
        """Return a decision by its id, also one that you are about to make."""
        return Decision(self, id)

    def question(self, id: str) -> AskedQuestion:  # noqa: A002
        """Return a question about no handoff by its id, also one that you are about to ask."""
        return AskedQuestion(self, id)

    def reasoning(self, id: str) -> Reasoning:  # noqa: A002
        """Return a reasoning by its id; methods that read also take the ref of a version."""
        return Reasoning(self, id)

    def session(self, id: str) -> Session:  # noqa: A002
        """Return a session by its id."""
        return Session(self, id)

    def verify(
        self,
        *,
        root: str | None = None,
        checkpoint: str | None = None,
        views: bool = False,
        resume: bool = False,
        progress: Progress | None = None,
    ) -> AuditReport:
        """Return the audit of every signature, rule and tree hash in the log.

        ``root`` is the fingerprint of the root key, as ``deed init`` printed it; without it the verdict is
        "self-asserted". ``checkpoint`` is a checkpoint that you stored earlier. With ``views`` the views are rebuilt
        from the log and compared, which needs the ledger's own folder. With ``resume`` the verified part is cached in
        the user's state folder (40 to 90 bytes an event); the next audit hashes that part again, and verifies only new
        events. ``progress`` is called with the number of entries that are done and that there are (by an
        ``AsyncLedger`` in a thread).

        Raises Refused: ``INVALID_FORMAT`` if the checkpoint is not one; ``USAGE`` for views behind a server.
        Unavailable: the ledger cannot be read.
        """
        if views and self.settings.server is not None:
            raise Refused(
                "USAGE",
                "views can be compared only in the ledger's own folder: open the ledger there, without a server",
            )
        client = self.client
        return verify_log(
            client,
            root=root,
            trusted_checkpoint=checkpoint,
            views=self.settings if views else None,
            cache=client.trust_store.audit_file if resume else None,
            progress=progress,
        )
