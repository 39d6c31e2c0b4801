"""An audit is started in a real browser: the page follows it and ends with the verdict in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import LOOKS, let_in
from faults import is_long_run
from story_pages import live_copy

if TYPE_CHECKING:
    from browser import Browser

pytestmark = pytest.mark.timeout(300)


def test_the_verdict_comes_without_a_reload(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    with let_in(chromium, live_copy(tmp_path_factory, "audit").home) as browser:
        browser.open(f"{browser.url}/audit")
        browser.driver.find_element("css selector", "#verify form button").click()
        browser.until(lambda: "are right" in browser.text("#verify"))
        browser.until(lambda: "Checked as of #" in browser.text("#checked"))
        assert "3 entries were signed with a key of codex that was later reported stolen." in browser.text("#verify")
        assert browser.evaluate("[...document.querySelectorAll('.verdict ul a[href^=\"/e/\"]')].length") == 6
        assert browser.evaluate("document.querySelectorAll('.mark.stop, .mark.wait').length") == 1
        for look in LOOKS if is_long_run else LOOKS[::5]:  # the widest one in light colours, the narrowest in dark ones
            browser.look(look)
            assert browser.overflow() == []
            assert browser.accessibility_faults() == []
        assert browser.problems() == []
