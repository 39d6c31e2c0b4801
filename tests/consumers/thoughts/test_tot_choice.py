"""The thinker for a problem: a program that can read it, else the configured model, else an error with advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deedbook.consumers.thoughts.thinkers.registry import choose_thinker, registered, thinker_named
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.config import Actions

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = Actions()
MODEL = Actions(llm={"model": "stub", "base_url": "http://127.0.0.1:9/v1"})
ECHO = """
from deedbook.consumers.thoughts.thinkers.game24 import Game24
class Echo(Game24):
    name, problems = "echo", "what begins with echo"
    def reads(self, problem, task_type):
        return problem.startswith("echo")
"""


def install(folder: Path, name: str, code: str, *, offers: str = "echo = {0}:Echo") -> None:
    """Write the files that pip writes for a package that offers a thinker."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[deedbook.thinkers]\n{offers.format(name)}\n")
    (folder / f"{name}.py").write_text(code)


@pytest.mark.parametrize(
    ("problem", "task_type", "name"),
    [
        ("4 9 10 13", "math_reasoning", "game24"),
        ("blocks: C on A, A on table; goal: A on C", "planning", "llm:stub"),
        ("debug: f(x) = x * 2 + 3; 0 -> 4; 1 -> 6", "debugging", "llm:stub"),
        ("Solve x^2-5x+6=0", "math_reasoning", "llm:stub"),
        ("Migrate a 400 GB Postgres 11 database", "planning", "llm:stub"),
        ("pytest hangs on CI but not locally", "debugging", "llm:stub"),
        ("4 9 10 13", "creative_writing", "llm:stub"),
    ],
)
def test_program_takes_only_what_it_reads_and_the_model_the_rest(problem: str, task_type: str, name: str) -> None:
    assert choose_thinker(problem, task_type, MODEL).name == name


def test_whoever_is_named_thinks_whatever_the_problem_is() -> None:
    assert choose_thinker("4 9 10 13", "math_reasoning", MODEL, "llm").name == "llm:stub"
    assert choose_thinker("Write a poem", "creative_writing", NOBODY, "game24").name == "game24"


def test_problem_that_nobody_reads_is_refused_with_what_to_configure_and_who_reads_what() -> None:
    with pytest.raises(Refused) as refusal:
        choose_thinker("Migrate a database", "planning", NOBODY)
    assert refusal.value.code == "USAGE"
    assert all(text in str(refusal.value) for text in ("[llm]", "doctor --llm", "--thinker", "game24 reads"))


def test_installed_program_is_chosen_and_loaded_only_when_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "echoes", ECHO + "open(__file__ + '.loaded', 'x').close()\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert list(registered()) == ["game24", "game24-exhaustive", "echo"]
    assert choose_thinker("4 9 10 13", "math_reasoning", NOBODY).name == "game24"
    assert not (tmp_path / "site" / "echoes.py.loaded").exists()
    assert choose_thinker("echo this", "creative_writing", NOBODY).name == "echo"


def test_what_lies_in_the_working_folder_is_no_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "stranger", ECHO)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused, match="no thinker is named 'echo'"):
        thinker_named("echo", NOBODY)


@pytest.mark.parametrize(
    ("code", "offers"),
    [
        ("raise RuntimeError('hidden')", "echo = {0}:Echo"),
        ("raise SystemExit(3)", "echo = {0}:Echo"),
        ("", "echo = {0}:Echo"),
        ("Echo = dict", "echo = {0}:Echo"),
        (ECHO.replace('"echo",', '"other",'), "echo = {0}:Echo"),
        (ECHO + "    reads = None", "echo = {0}:Echo"),
        (ECHO, "game24 = {0}:Echo"),
        (ECHO, "llm = {0}:Echo"),
    ],
    ids=["raises", "exits", "empty", "no thinker", "other name", "cannot read", "name of ours", "name of the model"],
)
def test_package_whose_thinker_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, code: str, offers: str
) -> None:
    package = f"broken_{request.node.callspec.id.replace(' ', '_')}"
    install(tmp_path / "site", package, code, offers=offers)
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(Refused) as refusal:
        choose_thinker("Write a poem", "creative_writing", MODEL)
    assert refusal.value.code == "USAGE"
    assert package in str(refusal.value)
    assert "uninstall" in str(refusal.value)
