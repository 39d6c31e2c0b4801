"""A real ledger behind every view test, and a reader of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from view_ledger import ViewLedger

from projections import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator
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
