"""Dashboards, each of a ledger of its own, and one browser for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from browser import Browser
from firefox import Firefox
from looking import Viewer, look
from selenium.webdriver.common import selenium_manager

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[Viewer]:
    """Somebody who looks at a new ledger as its human, rita."""
    yield from look(tmp_path / "ledger")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser, which takes most of a second to start; ``browser.let_in`` shows a dashboard in it."""
    with pytest.MonkeyPatch.context() as patch:

        def fetch(*_: object) -> Any:
            raise AssertionError("selenium wants to fetch a browser or a driver")

        patch.setattr(selenium_manager.SeleniumManager, "binary_paths", fetch)
        with Browser(tmp_path_factory.mktemp("profile")) as started:
            yield started


@pytest.fixture(scope="session")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    """The other browser."""
    with Firefox(tmp_path_factory.mktemp("firefox")) as started:
        yield started
