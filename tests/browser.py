"""A real browser: Debian's Chromium with its own driver. It fetches nothing from any address but 127.0.0.1.

Tests query pages over the debugging protocol, which the pages' content security policy does not restrict. The checks of
accessibility run in an isolated world beside each page, so tests need not loosen the page's policy. The checks that
every browser makes are methods of ``PageChecks``; ``firefox`` has the other browser.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TypeVar

import pytest
from forked_deed import DeedProcess, run_deed
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "DARK",
    "LIGHT",
    "NARROW",
    "PHONE",
    "WIDE",
    "Browser",
    "Keys",
    "Look",
    "PageChecks",
    "Shown",
    "let_in",
    "missing_program",
    "static_page",
]

AXE: Final = Path(__file__).with_name("axe")
WIDE: Final = 1400
NARROW: Final = 800
PHONE: Final = 390
text_min_px: Final = 11
header_max_px: Final = 100
PAPER: Final = 718
LIGHT: Final = "light"
DARK: Final = "dark"
Scheme = Literal["light", "dark"]
height: Final = 900
wait_max_s: Final = 60.0
poll_s: Final = 0.02
PACKAGES: Final = {"chromium": "chromium", "chromedriver": "chromium-driver"}
_OPTIONS: Final = (
    "--headless=new",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-sync",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    # Root cannot use the sandbox, and in a container other users may not be able to create one. All pages come from
    # these tests. In a container /dev/shm has room for only one page.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
_RULES: Final = """
axe.run(document, {resultTypes: ["violations"], rules: {"target-size": {enabled: true}}})
.then((found) => JSON.stringify(found.violations.map((one) => {
  const where = (node) => node.html.slice(0, 160) + " (" + node.failureSummary.replace(/\\s+/g, " ") + ")";
  return one.id + ": " + one.nodes.slice(0, 4).map(where).join(" | ");
})))
"""


class Look(NamedTuple):
    """The width of a window (CSS pixels), and the colours that its user prefers."""

    width: int
    scheme: Scheme


LOOKS: Final = tuple(
    Look(width, scheme)
    for width, scheme in zip((WIDE, NARROW, PHONE) * 2, (LIGHT, DARK, LIGHT, DARK, LIGHT, DARK), strict=True)
)


def missing_program() -> str:
    """Return a sentence that names a program that Chromium needs and this machine lacks; empty if there is none."""
    for name, package in PACKAGES.items():
        if shutil.which(name) is None:
            return f"the command `{name}` is missing: `apt-get install {package}`"
    return ""


class PageChecks(ABC):
    """A browser that checks pages. Each browser is controlled in its own way, and all make the same checks."""

    url: str
    """The address of the dashboard that this browser is logged in to."""

    @abstractmethod
    def look(self, look: Look) -> None:
        """Set the window's width and the colours that the user prefers."""

    @abstractmethod
    def open(self, address: str) -> None:
        """Go to an address and wait until it is loaded."""

    @abstractmethod
    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page; wait for a promise."""

    @abstractmethod
    def problems(self) -> list[str]:
        """Return the console's messages since the last call: errors of scripts, of the policy, of loading."""

    @abstractmethod
    def run_axe(self, axe: str, expression: str) -> str:
        """Load the source text of axe-core beside the current page, evaluate an expression there; return its text."""

    def accessibility_faults(self) -> list[str]:
        """Return the faults of accessibility that axe-core finds on the current page."""
        faults: list[str] = json.loads(self.run_axe(self._axe, _RULES))
        return faults

    def overflow(self) -> list[str]:
        """Return the elements that stick out of the window to the right without a scroll area of their own."""
        return list(self.evaluate(_WIDER))

    def unreadable(self) -> list[str]:
        """Return the texts of the current page that are too small to read, and a header that is too large."""
        return list(self.evaluate(_SMALLER))

    @cached_property
    def _axe(self) -> str:
        from node_packages import install

        return (install(AXE, "axe") / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


class Browser(PageChecks):
    """A Chromium with a profile of its own in ``folder``; it ends with its ``with`` block."""

    def __init__(self, folder: Path) -> None:
        """Start Chromium; if it is not installed, skip the test with the reason."""
        if why := missing_program():
            pytest.skip(f"not run: {why}")
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for one in (*_OPTIONS, f"--user-data-dir={folder}"):
            options.add_argument(one)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # With a given driver path, selenium downloads none; if that ever changes, this setting stops the download.
        os.environ["SE_OFFLINE"] = "true"
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_page_load_timeout(wait_max_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def command(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Send a command of the debugging protocol to the current tab."""
        answer: dict[str, Any] = self.driver.execute_cdp_cmd(name, arguments)
        return answer

    def look(self, look: Look) -> None:
        """Set the window's width and the colours that the user prefers."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=look.width, height=height, deviceScaleFactor=1, mobile=False
        )
        liked = {"prefers-color-scheme": look.scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in liked.items()]
        self.command("Emulation.setEmulatedMedia", media="", features=features)

    def allow_scripts(self, *, are_allowed: bool) -> None:
        """Allow or forbid pages to run scripts from now on."""
        self.command("Emulation.setScriptExecutionDisabled", value=not are_allowed)

    def open(self, address: str) -> None:
        """Go to an address and wait until it is loaded: sometimes the driver returns before the page is there."""
        self.driver.get(address)
        kind = address.partition(":")[0]
        self.until(lambda: self.evaluate(f"location.protocol === '{kind}:' && document.readyState === 'complete'"))

    def evaluate(self, expression: str, *, context: int | None = None) -> Any:
        """Return the value of a JavaScript expression in the page; wait for a promise."""
        where = {} if context is None else {"contextId": context}
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, **where)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self, selector: str = "main") -> str:
        """Return the text of the first element that matches a selector."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def until(self, is_true: Callable[[], object]) -> None:
        """Wait until a condition holds for the page. An error is retried, because the page may just be unloading."""
        deadline = time.monotonic() + wait_max_s
        while True:
            try:
                if is_true():
                    return
            except WebDriverException:
                pass
            assert time.monotonic() < deadline, f"{self.driver.current_url}: {self.text('body')[:2000]}"
            time.sleep(poll_s)

    def until_shown(self, text: str, selector: str = "body") -> None:
        """Wait until an element holds a text."""
        self.until(lambda: text in self.text(selector))

    def tab(self, address: str) -> str:
        """Open an address in a new tab, which becomes the current one; return its handle."""
        self.driver.switch_to.new_window("tab")
        self.open(address)
        return str(self.driver.current_window_handle)

    def problems(self) -> list[str]:
        """Return the console's messages since the last call: errors of scripts, of the policy, of loading."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "DEBUG"]

    def run_axe(self, axe: str, expression: str) -> str:
        """Run axe-core in an isolated world, which the page's scripts and policy do not reach."""
        frame = self.command("Page.getFrameTree")["frameTree"]["frame"]["id"]
        world = self.command("Page.createIsolatedWorld", frameId=frame, worldName="axe")["executionContextId"]
        if not self.evaluate("typeof axe === 'object'", context=world):
            self.evaluate(axe + "; true", context=world)
        return str(self.evaluate(expression, context=world))

    def picture(self, *, is_whole: bool = False) -> bytes:
        """Return a PNG of the window, or of the whole page."""
        answer = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        return base64.b64decode(answer["data"])

    def printed(self) -> bytes:
        """Return a PDF of the page as it would be printed."""
        return base64.b64decode(self.command("Page.printToPDF", printBackground=False)["data"])

    def look_at_paper(self) -> None:
        """Show the page as it is printed, as wide as A4 within its margins, until ``look`` is called."""
        self.command("Emulation.setEmulatedMedia", media="print")
        self.command(
            "Emulation.setDeviceMetricsOverride", width=PAPER, height=height, deviceScaleFactor=1, mobile=False
        )


