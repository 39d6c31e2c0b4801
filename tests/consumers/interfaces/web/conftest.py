"""A filled ledger that a file's tests read over HTTP, and an almost empty one for each test that writes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from every_kind import live
from view_ledger import ViewLedger
from web_reading import Own, Reading, opened

from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.home.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A ledger with every kind, as a Python program opens it, that the tests of a file only read."""
    with ViewLedger(tmp_path_factory.mktemp("read") / ".deedbook") as ledger:
        live(ledger)
        ledger.write_keys()
    with Ledger(settings=Settings(home=ledger.home.path)) as opened_ledger:
        yield opened_ledger


@pytest.fixture(scope="module")
def reading(python: Ledger) -> Iterator[Reading]:
    """The same ledger over HTTP."""
    assert isinstance(python.client, LocalClient)
    with contextlib.ExitStack() as stack:
        yield opened(stack, python.client)


@pytest.fixture
def own(home: Path) -> Iterator[Own]:
    """An almost empty ledger."""
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(ViewLedger(home))
        ledger.write_keys()
        yield Own(ledger, opened(stack, ledger.reads))
