"""Rows of the dashboard's pages in Chromium: how large, how soon painted, how soon a new row stands there.

The baseline of the first paint is a bare static page of as many bytes, from the simplest server of Python's library, in
the same browser and round; that of a live row is getting the page once. Where no browser is there, only the size is
measured, and the group says so.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Final

import httpx

from tests.bench.pairs import Bench, Budget, Row, ratios, scaled
from tests.bench.workload import hand_over_steps, open_ledger
from tests.browser import LOOKS, Browser, Shown, missing_program, static_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.building import Ledger

HANDOFFS: Final = 50
page_bytes: Final = 60_000
live_max: Final = 12
"""So many rows are new at most: the queue shows its oldest thirty first, and each time there is one more."""

LOADS_A_ROUND: Final = scaled(4, 1)
STATIC: Final = "a static page of as many bytes"
_PAINTED: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
# When the row came, by the clock that the benchmark has too, in ms.
_WATCH: Final = """window.came = new Promise((done) => {{
  const seen = () => document.getElementById("q-{name}") && done(performance.timeOrigin + performance.now());
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
    """Return after how many ms a page was painted."""
    browser.open(address)
    browser.until(lambda: browser.evaluate(_PAINTED))
    return float(browser.evaluate(_PAINTED))


def _live(browser: Browser, ledger: Ledger, name: str) -> float:
    """Return how many ms after its commit a handoff's row stands on the page."""
    browser.evaluate(_WATCH.format(name=name))
    ledger.hand_over(name)
    committed_ms = time.time() * 1000
    came_ms = browser.evaluate("window.came")
    assert came_ms, f"the row of {name} is not on the page after 30 s"
    return max(float(came_ms) - committed_ms, 0.1)


def _fetched(browser: Browser) -> float:
    """Return in how many ms the browser gets the page anew."""
    return float(browser.evaluate(_FETCH))


def _bare(size: int) -> bytes:
    """Return a page of so many bytes that says nothing."""
    return b"<!doctype html><meta charset=utf-8><title>bare</title><p>" + b"word " * (size // 5 - 30)
