"""Dashboards to look at, each of a ledger of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from looking import Viewer, look

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[Viewer]:
    """Somebody who looks at a new ledger as its human, rita."""
    yield from look(tmp_path / "ledger")
