"""Rows of the dashboard's pages in Chromium: size, time to the first paint, time until a new row appears.

The baseline of the first paint is a static page of as many bytes, from the simplest server of Python's library, in the
same browser and round. The baseline of a new row is one request for the page. Without a browser, only the size is
measured, and the group says so.

A second ledger holds only imported history: notes in Empirica's formats, handoffs that wait for a confirmation, and an
entry of 40 kB. All its pages are measured: one row has the size of the largest, another the first paint of the slowest.
"""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import httpx

from deedbook.consumers.importers.empirica.importer import import_notes, read_notes
from deedbook.consumers.importers.empirica.notes import DEFAULT_REFS, Repository
from deedbook.consumers.sdk.ledger import Ledger as Open
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.home.config import Settings
from tests.bench.pairs import Bench, Budget, Row, ratios, scaled
from tests.bench.workload import hand_over_steps, open_ledger
from tests.browser import LOOKS, Browser, Shown, missing_program, static_page
from tests.note_repository import many
from tests.note_repository import repository as notes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.building import Ledger

HANDOFFS: Final = 50
page_bytes: Final = 60_000
live_max: Final = 12
"""The highest number of new rows: the queue shows its oldest thirty first, and each round adds one."""

LOADS_A_ROUND: Final = scaled(4, 1)
STATIC: Final = "a static page of as many bytes"
NOTES: Final = scaled(7200, 120)
CLAIMS: Final = scaled(600, 20)
"""The number of imported handoffs that wait for a confirmation."""

LONG_TEXT: Final = "A long story. " * 2850
WEEK: Final = "since=2025-06-01&until=2025-06-28"
IMPORTED_PAGES: Final = (
    *("/", "/?imported=1", f"/week?{WEEK}", "/graph", f"/timeline?{WEEK}", "/events", "/k", "/agents", "/audit"),
    *("/a/claude-code", "/s", "/h", "/reports", "/search?text=parser", "/accept?imported=1", "/h/old-0"),
    *("/s/5d1f0a52-0000-4000-8000-000000000000", "/e/{long}", "/proof/{long}"),
)
page_max_bytes: Final = 120_000
_PAINTED: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
# The time in ms at which the row appears, by the same clock as the benchmark's.
_WATCH: Final = """window.came = new Promise((done) => {{
  const seen = () => document.getElementById("q-{name}:approve") && done(performance.timeOrigin + performance.now());
  setTimeout(done, 30000, 0);
  new MutationObserver(seen).observe(document.documentElement, {{childList: true, subtree: true}});
}}); 0"""
_FETCH: Final = """(async () => {
  const at = performance.now();
  await (await fetch(location.href)).text();
  return performance.now() - at;
})()"""


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    home = bench.folder / "ledger"
    with open_ledger(home) as ledger:
        for number, (name, content) in enumerate(hand_over_steps(ledger, HANDOFFS).items()):
            if number % 5:
                ledger.approve(name, content)
                ledger.claim(name)
        with Shown(home, agent="rita") as dashboard:
            page = httpx.get(dashboard.link, follow_redirects=True, timeout=60).content
            note = f"{len(page):,} bytes for {HANDOFFS} handoffs, every fifth waiting"
            budget = Budget("≤", 1.0)
            yield Row("page: queue and board, uncompressed", [len(page) / page_bytes], "60 kB", budget, note)
            if why := missing_program():
                bench.say(f"no browser: {why}; first paint and live rows are not measured")
                return
            with static_page(_bare(len(page))) as bare, Browser(bench.folder / "profile") as browser:
                browser.look(LOOKS[0])
                browser.open(dashboard.fresh_link())
                yield from _measured(bench, ledger, browser, dashboard.url, bare)
    yield from _imported(bench)


