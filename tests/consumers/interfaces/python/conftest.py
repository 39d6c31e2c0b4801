"""A ledger in a folder and the same one behind `deed serve`: programs use both alike."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cli"))

from calling import Deed, Place, Serving, call

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENTS = {"kuro": ["agent"], "claude-code": ["agent"], "alex": ["human", "reviewer"]}


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEEDBOOK_HOME", "DEEDBOOK_SERVER", "DEEDBOOK_AGENT", "DEEDBOOK_SESSION"):
        monkeypatch.delenv(name, raising=False)


def make_home(folder: Path) -> Path:
    """Make a ledger with kuro, claude-code and the reviewer alex."""
    home = folder / ".deedbook"
    assert call("--home", home, "init", "--unprotected").code == 0
    for agent, roles in AGENTS.items():
        chosen = [word for role in roles for word in ("--role", role)]
        assert call("--home", home, "agent", "add", agent, *chosen, "--unprotected").code == 0
    return home


@pytest.fixture(scope="session")
def local_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger's folder."""
    return make_home(tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="session")
def served_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A ledger behind `deed serve`."""
    with Serving(make_home(tmp_path_factory.mktemp("served"))) as serving:
        yield serving.place


@pytest.fixture(scope="session", params=["local", "server"])  # made before the test gets its own folder of decisions
def place(request: pytest.FixtureRequest) -> Place:
    """The same kind of ledger, in its folder and behind a server."""
    if request.param == "local":
        return Place(request.getfixturevalue("local_home"))
    found: Place = request.getfixturevalue("served_place")
    return found


@pytest.fixture
def alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Deed:
    """Verbs on a new ledger of this test's own, in a folder."""
    made = Deed(capsys, Place(tmp_path / ".deedbook"))
    made("init", "--unprotected")
    return made
