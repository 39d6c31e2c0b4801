"""`deed demo --dashboard`: its address, its passphrase, agents that keep working, and a clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.home.config import Settings


@pytest.mark.usefixtures("costly_passphrases")
def test_dashboard_of_the_demo_shows_its_past_and_agents_take_up_what_is_approved(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
    command = [sys.executable, "-m", "deedbook", "demo", "--dashboard", "--json"]
    with subprocess.Popen(
        command,
        env=environment | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            document: dict[str, Any] = json.loads(process.stdout.readline())
            assert document["kind"] == "demo_dashboard"
            where = document["data"]
            page = httpx.get(where["link"], follow_redirects=True, timeout=60)
            assert page.status_code == 200
            assert "全文检索" in page.text
            settings = Settings(home=Path(where["home"]), agent="alex")
            with Ledger(settings=settings, passphrase=where["passphrase"]) as alex:
                version = alex.ask("handoffs.facts", id="search-cjk")["version"]
                [approved] = alex.publish("handoff/search-cjk", {"version": version}, kind="handoff.approved")
                for event in alex.follow("handoff.claimed", stream="handoff/search-cjk", after=approved.index):
                    assert event.author == "claude-code"
                    break
        finally:
            process.send_signal(signal.SIGINT)
            rest, err = process.communicate()
            print(rest, err)  # pytest shows it if the demo ended before
    assert (process.returncode, rest, err) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
