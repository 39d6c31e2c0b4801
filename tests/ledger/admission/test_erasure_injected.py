"""A redaction is killed, or a write or sync fails, at each system call: afterwards it is complete or absent.

``make faults`` tries every call with every fault, and prints a table.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from building import Ledger
from checking import check_log, stored_entries
from erasing import SECRET, files_with, is_erased
from faults import is_long_run, made, note
from injection import FAULTS, Fault, Place, Ran, Table, need_strace

from deedbook.ledger.admission.rewriter import finish_erasures
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHER: Final = "open-sesame-for-all"
PROGRAM: Final = Path(__file__).with_name("erasing_program.py")
QUICK: Final = (
    *(("pwrite64", share / 4) for share in range(5)),
    ("rename", 0.0),
    ("rename", 1.0),
    ("unlink", 0.0),
)
"""The calls before which ``make test`` kills the process: the Nth call of its name, as a share of all."""


class Stage:
    """A log with a secret in one of many entries, and the signed redaction of this entry."""

    def __init__(self, folder: Path) -> None:
        submissions = [folder.with_name(name) for name in ("submission", "other")]
        with Ledger(folder) as ledger:
            ledger.emit("alice", "session/s", SessionStarted())
            drafts = [f"{number} " + "x" * (number * 37 % 900) for number in range(60)]
            drafts[30], drafts[40] = f"the password is {SECRET}", f"the other password is {OTHER}"
            for text in drafts:
                ledger.emit("alice", "session/s", FindingLogged(finding=text))
            self.size = ledger.head()[0]
            self.index, self.other = self.size - 30, self.size - 20
            assert SECRET in str(ledger.event(self.index).data)
            assert OTHER in str(ledger.event(self.other).data)
            for index, submission in zip((self.index, self.other), submissions, strict=True):
                signed = ledger.sign(ROOT, Draft(stream="ledger", data=ledger.redaction(index)))
                submission.write_bytes(signed.encode())
        self.place = Place(folder)
        self.command = [sys.executable, str(PROGRAM), str(folder), *map(str, submissions)]

    def calls(self) -> Counter[str]:
        """Return how often the program makes each call."""
        return Counter(self.place.calls(self.command))

    def check(self, ran: Ran) -> None:
        """Check the log after a run: a redaction is there with its erasure, or neither; the log accepts new entries."""
        said = ran.out.split("\n")
        with Ledger(self.place.folder) as ledger:
            check_log(ledger.log)
            kinds = [ledger.event(index).kind for index in range(self.size, ledger.head()[0])]
            redactions, added = kinds.count("entry.redacted"), kinds.count("finding.logged")
            erased = [is_erased(stored_entries(ledger.log)[index]) for index in (self.index, self.other)]
            assert erased == [redactions > 0, redactions > 1]
            assert redactions in (admitted := sum(line.startswith("admitted") for line in said), admitted + 1)
            assert added in (said.count("added"), said.count("added") + 1)
            assert "erased" not in said or not self.secrets()
            ledger.emit("alice", "session/s", FindingLogged(finding="and it goes on"))
            finish_erasures(ledger.log)
            check_log(ledger.log)
            assert self.secrets() == [OTHER, SECRET][: 2 - redactions][::-1], "neither whole nor absent"

    def secrets(self) -> list[str]:
        """Return the secrets that are still in files of the ledger."""
        return [secret for secret in (SECRET, OTHER) if files_with(self.place.folder, secret)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The log at the beginning of each run."""
    need_strace()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        return Stage(tmp_path_factory.mktemp("injected") / "stage")


def chosen(calls: Counter[str]) -> Iterator[Fault]:
    """Yield the faults to inject: all of them in the long run, otherwise a few."""
    if is_long_run:
        for call, count in sorted(calls.items()):
            yield from itertools.starmap(Fault, itertools.product([call], range(1, count + 1), FAULTS))
        return
    for wanted, share in QUICK:
        call = next(call for call in sorted(calls) if call.startswith(wanted))
        yield Fault(call, 1 + round(share * (calls[call] - 1)), "killed")


def test_redaction_that_is_killed_at_any_call_is_whole_or_absent(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    table = Table()
    for fault in chosen(stage.calls()):
        stage.place.restore()
        ran = stage.place.run(stage.command, fault=fault)
        made(1)
        try:
            stage.check(ran)
        except Exception as error:  # noqa: BLE001 - every state is looked at, and the bad ones are listed
            table.add("a redaction", fault, ran, f"{type(error).__name__}: {error}")
        else:
            table.add("a redaction", fault, ran)
    note(str(table))
    assert table.bad == []
    assert table.missed == []
