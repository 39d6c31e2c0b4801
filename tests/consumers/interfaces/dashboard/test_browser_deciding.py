"""Deciding in a real browser: by keyboard alone, without scripts, and never something that was not displayed."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

import pytest
from browser import LIGHT, NARROW, PHONE, WIDE, Browser, Keys, Look, let_in, static_page
from forked_deed import run_deed
from story_pages import HUMAN, PASSPHRASE, live_copy

from deedbook.consumers.auditor.verify import verify_log
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.home.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

tabs_max = 60


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """Return the demo's ledger, opened as its human."""
    with Ledger(settings=live_copy(tmp_path_factory, "deciding"), passphrase=PASSPHRASE) as ledger:
        yield ledger


@pytest.fixture(scope="module")
def browser(story: Ledger, chromium: Browser) -> Iterator[Browser]:
    """A browser that was let in."""
    with let_in(chromium, story.settings.home):
        yield chromium


def tab_to(browser: Browser, selector: str) -> int:
    """Press the tabulator until an element has the focus; return how often."""
    for pressed in range(tabs_max):
        if browser.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
            return pressed
        browser.press(Keys.TAB)
    raise AssertionError(f"nobody gets to {selector} by keyboard")


def walk_to(browser: Browser, title: str) -> None:
    """Press j until the row with a title has the focus."""
    for _ in range(tabs_max):
        if title in browser.evaluate("document.activeElement.textContent")[:200]:
            return
        browser.press("j")
    raise AssertionError(f"j never gets to {title}")


def last(story: Ledger, name: str) -> Any:
    return list(story.events(stream=f"handoff/{name}"))[-1]


def test_handoff_is_approved_by_keyboard_alone_and_the_next_one_opens(story: Ledger, browser: Browser) -> None:
    version = story.ask("handoffs.facts", id="auth-rotate")["version"]
    browser.open(browser.url)
    walk_to(browser, "Rotate session keys")
    browser.press(Keys.ENTER)
    browser.until_shown("Two keys are valid at once", "#queue")
    assert browser.evaluate("document.activeElement.id") == "at-auth-rotate:approve"
    assert version in browser.text("#decide-auth-rotate")
    tabs = tab_to(browser, ".reviewed .skip")
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.evaluate("document.activeElement.id") == "note-auth-rotate")
    tabs += tab_to(browser, "#decide-auth-rotate [type=password]")
    browser.press(PASSPHRASE, Keys.ENTER)  # no key decides: Enter in a field sends nothing
    tabs += tab_to(browser, "#decide-auth-rotate button.yes")
    assert tabs == 3
    assert last(story, "auth-rotate").kind == "handoff.amended"
    following = browser.evaluate("document.querySelector('#decide-auth-rotate [name=next]').value")
    browser.press(Keys.SPACE)
    browser.until_shown("Signed as entry")
    approved = last(story, "auth-rotate")
    assert (approved.kind, approved.author, approved.data.version) == ("handoff.approved", HUMAN, version)
    assert str(approved.index) in browser.text("[role=status]")
    assert browser.evaluate("document.activeElement.id") == f"at-{following}"
    assert browser.evaluate("document.querySelector('.row.open').id") == f"q-{following}"
    browser.press("j")  # continues from this row, not from the first
    rows = browser.evaluate("[...document.querySelectorAll('[data-row]')].map((row) => row.id)")
    at = rows.index(f"at-{following}")
    assert browser.evaluate("document.activeElement.id") == rows[min(at + 1, len(rows) - 1)]
    assert browser.problems() == []
    assert verify_log(story.client, views=story.settings).problems == []


@pytest.mark.parametrize("width", [WIDE, NARROW, PHONE])
def test_form_beside_little_content_has_the_width_of_its_box(browser: Browser, width: int) -> None:
    browser.look(Look(width, LIGHT))
    browser.open(browser.url + "/h/search-cjk")
    box, form = (
        browser.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().width")
        for selector in (".deciding", "form.decide")
    )
    assert form == box
    note, sign = browser.evaluate(
        "[...document.querySelectorAll('.decide .say')].map((part) => part.getBoundingClientRect().toJSON())"
    )
    if width == WIDE:
        assert (note["top"], note["bottom"]) == (sign["top"], sign["bottom"])
        textarea = browser.evaluate("document.querySelector('.decide textarea').getBoundingClientRect().bottom")
        assert textarea == note["bottom"]
    else:
        assert note["width"] == sign["width"] == box
    browser.look(Look(WIDE, LIGHT))
    assert browser.problems() == []


