"""The package `deedbook` among other packages and files: the one that Python imports and type checkers see."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import deedbook
from deedbook import AsyncLedger, Ledger, Refused
from deedbook.ledger.events.handoff import HandoffCreated


def run(folder: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in another user's folder, with only the installed packages on its path."""
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
    assert not {"Path", "sys", "find_spec", "annotations"} & set(dir(deedbook))
    assert issubclass(deedbook.Unavailable, deedbook.DeedbookError)
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


PROGRAM = """\
import asyncio
import sqlite3

from deedbook import Accepted, AsyncLedger, Event, Ledger, Refused
from deedbook.ledger.events.handoff import HandoffClaimed, HandoffCompleted


def work(ledger: Ledger) -> list[Accepted]:
    @ledger.on(HandoffCompleted, where=lambda event: event.data.summary != "")
    def typed(event: Event[HandoffCompleted], db: sqlite3.Connection) -> None:
        reveal_type(event.data.summary)

    for claimed in ledger.events(HandoffClaimed):
        reveal_type(claimed.data.lease_seconds)
    for either in ledger.follow(HandoffClaimed, HandoffCompleted):
        reveal_type(either.data)

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

# An expression with a typing error, mypy's code for it, and the name that the error at run time suggests.
MISSPELT = [
    ("ledger.handofs", "attr-defined", "handoffs"),
    ("ledger.handoffs.nxt(agent='kuro')", "attr-defined", "next"),
    ("ledger.handoffs.next(agnt='kuro')", "call-arg", "agent"),
    ("ledger.handoffs.next(agent='kuro').itmes", "attr-defined", "items"),
    ("ledger.handoffs.next(agent='kuro').items[0].titel", "attr-defined", "title"),
    ("[row.stauts for row in ledger.handoffs.list()]", "attr-defined", "status"),
    ("ledger.handoffs.list(stauts='pending')", "call-arg", "status"),
    ("ledger.handoffs.list(status='pendng')", "arg-type", "pending"),
    ("ledger.handoffs.show(id='h').statsu", "attr-defined", "status"),
    ("ledger.reasonings.shw(id='r')", "attr-defined", "show"),
    ("ledger.reslve(ref='0')", "attr-defined", "resolve"),
    ("ledger.resolve(idd='0')", "call-arg", "id"),
    ("ledger.handof('h')", "attr-defined", "handoff"),
    ("ledger.handoff('h').clam()", "attr-defined", "claim"),
    ("ledger.handoff('h').claim(lease_minuts=3)", "call-arg", "lease_minutes"),
    ("ledger.handoff('h').amend(titel='y')", "call-arg", "title"),
    ("ledger.handoff('h').show().statsu", "attr-defined", "status"),
    ("ledger.handoff('h').show().criteria[0].makr", "attr-defined", "mark"),
    ("ledger.handoff('h').why().sentense", "attr-defined", "sentence"),
    ("ledger.reasoning('r').show().memory.stpes", "attr-defined", "steps"),
    ("ledger.session('s').show().findngs", "attr-defined", "findings"),
    ("ledger.reasoning('r').brief().fidelty", "attr-defined", "fidelity"),
    ("ledger.verify(rot='0')", "call-arg", "root"),
    ("next(ledger.events('handoff.created')).strem", "attr-defined", "stream"),
    ("next(ledger.events(HandoffCreated)).data.titel", "attr-defined", "title"),
    ("next(ledger.events('handoff.craeted'))", "call-overload", "handoff.created"),
    ("ledger.on('handoff.completd')", "call-overload", "handoff.completed"),
    ("ledger.on(HandoffCreated, wehre=None)", "call-overload", "where"),
    ("(await loop.handoffs.next()).itmes", "attr-defined", "items"),
    ("[row.stauts async for row in await loop.handoffs.list()]", "attr-defined", "status"),
    ("await loop.handoff('h').claim(lease_minuts=3)", "call-arg", "lease_minutes"),
    ("loop.handofs", "attr-defined", "handoffs"),
    ("await loop.handoffs.nxt()", "attr-defined", "next"),
]
WRONG = [
    ("Ledger(1)", "arg-type"),
    ("ledger.handoff(2)", "arg-type"),
    ("ledger.ask('handofs.lst', stauts='x')", "attr-defined"),
    ("ledger.handoff('h').show()['status']", "index"),
    ("ledger.handoff('h').amend(tasks='y', title=3)", "arg-type"),
    ("ledger.handoffs.existing(ids='h')", "arg-type"),
    ("loop.handoff('h').show().status", "attr-defined"),
    ("[row for row in await loop.handoffs.list()]", "attr-defined"),
]


def test_a_strict_type_checker_of_somebody_else_sees_our_types_and_refuses_what_is_misspelt(tmp_path: Path) -> None:
    lines = [
        "from deedbook import AsyncLedger, Ledger",
        "from deedbook.ledger.events.handoff import HandoffCreated",
        "async def wrong(ledger: Ledger, loop: AsyncLedger) -> None:",
    ]
    begin = len(lines) + 1
    cases = [*((line, code) for line, code, _ in MISSPELT), *WRONG]
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text("\n".join([*lines, *(f"    {line}" for line, _ in cases), ""]))
    answer = run(tmp_path, "-m", "mypy", "--strict", "program.py", "wrong.py")
    assert "program.py:" not in "".join(line for line in answer.stdout.splitlines() if ": error: " in line)
    notes = [line for line in answer.stdout.splitlines() if "note: Revealed" in line]
    types = [note.partition('Revealed type is "')[2].rpartition(".")[2].removesuffix('"') for note in notes]
    assert types == ["str", "int | None", "EventData", "Accepted]", "ShownSession"], answer.stdout
    codes: dict[int, str] = dict.fromkeys(range(begin, begin + len(cases)), "")
    for number, message in re.findall(r"^wrong\.py:(\d+): error: (.*)$", answer.stdout, re.MULTILINE):
        codes[int(number)] += message
    for (line, code), message in zip(cases, codes.values(), strict=True):
        assert f"[{code}]" in message, f"{line}: {message}"


@pytest.fixture(scope="session")  # with worksteal a worker may run this module in two parts
def misspelt_home(local_home: Path) -> Path:
    """A ledger with a handoff, a reasoning and a session."""
    with Ledger("kuro", home=local_home) as ledger:
        ledger.handoff("h").create(to="claude-code", reviewer="alex", title="It", criteria=["done"])
        ledger.reasoning("r").start("it")
        ledger.reasoning("r").step("one")
        ledger.session("s").start()
    return local_home


@pytest.mark.parametrize(("line", "near"), [(line, near) for line, _, near in MISSPELT])
def test_a_misspelt_name_is_refused_with_the_near_name(misspelt_home: Path, line: str, near: str) -> None:
    async def evaluate() -> None:
        with Ledger("alex", home=misspelt_home) as ledger:
            async with AsyncLedger("alex", home=misspelt_home) as loop:
                names = {"HandoffCreated": HandoffCreated}
                exec(f"async def wrong(ledger, loop):\n    return {line.replace('kuro', 'alex')}", names)
                await names["wrong"](ledger, loop)

    with pytest.raises(Refused, match=rf"\b{re.escape(near)}\b") as refused:
        asyncio.run(evaluate())
    assert near in refused.value.details.get("near", [near])
    assert refused.value.code in {"UNKNOWN_FIELD", "UNKNOWN_KIND", "INVALID_FIELD"}
