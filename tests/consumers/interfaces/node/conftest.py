"""The ledger of a node that a test starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from serving import make_home

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.home.config import Settings


@pytest.fixture
def settings(home: Path) -> Settings:
    """The settings of a ledger that is not open."""
    return make_home(home)
