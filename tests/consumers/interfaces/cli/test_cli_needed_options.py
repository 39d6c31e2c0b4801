"""Calls without a needed option or argument, and texts that are just a file's name, are refused before any work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import pytest

from deedbook.consumers.interfaces.cli.program import deed as program

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Deed


def verbs_of(group: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every verb of a group and of its groups, with the words that call it."""
    if not isinstance(group, click.Group):
        yield path, group
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from verbs_of(command, *path, name)


VERBS = [(path, command) for path, command in verbs_of(program) if path != ("hook",)]  # a hook fails in silence
NEEDED = [
    (path, parameter.name, [other for other in command.params if other.required and other is not parameter])
    for path, command in VERBS
    for parameter in command.params
    if parameter.required
]
OF_OPERATIONS = [path for path, _ in VERBS if path[0] in ("handoff", "reasoning", "session")]


def example_of(parameter: click.Parameter) -> list[str]:
    """Return a value of a parameter, as it is written on the command line."""
    kind = parameter.type
    value = str(kind.choices[0]) if isinstance(kind, click.Choice) else "1"
    if not isinstance(parameter, click.Option):
        return [value]
    return [parameter.opts[0]] if parameter.is_flag else [parameter.opts[0], value]


@pytest.mark.parametrize(
    ("path", "name", "others"), NEEDED, ids=[f"{' '.join(path)}: {name}" for path, name, _ in NEEDED]
)
def test_call_without_one_that_is_needed_names_it(
    nowhere: Deed, path: tuple[str, ...], name: str, others: list[click.Parameter]
) -> None:
    options = [other for other in others if isinstance(other, click.Option)]
    error = nowhere.refuses(
        "USAGE", *path, *(word for other in [*options, *{*others} - {*options}] for word in example_of(other))
    )
    assert f"`deed {' '.join(path)}` needs " in error["message"]


@pytest.mark.parametrize("path", OF_OPERATIONS, ids=" ".join)
def test_call_of_an_operation_without_options_is_foreseen(deed: Deed, path: tuple[str, ...]) -> None:
    for arguments in ((), ("x",), ("x", "y")):
        assert "UNEXPECTED" not in deed.run(*path, *arguments, "--as", "a").err


def test_every_needed_option_of_an_operation_is_named_with_its_value(deed: Deed) -> None:
    for call, needed in {
        "session dead-end x": "--why TEXT|@FILE",
        "session resolve 1": "--with TEXT|@FILE",
        "session retract 1": "--reason TEXT|@FILE",
        "handoff block h": "--reason TEXT",
        "handoff supersede h": "--by ID",
        "handoff waive h": "--criterion N, --reason TEXT",
        "handoff ask-waiver h --criterion 1": "--reason TEXT",
        "reasoning settle r --step 1 --how x": "--holds or --refuted",
    }.items():
        assert f"needs {needed} (see" in deed.refuses("USAGE", *call.split(), "--as", "a")["message"]


TEXTS = {
    "session finding": (),
    "session unknown": (),
    "session dead-end": ("--why", "it hides the fault"),
    "session dead-end approach --why": (),
    "handoff create --title T --to b --body": (),
    "handoff create --title T --to b --context": (),
    "handoff log h": (),
    "ask b": (),
    "answer h:1": (),
    "decide": (),
    "decide text --why": (),
}


@pytest.mark.parametrize("call", TEXTS)
def test_bare_name_of_a_file_is_no_text(deed: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    (tmp_path / "body.md").write_text("its content")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEEDBOOK_SESSION", "s")
    size = deed.size()
    error = deed.refuses("USAGE", *call.split(), "body.md", *TEXTS[call], "--as", "a")
    assert error["message"] == "body.md is a file: write @body.md for its content, or add words"
    assert deed.size() == size


def test_content_of_a_file_is_recorded(deed: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.md").write_text("the content of the file")
    monkeypatch.chdir(tmp_path)
    name = deed.data("decide", "@text.md", "--as", "a")["id"]
    assert deed.data("decisions", name)["text"] == "the content of the file"
    session = deed.data("session", "start", "--as", "a")["id"]
    deed("session", "finding", session, "@text.md", "--as", "a")
    deed("session", "finding", session, "text.md is the page", "--as", "a")
    found = [finding["finding"] for finding in deed.data("session", "show", session)["findings"]]
    assert found == ["the content of the file", "text.md is the page"]
