"""The page of a week in a real browser: who learned what about a subject, by keyboard and without scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import DARK, LIGHT, LOOKS, PHONE, WIDE, Browser, Look, let_in
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


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
def test_the_middle_line_of_a_chart_has_contrast_with_its_band(browser: Browser, scheme: str) -> None:
    browser.look(Look(WIDE, scheme))
    browser.open(browser.url + "/week")
    colours = browser.evaluate(
        "[['.band', 'fill'], ['.rule', 'stroke']].map(([name, field]) => "
        "getComputedStyle(document.querySelector('.spark ' + name))[field].match(/[0-9.]+/g).map(Number))"
    )
    assert contrast(*colours) >= 3, colours
    browser.look(LOOKS[0])


def test_a_phone_has_no_lanes_and_no_words_about_them(browser: Browser) -> None:
    for width, is_shown in ((WIDE, True), (PHONE, False)):
        browser.look(Look(width, LIGHT))
        browser.open(browser.url + "/timeline")
        for part in (".acts svg", "#lanes-key"):
            shown = browser.evaluate(f"getComputedStyle(document.querySelector('{part}')).display")
            assert (shown != "none") is is_shown
    browser.look(LOOKS[0])


def contrast(*colours: list[float]) -> float:
    """Return the contrast ratio of two sRGB colours, as WCAG 2 defines it."""
    parts = [[part / 255 for part in colour[:3]] for colour in colours]
    linear = [[part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in row] for row in parts]
    darker, lighter = sorted(0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in linear)
    return (lighter + 0.05) / (darker + 0.05)


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
