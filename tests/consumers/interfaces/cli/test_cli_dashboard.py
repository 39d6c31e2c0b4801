from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from calling import Deed, Place, Running, environment

from deedbook.consumers.interfaces.cli.commands.dashboard import who_decides
from deedbook.consumers.sdk.ledger import Ledger

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
    assert deed.refuses("STORE_IN_USE", "--as", "a", "dashboard")["details"]["pid"] == shown.pid


def test_show_prints_the_address_of_its_page(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    deed, url = Deed(capsys, Place(shown.home)), shown.data["url"]
    for verb, path in (
        (("handoff", "show", "a b"), "/h/a%20b"),
        (("handoff", "why", "x"), "/h/x"),
        (("session", "show", "s"), "/s/s"),
        (("reasoning", "show", "r/1"), "/r/r%2F1"),
        (("tot", "show", "t"), "/t/t"),
        (("show", "3"), "/e/3"),
        (("why", "handoff/x"), "/e/handoff%2Fx"),
        (("tot", "show", "t", "--as-of", 4), "/t/t?as_of=4"),
    ):
        assert deed(*verb, "--web").strip() == url + path
    assert deed.data("show", 3, "--web") == {"url": f"{url}/e/3"}
    deed.refuses("USAGE", "session", "show", "--web")


def test_who_is_no_human_only_reads_and_is_told_why(populated: Callable[[str], Path]) -> None:
    with Shown(populated("reading"), "--as", "a") as running:
        assert running.data["human"] is None
        assert "no human" in running.data["reads_only_because"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_somebody_looks_and_its_address_is_gone(
    populated: Callable[[str], Path], number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with Shown(populated("ended")) as running, httpx.Client(base_url=running.data["url"], timeout=60) as browser:
        browser.get(running.data["link"])
        with browser.stream("GET", "/live") as tail:
            assert next(tail.iter_lines()).startswith("id: ")
            assert running.signal(number) == (0, "", "")
    deed = Deed(capsys, Place(running.home))
    assert "deed dashboard" in deed.refuses("NOT_FOUND", "show", 3, "--web")["message"]


def test_a_killed_one_is_not_taken_for_alive(
    populated: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    running = Shown(populated("killed"))
    running.signal(signal.SIGKILL)
    assert (running.home / "dashboard.json").stat().st_mode & 0o777 == 0o600
    Deed(capsys, Place(running.home)).refuses("NOT_FOUND", "show", 3, "--web")


def test_who_decides_is_the_human_whose_key_is_here(populated: Callable[[str], Path]) -> None:
    home = populated("deciding")
    for name, human, why in (
        (None, "rita", ""),
        ("rita", "rita", ""),
        ("a", None, "a is no human"),
        ("nobody", None, "nobody is no human"),
    ):
        with Ledger(name, home=home) as ledger:
            decides = who_decides(ledger)
        assert decides[0] == human
        assert decides[1].startswith(why)
    (home / "keys" / "rita.key").unlink()
    with Ledger(home=home) as ledger:
        assert who_decides(ledger) == (None, "no human's key is here")
    with Ledger("rita", home=home) as ledger:
        assert who_decides(ledger) == (None, "the key of rita is not here")


def test_without_its_extra_it_names_it(alone: Deed) -> None:
    program = (
        "import sys; sys.modules['graphlay'] = None; "
        "from deedbook.consumers.interfaces.cli.program import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, "--home", str(alone.home), "dashboard", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["details"]) == ("EXTRA_MISSING", {"extra": "web", "package": "graphlay"})