def test_row_opens_in_its_place_without_a_reload(browser: Browser) -> None:
    browser.open(browser.url)
    browser.evaluate("window.stayed = true")
    last_row = browser.evaluate("[...document.querySelectorAll('.queue [data-row]')].at(-1).id")
    browser.evaluate(f"document.getElementById('{last_row}').scrollIntoView({{block: 'center'}})")
    browser.evaluate(f"document.getElementById('{last_row}').click()")
    browser.until_shown("Passphrase", ".row.open")
    assert browser.evaluate("window.stayed") is True
    assert browser.evaluate("location.search").startswith("?open=")
    assert browser.evaluate("document.activeElement.id") == last_row
    top, height = browser.evaluate(
        "(({top}) => [top, innerHeight])(document.querySelector('.row.open').getBoundingClientRect())"
    )
    assert -1 <= top < height / 2
    browser.driver.back()
    browser.until(lambda: browser.evaluate("document.querySelector('.row.open') === null"))
    browser.evaluate(f"document.getElementById('{last_row}').closest('.cells').lastElementChild.click()")  # its age
    browser.until_shown("Passphrase", ".row.open")
    assert browser.evaluate("window.stayed") is True
    assert browser.problems() == []


def test_no_single_key_decides_anything_even_while_the_key_is_unlocked(story: Ledger, browser: Browser) -> None:
    before = story.client.head().size
    browser.open(f"{browser.url}/?open=search-cjk")
    browser.driver.find_element("css selector", "details.key summary").click()
    browser.driver.find_element("css selector", "#unlock").send_keys(PASSPHRASE, Keys.ENTER)
    browser.until_shown(f"signs as {HUMAN}", "header")
    for place in ("body", "[id='q-search-cjk:approve'] [data-row]"):
        for key in "abcdefghilmnopqrstuvwxyzAVRY ":
            browser.evaluate(f"document.querySelector({json.dumps(place)})?.focus()")
            browser.press(key)
    browser.open(browser.url)
    assert story.client.head().size == before
    hand_over(story, "unlocked", "Read it")
    browser.open(f"{browser.url}/h/unlocked")
    browser.driver.find_element("css selector", "#decide-unlocked button.yes").click()
    browser.until_shown("Signed as entry")
    browser.driver.find_element("css selector", "form.key button").click()
    browser.until_shown("key locked", "header")


def test_typed_note_survives_the_end_of_the_login_and_is_gone_after_it_was_signed(
    story: Ledger, browser: Browser
) -> None:
    size, note = story.client.head().size, "I read it twice, 两遍"
    path, field = "/h/tiles-http", "document.querySelector('.decide textarea').value"
    browser.open(browser.url + path)
    browser.evaluate("document.querySelector('.decide').closest('details')?.setAttribute('open', '')")
    browser.driver.find_element("css selector", ".decide textarea").send_keys(note)
    browser.driver.delete_all_cookies()
    browser.driver.find_element("css selector", ".decide button[value^=log]").click()
    browser.until_shown("This browser is not logged in", "h1")
    assert browser.evaluate("document.querySelector('textarea').value") == note
    assert note not in browser.evaluate("location.href")
    answer = run_deed("--home", str(story.settings.home), "--json", "dashboard", "--link", timeout=60)
    browser.open(json.loads(answer.stdout)["data"]["link"])
    browser.open(browser.url + path)
    assert (browser.evaluate(field), story.client.head().size) == (note, size)
    assert "nothing was signed" in browser.evaluate("document.querySelector('.kept:not([hidden])').textContent")
    browser.evaluate("document.querySelector('.decide').closest('details')?.setAttribute('open', '')")
    browser.driver.find_element("css selector", ".decide [name=passphrase]").send_keys(PASSPHRASE)
    browser.driver.find_element("css selector", ".decide button[value^=log]").click()
    browser.until_shown("Signed as entry", ".notice.ok")
    assert last(story, "tiles-http").data.text == note
    browser.open(browser.url + path)
    kept = browser.evaluate(f"Object.keys(localStorage).filter((name) => name.includes('{path}'))")
    assert (browser.evaluate(field), kept) == ("", [])
    assert [one for one in browser.problems() if "401 (Unauthorized)" not in one] == []


def test_handoff_is_approved_without_scripts(story: Ledger, browser: Browser) -> None:
    browser.allow_scripts(are_allowed=False)
    try:
        browser.open(f"{browser.url}/?open=search-cjk")
        assert "not live" in browser.text("header")
        browser.driver.find_element("css selector", "#decide-search-cjk [type=password]").send_keys(PASSPHRASE)
        browser.driver.find_element("css selector", "#decide-search-cjk button.yes").click()
        browser.until_shown("Signed as entry")
        following = browser.evaluate("document.querySelector('.row.open [data-row]').id")
        assert browser.evaluate("document.activeElement.id") == following
    finally:
        browser.allow_scripts(are_allowed=True)
    assert last(story, "search-cjk").kind == "handoff.approved"


def hand_over(story: Ledger, name: str, *tasks: str) -> None:
    """Let claude-code hand work to codex, or amend an earlier handoff."""
    is_known = name in {one["id"] for one in story.ask("handoffs.list", limit=50)["items"]}
    data = {"title": f"Work called {name}", "to": "codex", "reviewer": HUMAN, "tasks": list(tasks)}
    with Ledger(settings=Settings(home=story.settings.home, agent="claude-code")) as sender:
        sender.publish(f"handoff/{name}", data, kind="handoff.amended" if is_known else "handoff.created")


