"""One exported ledger and its bundles: all tests of this folder read them, and restore the bytes that they flip.

``unmeasured`` is for tests that start hundreds of processes: measuring the coverage of each would cost more than its
work.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from building import Ledger
from tampering import SESSION, fill, finding

from deedbook.ledger.bundle import export_bundle
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.session import SessionStarted

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A ledger of more than one tile."""
    with Ledger(tmp_path_factory.mktemp("exported") / ".deedbook") as ledger:
        fill(ledger)
        ledger.emit("bob", "session/many", SessionStarted(task="fill a tile"))
        for start in range(0, 240, 80):
            drafts = [Draft(stream="session/many", data=finding(start + number)) for number in range(80)]
            ledger.submit(ledger.sign("bob", *drafts))
        yield ledger


@pytest.fixture(scope="session")
def whole(source: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the whole log."""
    path = tmp_path_factory.mktemp("bundles") / "whole.tar"
    with source.client() as client:
        export_bundle(client, path)
    return path


@pytest.fixture(scope="session")
def partial(source: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of one stream."""
    path = tmp_path_factory.mktemp("bundles") / "partial.tar"
    with source.client() as client:
        export_bundle(client, path, stream=SESSION)
    return path


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes run without coverage: a few processes of other tests cover the same code."""
    for name in [one for one in os.environ if one.startswith("COVERAGE")]:
        monkeypatch.delenv(name)
