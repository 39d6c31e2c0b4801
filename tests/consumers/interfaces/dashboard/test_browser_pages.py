"""Opens every page in a real browser: it has no errors in the console, in its layout, or for users of screen readers.

In `make test` Chromium judges one address of each route, in a width and colour scheme that take turns, and measures it
in all three widths; in `make faults` Chromium and Firefox judge all addresses in all six looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import LIGHT, LOOKS, PHONE, Browser, Keys, Look, PageChecks, Shown, let_in, static_page
from building import MAP_SIZE
from faults import is_long_run, metrics
from story_pages import live_copy, project_of, shown

from deedbook.consumers.interfaces.dashboard.pages import page_routes
from deedbook.ledger.client.creation import create_ledger
from deedbook.ledger.home.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from firefox import Firefox

    from deedbook.ledger.home.config import Settings

# The first test installs axe-core, and a page may load slowly; the long run judges 300 looks in one test.
pytestmark = pytest.mark.timeout(7200 if is_long_run else 300)

# Paper would lack the hidden content of areas that scroll, because nobody can scroll there.
CUT = """[...document.querySelectorAll("main *")].filter((one) => getComputedStyle(one).overflowX !== "visible" &&
  one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== "inline" && one.tagName !== "PROGRESS" &&
  getComputedStyle(one).textOverflow !== "ellipsis").map((one) => one.outerHTML.slice(0, 120))"""

# A table that is wider than its card hides columns, and a hidden column could say that a key is compromised.
CUT_TABLES = """[...document.querySelectorAll(".scroll:has(> table)")].filter((one) =>
  one.scrollWidth > one.clientWidth + 1).map((one) => one.getAttribute("aria-label") + " is cut")"""

FAULTY = b"""<!doctype html><html lang=en><head><meta charset=utf-8><title>Faulty</title>
<meta http-equiv="Content-Security-Policy" content="style-src 'nonce-a'">
<style nonce=a>.small { font-size: 8px } .pale { color: #ccc; background: #fff }</style></head>
<body><main><h1>Faulty</h1><img width=800 height=8 src="/no.png"><p class=small>small</p><p class=pale>pale</p>
<p style="color: red">red</p></main><script>undefined_name()</script>
"""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of a copy of the demo's ledger."""
    return live_copy(tmp_path_factory, "pages")


@pytest.fixture(scope="module")
def browser(story: Settings, chromium: Browser) -> Iterator[Browser]:
    """A browser that is logged in, and the address of its dashboard."""
    with let_in(chromium, story.home, project=project_of(story.home)):
        yield chromium


def test_every_page_is_looked_at(story: Settings) -> None:
    assert {name for name, _ in shown(story)} == {route.name for route in page_routes()}


def faults_of_pages(browser: PageChecks, story: Settings) -> list[str]:
    """Open all pages in a browser; return their faults: in the console, in layout, in accessibility."""
    faults: list[str] = []
    for number, (name, address) in enumerate(shown(story, each=1000 if is_long_run else 1)):
        turn = [LOOKS[(number + step) % len(LOOKS)] for step in (0, 1, 2)]  # all widths
        for look in LOOKS if is_long_run else turn:
            browser.look(look)
            if is_whole := is_long_run or look is turn[0]:
                browser.open(browser.url + address)
            page_faults = browser.overflow() + browser.unreadable() + is_whole * browser.accessibility_faults()
            page_faults += browser.evaluate(CUT_TABLES)
            faults += [f"{address} at {look}: {fault}" for fault in page_faults + browser.problems()]
            metrics(f"looks at pages in {type(browser).__name__}")
        if browser.evaluate("document.querySelectorAll('.top nav [aria-current]').length") != (
            name not in ("search", "me")
        ):
            faults.append(f"{address}: the menu does not say where this belongs")
    return faults


def test_pages_have_no_fault_in_the_console_for_people_who_hear_them_or_in_width(
    story: Settings, browser: Browser
) -> None:
    assert faults_of_pages(browser, story) == []


@pytest.mark.long_run
def test_pages_have_no_fault_in_firefox_either(story: Settings, firefox: Firefox) -> None:
    with let_in(firefox, story.home, project=project_of(story.home)):
        assert faults_of_pages(firefox, story) == []


@pytest.mark.long_run
def test_firefox_names_faults(firefox: Firefox) -> None:
    with static_page(FAULTY) as url:
        firefox.look(Look(PHONE, LIGHT))
        firefox.open(url)
        assert [fault.partition(":")[0] for fault in firefox.accessibility_faults()] == ["color-contrast", "image-alt"]
        assert firefox.overflow()[0] == "the page is 808 px wide"
        assert firefox.unreadable() == ["P: small text small"]
        assert ["an inline style" in one or "undefined_name" in one for one in firefox.problems()] == [True, True]
        assert firefox.problems() == []
        firefox.open("about:blank")


def test_page_prints_whole(story: Settings, browser: Browser) -> None:
    for address in ("/", "/h/auth-rotate", "/events", "/graph", "/e/291"):
        browser.open(browser.url + address)
        assert browser.printed().startswith(b"%PDF")
        browser.look_at_paper()
        assert browser.overflow() == []
        assert browser.evaluate(CUT) == []
    assert browser.problems() == []


def test_slider_leads_through_a_search_and_its_address_can_be_shared(story: Settings, browser: Browser) -> None:
    address = next(one for name, one in shown(story) if name == "tot_thoughts")
    browser.open(browser.url + address)
    last = browser.evaluate("document.querySelectorAll('#tree .node').length")
    for share in (0.25, 0.5):  # the second request comes while the first page is fetched
        browser.evaluate(
            "(() => { const one = document.querySelector('[data-scrub]'); "
            f"one.value = Math.round(Number(one.min) + {share} * (one.max - one.min)); "
            "one.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )
    value = browser.evaluate("document.querySelector('[data-scrub]').value")
    browser.until(lambda: browser.text("#steps .mono").replace(",", "") == f"#{value}")
    assert 0 < browser.evaluate("document.querySelectorAll('#tree .node').length") < last
    assert browser.evaluate("location.search") == f"?at={value}"
    browser.open(browser.evaluate("location.href"))
    assert browser.text("#steps .mono").replace(",", "") == f"#{value}"
    assert browser.problems() == []


def test_a_page_looks_back_in_time_from_its_head_which_stays_in_view(browser: Browser) -> None:
    browser.look(Look(PHONE, LIGHT))
    browser.open(browser.url + "/graph?id=rel-0-4")
    assert browser.evaluate("scrollY") == 0  # the chosen box is further down, in its own scroll area
    browser.evaluate("document.querySelector('.back summary').focus()")
    browser.press(Keys.ENTER, Keys.TAB, "300", Keys.ENTER)
    browser.until_shown("As of #300", ".past")
    assert browser.evaluate("new URLSearchParams(location.search).get('id')") == "rel-0-4"
    browser.look(LOOKS[0])
    assert browser.problems() == []


def test_enter_opens_the_step_of_a_box(browser: Browser) -> None:
    browser.open(browser.url + "/r/auth-rotation")
    browser.evaluate("document.querySelector('.drawing a.node').focus()")
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.evaluate("location.hash") == "#chosen")
    browser.until_shown("recorded in entry", "#chosen")
    assert 0 <= round(browser.evaluate("document.querySelector('#chosen').getBoundingClientRect().top")) < 900
    assert browser.problems() == []


@pytest.mark.long_run
def test_pages_of_an_empty_ledger_and_errors_have_no_fault_either(tmp_path: Path, browser: Browser) -> None:
    create_ledger(Home(tmp_path / ".deedbook"), origin="test/empty", map_size=MAP_SIZE)
    menu = [route.path for route in page_routes() if route.menu]
    faults: list[str] = []
    with Shown(tmp_path / ".deedbook") as dashboard:
        browser.open(dashboard.link)
        for number, address in enumerate((*menu, "/h/none", "/?as_of=99", "/?as_of=2020-01-01T00:00:00Z")):
            browser.look(LOOKS[number % len(LOOKS)])
            browser.open(dashboard.url + address)
            faults += [f"{address}: {fault}" for fault in browser.accessibility_faults() + browser.overflow()]
            faults += [f"{address}: {one}" for one in browser.problems() if "404 (Not Found)" not in one]
    assert faults == []
