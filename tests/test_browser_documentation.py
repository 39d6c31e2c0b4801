"""The site of the documentation builds without warnings; in a browser its pages fit and load from no other host."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from browser import DARK, LIGHT, PHONE, WIDE, Browser, Look, served_by
from faults import is_long_run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
SHOWN: Final = (
    "",
    "tutorial/",
    "how-to/keys/",
    "how-to/python-agent/",
    "erasure/",
    "explanation/how-it-works/",
    "reference/command-line/every-day/",
    "reference/errors/",
    "reference/python/",
    "reference/events/",
    "deploy/runbook/",
)


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A broken link, or a page that is not in the navigation, would be a warning and fail the build."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, "WARNING" in built.stderr) == (0, False), built.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address at which the site is served."""
    with served_by(partial(Quiet, directory=str(site))) as url:
        yield url


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that reaches no other host."""
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.mark.timeout(300)
def test_pages_are_whole_load_nothing_from_another_host_and_are_found(browser: Browser, address: str) -> None:
    """All checks are in one test, because each process that runs tests would build the site anew."""
    for look in (Look(WIDE, LIGHT), Look(PHONE, DARK)) if is_long_run else (Look(WIDE, LIGHT),):
        browser.look(look)
        for page in SHOWN:
            browser.open(f"{address}/{page}")
            assert (page, browser.problems(), browser.overflow()) == (page, [], [])
    browser.look(Look(WIDE, LIGHT))
    browser.open(f"{address}/?q=checkpoint")
    browser.until(lambda: browser.evaluate("document.querySelectorAll('.md-search-result__item').length"))
    assert browser.problems() == []
