"""Every page in a real browser: no fault in the console or of the policy, none for people who hear or tab through it.

In `make test` each route is judged in one width and colour scheme, which take turns; in `make faults` each address in
all four.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from browser import LOOKS, NARROW, WIDE, Browser, Look, Shown
from faults import is_long_run
from selenium.webdriver.common import selenium_manager
from story_pages import live, shown

from consumers.doors.dashboard.pages import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.config import Settings


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The demo's past."""
    return live(tmp_path_factory.mktemp("story") / ".baton")


@pytest.fixture(scope="module")
def browser(story: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that was let in, and at what address it is."""
    with pytest.MonkeyPatch.context() as patch:

        def fetch(*_: object) -> Any:
            raise AssertionError("selenium wants to fetch a browser or a driver")

        patch.setattr(selenium_manager.SeleniumManager, "binary_paths", fetch)
        with Browser(tmp_path_factory.mktemp("profile")) as started, Shown(story.home) as dashboard:
            started.open(dashboard.link)
            started.url = dashboard.url
            yield started


def test_every_page_is_looked_at(story: Settings) -> None:
    assert {name for name, _ in shown(story)} == {route.name for route in ROUTES}


def test_pages_have_no_fault_in_the_console_nor_for_people_who_hear_them(story: Settings, browser: Browser) -> None:
    faults: list[str] = []
    judged: set[str] = set()
    for name, address in shown(story):
        browser.open(browser.url + address)
        for look in LOOKS if is_long_run else () if name in judged else [LOOKS[len(judged) % len(LOOKS)]]:
            browser.look(look)
            faults += [f"{address} at {look}: {fault}" for fault in browser.accessibility_faults()]
        judged.add(name)
        faults += [f"{address}: {problem}" for problem in browser.problems()]
    assert faults == []


def test_no_page_is_wider_than_its_window(story: Settings, browser: Browser) -> None:
    faults = []
    for width in (WIDE, NARROW):
        browser.look(Look(width, "light"))
        for _, address in shown(story):
            browser.open(browser.url + address)
            faults += [f"{address} at {width}: {fault}" for fault in browser.overflow()]
    assert faults == []
