"""A fixture of both stores of subscriptions, for tests that each store must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """The store of subscriptions: a file, or a database."""
    if request.param == "postgres":
        return str(request.getfixturevalue("database"))
    return tmp_path / "subscribers" / "one.db"
