"""The spool stores submissions whole, in order and within limits; it stores refused submissions with the reason."""

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
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.handoff import HandoffClaimed
from deedbook.ledger.events.session import FindingLogged

if TYPE_CHECKING:
    from deedbook.ledger.format.envelope import Submission

KEY = key_named("alice")
AWAY = Unavailable("BUS_UNAVAILABLE", "the server does not answer")


class Ledger:
    """The ledger to which a spool sends. It is away and raises ``outage``, or it refuses the texts in ``refusals``."""

    def __init__(self) -> None:
        self.is_away = True
        self.outage = AWAY
        self.refusals: dict[str, Refused] = {}
        self.recorded: list[str] = []

    def send(self, submission: Submission) -> list[Any]:
        """Record the findings of a submission, each once."""
        if self.is_away:
            raise self.outage
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
def ledger() -> Ledger:
    """A ledger that is away."""
    return Ledger()


def signed(*texts: str, **more: Any) -> Submission:
    """Return one signed submission of findings."""
    drafts = [Draft(stream="session/s1", data=FindingLogged(finding=text), **more) for text in texts]
    return draft_and_sign(drafts, KEY, ledger="l", author="alice")


def store(spool: Spool, ledger: Ledger, *texts: str) -> Unavailable:
    """Submit findings to a ledger that is away, and return the error that says so."""
    with pytest.raises(Unavailable) as refused:
        spool.submit(signed(*texts), ledger.send, may_store=True)
    return refused.value


def test_stored_submission_is_reported_as_not_recorded_and_is_recorded_before_the_next(
    spool: Spool, ledger: Ledger
) -> None:
    errors = [store(spool, ledger, text) for text in ("a", "b")]
    assert [(error.code, error.details["recorded"], error.details["number"]) for error in errors] == [
        ("SPOOLED", False, 1),
        ("SPOOLED", False, 2),
    ]
    ledger.is_away = False
    assert spool.submit(signed("c"), ledger.send, may_store=False) == []
    assert ledger.recorded == ["a", "b", "c"]
    assert spool.counts() == (0, 0)


def test_files_are_for_their_owner_alone_and_hold_the_bytes_that_were_signed(spool: Spool, ledger: Ledger) -> None:
    submission = signed("a", "b")
    with pytest.raises(Unavailable):
        spool.submit(submission, ledger.send, may_store=True)
    (path,) = spool.waiting()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700
    assert path.read_bytes() == submission.encode()
    assert [name for name, _ in spools(spool.folder.parents[1])] == ["alice"]


def test_nothing_is_stored_without_permission_and_waiting_submissions_go_first(spool: Spool, ledger: Ledger) -> None:
    with pytest.raises(Unavailable) as refused:
        spool.submit(signed("a"), ledger.send, may_store=False)
    assert (refused.value.code, spool.counts()) == ("BUS_UNAVAILABLE", (0, 0))
    store(spool, ledger, "a")
    with pytest.raises(Unavailable, match="go first"):
        spool.submit(signed("b"), ledger.send, may_store=False)
    assert spool.counts() == (1, 0)


def test_submission_whose_answer_matters_is_not_stored(spool: Spool, ledger: Ledger) -> None:
    claim = Draft(stream="handoff/h1", data=HandoffClaimed(lease_seconds=60))
    for submission in (signed("a", expect=3), draft_and_sign([claim], KEY, ledger="l", author="alice")):
        with pytest.raises(Unavailable, match="not spooled") as refused:
            spool.submit(submission, ledger.send, may_store=True)
        assert refused.value.code == "BUS_UNAVAILABLE"
    assert spool.counts() == (0, 0)


def test_each_kind_of_a_family_with_reports_is_a_report_or_is_listed_here() -> None:
    families = {KINDS[name].stream for name in REPORTS}
    kinds = {name for name, kind in KINDS.items() if kind.stream in families}
    assert kinds - REPORTS == {
        "handoff.amended",
        "handoff.approved",
        "handoff.cancelled",
        "handoff.changes_requested",
        "handoff.claimed",
        "handoff.created",
        "handoff.criterion_waived",
        "handoff.question_answered",
        "handoff.question_asked",
        "handoff.question_settled",
        "handoff.ready",
        "handoff.rejected",
        "handoff.released",
        "handoff.superseded",
        "handoff.unblocked",
        "handoff.verified",
        "handoff.waiver_asked",
        "reasoning.briefed",
        "reasoning.validated",
        "report.generated",
    }