def _imported(bench: Bench) -> Iterator[Row]:
    """Yield the rows of a ledger that has only imported history."""
    home = bench.folder / "imported"
    bench.say(f"{NOTES:,} notes are imported")
    long = _import_history(home, bench.folder / "notes")
    with Shown(home, agent="rita") as dashboard:
        pages = [dashboard.url + path.format(long=long) for path in IMPORTED_PAGES]
        with httpx.Client(follow_redirects=True, timeout=600) as client:
            client.get(dashboard.link)
            sizes = {page: len(client.get(page).raise_for_status().content) for page in pages}
        largest = max(pages, key=sizes.__getitem__)
        note = f"{largest.removeprefix(dashboard.url)} of {len(pages)} pages: {sizes[largest]:,} bytes"
        yield Row("page: imported, the largest", [sizes[largest] / page_max_bytes], "120 kB", Budget("≤", 1.0), note)
        if missing_program():
            return
        with static_page(_bare(page_bytes)) as bare, Browser(bench.folder / "imported-profile") as browser:
            browser.look(LOOKS[0])
            browser.open(dashboard.fresh_link())
            bench.say(f"first paint of {len(pages)} pages")
            paints = {
                page: bench.paired(
                    partial(_painted_at, browser, page), partial(_painted_at, browser, bare), rounds=bench.rounds
                )
                for page in pages
            }
    slowest = max(pages, key=lambda page: median(ratios(paints[page])))
    note = f"{slowest.removeprefix(dashboard.url)}: {median(ours for ours, _ in paints[slowest]):.0f} ms, the median"
    yield Row("page: imported, the slowest first paint", ratios(paints[slowest]), STATIC, Budget("≤", 3.0), note)


def _import_history(home: Path, repository: Path) -> int:
    """Fill a new ledger with imported history; return the index of its longest entry."""
    notes(repository, many(NOTES))
    with open_ledger(home) as ledger:
        ledger.write_keys()
        for number in range(CLAIMS):
            mapped = {"title": f"Old work {number}", "to": "bob", "reviewer": "rita"}
            ledger.emit("bob", f"handoff/old-{number}", _claim("handoff.created", mapped, number, status="open"))
        long = ledger.emit("bob", "session/long", _claim("finding.logged", {"finding": LONG_TEXT}, CLAIMS))
    with Open(settings=Settings(home=home, agent="alice")) as opened:
        author = opened.author("alice")
        reading = read_notes(
            Repository(repository), (DEFAULT_REFS,), opened.query_with, put_blob=author.put_blob, importer="alice"
        )
        import_notes(author, reading)
        opened.ask("handoffs.next", agent="rita")  # builds the views now, so that no measured page waits for that
        opened.ask("search.find", text="parser")
    return long.index


def _claim(kind: str, mapped: dict[str, Any], number: int, **claims: Any) -> RecordImported:
    return RecordImported(
        original=f"blake3:{number:064x}",
        source=f"file/{number}",
        format="notes/1",
        mapped_kind=kind,
        mapped=mapped,
        claims=claims,
        claimed_author=f"ghost-{number % 9}",
        claimed_at="2025-06-04T05:06:07Z",
    )


def _painted_at(browser: Browser, address: str, _number: int) -> float:
    return _painted(browser, address)


def _measured(bench: Bench, ledger: Ledger, browser: Browser, url: str, bare: str) -> Iterator[Row]:
    rounds = bench.rounds * LOADS_A_ROUND
    bench.say("first paint")
    pairs = bench.paired(lambda _: _painted(browser, url), lambda _: _painted(browser, bare), rounds=rounds)
    note = f"{median(ours for ours, _ in pairs):.0f} ms, the median"
    yield Row("page: first paint in Chromium", ratios(pairs), STATIC, None, note)
    bench.say("live rows")
    browser.open(url)
    browser.until(lambda: browser.text("#live") == "live")
    rounds = min(rounds, live_max)
    pairs = bench.paired(
        lambda number: _live(browser, ledger, f"live-{number}"), lambda _: _fetched(browser), rounds=rounds
    )
    note = f"from its commit to the row on the page: {median(ours for ours, _ in pairs):.0f} ms, the median"
    yield Row("page: a live row in Chromium", ratios(pairs), "fetching the page once", None, note)


def _painted(browser: Browser, address: str) -> float:
    """Open a page, and return the ms until its first paint."""
    browser.open(address)
    browser.until(lambda: browser.evaluate(_PAINTED))
    return float(browser.evaluate(_PAINTED))


def _live(browser: Browser, ledger: Ledger, name: str) -> float:
    """Create a handoff, and return the ms from its commit until its row appears on the page."""
    browser.evaluate(_WATCH.format(name=name))
    ledger.hand_over(name)
    committed_ms = time.time() * 1000
    came_ms = browser.evaluate("window.came")
    assert came_ms, f"the row of {name} is not on the page after 30 s"
    return max(float(came_ms) - committed_ms, 0.1)


def _fetched(browser: Browser) -> float:
    """Let the browser fetch the page once more, and return the ms that it takes."""
    return float(browser.evaluate(_FETCH))


def _bare(size: int) -> bytes:
    """Return a page of about ``size`` bytes of filler text."""
    return b"<!doctype html><meta charset=utf-8><title>bare</title><p>" + b"word " * (size // 5 - 30)
