"""`deed erase` fails or is killed at any write or sync: it is undone, or the next call finishes it.

Once the erasure of a subject is signed, it is erased for every reader. Its key is deleted by the next call at the
latest.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import inside
import pytest
from faults import is_long_run
from forked_deed import run_deed
from injection import FAULTS, Fault, Place, need_strace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLEAR: Final = "Carol moved to Bergen"
ERASE: Final = ["erase", "carol", "--reason", "She asked for it", "--as", "root", "--yes"]
SAYS_ERASED: Final = "warning: carol was erased on"
SHOW: Final = ("session", "show", "s", "--unseal", "--as", "alice")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A ledger with a sealed finding, and its key in the user's configuration."""
    need_strace()
    folder = tmp_path_factory.mktemp("erased") / "stage"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        steer(patch, folder)
        for words in (
            ("init", "--unprotected"),
            ("agent", "add", "alice"),
            ("seal", "create", "carol", "--as", "alice"),
            ("session", "start", "s", "--as", "alice"),
            ("session", "finding", "s", CLEAR, "--seal", "carol", "--as", "alice"),
        ):
            assert deed(folder, *words).code == 0
        yield Place(folder)


def deed(folder: Path, *words: str) -> inside.Said:
    """Call a verb without injecting a fault."""
    places = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}
    return inside.deed("--home", folder / ".deedbook", *words, **places)


def steer(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let processes use the ledger and the key in ``folder``, and no user's own."""
    for name, below in (("DEEDBOOK_HOME", ".deedbook"), ("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        patch.setenv(name, str(folder / below))


def test_an_erasure_is_undone_or_finished(stage: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    steer(monkeypatch, stage.folder)
    command = [sys.executable, "-m", "deedbook", *ERASE]
    calls = stage.calls(command)
    numbers = [(call, calls[: at + 1].count(call)) for at, call in enumerate(calls)]
    at = calls.index("unlink")  # it deletes the key, after the log is synced and the key is overwritten
    chosen = numbers if is_long_run else numbers[at - 4 : at + 2]
    states = set()
    for at, (call, number) in enumerate(chosen):
        for name in FAULTS if is_long_run else ("EIO", "killed")[at % 2 :][:1]:
            stage.restore()
            ran = stage.run(command, fault=Fault(call, number, name))
            assert ran.was_hit
            assert ran.code in {0, 7, -9}, ran.err
            states.add(check_after(stage.folder, has_succeeded=ran.code == 0))
    assert "signed" in states


def check_after(folder: Path, *, has_succeeded: bool) -> str:
    """Check the state that a run left, and that the next run finishes it; return the state."""
    shown = deed(folder, *SHOW)
    keys = list(folder.glob("config/deedbook/seals/*/*"))
    is_signed = SAYS_ERASED in shown.err
    assert is_signed or CLEAR in shown.out, shown.err
    assert not has_succeeded or (is_signed and not keys)
    finished = deed(folder, *ERASE)
    assert finished.code == 0, finished.err
    shown = deed(folder, *SHOW)
    assert SAYS_ERASED in shown.err
    assert CLEAR not in shown.out
    assert [path for path in folder.glob("config/deedbook/seals/*/*") if path.suffix == ".key"] == []
    assert deed(folder, "log", "--kind", "subject.erased", "--json").out.count('"event:') == 1
    assert run_deed("verify", timeout=60).returncode == 0
    return "signed" if is_signed else "undone"
