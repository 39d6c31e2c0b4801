from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from building import Ledger as Made
from calling import Deed, Place, Running, environment, wait_max_s

from deedbook.consumers.interfaces.cli.commands.dashboard import name_of_link
from deedbook.consumers.interfaces.dashboard.account import account_of
from deedbook.consumers.interfaces.dashboard.address import Address, announced
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.format.identity import write_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Shown(Running):
    """`deed dashboard` on a free port, ready to be looked at."""

    def __init__(self, home: Path, *arguments: object) -> None:
        super().__init__("--home", home, "dashboard", "--port", 0, "--json", *arguments)
        self.home = home
        self.document = json.loads(self.line())
        self.data = self.document["data"]


@pytest.fixture(scope="module")
def shown(populated: Callable[[str], Path]) -> Iterator[Shown]:
    with Shown(populated("shown")) as running:
        yield running


def test_it_prints_one_document_whose_link_lets_a_browser_in_once(shown: Shown) -> None:
    assert shown.document.keys() == {"schema_version", "kind", "data"}
    assert (shown.data["human"], shown.data["pid"], shown.data["reads_only_because"]) == ("rita", shown.pid, None)
    with httpx.Client(base_url=shown.data["url"], timeout=60) as browser:
        assert browser.get("/").status_code == 401
        assert browser.get(shown.data["link"]).status_code == 303
        assert "Needs you" in browser.get("/").text
    assert httpx.get(shown.data["link"], timeout=60).status_code == 401


def test_called_again_it_prints_a_fresh_link_of_the_one_that_runs(
    shown: Shown, capsys: pytest.CaptureFixture[str]
) -> None:
    deed = Deed(capsys, Place(shown.home))
    again = deed.data("dashboard")
    assert (again["url"], again["pid"]) == (shown.data["url"], shown.pid)
    assert httpx.get(again["link"], timeout=60).status_code == 303
    assert "you cannot sign in the browser: the key of rita has no passphrase" in deed.run("dashboard").err
    linked = deed.data("dashboard", "--link", "--as", "a")
    assert (linked["url"], linked["human"]) == (shown.data["url"], None)
    assert "a is no human" in linked["reads_only_because"]


def test_called_again_it_says_that_one_runs_and_refuses_another_port_and_an_unknown_name(
    shown: Shown, capsys: pytest.CaptureFixture[str]
) -> None:
    deed, port = Deed(capsys, Place(shown.home)), int(shown.data["url"].rpartition(":")[2])
    running = f"a dashboard is already running here (process {shown.pid}): this is a link to it\n"
    assert deed.run("dashboard").err.startswith(running)
    assert deed.run("dashboard", "--port", port).err.startswith(running)
    assert running not in deed.run("dashboard", "--link").err
    message = deed.refuses("STORE_IN_USE", "dashboard", "--port", 1 if port > 1 else 2)["message"]
    assert message.startswith(f"a dashboard is already running at {shown.data['url']}: `deed dashboard --link`")
    assert "did you mean rita?" in deed.refuses("AGENT_UNKNOWN", "dashboard", "--as", "ritta")["message"]


