"""The package `deed` among other people's packages and files: which Python finds, and what their checkers see."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

import pytest

import deedbook

if TYPE_CHECKING:
    from pathlib import Path


def run(folder: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in a folder that somebody else made, with nothing of ours on its path but what is installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DEEDBOOK_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment | ({"PYTHONPATH": path} if path else {}),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["ledger", "projections", "consumers"])
def test_somebody_elses_package_of_our_name_is_named_at_once(tmp_path: Path, name: str) -> None:
    theirs = tmp_path / name
    theirs.mkdir()
    (theirs / "__init__.py").write_text("")
    imported = run(tmp_path, "-c", "import deedbook")
    assert imported.returncode == 1
    line = imported.stderr.strip().rpartition("\n")[2]
    assert line.startswith(f"ImportError: deedbook needs its own package '{name}', but Python finds {theirs}")
    assert "rename that one" in line
    doctor = run(tmp_path, "-m", "deed", "doctor")
    assert doctor.returncode == 1
    assert doctor.stderr.startswith(f"deed: deedbook needs its own package '{name}'")
    assert "Traceback" not in doctor.stderr
    # The installed command does not look into the present folder, so it works there.
    assert run(tmp_path, "-P", "-m", "deedbook", "--help").returncode == 0


def test_it_may_be_installed_right_under_the_root_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deed, "__file__", "/app/deedbook/__init__.py")
    monkeypatch.setattr(deed, "find_spec", lambda name: ModuleSpec(name, None, origin=f"/app/{name}/__init__.py"))
    deedbook._check_packages()
    monkeypatch.setattr(deed, "__file__", "/opt/deedbook/__init__.py")
    with pytest.raises(ImportError, match="/app/ledger"):
        deedbook._check_packages()


def test_a_package_that_is_nowhere_or_elsewhere_ends_the_command_and_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["program.py"])
    deedbook._check_packages()
    monkeypatch.setattr(deed, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match="Python finds nowhere"):
        deedbook._check_packages()
    theirs = ModuleSpec("ledger", None, origin=str(tmp_path / "ledger" / "__init__.py"))
    monkeypatch.setattr(deed, "find_spec", lambda _: theirs)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/deed", "doctor"])
    with pytest.raises(SystemExit, match=f"^deedbook: .*Python finds {tmp_path}/ledger"):
        deedbook._check_packages()


def test_the_module_runs_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["deedbook", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("deedbook", run_name="__main__")
    assert ended.value.code in (None, 0)
    assert "Usage: deed" in capsys.readouterr().out


def test_a_strict_type_checker_of_somebody_else_sees_our_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """\
import asyncio
import sqlite3

from deedbook import Accepted, AsyncLedger, Event, Ledger, Refused


def work(ledger: Ledger) -> list[Accepted]:
    @ledger.on("handoff.completed", where=lambda event: event.author == "kuro")
    def note(event: Event, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO done VALUES (?)", (event.name,))

    sentence: str = ledger.handoff("h").why()["sentence"]
    print(sentence)
    return ledger.handoff("h").claim()


async def work_too(ledger: AsyncLedger) -> list[Accepted]:
    try:
        return await ledger.handoff("h").claim()
    except Refused as refusal:
        raise SystemExit(refusal.code) from refusal


async def main() -> None:
    async with AsyncLedger("kuro") as ledger:
        await work_too(ledger)


with Ledger("kuro") as ledger:
    reveal_type(ledger.handoff("h").claim())
    reveal_type(ledger.session("s").show())
asyncio.run(main())
"""
    )
    checked = run(tmp_path, "-m", "mypy", "--strict", str(program))
    notes = [line for line in checked.stdout.splitlines() if "note: Revealed" in line]
    assert checked.returncode == 0, checked.stdout
    assert ["list[ledger.admission" in notes[0], "dict[" in notes[1]] == [True, True], checked.stdout
    (tmp_path / "wrong.py").write_text("from deedbook import Ledger, Nothing\n\nLedger(1).handoff(2)\n")
    wrong = run(tmp_path, "-m", "mypy", "--strict", str(tmp_path / "wrong.py"))
    assert [code for code in ("[attr-defined]", "[arg-type]") if code in wrong.stdout] == [
        "[attr-defined]",
        "[arg-type]",
    ]