def test_refused_submission_is_stored_with_the_reason_and_the_rest_is_sent_in_order(
    spool: Spool, ledger: Ledger
) -> None:
    for text in ("a", "bad", "c"):
        store(spool, ledger, text)
    ledger.is_away, ledger.refusals = False, {"bad": Refused("KEY_REVOKED", "the key was revoked at entry 9")}
    assert spool.send(ledger.send) == (2, 1)
    assert ledger.recorded == ["a", "c"]
    (entry,) = spool.entries()
    assert entry.refusal is not None
    assert (entry.number, entry.refusal["code"], entry.refusal["message"]) == (
        2,
        "KEY_REVOKED",
        "the key was revoked at entry 9",
    )
    assert entry.submission is not None
    assert entry.path.parent.name == "rejected"
    ledger.is_away = True
    assert store(spool, ledger, "d").details["number"] == 3  # the number of a refused submission is not used again
    spool.drop(2)
    assert spool.counts() == (1, 0)
    assert sorted(path.name for path in (spool.folder / "rejected").iterdir()) == []
    with pytest.raises(Refused) as refused:
        spool.drop(2)
    assert refused.value.code == "NOT_FOUND"


@pytest.mark.parametrize("error", [Refused("BUS_DENIED", "who are you"), Unavailable("QUOTA_EXCEEDED", "later"), AWAY])
def test_error_about_the_agent_lets_all_submissions_wait(
    spool: Spool, ledger: Ledger, error: Refused | Unavailable
) -> None:
    store(spool, ledger, "a")
    store(spool, ledger, "b")
    ledger.is_away, ledger.refusals = False, {"a": error}  # type: ignore[dict-item]
    with pytest.raises(type(error)) as stopped:
        spool.send(ledger.send)
    assert stopped.value.code == error.code
    assert (ledger.recorded, spool.counts()) == ([], (2, 0))


def test_damaged_file_is_rejected_and_the_rest_is_sent(spool: Spool, ledger: Ledger) -> None:
    for text in ("a", "b"):
        store(spool, ledger, text)
    path = spool.waiting()[0]
    path.write_bytes(path.read_bytes()[:-10])
    ledger.is_away = False
    assert spool.send(ledger.send) == (1, 1)
    (entry,) = spool.entries()
    assert (entry.submission, entry.refusal and entry.refusal["code"]) == (None, "INVALID_FORMAT")


def test_other_files_in_the_folder_are_ignored_and_stay(spool: Spool, ledger: Ledger) -> None:
    store(spool, ledger, "a")
    other_paths = [spool.folder / name for name in ("x.msg", "1-2.msg", "000000001-x-0000000000000000.msg", "note.txt")]
    for path in other_paths:
        path.write_text("no submission")
    assert spool.counts() == (1, 0)
    store(spool, ledger, "b")
    assert [entry.number for entry in spool.entries()] == [1, 2]
    ledger.is_away = False
    assert spool.send(ledger.send) == (2, 0)
    assert all(path.exists() for path in other_paths)


