"""Fixtures that every package's tests may use: a folder, a real ledger in it, and a client of that ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("checking", "client_suite", "given")

from building import Ledger  # noqa: E402 - what is rewritten is named first

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledger.local import LocalClient


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder for a ledger, not made yet."""
    return tmp_path / ".baton"


@pytest.fixture
def ledger(home: Path) -> Iterator[Ledger]:
    """A ledger with root, node, alice and bob (agents) and rita (the human reviewer)."""
    with Ledger(home) as made:
        yield made


@pytest.fixture
def local_client(ledger: Ledger) -> Iterator[LocalClient]:
    """A client of ``ledger`` on the same open log."""
    with ledger.client() as client:
        yield client
