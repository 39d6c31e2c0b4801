"""Pages with an attacker's texts: no script runs, no text becomes markup, and no page's layout breaks.

`make test` looks at one address of each route, `make faults` at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import NARROW, WIDE, Browser, Look, let_in, static_page
from faults import is_long_run
from hostile_story import hostile
from story_pages import shown

from deedbook.ledger.bundle import Bundle, export_bundle
from deedbook.ledger.client.local import LocalClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deedbook.ledger.home.config import Settings

pytestmark = pytest.mark.timeout(300)  # pages may load slowly

FOREIGN = (
    "document.querySelectorAll('img, iframe, object, base, style, [onerror], [onload], [style], a[href^=javascript]')"
)
ACTIVE = "img, svg, iframe, object, base, link, script, a, form"
UNSEEN = r"[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u202a-\u202e\u2066-\u2069]"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The demo's events, with every text written by an attacker."""
    return hostile(tmp_path_factory.mktemp("hostile") / ".deedbook")


@pytest.fixture(scope="module")
def browser(story: Settings, chromium: Browser) -> Iterator[Browser]:
    """A browser that was let in."""
    with let_in(chromium, story.home):
        yield chromium


def test_nothing_that_an_attacker_wrote_is_more_than_text(story: Settings, browser: Browser) -> None:
    faults = []
    for _, address in shown(story, each=1000 if is_long_run else 1):
        browser.open(browser.url + address)
        faults += [f"{address}: {problem}" for problem in browser.problems()]
        if browser.evaluate("window.hit") is not None:
            faults.append(f"{address}: a script ran")
        if foreign := browser.evaluate(f"[...{FOREIGN}].map((one) => one.outerHTML.slice(0, 200))"):
            faults.append(f"{address}: {foreign[:3]}")
        if browser.evaluate(f"/{UNSEEN}/.test(document.documentElement.outerHTML)"):
            faults.append(f"{address}: characters that nobody sees")
        for width in (WIDE, NARROW):
            browser.look(Look(width, "light"))
            faults += [f"{address} at {width}: {fault}" for fault in browser.overflow()]
    assert faults == []


def test_the_page_of_a_bundle_runs_and_loads_nothing(story: Settings, chromium: Browser, tmp_path: Path) -> None:
    with LocalClient(story) as client:
        export_bundle(client, tmp_path / "hostile.tar")
    with Bundle(tmp_path / "hostile.tar") as bundle:
        page = bundle.read("index.html")
    chromium.problems()
    with static_page(page) as address:
        for width in (WIDE, NARROW):
            chromium.look(Look(width, "light"))
            chromium.open(address)
            assert chromium.evaluate("window.hit") is None
            assert chromium.evaluate(f"document.querySelectorAll('{ACTIVE}').length") == 0
            assert not chromium.evaluate(f"/{UNSEEN}/.test(document.documentElement.outerHTML)")
            assert chromium.overflow() == []
        chromium.open("about:blank")
    assert [problem for problem in chromium.problems() if "favicon" not in problem] == []
