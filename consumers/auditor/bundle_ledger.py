"""A bundle as a ledger that can only be read, for an auditor who has nothing else: no server, no folder, no trust.

Opening verifies the bundle. An INVALID bundle is refused. The verdict on any other bundle is in ``report``. The views
are built from its entries in a temporary folder, and they answer every query of a ledger's views.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deedbook.consumers.auditor.bundle import verify_open_bundle
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.bundle import Bundle
from deedbook.ledger.bundle.reader import BundleReader
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.environment import temporary_files_folder
from deedbook.ledger.system.files import temporary_folder
from deedbook.projections.answers.answer import IgnoredEntry
from deedbook.projections.answers.bundle_views import BundleViews

if TYPE_CHECKING:
    from deedbook.consumers.auditor.report import AuditReport
    from deedbook.ledger.client.client import Client, When


class BundleLedger(Ledger):
    """A verified bundle, open for reading. ``report`` is its audit."""

    def __init__(
        self,
        path: Path,
        *,
        root: str | None = None,
        agent: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Verify and open the bundle at ``path``, a tar or the folder of an unpacked one.

        ``root`` is the expected fingerprint of the root key. Queries about an agent's own work take ``agent``. Raises
        Refused: ``NOT_FOUND``, ``INVALID_FORMAT``, ``TOO_LARGE``: not a bundle. Corrupted: ``VERIFICATION_FAILED`` if
        the verdict is INVALID, with the problems; ``CORRUPTED`` if it cannot be opened.
        """
        self.path = path
        with ExitStack() as stack:
            bundle = stack.enter_context(Bundle(path))
            self.report = verify_open_bundle(bundle, root=root, progress=progress)
            if self.report.outcome == "INVALID":
                raise _unreadable(self.report)
            settings = Settings(
                home=stack.enter_context(temporary_folder(temporary_files_folder(), "deedbook-bundle-")),
                agent=agent,
                only_looks=True,
            )
            notes = [note for note in self.report.notes if note.index is not None]
            ignored = [IgnoredEntry(index=note.index or 0, code=note.code, message=note.message) for note in notes]
            self._reader = BundleReader(
                bundle,
                lambda client: BundleViews(
                    client, settings, ignored=ignored, is_anchored=self.report.anchored, gate=self.report.gate
                ),
            )
            stack.callback(self._reader.close)
            super().__init__(settings=settings)
            self._resources = stack.pop_all()

    def _prepare(self) -> None:
        self._client: Client | None = self._reader
        self._stop = threading.Event()

    @property
    def left_out(self) -> str | None:
        """A sentence about the entries that a bundle of one stream lacks; None for a bundle of a whole log."""
        manifest = self._reader.bundle.manifest
        if manifest.stream is None:
            return None
        return (
            f"it has {len(self._reader.indexes)} of the {manifest.size} entries of the log: {manifest.stream}, agents "
            "and keys, and the streams that its rules read. Other handoffs, sessions and reasonings are left out"
        )

    def ask(self, query: str, *, as_of: When | None = None, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a query from the bundle's views, which this process folded from verified entries."""
        return self.client.view(query, {name: value for name, value in arguments.items() if value is not None}, as_of)

    def query_with(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the same answer as ``ask``."""
        return self.ask(query, **arguments)

    def close(self) -> None:
        """Close the bundle, and delete the views; closing it again does nothing."""
        super().close()
        self._resources.close()


def _unreadable(report: AuditReport) -> Corrupted:
    first = report.problems[0]
    where = "" if first.index is None else f"entry {first.index}: "
    message = (
        f"{report.verdict}. It is not shown: {where}{first.code}: {first.message}. `deed verify` lists all problems"
    )
    return Corrupted("VERIFICATION_FAILED", message, outcome=report.outcome, verdict=report.verdict)
