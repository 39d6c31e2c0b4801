"""A real ledger for every view test, and a reader of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from view_ledger import ViewLedger

from deedbook.projections.answers.reader import Reader
from deedbook.projections.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def ledger(home: Path) -> Iterator[ViewLedger]:
    """A ledger with alice and bob (agents), rita (the human reviewer) and scribe (a service)."""
    with ViewLedger(home) as made:
        yield made


@pytest.fixture
def reader(ledger: ViewLedger) -> Iterator[Reader]:
    """A reader of the ledger's views."""
    with Reader(ledger.reads, ledger.settings()) as made:
        yield made


@pytest.fixture
def open_store(ledger: ViewLedger) -> Iterator[Callable[..., SqliteStore]]:
    """Open stores of the ledger; all are closed at the end."""
    stores: list[SqliteStore] = []

    def opener(path: Path | None = None) -> SqliteStore:
        stores.append(SqliteStore(path or ledger.home.views, ledger=ledger.reads.ledger))
        return stores[-1]

    yield opener
    for store in stores:
        store.close()
