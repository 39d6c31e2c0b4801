"""``--as-of``: verbs that read answer as they would have then, and other verbs refuse the option."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from deedbook.consumers.interfaces.cli.program import deed as program
from deedbook.consumers.interfaces.cli.verbs import LazyGroup
from deedbook.ledger.lifecycle.clock import clock_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from calling import Deed


@pytest.fixture
def handed(deed: Deed, fresh: Callable[[str], str]) -> tuple[str, int]:
    """An amended handoff, and the index of the entry that created it."""
    name = fresh("past")
    deed("handoff", "create", name, "--title", "first", "--to", "b", "--reviewer", "rita", "--as", "a")
    (made,) = deed.data("log", "--stream", f"handoff/{name}")["items"]
    deed.data("handoff", "amend", name, "--title", "second", "--reason", "more", "--as", "a")
    return name, made["index"]


@pytest.mark.served
def test_verbs_that_read_show_what_was_there_after_an_entry(deed: Deed, handed: tuple[str, int]) -> None:
    name, index = handed
    then = deed.data("handoff", "show", name, "--as-of", index)
    assert (then["title"], then["as_of"]["size"]) == ("first", index + 1)
    assert deed.data("handoff", "show", name)["title"] == "second"
    assert deed.data("--as-of", index, "log")["items"][0]["index"] == index
    assert name in [row["id"] for row in deed.data("handoff", "list", "--as-of", index)["items"]]
    assert name not in [row["id"] for row in deed.data("handoff", "list", "--as-of", index - 1)["items"]]
    said = deed.run("handoff", "show", name, "--as-of", index)
    assert f"as of entry {index}, " in said.err
    assert "first" in said.out
    assert "# Handoff: first" in deed.run("handoff", "render", name, "--as-of", index).out
    assert name not in deed.run("prime", "--as", "rita", "--as-of", index - 1).out


@pytest.mark.served
def test_times_are_those_of_every_option_that_takes_a_time(deed: Deed, handed: tuple[str, int]) -> None:
    name, _ = handed
    accepted = deed.data("log", "--kind", "handoff.amended")["items"][0]["accepted_ms"]
    assert deed.data("handoff", "show", name, "--as-of", clock_text(accepted))["title"] == "second"
    for text in ("2020-01-01", "7 days ago", "2020-01-01T00:00:00+02:00"):
        deed.refuses("NOT_FOUND", "handoff", "list", "--as-of", text)


@pytest.mark.parametrize("text", ["-1", "soon", "", "tomorrow", "1e3"])
def test_what_is_no_moment_is_refused(deed: Deed, text: str) -> None:
    deed.refuses("INVALID_FIELD", "handoff", "list", "--as-of", text)


def test_moment_beyond_the_end_names_the_last_entry(deed: Deed) -> None:
    said = deed.refuses("NOT_FOUND", "next", "--as-of", 10**6)
    assert "its last entry is" in said["message"]


def verbs(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, LazyGroup):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from verbs(found, (*path, name))
    else:
        yield path, command


@pytest.mark.parametrize(
    "words", ["handoff claim h --as b", "watch --as a --kind x", "log --follow", "verify", "emit x --stream s/t"]
)
def test_verbs_that_act_or_go_on_do_not_look_back(deed: Deed, words: str) -> None:
    said = deed.refuses("USAGE", *words.split(), "--as-of", 3)
    assert "--as-of shows an earlier one" in said["message"]


def test_help_of_a_verb_names_the_option_where_it_looks_back(deed: Deed) -> None:
    for words, looks_back in ((("handoff", "claim"), False), (("verify",), False), (("handoff", "render"), True)):
        assert ("--as-of" in deed.run(*words, "--help").out) == looks_back


def test_no_verb_that_signs_looks_back() -> None:
    looking = {" ".join(path) for path, command in verbs(program) if command.looks_back}
    assert {"handoff show", "next", "log", "search", "why", "tot show", "session list", "report query"} <= looking
    acting = {"create", "amend", "approve", "claim", "complete", "verify", "run", "emit", "record", "generate", "add"}
    assert not {name for name in looking if name.split()[-1] in acting}
