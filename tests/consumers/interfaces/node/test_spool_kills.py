"""An agent reports while its server stops and starts, and is killed: no report is lost, duplicated or reordered."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from faults import metrics, settle, times
from forked_deed import ScriptProcess
from serving import CAROL, SESSION, ServeProcess, as_carol, begin, make_home

from deedbook import AsyncLedger, Ledger
from deedbook.consumers.interfaces.cli.program import run
from deedbook.ledger import limits
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.client.spool import Spool
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.session import FindingLogged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbook.ledger.home.config import Settings

PROGRAM = Path(__file__).with_name("spooling_program.py")


class Served:
    """A ledger whose server starts and stops, always on the same port."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.process = ServeProcess(settings)
        self.url, self.is_away = self.process.url, False
        as_carol(settings, self.url, begin)

    def go(self) -> None:
        """Stop serving; the nats-server may go on."""
        self.process.kill()
        self.is_away = True

    def come(self) -> None:
        """Serve again."""
        self.process, self.is_away = ServeProcess(self.settings, self.process.port), False

    def findings(self) -> list[str]:
        """Return the recorded findings, in the order of the log."""
        with LocalClient(self.settings) as client:
            page = client.entries(0, kinds=["finding.logged"], limit=10**6)
            texts, size = list[str](), client.head().size
            while True:
                texts += [read_event(index, data).data.finding for index, data in page.entries]
                if page.next_index >= size:
                    return texts
                page = client.entries(page.next_index, kinds=["finding.logged"])

    def deed(self, *words: str) -> int:
        """Call the command line as carol."""
        return run(["--home", str(self.settings.home), "--server", self.url, "--as", CAROL, *words])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A ledger with a server, and carol, who has begun a session."""
    served = Served(make_home(tmp_path / ".deedbook"))
    yield served
    if not served.is_away:
        served.process.stop()


def report(served: Served, name: str, chance: random.Random) -> int:
    """Let an agent report, kill it, and return the number of reports that it printed."""
    environment = os.environ | {"PYTHONPATH": str(PROGRAM.parents[3])}
    arguments = (PROGRAM, served.settings.home, served.url, name)
    with ScriptProcess(*arguments, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout
        lines = [child.stdout.readline() for _ in range(chance.randrange(1, 40))]
        child.kill()
        lines += child.stdout.readlines()
    assert "".join(lines).endswith("\n"), lines
    return len(lines)


def test_reports_of_a_killed_agent_are_recorded_once_and_in_order_when_its_server_is_back(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, counts = random.Random(os.environ.get("DEEDBOOK_SEED", "spool")), list[int]()
    for number in range(rounds := times(2, 1.2)):
        if number % 2 == 0:
            served.go()
        elif served.is_away:
            served.come()
        counts.append(report(served, str(number), chance))
    if served.is_away:  # after an odd number of rounds
        served.come()
    assert served.deed("spool", "send") == 0
    assert Spool(served.settings.home, CAROL).counts() == (0, 0)
    expected, findings = list[str](), served.findings()
    for number, count in enumerate(counts):
        recorded = [text for text in findings if text.startswith(f"{number} ")]
        assert 0 <= len(recorded) - count <= 1  # the last one may be recorded before its agent prints it
        expected += [f"{number} {position}" for position in range(len(recorded))]
    assert findings == expected
    settle("kill -9 of a spooling agent", rounds, events=expected, published=findings)
    metrics("acts of killed agents that their ledger was away for, or back", len(findings))


def test_what_is_spooled_is_said_to_be_no_record_at_every_interface_and_is_one_when_the_server_is_back(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"home": served.settings.home, "server": served.url, "spool": True}
    served.go()
    words = ["emit", "finding.logged", "--stream", SESSION, "--data", '{"finding": "by hand"}']
    assert served.deed(*words) == 7
    capsys.readouterr()
    assert served.deed("--spool", "--json", *words) == 9
    answer = json.loads(capsys.readouterr().out)["error"]
    assert (answer["code"], answer["recoverable"], answer["details"]["recorded"]) == ("SPOOLED", False, False)
    with Ledger(CAROL, **options) as ledger, pytest.raises(Unavailable, match="NOT recorded yet"):
        ledger.publish(SESSION, FindingLogged(finding="by a program"))
    assert asyncio.run(report_on_loop(options)) == "SPOOLED"
    assert served.deed("--spool", "handoff", "claim", "h1") == 7  # a command that reads first is not spooled
    assert "h1" not in str(list(Spool(served.settings.home, CAROL).entries()))
    served.come()
    assert served.findings() == []
    capsys.readouterr()
    assert served.deed("next") == 0
    assert "of carol 3 operations wait to be recorded" in capsys.readouterr().err
    assert served.deed("doctor") == 7
    assert "`deed spool list`" in capsys.readouterr().out
    # A client without a spool sends the spooled reports, too.
    with Ledger(CAROL, home=served.settings.home, server=served.url) as ledger:
        ledger.publish(SESSION, FindingLogged(finding="last"))
    assert served.findings() == ["by hand", "by a program", "on a loop", "last"]


def test_outage_that_fills_the_spool_costs_what_was_refused_and_nothing_else(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "spool_events_max", 10)
    spooled = list[str]()
    for number in range(rounds := times(1, 2)):
        served.go()
        codes = list[str]()
        with Ledger(CAROL, home=served.settings.home, server=served.url, spool=True) as ledger:
            for position in range(13):
                with pytest.raises(Unavailable) as answer:
                    ledger.publish(SESSION, FindingLogged(finding=(text := f"{number} {position}")))
                codes.append(answer.value.code)
                spooled += [text] if codes[-1] == "SPOOLED" else []
        assert codes == ["SPOOLED"] * 10 + ["SPOOL_FULL"] * 3
        served.come()
        assert served.deed("spool", "send") == 0
    settle("an outage with a full spool", rounds, events=spooled, published=served.findings())


async def report_on_loop(options: dict[str, Any]) -> str:
    """Report on an event loop and return the code of the answer."""
    async with AsyncLedger(CAROL, **options) as ledger:
        with pytest.raises(Unavailable) as raised:
            await ledger.publish(SESSION, FindingLogged(finding="on a loop"))
        return raised.value.code
