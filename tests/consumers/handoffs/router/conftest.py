"""A ledger whose handoffs are routed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("routed_ledger")

from routed_ledger import Routed  # noqa: E402 - pytest must know the module before it is imported

from deedbook.projections.answers.reader import Reader  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from building import Ledger

    from deedbook.ledger.client.local import LocalClient


@pytest.fixture
def routed(ledger: Ledger, local_client: LocalClient, tmp_path: Path) -> Iterator[Routed]:
    """A ledger with minimax, claude and gemini, and the chains of the story in a file."""
    with Reader(local_client, ledger.settings()) as reader:
        yield Routed(ledger, local_client, reader, tmp_path)
