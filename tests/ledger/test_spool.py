"""What an agent did while its ledger was away: kept whole, in order, and within bounds; what is refused says why."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from building import key_named
from faults import times

from deedbook.ledger import limits
from deedbook.ledger.client.author import Draft, draft_and_sign
from deedbook.ledger.client.spool import REPORTS, Spool, spools
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.handoff import HandoffClaimed
from deedbook.ledger.events.session import FindingLogged

if TYPE_CHECKING:
    from deedbook.ledger.format.envelope import Submission

KEY = key_named("alice")
AWAY = Unavailable("BUS_UNAVAILABLE", "nobody is there")


class Ledger:
    """What a spool sends to: there or away, and refusing what it is told to."""

    def __init__(self) -> None:
        self.is_away = True
        self.refusals: dict[str, Refused] = {}
        self.recorded: list[str] = []

    def send(self, submission: Submission) -> list[Any]:
        """Record the findings of a submission, each once."""
        if self.is_away:
            raise AWAY
        for body in submission.bodies:
            finding = msgspec.json.decode(body)["data"]["finding"]
            if finding in self.refusals:
                raise self.refusals[finding]
            if finding not in self.recorded:
                self.recorded.append(finding)
        return []


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """The spool of alice."""
    return Spool(tmp_path, "alice")


@pytest.fixture
def there() -> Ledger:
    """A ledger that is away."""
    return Ledger()


def signed(*texts: str, **more: Any) -> Submission:
    """Return findings, signed as one submission."""
    drafts = [Draft(stream="session/s1", data=FindingLogged(finding=text), **more) for text in texts]
    return draft_and_sign(drafts, KEY, ledger="l", author="alice")


def keep(spool: Spool, there: Ledger, *texts: str) -> Unavailable:
    """Submit findings, which are not recorded; return what says so."""
    with pytest.raises(Unavailable) as kept:
        spool.submit(signed(*texts), there.send, may_store=True)
    return kept.value


def test_what_is_kept_is_said_to_be_no_record_and_recorded_before_what_comes_next(spool: Spool, there: Ledger) -> None:
    said = [keep(spool, there, text) for text in ("a", "b")]
    assert [(one.code, one.details["recorded"], one.details["number"]) for one in said] == [
        ("SPOOLED", False, 1),
        ("SPOOLED", False, 2),
    ]
    there.is_away = False
    assert spool.submit(signed("c"), there.send, may_store=False) == []
    assert there.recorded == ["a", "b", "c"]
    assert spool.counts() == (0, 0)


def test_files_are_for_their_owner_alone_and_hold_the_bytes_that_were_signed(spool: Spool, there: Ledger) -> None:
    submission = signed("a", "b")
    with pytest.raises(Unavailable):
        spool.submit(submission, there.send, may_store=True)
    (path,) = spool.waiting()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700
    assert path.read_bytes() == submission.encode()
    assert [name for name, _ in spools(spool.folder.parents[1])] == ["alice"]


def test_nothing_is_kept_unasked_and_what_waits_is_not_overtaken(spool: Spool, there: Ledger) -> None:
    with pytest.raises(Unavailable) as refused:
        spool.submit(signed("a"), there.send, may_store=False)
    assert (refused.value.code, spool.counts()) == ("BUS_UNAVAILABLE", (0, 0))
    keep(spool, there, "a")
    with pytest.raises(Unavailable, match="go first"):
        spool.submit(signed("b"), there.send, may_store=False)
    assert spool.counts() == (1, 0)


def test_act_whose_answer_matters_is_not_kept(spool: Spool, there: Ledger) -> None:
    claim = Draft(stream="handoff/h1", data=HandoffClaimed(lease_seconds=60))
    for submission in (signed("a", expect=3), draft_and_sign([claim], KEY, ledger="l", author="alice")):
        with pytest.raises(Unavailable, match="not spooled") as refused:
            spool.submit(submission, there.send, may_store=True)
        assert refused.value.code == "BUS_UNAVAILABLE"
    assert spool.counts() == (0, 0)
    assert not {"handoff.claimed", "handoff.approved", "handoff.verified", "handoff.created"} & REPORTS


def test_what_is_refused_is_kept_beside_why_and_the_rest_goes_on_in_order(spool: Spool, there: Ledger) -> None:
    for text in ("a", "bad", "c"):
        keep(spool, there, text)
    there.is_away, there.refusals = False, {"bad": Refused("KEY_REVOKED", "the key was revoked at entry 9")}
    assert spool.send(there.send) == (2, 1)
    assert there.recorded == ["a", "c"]
    (kept,) = spool.entries()
    assert kept.refusal is not None
    assert (kept.number, kept.refusal["code"], kept.refusal["message"]) == (
        2,
        "KEY_REVOKED",
        "the key was revoked at entry 9",
    )
    assert kept.submission is not None
    assert kept.path.parent.name == "rejected"
    there.is_away = True
    assert keep(spool, there, "d").details["number"] == 3  # no number is given twice
    spool.drop(2)
    assert spool.counts() == (1, 0)
    assert sorted(path.name for path in (spool.folder / "rejected").iterdir()) == []
    with pytest.raises(Refused) as refused:
        spool.drop(2)
    assert refused.value.code == "NOT_FOUND"


@pytest.mark.parametrize("error", [Refused("BUS_DENIED", "who are you"), Unavailable("QUOTA_EXCEEDED", "later"), AWAY])
def test_what_is_said_of_the_agent_and_not_of_an_act_lets_all_wait(
    spool: Spool, there: Ledger, error: Refused | Unavailable
) -> None:
    keep(spool, there, "a")
    keep(spool, there, "b")
    there.is_away, there.refusals = False, {"a": error}  # type: ignore[dict-item]
    with pytest.raises(type(error)) as stopped:
        spool.send(there.send)
    assert stopped.value.code == error.code
    assert (there.recorded, spool.counts()) == ([], (2, 0))


def test_damaged_file_is_set_aside_and_holds_up_nothing(spool: Spool, there: Ledger) -> None:
    for text in ("a", "b"):
        keep(spool, there, text)
    path = spool.waiting()[0]
    path.write_bytes(path.read_bytes()[:-10])
    there.is_away = False
    assert spool.send(there.send) == (1, 1)
    (kept,) = spool.entries()
    assert (kept.submission, kept.refusal and kept.refusal["code"]) == (None, "INVALID_FORMAT")


def test_what_else_lies_in_the_folder_is_no_act_and_stays(spool: Spool, there: Ledger) -> None:
    keep(spool, there, "a")
    strangers = [spool.folder / name for name in ("x.msg", "1-2.msg", "000000001-x-0000000000000000.msg", "note.txt")]
    for path in strangers:
        path.write_text("not an act")
    assert spool.counts() == (1, 0)
    keep(spool, there, "b")
    assert [one.number for one in spool.entries()] == [1, 2]
    there.is_away = False
    assert spool.send(there.send) == (2, 0)
    assert all(path.exists() for path in strangers)


@pytest.mark.parametrize("limit", ["spool_events_max", "spool_size_max_bytes"])
def test_full_spool_refuses_and_says_what_to_do(
    limit: str, spool: Spool, there: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, limit, 5 if limit == "spool_events_max" else 4 * len(signed("a").encode()))
    keep(spool, there, "a", "b")
    keep(spool, there, "c")
    full = keep(spool, there, "d", "e", "f")
    assert full.code == "SPOOL_FULL"
    assert "neither recorded nor stored" in full.message
    assert "`deed spool send`" in full.message
    assert spool.counts() == (2, 0)
    there.is_away, there.refusals = False, {"a": Refused("KEY_REVOKED", "no")}
    assert spool.send(there.send) == (1, 1)
    there.is_away = True
    assert keep(spool, there, "d", "e", "f", "g").code == "SPOOL_FULL"  # what was refused takes its place, too
    assert keep(spool, there, "d").code == "SPOOLED"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_full_disk_keeps_what_was_there_and_says_that_this_is_lost(
    call: str, spool: Spool, there: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(spool, there, "a")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("deedbook.ledger.system.files.os.fsync" if call == "fsync" else "pathlib.Path.replace", fail)
        full = keep(spool, there, "b")
    assert full.code == "STORE_UNAVAILABLE"
    assert "neither recorded nor stored" in full.message
    assert sorted(path.suffix for path in spool.folder.iterdir()) == [".msg"]
    there.is_away = False
    assert spool.send(there.send) == (1, 0)
    assert there.recorded == ["a"]


def test_crash_at_each_step_of_sending_loses_and_repeats_nothing(
    spool: Spool, there: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: object, **__: object) -> None:
        raise Crash

    for text in ("a", "bad", "c"):
        keep(spool, there, text)
    there.is_away, there.refusals = False, {"bad": Refused("KEY_REVOKED", "no")}
    for step in (
        "pathlib.Path.unlink",
        "deedbook.ledger.client.spool.write_whole",
        "pathlib.Path.rename",
        "deedbook.ledger.client.spool.sync_folder",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(step, crash)
            with pytest.raises(Crash):
                spool.send(there.send)
        if step == "pathlib.Path.unlink":
            assert spool.counts() == (3, 0)
            spool.waiting()[0].unlink()  # as it was sent again, and answered with its receipt
    assert spool.send(there.send) == (1, 0)
    assert (there.recorded, spool.counts()) == (["a", "c"], (0, 1))


def test_half_written_file_of_a_killed_process_is_no_act_and_goes(spool: Spool, there: Ledger) -> None:
    keep(spool, there, "a")
    (spool.folder / ".deedbook-spool-12345678").write_bytes(b"half")
    assert spool.counts() == (1, 0)
    keep(spool, there, "b")
    assert {path.suffix for path in spool.folder.iterdir()} == {".msg"}


def test_threads_and_processes_that_spool_at_once_keep_all_each_in_its_order(tmp_path: Path) -> None:
    count, here = times(12, 20), Path(__file__).parent
    program = (
        "import sys, pathlib, test_spool as t\n"
        f"for number in range({count}):\n"
        "    t.keep(t.Spool(pathlib.Path(sys.argv[1]), 'alice'), t.Ledger(), f'p{number}')"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (here, here.parent)))}
    spool, there = Spool(tmp_path, "alice"), Ledger()

    def work(name: str) -> None:
        for number in range(count):
            keep(spool, there, f"{name}{number}")

    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], env=environment) as child:
        threads = [threading.Thread(target=work, args=[name]) for name in "tu"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert child.returncode == 0
    there.is_away = False
    assert spool.send(there.send) == (3 * count, 0)
    for name in "tup":
        assert [text for text in there.recorded if text[0] == name] == [f"{name}{number}" for number in range(count)]
