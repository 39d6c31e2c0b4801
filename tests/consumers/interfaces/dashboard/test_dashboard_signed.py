"""A decision over real HTTP, in a dashboard in its own process: signed, proven, and found by `deed verify`."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import httpx
import pytest
from browser import Shown
from building import Ledger
from forked_deed import run_deed
from looking import PASSPHRASE, seal, token_of

from deedbook.ledger.events.handoff import HandoffApproved, HandoffRejected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A ledger in which two handoffs wait for rita, whose key is sealed."""
    with Ledger(tmp_path / ".deedbook") as ledger:
        ledger.write_keys()
        seal(ledger)
        for name in ("x", "y"):
            ledger.hand_over(name, tasks=["one"])
        return ledger.home.path


@pytest.fixture
def rita(home: Path) -> Iterator[httpx.Client]:
    """Rita, logged in with the link that her dashboard printed."""
    with Shown(home, agent="rita") as dashboard, httpx.Client(base_url=dashboard.url, timeout=60) as client:
        assert client.get(dashboard.link).status_code == 303
        yield client


def send(client: httpx.Client, path: str, **fields: str) -> httpx.Response:
    """Send a form as a browser does from a page of the dashboard."""
    own = {"origin": str(client.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    return client.post(path, data=fields, headers=own)


def decide(client: httpx.Client, name: str, word: str, **written: str) -> httpx.Response:
    """Press a button of a handoff's page."""
    form = client.get(f"/h/{name}.json").json()["data"]["form"]
    (button,) = [one for one in form["choices"] if one["word"] == word]
    return send(client, form["path"], **form["fields"], decision=button["value"], **written)


def verify(home: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
    return run_deed("--home", home, "verify", env=environment, timeout=60)


def test_what_is_decided_in_the_dashboard_is_signed_by_the_human_and_stands_every_check(
    home: Path, rita: httpx.Client
) -> None:
    shown = rita.get("/h/x.json").json()["data"]
    approved = decide(rita, "x", "approve", note="go", passphrase=PASSPHRASE)
    assert approved.status_code == 303, approved.text
    receipt = rita.get(approved.headers["location"])
    index = int(approved.headers["location"].partition("=")[2])
    assert f'href="/e/{index}"' in receipt.text
    assert rita.get(f"/e/{index}").status_code == 200
    unlocked = send(
        rita, "/unlock", csrf=token_of(receipt.text, "/unlock"), passphrase=PASSPHRASE, next="//evil.example"
    )
    leads_to, _, proof = unlocked.headers["location"].partition("#unlocked=")
    assert (unlocked.status_code, leads_to) == (303, "/")
    page = rita.get("/h/y")
    assert "signs as rita for" in page.text
    assert proof not in page.text
    assert decide(rita, "y", "reject", note="not now", proof=proof).status_code == 303
    locked = send(rita, "/lock", csrf=token_of(page.text, "/lock"), next="/h/y")
    assert locked.headers["location"] == "/h/y"
    assert "key locked" in rita.get("/h/y").text
    assert PASSPHRASE not in receipt.text + page.text
    verdict = verify(home)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    with Ledger(home) as ledger:
        assert ledger.head()[0] == index + 2
        first, second = ledger.event(index), ledger.event(index + 1)
        assert {first.key, second.key} == {ledger.keys["rita"].public.hex()}
        assert first.data == HandoffApproved(version=shown["handoff"]["version"], comment="go")
        assert second.data == HandoffRejected(reason="not now")


def test_a_wrong_passphrase_signs_nothing_is_not_repeated_and_makes_the_next_wait(
    home: Path, rita: httpx.Client
) -> None:
    wrong = decide(rita, "x", "approve", note="kept", passphrase="hunter2 hunter2")
    assert wrong.status_code == 403
    assert "hunter2" not in wrong.text
    assert "not the passphrase of the key of rita" in wrong.text
    assert ">kept</textarea>" in wrong.text
    assert rita.get("/unlock").status_code == 404
    missing = decide(rita, "y", "approve")
    assert (missing.status_code, "type the passphrase" in missing.text) == (403, True)
    with Ledger(home) as ledger:
        assert ledger.handoff("y").status == "pending"
