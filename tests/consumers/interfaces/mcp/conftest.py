"""A ledger with the agents alice and bob, the reviewing agent critic, the human rita and the admin ada."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("mcp_clients")

from building import Ledger  # noqa: E402
from mcp_clients import HttpServer, Inspector, install_inspector  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEEDBOOK_HOME", "DEEDBOOK_SERVER", "DEEDBOOK_AGENT", "DEEDBOOK_SESSION", "DEEDBOOK_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)


def make_ledger(folder: Path) -> Path:
    """Make the ledger in a folder, and return its home."""
    with Ledger(folder) as ledger:
        ledger.register("critic", "reviewer")
        ledger.register("ada", "admin")
        ledger.write_keys()
    return folder


@pytest.fixture
def own_home(home: Path) -> Path:
    """A ledger of this test's own."""
    return make_ledger(home)


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger that the tests of a file share."""
    folder = tmp_path_factory.mktemp("shared") / ".deedbook"
    folder.mkdir()
    (folder / "log").mkdir()
    return make_ledger(folder)


@pytest.fixture(scope="module")
def http_server(shared_home: Path) -> Iterator[HttpServer]:
    """A server over HTTP that the tests of a file share."""
    with HttpServer(shared_home, "--as", "alice") as server:
        yield server


@pytest.fixture(scope="session")
def inspector() -> Inspector:
    """The MCP Inspector's command line."""
    return install_inspector()
