"""Evidence and comparisons in a real browser: without scripts, with a screen reader, and on a phone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from browser import DARK, LIGHT, WIDE, Browser, Look, let_in
from faults import is_long_run
from story_pages import live_copy, project_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbook.ledger.home.config import Settings

pytestmark = pytest.mark.timeout(3600 if is_long_run else 300)

PAGES = ("/?open=auth-rotate", "/h/auth-rotate", "/r/auth-rotation", "/h/auth-rotate/diff?from=1")
PHONE = 390


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of a copy of the demo's ledger."""
    return live_copy(tmp_path_factory, "evidence")


@pytest.fixture(scope="module")
def browser(story: Settings, chromium: Browser) -> Iterator[Browser]:
    """A browser that is logged in, and the address of its dashboard."""
    with let_in(chromium, story.home, project=project_of(story.home)):
        yield chromium


def test_a_changed_file_is_told_at_once_and_alike_on_every_page(story: Settings, browser: Browser) -> None:
    file = project_of(story.home) / "config" / "retention.yaml"
    signed = file.read_text()
    figures = []
    for text in (signed, signed.replace("app_logs_days: 30", "app_logs_days: 90")):
        file.write_text(text)
        for address in PAGES[:3]:
            browser.open(browser.url + address)
            figures += re.findall(r"\d of 9 places are as they were when it was signed", browser.text())[:1]
    file.write_text(signed)
    assert figures == [f"{same} of 9 places are as they were when it was signed" for same in (8, 8, 8, 7, 7, 7)]


def test_versions_are_chosen_with_scripts_off(browser: Browser) -> None:
    browser.allow_scripts(are_allowed=False)
    try:
        browser.open(browser.url + "/h/auth-rotate/diff?from=2")
        browser.driver.find_element("css selector", "select[name=from] option[value='1']").click()
        browser.driver.find_element("css selector", "form.filters button").click()
        browser.until_shown("v1", "main h2")
        assert browser.driver.current_url.endswith("/h/auth-rotate/diff?from=1&to=3")
        assert browser.driver.find_element("css selector", "ins").text == ", location by location"
        browser.driver.find_element("css selector", "a.button").click()
        browser.until_shown("Approve v3", "#decide-auth-rotate")
    finally:
        browser.allow_scripts(are_allowed=True)


def test_added_and_removed_words_are_said_to_people_who_hear_them(browser: Browser) -> None:
    browser.open(browser.url + "/h/auth-rotate/diff?from=1")
    nodes = browser.command("Accessibility.getFullAXTree")["nodes"]
    roles = {node["role"]["value"] for node in nodes if not node["ignored"]}
    assert {"insertion", "deletion"} <= roles


def test_cited_file_in_the_brief_leads_to_its_lines_though_they_are_folded(browser: Browser) -> None:
    browser.open(browser.url + "/r/auth-rotation")
    link = browser.driver.find_element("link text", "config/logging.yaml:45")
    target = link.get_attribute("href").partition("#")[2]
    seen = f"document.getElementById('{target}').checkVisibility()"
    assert not browser.evaluate(seen)
    link.click()
    browser.until(lambda: browser.evaluate(seen))
    assert "include_environment: true" in browser.text(f"#{target}")


def test_pages_of_evidence_have_no_fault_in_any_width_or_scheme(browser: Browser) -> None:
    faults: list[str] = []
    for address in PAGES:
        browser.open(browser.url + address)
        browser.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
        for look in (Look(WIDE, LIGHT), Look(PHONE, DARK)):
            browser.look(look)
            faults += [f"{address} at {look}: {fault}" for fault in browser.overflow() + browser.accessibility_faults()]
    browser.look(Look(WIDE, LIGHT))
    assert faults + browser.problems() == []
