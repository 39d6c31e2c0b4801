"""Ledgers to call verbs on: one in a folder and one behind `deed serve`, each made once, and empty ones for each test.

Tests that take ``deed`` share a ledger, so each names its own streams with ``fresh``. Tests marked ``served`` run
twice, locally and with ``--server``. Together, their verbs use every method of a client.
"""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING

import inside
import pytest
from building import trusted
from calling import Deed, Place, Serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

AGENTS = {"a": ["agent"], "b": ["agent"], "ada": ["admin"], "rita": ["human", "reviewer"]}


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEEDBOOK_HOME", "DEEDBOOK_SERVER", "DEEDBOOK_AGENT", "DEEDBOOK_SESSION", "DEEDBOOK_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def populated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Copies a ledger with agents a and b, the admin ada and the human reviewer rita; returns the copy's folder."""
    pattern = tmp_path_factory.mktemp("pattern") / ".deedbook"
    assert inside.deed("--home", pattern, "init", "--unprotected").code == 0
    for agent, roles in AGENTS.items():
        chosen = [word for role in roles for word in ("--role", role)]
        assert inside.deed("--home", pattern, "agent", "add", agent, *chosen, "--unprotected").code == 0

    def make(name: str) -> Path:
        return trusted(shutil.copytree(pattern, tmp_path_factory.mktemp(name) / ".deedbook"))

    return make


@pytest.fixture(scope="session")
def served(populated: Callable[[str], Path]) -> Iterator[Place]:
    """A ledger behind `deed serve`."""
    with Serving(populated("served")) as serving:
        yield serving.place


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test marked ``served`` twice: both clients behave alike for callers (``client_suite`` proves that)."""
    if "place" in metafunc.fixturenames:
        is_served = metafunc.definition.get_closest_marker("served") is not None
        metafunc.parametrize("place", ["local", "server"] if is_served else ["local"], indirect=True, scope="session")


@pytest.fixture(scope="session")
def place(request: pytest.FixtureRequest, populated: Callable[[str], Path]) -> Place:
    """A ledger in its folder and, for tests marked ``served``, one behind a server."""
    if request.param == "local":
        return Place(populated("local"))
    found: Place = request.getfixturevalue("served")
    return found


@pytest.fixture
def deed(place: Place, capsys: pytest.CaptureFixture[str]) -> Deed:
    """Verbs on a shared ledger, locally and through a server."""
    return Deed(capsys, place)


@pytest.fixture
def alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Deed:
    """Verbs on a new ledger of this test's own, in a folder."""
    made = Deed(capsys, Place(tmp_path / ".deedbook"))
    made("init", "--unprotected")
    return made


@pytest.fixture
def nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Deed:
    """Verbs in an empty folder."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Deed(capsys, None)


_numbers = itertools.count(1)


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Return a name that no other test uses."""
    return lambda what: f"{what}-{next(_numbers)}"


@pytest.fixture
def carl(deed: Deed, fresh: Callable[[str], str]) -> str:
    """A receiver of this test's own."""
    name = fresh("carl")
    deed("agent", "add", name, "--as", "ada")
    return name


@pytest.fixture
def rob(deed: Deed, fresh: Callable[[str], str]) -> str:
    """A reviewer for this test alone, who is no human and has no reviews."""
    name = fresh("rob")
    deed("agent", "add", name, "--role", "reviewer", "--unprotected", "--as", "ada")
    return name