def press_approve(browser: Browser, name: str) -> None:
    browser.driver.find_element("css selector", f"#decide-{name} [type=password]").send_keys(PASSPHRASE)
    browser.driver.find_element("css selector", f"#decide-{name} button.yes").click()


def test_what_was_amended_since_it_was_displayed_is_not_approved_and_the_difference_is_shown(
    story: Ledger, browser: Browser
) -> None:
    hand_over(story, "stale", "Read it")
    browser.open(f"{browser.url}/h/stale")
    hand_over(story, "stale", "Read it", "Delete everything")
    press_approve(browser, "stale")
    browser.until_shown("Not signed")
    assert "Delete everything" in browser.text("[role=alert]")
    assert last(story, "stale").kind == "handoff.amended"
    assert all("409" in problem for problem in browser.problems())
    press_approve(browser, "stale")  # the version displayed now
    browser.until_shown("Signed as entry")
    assert last(story, "stale").data.version == story.ask("handoffs.facts", id="stale")["version"]


def test_open_form_says_that_its_handoff_has_changed_and_leads_to_the_new_version(
    story: Ledger, browser: Browser
) -> None:
    hand_over(story, "moving", "Read it")
    browser.open(f"{browser.url}/?open=moving")
    browser.until_shown("Approve v1", "#decide-moving")
    browser.until_shown("live", "#live")
    hand_over(story, "beside", "Another")
    browser.until_shown("1 new", "#live")
    assert browser.text("#decide-moving .stale:not([hidden])") == ""
    hand_over(story, "moving", "Read it", "Delete everything")
    browser.until_shown("This has changed since you opened it", "#decide-moving .stale:not([hidden])")
    browser.evaluate("document.querySelector('#decide-moving .stale a').click()")
    browser.until_shown("Approve v2", "#decide-moving")
    assert browser.text("#decide-moving .stale:not([hidden])") == ""


def test_form_that_another_page_sends_is_refused_whatever_it_knows(story: Ledger, browser: Browser) -> None:
    """Another server on this machine gets our cookie, too, and may have read the form: but its origin is not ours."""
    hand_over(story, "forged", "Read it")
    browser.open(f"{browser.url}/h/forged")
    whole = browser.evaluate(
        "JSON.stringify([...new FormData(document.querySelector('#decide-forged'), "
        "document.querySelector('#decide-forged button.yes'))])"
    )
    fields = dict(json.loads(whole)) | {"passphrase": PASSPHRASE}
    inputs = "".join(f'<input name="{escape(name)}" value="{escape(text)}">' for name, text in fields.items())
    form = f'<form method="post" action="{browser.url}/h/forged/decide">{inputs}<button>win</button></form>'
    with static_page(form.encode()) as elsewhere:
        browser.open(elsewhere)
        browser.driver.find_element("css selector", "button").click()
        browser.until_shown("another origin")
    assert last(story, "forged").kind == "handoff.created"
    browser.open(f"{browser.url}/h/forged")
    press_approve(browser, "forged")
    browser.until_shown("Signed as entry")
    browser.problems()


def test_imported_handoffs_are_selected_read_and_accepted_with_one_passphrase(story: Ledger, browser: Browser) -> None:
    names = ("old-one", "old-two", "old-three")
    with Ledger(settings=Settings(home=story.settings.home, agent="kuro")) as importer:
        for name in names:
            mapped = {"title": f"Work called {name}", "to": "codex", "reviewer": HUMAN, "task": f"Read <b>{name}</b>"}
            record = RecordImported(
                original=importer.put_blob(name.encode()),
                source=f"{name}.md",
                format="handoff/v2",
                mapped_kind="handoff.created",
                mapped=mapped,
                claimed_author="kuro",
                claims={"status": "needs-review"},
            )
            importer.publish(f"handoff/{name}", record)
    browser.open(f"{browser.url}/?imported=1")
    for name in names[:2]:
        browser.evaluate(f"document.querySelector('.pick[value={name}]').focus()")
        browser.press(Keys.SPACE)
    browser.evaluate(f"document.getElementById('at-{names[2]}:approve').click()")
    browser.until_shown("Verify v1", ".row.open")  # opening a row does not change the selection
    assert browser.evaluate("[...document.querySelectorAll('.pick:checked')].map((pick) => pick.value)") == list(
        names[:2]
    )
    browser.driver.find_element("css selector", "#accept button").click()
    browser.until_shown("Accept as history", "h1")
    assert [browser.text("main").count(f"Read <b>{name}</b>") for name in names] == [1, 1, 0]
    assert browser.overflow() == browser.accessibility_faults() == []
    browser.driver.find_element("css selector", "#pass").send_keys(PASSPHRASE, Keys.ENTER)
    assert last(story, "old-one").kind == "record.imported"  # Enter in a field decides nothing
    browser.driver.find_element("css selector", "form.acceptance button.yes").click()
    browser.until_shown("2 of 2 signed")
    assert [last(story, name).kind for name in names] == ["handoff.verified", "handoff.verified", "record.imported"]
    assert browser.problems() == []
