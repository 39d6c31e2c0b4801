"""The package `deedbook` among other people's packages and files: which Python finds, and what their checkers see."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import deedbook


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


def test_somebody_elses_modules_of_the_same_names_are_in_nobodys_way(tmp_path: Path) -> None:
    for name in ("consumers.py", "ledger.py", "baton.py"):
        (tmp_path / name).write_text("raise ImportError('theirs')\n")
    (tmp_path / "projections").mkdir()
    (tmp_path / "projections" / "__init__.py").write_text("raise ImportError('theirs')\n")
    imported = run(tmp_path, "-c", "from deedbook import Ledger, Refused; print(Ledger.__module__)")
    assert (imported.returncode, imported.stderr) == (0, "")
    assert imported.stdout == "deedbook.consumers.interfaces.python.ledger\n"
    assert run(tmp_path, "-m", "deedbook", "--help").returncode == 0


def test_the_public_interface_offers_what_it_lists_and_opens_nothing(tmp_path: Path) -> None:
    assert deedbook.__all__ == sorted(deedbook.__all__)
    assert {name for name in dir(deedbook) if not name.startswith("_")} >= set(deedbook.__all__)
    assert all(getattr(deedbook, name).__name__ == name for name in deedbook.__all__)
    with pytest.raises(AttributeError, match="'deedbook' has no attribute 'Nothing'"):
        _ = deedbook.Nothing
    loaded = run(tmp_path, "-c", "import sys, deedbook; print([one for one in sys.modules if one[:9] == 'deedbook.'])")
    assert loaded.stdout == "[]\n"


def test_type_checkers_and_python_are_offered_the_same_names() -> None:
    source = ast.parse(Path(deedbook.__file__).read_text("utf-8"))
    (block,) = (node for node in source.body if isinstance(node, ast.If))
    offered = {
        alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert offered == {name: f"deedbook.{module}" for name, module in deedbook._MODULES.items()}
    assert sorted(offered) == deedbook.__all__


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

    sentence: str = ledger.handoff("h").why().sentence
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
    assert ["list[deedbook.ledger.admission" in notes[0], "ShownSession" in notes[1]] == [True, True], checked.stdout


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("from deedbook import Nothing", "attr-defined"),
        ("Ledger(1)", "arg-type"),
        ("Ledger().handoff(2)", "arg-type"),
        ("Ledger().handoff('h').show().statsu", "attr-defined"),
        ("Ledger().handoff('h').show().criteria[0].makr", "attr-defined"),
        ("Ledger().handoff('h').show()['status']", "index"),
        ("Ledger().handoff('h').why().sentense", "attr-defined"),
        ("Ledger().reasoning('r').show().memory.stpes", "attr-defined"),
        ("Ledger().session('s').show().findngs", "attr-defined"),
        ("Ledger().handoff('h').claim(lease=3)", "call-arg"),
        ("Ledger().handoff('h').amend(titel='y')", "call-arg"),
        ("Ledger().handoff('h').amend(tasks='y', title=3)", "arg-type"),
        ("AsyncLedger().handoff('h').show().status", "attr-defined"),
    ],
)
def test_a_strict_type_checker_refuses_what_is_misspelt(tmp_path: Path, line: str, code: str) -> None:
    (tmp_path / "wrong.py").write_text(f"from deedbook import AsyncLedger, Ledger\n\n{line}\n")
    wrong = run(tmp_path, "-m", "mypy", "--strict", str(tmp_path / "wrong.py"))
    assert f"[{code}]" in wrong.stdout
