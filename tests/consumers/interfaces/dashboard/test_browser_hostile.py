"""Pages about what an attacker wrote: no script runs, nothing of it becomes markup, and it breaks no page's layout.

In `make test` that is two addresses of each route, in `make faults` all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import NARROW, WIDE, Browser, Look, let_in
from faults import is_long_run
from hostile_story import hostile
from story_pages import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbook.ledger.home.config import Settings

pytestmark = pytest.mark.timeout(300)  # pages may come slowly

FOREIGN = (
    "document.querySelectorAll('img, iframe, object, base, style, [onerror], [onload], [style], a[href^=javascript]')"
)
UNSEEN = r"[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u202a-\u202e\u2066-\u2069]"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The demo's past, told by an attacker."""
    return hostile(tmp_path_factory.mktemp("hostile") / ".deedbook")


@pytest.fixture(scope="module")
def browser(story: Settings, chromium: Browser) -> Iterator[Browser]:
    """A browser that was let in."""
    with let_in(chromium, story.home):
        yield chromium


def test_nothing_that_an_attacker_wrote_is_more_than_text(story: Settings, browser: Browser) -> None:
    faults = []
    for _, address in shown(story, each=1000 if is_long_run else 2):
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
