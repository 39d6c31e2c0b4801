"""Answers queries about a bundle from views that are folded from its verified entries, in a temporary folder.

Each answer is as of the last entry of the bundle: a lease that was valid then is valid in the answer, even years later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from deedbook.projections.answers.answer import Head, IgnoredEntry
from deedbook.projections.answers.reader import Reader
from deedbook.projections.answers.view_reader import last_ms
from deedbook.projections.views.registry import CHECKED

if TYPE_CHECKING:
    from deedbook.ledger.client.client import When
    from deedbook.ledger.client.reads import LogReads
    from deedbook.ledger.home.config import Settings
    from deedbook.ledger.lifecycle.gate_state import GateState
    from deedbook.projections.answers.query import Plain, QueryContext


class BundleViews(Reader):
    """The views of one bundle. Its reader verified the entries, so answers carry ``as_of`` as checked answers do."""

    def __init__(
        self,
        client: LogReads,
        settings: Settings,
        *,
        ignored: Sequence[IgnoredEntry] = (),
        is_anchored: bool,
        gate: GateState | None,
    ) -> None:
        """Fold in the folder of ``settings``. ``ignored`` are entries that may have no effect, as the audit found.

        ``gate`` is the state of the gate in that audit.
        """
        super().__init__(client, settings)
        self._ignored = list(ignored)
        self._is_anchored = is_anchored
        self._gate = gate

    def answer(self, query: str, arguments: dict[str, Any] | None = None, as_of: When | None = None) -> Plain:
        """Return the answer to a query; in a checked one, ``as_of`` names the head of the bundle's checkpoint."""
        answer = super().answer(query, arguments, as_of)
        if query not in CHECKED or as_of is not None:
            return answer
        head = self.client.head()
        checked = Head(
            size=head.size,
            root=head.root,
            is_pinned=self._is_anchored,
            ignored=self._ignored,
            gate=self._gate,
            ends=None,
        )
        return answer | {"as_of": msgspec.to_builtins(checked)}

    def _now_ms(self, context: QueryContext) -> int:
        return last_ms(context)
