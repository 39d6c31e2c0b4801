"""The slow reference for answers about the past: folds the beginning of the log into a temporary store."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from deedbook.projections.answers.reader import Reader
from deedbook.projections.answers.view_reader import last_ms

if TYPE_CHECKING:
    from deedbook.ledger.client.client import Client
    from deedbook.ledger.client.reads import HeadView, Page
    from deedbook.ledger.home.config import Settings
    from deedbook.projections.stores.store import ReadTransaction


class Beginning:
    """A client whose log ends after ``size`` entries."""

    def __init__(self, client: Client, size: int) -> None:
        self._client = client
        self._size = size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def head(self) -> HeadView:
        return msgspec.structs.replace(self._client.head(), size=self._size)

    def entries(self, start: int, *, limit: int) -> Page:
        page = self._client.entries(start, limit=limit)
        entries = [(index, data) for index, data in page.entries if index < self._size]
        next_index = max(start, min(page.next_index, self._size))
        return msgspec.structs.replace(page, entries=entries, next_index=next_index, size=self._size)


class Prefix(Reader):
    """A ``Reader`` of the first ``size`` entries; closing it deletes its temporary store."""

    def __init__(self, client: Client, settings: Settings, size: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="deedbook-prefix-")
        super().__init__(Beginning(client, size), msgspec.structs.replace(settings, home=Path(self._folder.name)))

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def _now_ms(self, reading: ReadTransaction) -> int:
        return last_ms(reading)
