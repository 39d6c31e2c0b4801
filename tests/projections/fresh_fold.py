"""The slow truth of a past: its prefix of the log, folded anew into a temporary store."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from projections.reader import Reader, last_ms

if TYPE_CHECKING:
    from ledger.client import Client
    from ledger.config import Settings
    from projections.store import Reading


class Prefix(Reader):
    """A ``Reader`` of the first ``size`` entries; its temporary store goes when it is closed."""

    def __init__(self, client: Client, settings: Settings, size: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="baton-prefix-")
        super().__init__(client, settings, views_file=Path(self._folder.name) / "views.db", until=size)

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def _now_ms(self, reading: Reading) -> int:
        return last_ms(reading)
