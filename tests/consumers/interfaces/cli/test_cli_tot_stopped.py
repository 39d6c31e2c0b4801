"""A search is stopped or moved: the output of the command line, and the state that it leaves."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

import click
import inside
import pytest
import tot_story
from building import trusted
from calling import Deed, Place, Running, wait_until

from deedbook.consumers.interfaces.cli.program import deed
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.interfaces.text import EventLines
from deedbook.consumers.thoughts.task import AGENTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The most nodes that a search may have: even a slow process finds it still running and can stop it.
SLOW = ("--problem", "4 5 6 7 8 9", "--strategy", "BFS", "--depth", 5, "--branching", 9, "--nodes", 2_000)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Deed:
    home = tmp_path / ".deedbook"
    assert inside.deed("--home", home, "init", "--unprotected").code == 0
    return Deed(capsys, Place(home))


def stop(shell: Deed, logs: Path) -> str:
    """Start a search that takes a while, stop it as ^C does, and return its output."""
    with Running("--home", shell.home, "tot", "run", *SLOW, "--beam", 64, "--logs", logs) as search:
        wait_until(lambda: [one for one in shell.data("tot", "list")["items"] if one["root_id"]], "a search begun")
        said = search.signal(signal.SIGINT)
    assert said.code == 130, said
    return said.err


def test_stopped_search_is_logged_and_says_how_it_goes_on(shell: Deed, tmp_path: Path) -> None:
    said = stop(shell, tmp_path / "logs")
    (task,) = shell.data("tot", "list")["items"]
    assert f"`deed tot resume {task['id']}`" in said
    # The name has three digits if the machine was slow to stop it, after 48 rounds.
    assert len(list((tmp_path / "logs" / task["id"]).glob("9*-merged-timeline.log"))) == 1
    assert task["status"] == "searching"


def test_task_whose_keys_are_elsewhere_is_shown_and_not_resumed(
    shell: Deed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop(shell, tmp_path / "logs")
    (task,) = shell.data("tot", "list")["items"]
    trusted(shutil.copytree(shell.home, tmp_path / "copy"))
    keys = [file for name in AGENTS.values() for file in (tmp_path / "copy" / "keys").glob(f"{name}.*")]
    assert len(keys) == 2 * len(AGENTS)
    for file in keys:
        file.unlink()
    copied = Deed(capsys, Place(tmp_path / "copy"))
    copied.refuses("NOT_AUTHORIZED", "tot", "resume", task["id"], "--no-logs")
    assert [file.name for file in keys if file.exists()] == []
    assert copied.data("tot", "show", task["id"])["task_id"] == task["id"]


def test_solved_task_is_told_where_its_keys_are_not(
    shell: Deed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    solved = shell.data("tot", "run", "--problem", "4 9 10 13", "--no-logs")
    trusted(shutil.copytree(shell.home, tmp_path / "copy"))
    for name in AGENTS.values():
        (tmp_path / "copy" / "keys" / f"{name}.key").unlink()
    told = Deed(capsys, Place(tmp_path / "copy")).data("tot", "resume", solved["task_id"], "--no-logs")
    assert told == solved | {"pids": {}}


def test_thought_cannot_look_like_another_agents_line() -> None:
    entry = kinds.LogEntry(level="info", msg="a\n12  [Orchestrator] forged\u2028\x1b[2Jb")
    data = kinds.TotLogWritten(sender="explorer", task_id=tot_story.TASK, entries=[entry])
    event = tot_story.spoken("explorer", data, index=7)
    assert list(EventLines().of(event)) == ["a 12 [Orchestrator] forged \ufffd[2Jb"]


def verbs(group: click.Group) -> Iterator[click.Command]:
    """Yield a group's verbs, and those of its groups."""
    context = click.Context(group)
    for name in group.list_commands(context):
        verb = group.get_command(context, name)
        assert verb is not None
        yield verb
        if isinstance(verb, click.Group):
            yield from verbs(verb)


def test_help_is_for_people_and_names_no_exceptions() -> None:
    assert [verb.name for verb in verbs(deed) if "Raises:" in (verb.help or "")] == []
