"""The ledgers with the subjects' nouns: handoffs, reasoning, sessions, and the audit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from baton.nouns import Handoff, Reasoning, Session
from consumers.sdk.async_ledger import AsyncLedger as SdkAsyncLedger
from consumers.sdk.ledger import Ledger as SdkLedger
from ledger.admission.decide import Accepted

if TYPE_CHECKING:
    from consumers.auditor.report import AuditReport
    from ledger.client import Client

Progress = Callable[[int, int], None]


class Ledger(SdkLedger):
    """An open ledger, in a folder on this machine or behind a server; threads may share it."""

    def handoff(self, id: str) -> Handoff[list[Accepted], dict[str, Any]]:  # noqa: A002 - the word that all use
        """Return a handoff by its id, whether it is there or about to be created."""
        return Handoff(self, id)

    def reasoning(self, id: str) -> Reasoning[list[Accepted], dict[str, Any]]:  # noqa: A002
        """Return a reasoning by its id; what reads it takes the ref of any version too."""
        return Reasoning(self, id)

    def session(self, id: str) -> Session[list[Accepted], dict[str, Any]]:  # noqa: A002
        """Return a session by its id."""
        return Session(self, id)

    def verify(
        self,
        *,
        root: str | None = None,
        checkpoint: str | None = None,
        views: bool = False,
        progress: Progress | None = None,
    ) -> AuditReport:
        """Return the audit of every signature, rule and tree hash in the log.

        ``root`` is the fingerprint of the root key, as ``baton init`` printed it: without it the verdict is
        "self-asserted". ``checkpoint`` is a note that was kept from earlier; with ``views`` the views are rebuilt from
        the log and compared, which needs the ledger's own folder. ``progress`` is called with entries done and to do.

        Raises:
            Refused: ``INVALID_FORMAT`` when the checkpoint is none; ``USAGE`` for views behind a server.
            Unavailable: the ledger could not be read.
        """
        return _verify(self, root, checkpoint, progress, self.client, views=views)


class AsyncLedger(SdkAsyncLedger):
    """A ``Ledger`` for programs with an event loop; ``async with`` opens it."""

    def handoff(self, id: str) -> Handoff[Awaitable[list[Accepted]], Awaitable[dict[str, Any]]]:  # noqa: A002
        """Return a handoff by its id, whether it is there or about to be created."""
        return Handoff(self, id)

    def reasoning(self, id: str) -> Reasoning[Awaitable[list[Accepted]], Awaitable[dict[str, Any]]]:  # noqa: A002
        """Return a reasoning by its id; what reads it takes the ref of any version too."""
        return Reasoning(self, id)

    def session(self, id: str) -> Session[Awaitable[list[Accepted]], Awaitable[dict[str, Any]]]:  # noqa: A002
        """Return a session by its id."""
        return Session(self, id)

    async def verify(
        self,
        *,
        root: str | None = None,
        checkpoint: str | None = None,
        views: bool = False,
        progress: Progress | None = None,
    ) -> AuditReport:
        """Return the audit of the log, as ``Ledger.verify`` does; ``progress`` is called in a thread."""
        return await self.compute(partial(_verify, self, root, checkpoint, progress, views=views))


def _verify(
    ledger: SdkLedger | SdkAsyncLedger,
    root: str | None,
    checkpoint: str | None,
    progress: Progress | None,
    client: Client,
    *,
    views: bool,
) -> AuditReport:
    from consumers.auditor import verify_log  # noqa: PLC0415 - loads the auditor
    from ledger.errors import Refused  # noqa: PLC0415

    if views and ledger.settings.server is not None:
        raise Refused("USAGE", "views are compared in the ledger's own folder: open it there, without a server")
    settings = ledger.settings if views else None
    return verify_log(client, root=root, trusted_checkpoint=checkpoint, views=settings, progress=progress)
