"""The page of a proof in real browsers: it accepts a right proof, and refuses one that was changed on the way."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, NamedTuple

import pytest
from browser import Browser, Shown, let_in, served_by
from story_pages import live_copy

from deedbook.consumers.interfaces.dashboard.pages.proof import written_max_bytes
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.format.codec import encode_base64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firefox import Firefox

    from deedbook.ledger.home.config import Settings

pytestmark = pytest.mark.timeout(300)

BATCHED, LAST_OF_BATCH = 294, 298
FAILED = "[...document.querySelectorAll('.failed')].map((row) => row.id || row.parentElement.id)"
HAS_RESULT = "document.querySelector('#verdict .state') !== null"
VERDICT = "document.querySelector('#verdict').textContent"
FIRST_SIBLING = "document.querySelector('#path .sibling > code').textContent"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of a copy of the demo's ledger."""
    return live_copy(tmp_path_factory, "proofs")


@pytest.fixture(scope="module")
def browser(story: Settings, chromium: Browser) -> Iterator[Browser]:
    """A Chromium that was let in."""
    with let_in(chromium, story.home):
        yield chromium


class Change(NamedTuple):
    """A change of a page on its way to the browser."""

    old: str
    new: str


@contextmanager
def changed(url: str, change: Change) -> Iterator[str]:
    """Serve the pages of a dashboard at another port, with one text replaced; browsers send the same cookies there."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            request = urllib.request.Request(url + self.path, headers={"cookie": self.headers.get("cookie", "")})
            if self.path == "/live":
                self.send_error(503)
                return
            with urllib.request.urlopen(request) as answer:
                body = answer.read()
                assert self.path.startswith("/static/") or change.old.encode() in body
                body = (
                    body if self.path.startswith("/static/") else body.replace(change.old.encode(), change.new.encode())
                )
                self.send_response(200)
                for name in ("content-type", "content-security-policy"):
                    self.send_header(name, answer.headers[name])
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with served_by(Handler) as address:
        yield address


def other(digits: str) -> str:
    """Return a hash with another first byte."""
    return f"{int(digits[:2], 16) ^ 1:02x}{digits[2:]}"


def open_proof(browser: Browser, address: str) -> None:
    browser.open(address)
    browser.until(lambda: browser.evaluate(HAS_RESULT))


@pytest.mark.parametrize("index", [0, 1, 100, BATCHED, LAST_OF_BATCH, -1])
def test_the_browser_computes_each_proof_again(story: Settings, browser: Browser, index: int) -> None:
    with Ledger(settings=story) as ledger:
        size = ledger.client.head().size
    open_proof(browser, f"{browser.url}/proof/{index % size}")
    assert browser.text("#verdict").startswith(f"✓ verified Entry #{index % size} is in the log of {size} entries")
    assert "exactly the text under “The signed text”" in browser.text("#verdict")
    assert browser.text("h1") == f"Proof that entry #{index % size} is in the log"
    assert browser.evaluate("document.querySelectorAll('.checks > .passed').length") == 6
    assert browser.evaluate("document.querySelectorAll('.ladder > :not(.passed)').length") == 0
    assert browser.evaluate(FAILED) == []
    assert browser.problems() == []


def test_a_long_text_is_sent_once_and_written_by_the_script(story: Settings, browser: Browser) -> None:
    text = "\u202etoo long 快照 " + "word " * (written_max_bytes // 4)
    with Ledger(settings=story) as ledger:
        (accepted,) = ledger.author("codex").emit(Draft(stream="session/long", data=SessionStarted(task=text)))
    open_proof(browser, f"{browser.url}/proof/{accepted.index}")
    assert browser.text("#verdict").startswith("✓ verified")
    shown = browser.evaluate("document.querySelector('#body').textContent")
    assert (json.loads(shown)["data"]["task"], "\\u202etoo long 快照" in shown) == (text, True)
    page = browser.evaluate("fetch(location.href).then((answer) => answer.text())")
    assert (page.count("word word"), len(page.encode()) < 2 * len(text)) == (0, True)


def test_a_hash_is_copied_whole_although_its_end_is_not_seen(browser: Browser) -> None:
    open_proof(browser, f"{browser.url}/proof/7")
    browser.driver.find_element("css selector", "#path .sibling > code").click()
    assert browser.evaluate("getSelection().toString()") == browser.evaluate(FIRST_SIBLING)
    assert len(browser.evaluate(FIRST_SIBLING)) == 64


def changes(story: Settings) -> dict[str, tuple[Change, list[str]]]:
    """Return changes of the page of entry 7, each with the checks that must fail."""
    with Ledger(settings=story) as ledger:
        client, receipt = ledger.client, ledger.client.prove(7)
        entry, event = client.entry(7), next(iter(ledger.events(after=6)))
    _, _, root, *_ = receipt.checkpoint_text.split("\n")
    signature = receipt.checkpoint_text.split()[-1]
    sibling, content, changed_content = receipt.path[0].hex(), encode_base64(entry), bytearray(entry)
    changed_content[-1] ^= 1  # the count of the entries of authority, which the author does not sign
    path = ["check-path", "path"]
    return {
        "a sibling": (Change(sibling, other(sibling)), path),
        "the root of the note": (Change(root, encode_base64(bytes(32))), ["check-root", "check-log"]),
        "the note's signature": (Change(signature, signature[:20] + "AAAA" + signature[24:]), ["check-log"]),
        "the entry's bytes": (Change(content, encode_base64(bytes(changed_content))), ["check-entry", "check-path"]),
        "the author": (Change(f'id="author">{event.author}<', 'id="author">mallory<'), ["check-text"]),
        "the number": (Change('data-index="7"', 'data-index="6"'), path),
    }


CHANGED = ("a sibling", "the root of the note", "the note's signature", "the entry's bytes", "the author", "the number")


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_proof_is_refused(story: Settings, browser: Browser, name: str) -> None:
    change, checks = changes(story)[name]
    with changed(browser.url, change) as url:
        open_proof(browser, f"{url}/proof/7")
        failed = browser.evaluate(FAILED)
        assert set(checks) <= set(failed)
        assert {check for check in failed if check.startswith("check-")} == set(checks) - {"path"}
        assert browser.text("#verdict").startswith("✕ wrong This page proves nothing.")
        browser.open("about:blank")
    browser.problems()


def test_a_changed_path_in_a_batch_is_refused(browser: Browser) -> None:
    browser.open(f"{browser.url}/proof/{BATCHED}")
    sibling = browser.evaluate("document.querySelector('#batch .sibling > code').textContent")
    with changed(browser.url, Change(sibling, other(sibling))) as url:
        open_proof(browser, f"{url}/proof/{BATCHED}")
        assert "check-author" in browser.evaluate(FAILED)
        assert "check-path" not in browser.evaluate(FAILED)
        browser.open("about:blank")
    browser.problems()


@pytest.mark.parametrize(
    ("lack", "verdict"),
    [
        (
            "SubtleCrypto.prototype.importKey = async () => { throw new DOMException('', 'NotSupportedError'); }",
            "○ signatures not checked",
        ),
        ("Object.defineProperty(Crypto.prototype, 'subtle', { get: () => undefined })", "○ not checked"),
    ],
)
def test_the_page_says_what_a_browser_cannot_check(browser: Browser, lack: str, verdict: str) -> None:
    script = browser.command("Page.addScriptToEvaluateOnNewDocument", source=lack)["identifier"]
    try:
        open_proof(browser, f"{browser.url}/proof/7")
    finally:
        browser.command("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    assert browser.text("#verdict").startswith(verdict)
    assert browser.evaluate(FAILED) == []
    has_hashes = "subtle'" not in lack
    assert (browser.text("#check-path .outcome"), browser.text("#check-log .outcome")) == (
        ("verified", "not checked: this browser has no Ed25519") if has_hashes else ("not checked", "not checked")
    )


def test_without_scripts_the_path_is_drawn_and_the_page_says_how_to_check_it(browser: Browser) -> None:
    browser.allow_scripts(are_allowed=False)
    try:
        browser.driver.get(f"{browser.url}/proof/7")
        text = browser.driver.find_element("tag name", "main").text
    finally:
        browser.allow_scripts(are_allowed=True)
    assert "Scripts are off, so this browser checks nothing." in text
    assert "✓" not in text
    assert "deed receipt verify 7.tlog-proof --root" in text
    assert "tree head of all" in text


@pytest.mark.long_run
def test_firefox_agrees_and_refuses_too(story: Settings, firefox: Firefox) -> None:
    with Shown(story.home) as dashboard:
        firefox.open(dashboard.link)
        for index in (7, BATCHED):
            firefox.open(f"{dashboard.url}/proof/{index}")
            firefox.until(HAS_RESULT)
            assert firefox.evaluate(VERDICT).startswith("✓ verified")
        firefox.open(f"{dashboard.url}/proof/7")
        sibling = firefox.evaluate(FIRST_SIBLING)
        with changed(dashboard.url, Change(sibling, other(sibling))) as url:
            firefox.open(f"{url}/proof/7")
            firefox.until(HAS_RESULT)
            assert firefox.evaluate(VERDICT).startswith("✕ wrong")
            assert set(firefox.evaluate(FAILED)) == {"check-path", "path"}
            firefox.open("about:blank")