_WIDER: Final = """
(() => {
  const width = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth <= width) return found;
  for (const one of document.body.querySelectorAll("*")) {
    const words = one.tagName + "." + one.className + " " + one.textContent.slice(0, 60);
    if (one.getBoundingClientRect().right > width + 1) found.push(words);
  }
  return ["the page is " + document.documentElement.scrollWidth + " px wide", ...found.slice(0, 6)];
})()
"""

_SMALLER: Final = f"""
(() => {{
  const scale = (one) => one.closest("svg")?.getScreenCTM()?.a ?? 1, header = document.querySelector(".top");
  const own = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const small = [...document.body.querySelectorAll("*")].filter((one) => own(one) && one.checkVisibility() &&
    parseFloat(getComputedStyle(one).fontSize) * scale(one) < {text_min_px});
  const tall = header?.offsetHeight > {header_max_px} ? ["the header is " + header.offsetHeight + " px high"] : [];
  return [...tall, ...small.slice(0, 4).map((one) => one.tagName + ": small text " + one.textContent.trim())];
}})()
"""


class Shown:
    """`deed dashboard` as a process of its own, on a ledger's folder; it ends with its ``with`` block."""

    def __init__(self, home: Path, *, agent: str | None = None, project: Path | None = None) -> None:
        """Start it in ``project``, the folder with the files that reasonings cite (default: the current folder)."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
        self._deed = ["--home", str(home), "--json"]
        self._agent = agent
        self._environment = environment
        command = [*self._deed, *(["--as", agent] if agent else []), "dashboard", "--port", "0"]
        self._child = DeedProcess(*command, stdout=subprocess.PIPE, env=environment, text=True, cwd=project)
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        data = json.loads(line)["data"]
        self.url: str = data["url"]
        self.link: str = data["link"] or ""  # with several humans, each gets a link of their own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdout is not None
        self._child.terminate()
        self._child.wait(60)
        self._child.stdout.close()

    def fresh_link(self, agent: str | None = None) -> str:
        """Return one more link, which logs one more browser in, by default as the same agent as the first link."""
        named = ["--as", agent or self._agent] if agent or self._agent else []
        command = [*self._deed, *named, "dashboard", "--link"]
        done = run_deed(*command, timeout=wait_max_s, env=self._environment)
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["data"]["link"])


B = TypeVar("B", bound=PageChecks)


@contextmanager
def let_in(browser: B, home: Path, *, agent: str | None = None, project: Path | None = None) -> Iterator[B]:
    """Show a ledger's dashboard in a browser that tests share: log in, with a wide window and light colours."""
    browser.look(LOOKS[0])
    with Shown(home, agent=agent, project=project) as dashboard:
        browser.open(dashboard.link)
        browser.url = dashboard.url
        yield browser
        browser.open("about:blank")  # leaves the page, so that it reports no error when its server ends
    browser.problems()


@contextmanager
def served_by(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve with a handler on a port of its own; yield the URL without a path."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def static_page(page: bytes) -> Iterator[str]:
    """Serve one page on a port of its own, with the simplest server; yield the URL without a path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with served_by(Handler) as url:
        yield url
