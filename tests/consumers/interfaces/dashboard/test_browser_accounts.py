"""Two people use one dashboard at the same time, each in a browser of their own: each decides their own items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import LOOKS, Browser, Shown, static_page
from building import Ledger
from looking import PASSPHRASE, seal

from deedbook.ledger.events.handoff import HandoffApproved, HandoffRejected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HUMANS = {"alice": ["agent"], "bob": ["agent"], "rita": ["human", "reviewer"], "ruth": ["human", "reviewer"]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A ledger with two humans whose keys are sealed; x waits for rita, and y for ruth."""
    with Ledger(tmp_path / ".deedbook", agents=HUMANS) as ledger:
        ledger.write_keys()
        for name, handoff in (("rita", "x"), ("ruth", "y")):
            seal(ledger, name, f"{PASSPHRASE} of {name}")
            ledger.hand_over(handoff, reviewer=name, tasks=["one"])
        return ledger.home.path


@pytest.fixture
def shown(home: Path) -> Iterator[Shown]:
    """The dashboard of both."""
    with Shown(home) as dashboard:
        yield dashboard


def unlock(browser: Browser, name: str) -> None:
    browser.driver.find_element("css selector", "details.key summary").click()
    browser.driver.find_element("css selector", "#unlock").send_keys(f"{PASSPHRASE} of {name}")
    browser.driver.find_element("css selector", "details.key form button").click()
    browser.until_shown(f"signs as {name} for", "header")


def test_two_people_decide_at_once_each_their_own(
    home: Path, shown: Shown, chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Browser(tmp_path_factory.mktemp("profile")) as other:
        browsers = {"rita": chromium, "ruth": other}
        for name, browser in browsers.items():
            browser.look(LOOKS[0])
            browser.open(shown.fresh_link(name))
        for name, browser, own, others in (("rita", chromium, "x", "y"), ("ruth", other, "y", "x")):
            assert browser.text("header .me") == name
            assert f"q-{own}" in str(browser.evaluate("document.querySelector('#queue').innerHTML"))
            browser.open(f"{shown.url}/h/{others}")
            assert browser.evaluate("document.querySelectorAll('form.decide').length") == 0
        for name, browser in browsers.items():
            unlock(browser, name)
        for browser, own, button in ((chromium, "x", "button.yes"), (other, "y", "button.no")):
            browser.open(f"{shown.url}/h/{own}")
            browser.driver.find_element("css selector", f"#note-{own}").send_keys("as I read it")
            browser.driver.find_element("css selector", f"#decide-{own} {button}").click()
            browser.until_shown("Signed as entry")
        chromium.open(f"{shown.url}/me")
        assert chromium.accessibility_faults() == []
        chromium.driver.find_element("css selector", "main form[action='/logout'] button").click()
        chromium.until_shown("You logged out.")
        assert "deed dashboard --link --as rita" in chromium.text()
        assert chromium.accessibility_faults() == []
        other.open(shown.url)
        assert "signs as ruth for" in other.text("header")
        for browser in browsers.values():
            assert [problem for problem in browser.problems() if "401" not in problem] == []
        chromium.open("about:blank")
    with Ledger(home, agents=HUMANS) as ledger:
        for index, name, kind in ((-2, "rita", HandoffApproved), (-1, "ruth", HandoffRejected)):
            event = ledger.event(index)
            assert (event.author, event.key, type(event.data)) == (name, ledger.keys[name].public.hex(), kind)


def test_page_of_another_origin_cannot_log_anybody_in(shown: Shown, chromium: Browser) -> None:
    link = shown.fresh_link("ruth")
    with static_page(f'<a href="{link}">news</a>'.encode()) as elsewhere:
        chromium.open(elsewhere)
        chromium.driver.find_element("css selector", "a").click()
        chromium.until_shown("Log in as ruth?")
        assert chromium.accessibility_faults() == []
        chromium.open(shown.url)
        chromium.until_shown("This browser is not logged in")
        chromium.open(elsewhere)
        chromium.driver.find_element("css selector", "a").click()
        chromium.until_shown("Log in as ruth?")
        chromium.driver.find_element("css selector", "button.yes").click()
        chromium.until_shown("Needs you")
    assert chromium.text("header .me") == "ruth"
    chromium.open("about:blank")
    chromium.problems()
