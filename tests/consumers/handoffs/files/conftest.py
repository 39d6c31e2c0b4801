"""A folder of handoff files beside a real ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("syncing")

from syncing import SyncedFolder  # noqa: E402 - pytest must know the module before it is imported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from building import Ledger


@pytest.fixture
def folder(ledger: Ledger, tmp_path: Path) -> Iterator[SyncedFolder]:
    """An empty folder that is synchronised with ``ledger``."""
    made = SyncedFolder(ledger, tmp_path)
    yield made
    made.close()
