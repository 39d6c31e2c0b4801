"""The ledger of a node that a test starts, and three nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from serving import make_home
from three_nodes import Nodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deedbook.ledger.home.config import Settings


@pytest.fixture
def settings(home: Path) -> Settings:
    """The settings of a ledger that is not open."""
    return make_home(home)


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """Three nodes that serve."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    nodes = Nodes(tmp_path)
    try:
        nodes.start()
        nodes.whole()
        yield nodes
    finally:
        nodes.end()
