"""Every example in a docstring and in the README runs, and says what happens."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import consumers
import ledger
import projections
from consumers.doors.cli.app import App
from consumers.doors.cli.program import VERBS, run

if TYPE_CHECKING:
    from collections.abc import Iterator

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def modules() -> Iterator[str]:
    """Yield the names of all modules whose text holds an example."""
    root = Path(__file__).parents[1]
    for package in (ledger, projections, consumers):
        for path in Path(package.__path__[0]).rglob("*.py"):
            if path.stem != "__main__" and ">>> " in path.read_text("utf-8"):
                yield ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("name", sorted(modules()))
def test_examples_in_docstrings_are_true(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_quick_start_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BATON_HOME", "BATON_SERVER", "BATON_AGENT"):
        monkeypatch.delenv(name, raising=False)
    blocks = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    commands = [line.removeprefix("$ baton ") for block in blocks for line in block.splitlines()]
    assert len(commands) > 30
    for command in commands:
        app = App()
        code = run(shlex.split(command), app)
        app.close()
        assert code == 0, f"{command}: {capsys.readouterr().err}"
    said = capsys.readouterr().out
    assert "Use node:events" in said
    assert "raise the timeout" in said  # the dead end, in what the next agent reads
    monkeypatch.setenv("BATON_AGENT", "claude-code")
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    first, second, third = capsys.readouterr().out.splitlines()
    assert re.match(r"blake3:[0-9a-f]{64} \d+ ", first)
    assert "Found out why sessions never expire ['The token is never given an expiry'" in second
    assert third == "1 [0.35]"


def test_readme_names_every_verb_and_no_other() -> None:
    named = set(re.findall(r"\bbaton ([a-z]+)", README))
    table = README.split("## Daily commands")[1].split("## ")[0]
    for verb in VERBS:
        assert re.search(rf"\b{verb}\b", table), f"the README's daily commands leave out {verb}"
    assert named <= set(VERBS)


def test_readme_names_the_make_targets_there_are() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text("utf-8")
    for target in re.findall(r"`make ([a-z]+)`", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