@pytest.mark.parametrize("limit", ["spool_events_max", "spool_size_max_bytes"])
def test_full_spool_refuses_and_names_the_next_step(
    limit: str, spool: Spool, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, limit, 5 if limit == "spool_events_max" else 4 * len(signed("a").encode()))
    store(spool, ledger, "a", "b")
    store(spool, ledger, "c")
    full = store(spool, ledger, "d", "e", "f")
    assert full.code == "SPOOL_FULL"
    assert "neither recorded nor stored" in full.message
    assert "`deed spool send`" in full.message
    assert spool.counts() == (2, 0)
    ledger.is_away, ledger.refusals = False, {"a": Refused("KEY_REVOKED", "no")}
    assert spool.send(ledger.send) == (1, 1)
    ledger.is_away = True
    assert store(spool, ledger, "d", "e", "f", "g").code == "SPOOL_FULL"  # refused submissions count, too
    assert store(spool, ledger, "d").code == "SPOOLED"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_full_disk_keeps_stored_submissions_and_reports_that_the_new_one_is_lost(
    call: str, spool: Spool, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(spool, ledger, "a")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("deedbook.ledger.system.files.os.fsync" if call == "fsync" else "pathlib.Path.replace", fail)
        full = store(spool, ledger, "b")
    assert full.code == "SPOOL_UNAVAILABLE"
    assert "neither recorded nor stored" in full.message
    assert sorted(path.suffix for path in spool.folder.iterdir()) == [".msg"]
    ledger.is_away = False
    assert spool.send(ledger.send) == (1, 0)
    assert ledger.recorded == ["a"]


@pytest.mark.parametrize("is_away", [False, True])
def test_unusable_spool_is_an_error_of_its_own_and_not_an_outage(
    is_away: bool, spool: Spool, ledger: Ledger, tmp_path: Path
) -> None:
    (tmp_path / "spool").write_bytes(b"no folder")
    ledger.is_away = is_away
    error = store(spool, ledger, "a")
    assert (error.code, type(error), error.details["path"]) == ("SPOOL_UNAVAILABLE", Unavailable, str(spool.folder))
    assert "the spool cannot be used" in error.message
    assert "neither recorded nor stored" in error.message
    assert "away" not in error.message
    assert ledger.recorded == []  # an earlier submission must be sent first, and nobody knows whether the spool has one
    for call in (spool.waiting, spool.rejected, spool.counts, lambda: spool.send(ledger.send)):
        with pytest.raises(Unavailable) as unusable:
            call()
        assert unusable.value.code == "SPOOL_UNAVAILABLE"


def test_spool_that_cannot_be_made_says_that_the_submission_is_lost(tmp_path: Path, ledger: Ledger) -> None:
    error = store(Spool(tmp_path, "a" * 256), ledger, "a")
    assert error.code == "SPOOL_UNAVAILABLE"
    assert "neither recorded nor stored" in error.message


def test_spool_that_became_read_only_does_not_call_a_ledger_away_that_answers(
    spool: Spool, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(spool, ledger, "a")
    ledger.is_away = False

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:  # file permissions would not do: tests may run as root
        patch.setattr("pathlib.Path.unlink", fail)
        error = store(spool, ledger, "b")
    assert (error.code, spool.counts()) == ("SPOOL_UNAVAILABLE", (1, 0))
    assert spool.submit(signed("b"), ledger.send, may_store=True) == []
    assert ledger.recorded == ["a", "b"]


def test_busy_ledger_is_called_busy_and_gets_the_stored_submission_later(spool: Spool, ledger: Ledger) -> None:
    ledger.outage = Unavailable("BUSY", "too many requests wait")
    for text in ("a", "b"):  # the second time, the busy ledger refuses the submission that waits in the spool
        error = store(spool, ledger, text)
        assert (error.code, error.details["reason"]) == ("SPOOLED", "BUSY")
        assert "the ledger is busy" in error.message
        assert "away" not in error.message
    with pytest.raises(Unavailable) as busy:
        spool.send(ledger.send)
    assert (busy.value.code, spool.counts()) == ("BUSY", (2, 0))
    ledger.is_away = False
    assert spool.send(ledger.send) == (2, 0)
    assert ledger.recorded == ["a", "b"]


def test_crash_at_each_step_of_sending_loses_and_repeats_nothing(
    spool: Spool, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: object, **__: object) -> None:
        raise Crash

    for text in ("a", "bad", "c"):
        store(spool, ledger, text)
    ledger.is_away, ledger.refusals = False, {"bad": Refused("KEY_REVOKED", "no")}
    for step in (
        "pathlib.Path.unlink",
        "deedbook.ledger.client.spool.write_whole",
        "pathlib.Path.rename",
        "deedbook.ledger.client.spool.sync_folder",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(step, crash)
            with pytest.raises(Crash):
                spool.send(ledger.send)
        if step == "pathlib.Path.unlink":
            assert spool.counts() == (3, 0)
            spool.waiting()[0].unlink()  # as the next sender does when the ledger has repeated its answer
    assert spool.send(ledger.send) == (1, 0)
    assert (ledger.recorded, spool.counts()) == (["a", "c"], (0, 1))


def test_half_written_file_of_a_killed_process_is_ignored_and_removed(spool: Spool, ledger: Ledger) -> None:
    store(spool, ledger, "a")
    (spool.folder / ".deedbook-spool-12345678").write_bytes(b"half")
    assert spool.counts() == (1, 0)
    store(spool, ledger, "b")
    assert {path.suffix for path in spool.folder.iterdir()} == {".msg"}


def test_threads_and_processes_that_spool_at_once_store_all_each_in_its_order(tmp_path: Path) -> None:
    count, here = times(12, 20), Path(__file__).parent
    program = (
        "import sys, pathlib, test_spool as t\n"
        f"for number in range({count}):\n"
        "    t.store(t.Spool(pathlib.Path(sys.argv[1]), 'alice'), t.Ledger(), f'p{number}')"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (here, here.parent)))}
    spool, ledger = Spool(tmp_path, "alice"), Ledger()

    def work(name: str) -> None:
        for number in range(count):
            store(spool, ledger, f"{name}{number}")

    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], env=environment) as child:
        threads = [threading.Thread(target=work, args=[name]) for name in "tu"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert child.returncode == 0
    ledger.is_away = False
    assert spool.send(ledger.send) == (3 * count, 0)
    for name in "tup":
        assert [text for text in ledger.recorded if text[0] == name] == [f"{name}{number}" for number in range(count)]
