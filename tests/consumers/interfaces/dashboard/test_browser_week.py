"""The page of a week in a real browser: who learned what about a subject, by keyboard and without scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Browser, let_in
from story_pages import live_copy, project_of

if TYPE_CHECKING:
    from collections.abc import Iterator

LEARNED = "[...document.querySelectorAll('[aria-labelledby=learned] li')].map((row) => row.innerText)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[Browser]:
    """A browser that is logged in to the demo's dashboard."""
    story = live_copy(tmp_path_factory, "week")
    with let_in(chromium, story.home, project=project_of(story.home)):
        yield chromium


def test_keys_alone_lead_to_what_was_learned_about_something_and_to_its_session(browser: Browser) -> None:
    browser.open(browser.url)
    browser.press("2")
    browser.until_shown("Unknowns still open", "main")
    browser.press("/")
    browser.press("cache", "\n")
    browser.until(lambda: len(browser.evaluate(LEARNED)) == 2)
    first, second = browser.evaluate(LEARNED)
    assert ("cached for a second" in first, "claude-code" in first) == (True, True)
    assert ("cached for ever" in second, "minimax" in second) == (True, True)
    browser.press("j", "\n")
    browser.until_shown("Before and after", "main")
    target = browser.evaluate("document.querySelector(':target').innerText")
    assert "cached for a second" in target
    assert browser.problems() == []


def test_without_scripts_the_form_and_the_kinds_work(browser: Browser) -> None:
    browser.allow_scripts(are_allowed=False)
    try:
        browser.open(browser.url + "/week")
        (link,) = browser.driver.find_elements("css selector", ".chips a[href*='kind=failed']")
        link.click()
        browser.until_shown("failed:", "main")
        browser.driver.find_element("css selector", "#filter").send_keys("timer")
        browser.driver.find_element("css selector", "form.filters button").click()
        browser.until(lambda: len(browser.driver.find_elements("css selector", "ol.things li")) == 1)
    finally:
        browser.allow_scripts(are_allowed=True)
