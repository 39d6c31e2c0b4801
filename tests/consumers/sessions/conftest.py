"""Alice, who records sessions and publishes reports; each test has its own home and a git without settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from building import Ledger
from report_figures import Recorder

from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deedbook.ledger.client.local import LocalClient


pytest.register_assert_rewrite("repositories")


@pytest.fixture(autouse=True)
def _nobodys_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def recorder(ledger: Ledger, local_client: LocalClient) -> Iterator[Recorder]:
    """Sessions that alice records."""
    with Reader(local_client, ledger.settings()) as reader:
        yield Recorder(ledger, local_client, reader)


@pytest.fixture
def agents_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger that the environment names, with alice as the acting agent; no process has it open."""
    with Ledger(home) as ledger:
        ledger.write_keys()
    for name in ("DEEDBOOK_SERVER", "DEEDBOOK_SESSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DEEDBOOK_HOME", str(home))
    monkeypatch.setenv("DEEDBOOK_AGENT", "alice")
    monkeypatch.chdir(home.parent)
    return home
