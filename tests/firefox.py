"""A real Firefox, controlled over its own protocol, Marionette, because Debian has no geckodriver."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final, Self

import pytest
from browser import Look, PageChecks, height

if TYPE_CHECKING:
    from pathlib import Path

start_max_s: Final = 60
_PREFERENCES: Final = {
    "marionette.port": 0,  # a free port, which Firefox writes into a file of the profile
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.region.network.url": "",
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.systemAddon.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "http://127.0.0.1:1",
    "toolkit.telemetry.enabled": False,
    "ui.prefersReducedMotion": 1,
}
# No window of Firefox can be as narrow as a phone, but the element that shows the page can have any width.
_LOOK: Final = """
const [width, height, scheme] = arguments, shown = gBrowser.selectedBrowser;
for (const limit of ["", "min-", "max-"]) {
  shown.style.setProperty(limit + "width", width + "px");
  shown.style.setProperty(limit + "height", height + "px");
}
shown.style.flex = "none";
shown.browsingContext.prefersColorSchemeOverride = scheme;
"""
# All errors of pages served over HTTP, except the one about a policy directive that Firefox does not know.
_PROBLEMS: Final = """
const messages = Services.console.getMessageArray().filter((message) => message instanceof Ci.nsIScriptError);
Services.console.reset();
return messages
  .filter(({sourceName}) => sourceName.startsWith("http:"))
  .filter(({category}) => category !== "CSP_couldNotProcessUnknownDirective")
  .map(({sourceName, errorMessage}) => sourceName + ": " + errorMessage);
"""


class Firefox(PageChecks):
    """A Firefox without a window, with a profile of its own in ``folder``; it ends with its ``with`` block."""

    def __init__(self, folder: Path) -> None:
        """Start Firefox; if it is not installed, skip the test with the reason."""
        if (program := shutil.which("firefox-esr") or shutil.which("firefox")) is None:
            pytest.skip("not run: the command `firefox-esr` is missing: `apt-get install firefox-esr`")
        folder.mkdir(exist_ok=True)
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in _PREFERENCES.items()]
        (folder / "user.js").write_text("\n".join(lines))
        command = [program, "--headless", "--marionette", "--no-remote", "--profile", str(folder)]
        environment = {
            "HOME": str(folder),
            "MOZ_REMOTE_ALLOW_SYSTEM_ACCESS": "1",  # needed to read the console and to set the size of a page
            "MOZ_REMOTE_SETTINGS_DEVTOOLS": "1",
            "PATH": "/usr/bin:/bin",
        }
        self._child = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._count = 0
        try:
            self._socket = self._connect(folder / "MarionetteActivePort")
            self._receive()  # the browser's greeting
            self.command("WebDriver:NewSession", capabilities={"timeouts": {"script": start_max_s * 1000}})
        except BaseException:
            self._child.kill()
            self._child.wait()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.command("Marionette:Quit", flags=["eForceQuit"])
        self._socket.close()
        self._child.wait(start_max_s)

    def command(self, name: str, **arguments: Any) -> Any:
        """Send a command and return its result."""
        self._count += 1
        message = json.dumps([0, self._count, name, arguments]).encode()
        self._socket.sendall(b"%d:%b" % (len(message), message))
        _, count, error, result = self._receive()
        assert (count, error) == (self._count, None), error
        return result

    def look(self, look: Look) -> None:
        """Set the page's width and the colours that the user prefers; wait until the page has them."""
        self._run(_LOOK, look.width, height, look.scheme, is_about_browser=True)
        self.until(f"innerWidth === {look.width} && matchMedia('(prefers-color-scheme: {look.scheme})').matches")

    def open(self, address: str) -> None:
        """Go to an address and wait until it is loaded."""
        self.command("WebDriver:Navigate", url=address)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page; wait for a promise."""
        return self._run(f"return {expression.strip()}")

    def problems(self) -> list[str]:
        """Return the console's messages about pages since the last call: errors of scripts and of the policy."""
        return list(self._run(_PROBLEMS, is_about_browser=True))

    def run_axe(self, axe: str, expression: str) -> str:
        """Run axe-core in the scope of this class's scripts, which the page's scripts and policy do not reach."""
        if not self.evaluate("typeof axe === 'object'"):
            self._run(axe)
        return str(self.evaluate(expression))

    def _run(self, script: str, *values: Any, is_about_browser: bool = False) -> Any:
        if is_about_browser:
            self.command("Marionette:SetContext", value="chrome")
        try:
            answer = self.command("WebDriver:ExecuteScript", script=script, args=values, sandbox=None, newSandbox=False)
        finally:
            if is_about_browser:
                self.command("Marionette:SetContext", value="content")
        return answer["value"]

    def until(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        deadline = time.monotonic() + start_max_s
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, self.evaluate("document.body.innerText")
            time.sleep(0.05)

    def _connect(self, port_file: Path) -> socket.socket:
        deadline = time.monotonic() + start_max_s
        while True:
            assert self._child.poll() is None, "Firefox has ended"
            assert time.monotonic() < deadline, "Firefox does not open its port"
            if port_file.exists() and (port := port_file.read_text()):
                return socket.create_connection(("127.0.0.1", int(port)), start_max_s)
            time.sleep(0.05)

    def _receive(self) -> Any:
        size = b""
        while not size.endswith(b":"):
            size += self._read(1)
        content = b""
        while len(content) < int(size[:-1]):
            content += self._read(int(size[:-1]) - len(content))
        return json.loads(content)

    def _read(self, size_max: int) -> bytes:
        data = self._socket.recv(size_max)
        assert data, "Firefox has ended"
        return data
