"""The live tail in a real browser: new rows without a reload, ten tabs on one stream, a leading tab that closes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Browser, let_in
from serving import CAROL, make_home

from deedbook.consumers.sdk.ledger import Ledger as Opened
from deedbook.ledger.events.handoff import HandoffCancelled, HandoffCreated
from deedbook.ledger.home.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

TABS = 10


@pytest.fixture(scope="module")
def carol(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Carol, who hands work to bob."""
    settings = make_home(tmp_path_factory.mktemp("live") / ".deedbook")
    with Opened(settings=Settings(home=settings.home, agent=CAROL)) as ledger:
        yield ledger


@pytest.fixture(scope="module")
def browser(carol: Opened, chromium: Browser) -> Iterator[Browser]:
    """A browser at the queue of rita."""
    with let_in(chromium, carol.settings.home, agent="rita"):
        yield chromium


@pytest.fixture
def page(browser: Browser) -> Iterator[Browser]:
    """One tab with a connected stream."""
    browser.open(browser.url)
    browser.until(lambda: browser.text("#live") == "live")
    yield browser
    first, *others = browser.driver.window_handles
    for one in others:
        browser.driver.switch_to.window(one)
        browser.driver.close()
    browser.driver.switch_to.window(first)
    assert browser.problems() == []


def hand_over(carol: Opened, name: str) -> None:
    carol.publish(f"handoff/{name}", HandoffCreated(title=f"Work called {name}", to="bob", reviewer="rita"))


def test_new_row_and_count_come_without_a_reload(carol: Opened, page: Browser) -> None:
    page.evaluate("window.stayed = true")
    hand_over(carol, "first")
    page.until_shown("Work called first", "#queue")
    page.until(lambda: page.text("#waits") == "1")
    assert page.evaluate("window.stayed") is True
    assert page.evaluate("document.getElementById('q-first:approve').classList.contains('new')") is True


def test_state_of_a_handoff_follows_the_log_wherever_its_page_shows_it(carol: Opened, page: Browser) -> None:
    hand_over(carol, "called-off")
    page.open(f"{page.url}/h/called-off")
    page.until(lambda: page.text("#live") == "live")
    assert "pending" in page.text(".heading")
    carol.publish("handoff/called-off", HandoffCancelled(reason="Nobody needs it"))
    page.until_shown("cancelled", ".heading")
    page.until_shown("Nobody needs it", "#log")


@pytest.mark.long_run
def test_ten_tabs_all_follow_and_none_freezes(carol: Opened, page: Browser) -> None:
    tabs = [page.driver.current_window_handle, *(page.tab(page.url) for _ in range(TABS - 1))]
    hand_over(carol, "for-ten")
    for tab in tabs:
        page.driver.switch_to.window(tab)
        page.until_shown("Work called for-ten", "#queue")
    held = page.evaluate("navigator.locks.query().then((all) => [all.held.length, all.pending.length])")
    assert held == [1, TABS - 1]


def test_tab_that_led_goes_and_another_takes_over(carol: Opened, page: Browser) -> None:
    leader = page.driver.current_window_handle
    follower = page.tab(page.url)
    page.driver.switch_to.window(leader)
    page.driver.close()
    page.driver.switch_to.window(follower)
    hand_over(carol, "after-the-leader")
    page.until_shown("Work called after-the-leader", "#queue")


def test_row_that_somebody_points_at_holds_still_until_he_leaves(carol: Opened, page: Browser) -> None:
    """A row that the person is about to click never moves away."""
    hand_over(carol, "under-the-mouse")
    page.until_shown("Work called under-the-mouse", "#queue")
    page.command("Input.dispatchMouseEvent", type="mouseMoved", x=200, y=140)
    hand_over(carol, "comes-later")
    page.until_shown("live, 1 new", "#live")
    assert "Work called comes-later" not in page.text("#queue")
    page.command("Input.dispatchMouseEvent", type="mouseMoved", x=10, y=5)
    page.until_shown("Work called comes-later", "#queue")