def test_port_that_is_taken_leads_to_another(alone: Deed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = alone.refuses("STORE_IN_USE", "dashboard", "--port", taken.getsockname()[1])
    assert error["message"].endswith(": name another --port, or 0 for any free one")


def test_show_prints_the_address_of_its_page(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    deed, url = Deed(capsys, Place(shown.home)), shown.data["url"]
    deed("session", "start", "linked", "--as", "a", "--task", "t")
    deed("reasoning", "start", "linked", "--as", "a", "--task", "t", "--session", "linked")
    deed("handoff", "create", "linked", "--as", "a", "--to", "b", "--reviewer", "rita", "--title", "t")
    for noun, path in (("handoff", "/h/"), ("session", "/s/"), ("reasoning", "/r/")):
        assert deed(noun, "show", "linked", "--web").strip() == f"{url}{path}linked"
        deed.refuses("NOT_FOUND", noun, "show", "not-there", "--web")
    for verb, path in (
        (("tot", "show", "t"), "/tot/t"),
        (("show", "3"), "/e/3"),
        (("why", "handoff/x"), "/e/handoff%2Fx"),
        (("tot", "show", "t", "--as-of", 4), "/tot/t?as_of=4"),
    ):
        assert deed(*verb, "--web").strip() == url + path
    assert deed.data("show", 3, "--web") == {"url": f"{url}/e/3"}
    deed.refuses("USAGE", "session", "show", "--web")


def test_who_is_no_human_only_reads_and_a_signal_ends_it_while_somebody_looks_and_its_address_is_gone(
    populated: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        Shown(populated("ended"), "--as", "a") as running,
        httpx.Client(base_url=running.data["url"], timeout=60) as browser,
    ):
        assert running.data["human"] is None
        assert "no human" in running.data["reads_only_because"]
        browser.get(running.data["link"])
        with browser.stream("GET", "/live") as tail:
            assert next(tail.iter_lines()).startswith("id: ")
            assert running.signal(signal.SIGINT) == (0, "", "")
    deed = Deed(capsys, Place(running.home))
    assert "deed dashboard" in deed.refuses("NOT_FOUND", "show", 3, "--web")["message"]


def test_a_killed_one_is_not_taken_for_alive(
    populated: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    running = Shown(populated("killed"))
    running.signal(signal.SIGKILL)
    assert (running.home / "dashboard.json").stat().st_mode & 0o777 == 0o600
    Deed(capsys, Place(running.home)).refuses("NOT_FOUND", "show", 3, "--web")


def test_without_a_name_the_link_is_of_the_only_human_whose_key_is_here(populated: Callable[[str], Path]) -> None:
    home = populated("deciding")

    def of(agent: str | None) -> tuple[str | None, str]:
        with Ledger(agent, home=home) as ledger:
            name = name_of_link(ledger)
            return name, "" if name is None else account_of(ledger, name).why_not

    assert of(None) == of("rita") == ("rita", "")
    assert of("a") == ("a", "a is no human: only humans decide here")
    assert of("nobody") == ("nobody", "nobody is no human: only humans decide here")
    (home / "keys" / "rita.key").unlink()
    assert of(None) == ("", "no human's key is here")
    assert of("rita") == ("rita", "")  # rita's queue can be read without her key


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A folder with the sealed keys of two humans, rita and ruth."""
    with Made(tmp_path / ".deedbook", agents={"rita": ["human"], "ruth": ["human"]}) as ledger:
        for name in ("rita", "ruth"):
            write_key(ledger.home.key_file(name), ledger.keys[name], ledger=ledger.id, name=name, passphrase="a horse")
        ledger.write_keys()
        return ledger.home.path


def test_each_of_several_humans_gets_a_link_of_their_own(team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deed = Deed(capsys, Place(team))
    assert "deed dashboard" in deed.refuses("NOT_FOUND", "dashboard", "--link", "--as", "ruth")["message"]
    with Shown(team) as running:
        assert (running.data["link"], running.data["human"]) == (None, None)  # a log would keep it
        assert "rita, ruth" in deed.refuses("USAGE", "dashboard", "--link")["message"]
        said = deed.run("dashboard")
        assert said.out == f"{running.data['url']}\n"
        assert "`deed dashboard --link --as NAME` (rita, ruth)" in said.err
        for name in ("rita", "ruth"):
            linked = deed.data("dashboard", "--link", "--as", name)
            assert (linked["human"], linked["pid"], linked["reads_only_because"]) == (name, running.pid, None)
            with httpx.Client(base_url=linked["url"], timeout=60) as browser:
                assert browser.get(linked["link"]).status_code == 303
                assert browser.get("/me.json").json()["data"]["name"] == name


def test_dashboard_at_a_server_decides_only_in_the_name_that_it_is_connected_as(served: Place) -> None:
    for agent, why_not in (
        ("rita", ""),
        ("a", "this dashboard is connected to its server as a, so nobody else decides"),
    ):
        with Ledger(agent, home=served.home, server=served.server) as ledger:
            account = account_of(ledger, "rita")
            assert account.why_not.startswith(why_not)
            assert account.human == ("rita" if agent == "rita" else None)


def test_link_of_another_than_a_dashboard_is_connected_as_only_reads(
    team: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deed = Deed(capsys, Place(team))
    with announced(team, Address(url="http://127.0.0.1:1", secret="s" * 40, pid=1, connected_as="rita")):
        assert "decisions are signed as rita" in deed.run("dashboard", "--link", "--as", "rita").err
        said = deed.run("dashboard", "--link", "--as", "ruth").err
        assert "reading only: this dashboard is connected to its server as rita, so nobody else decides here" in said


def test_page_for_a_team_needs_tls_and_sealed_keys(team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deed, url = Deed(capsys, Place(team)), "https://deeds.example.org"
    assert "without TLS" in deed.refuses("USAGE", "dashboard", "--url", "http://deeds.example.org")["message"]
    with Shown(team, "--url", url, "--as", "ruth") as running:
        assert running.data["url"] == url
        assert running.data["link"].startswith(f"{url}/launch?token=")
        assert deed("show", 0, "--web").strip() == f"{url}/e/0"
    (team / "keys" / "ruth.key").unlink()
    with Made(team, agents={"ruth": ["human"]}) as ledger:
        ledger.write_keys()
    assert "the key of ruth has no passphrase" in deed.refuses("KEY_LOCKED", "dashboard", "--url", url)["message"]


def test_browser_gets_its_link_from_a_private_file_and_not_as_an_argument(
    populated: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, called = tmp_path / "browser", tmp_path / "called"
    browser.write_text(f'#!/bin/sh\necho "$@" > {called}.new && mv {called}.new {called}\n')
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", str(browser))
    with Shown(populated("opened"), "--open") as running:
        file = running.home / "dashboard.html"
        deadline = time.monotonic() + wait_max_s
        while not called.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert called.read_text() == f"{file.as_uri()}\n"
        assert file.stat().st_mode & 0o777 == 0o600
        assert f'content="0; url={running.data["link"]}"' in file.read_text()
        assert running.signal(signal.SIGTERM).code == 0
    assert not file.exists()


def test_without_its_extra_it_names_it(alone: Deed) -> None:
    program = (
        "import sys; sys.modules['graphlay'] = None; "
        "from deedbook.consumers.interfaces.cli.program import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, "--home", str(alone.home), "dashboard", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["details"]) == ("EXTRA_MISSING", {"extra": "web", "package": "graphlay"})
