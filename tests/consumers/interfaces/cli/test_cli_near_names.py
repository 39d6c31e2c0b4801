"""The error for an unknown name offers similar names. A refusal ends with the command for the next step."""

from __future__ import annotations

import shlex
import tomllib
from typing import TYPE_CHECKING

import msgspec
import pytest

from deedbook.consumers.interfaces.cli.settings_page import TABLES, settings_page
from deedbook.ledger.home.config import Actions, Config, parse_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    Fresh = Callable[[str], str]


def create(deed: Deed, name: str, *more: object) -> str:
    deed("handoff", "create", name, "--as", "a", "--to", "b", "--reviewer", "rita", "--title", "t", *more)
    return name


@pytest.mark.parametrize(
    ("code", "words", "meant"),
    [
        ("AGENT_UNKNOWN", "next --as ritta", "rita"),
        ("AGENT_UNKNOWN", "handoff create --as a --to ritta --reviewer rita --title t", "rita"),
        ("NOT_FOUND", "agent show ritta", "rita"),
        ("KEY_FILE_MISSING", "session start --task t --as ritta", "rita"),
        ("UNKNOWN_KIND", "log --kind handoff.complete", "handoff.completed"),
        ("UNKNOWN_KIND", "watch --kind handoff.complete --as a", "handoff.completed"),
        ("NOT_FOUND", "handoff claim near-evnt-bus --as b", "near-event-bus"),
        ("NOT_FOUND", "handoff show near-evnt-bus", "near-event-bus"),
        ("NOT_FOUND", "why near-evnt-bus", "near-event-bus"),
        ("NOT_FOUND", "show handoff/near-evnt-bus", "handoff/near-event-bus"),
        ("NOT_FOUND", "session show near-sesion", "near-session"),
        ("NOT_FOUND", "reasoning show near-resoning", "near-reasoning"),
    ],
)
def test_unknown_name_is_answered_with_the_nearest(alone_named: Deed, code: str, words: str, meant: str) -> None:
    message = alone_named.refuses(code, *words.split())["message"]
    assert f"did you mean {meant}" in message


@pytest.mark.parametrize(
    "words",
    [
        "handoff reject whole-handof --reason no --as rita",
        "handoff approve whole-handof --version VERSION --as rita",
        "handoff amend whole-handof --title u --as a",
        "handoff check whole-handof --task 1 --as b",
        "handoff cancel whole-handof --reason no --as a",
        "ask b why --about whole-handof --as a",
        "withdraw whole-decisio --reason no --as a",
        "decide other --supersedes whole-decisio --as a",
        "answer whole-questio text --as b",
        "settle whole-questio --as a",
        "session end whole-s --as a",
        "session finding whole-s 'it is so' --as a",
    ],
)
def test_signature_needs_the_whole_id(deed: Deed, words: str) -> None:
    """A typo may be the beginning of another id. The whole command follows; a verb that only reads takes it."""
    if not deed.run("handoff", "show", "whole-handoff").out:
        create(deed, "whole-handoff", "--task", "t")
        deed("decide", "d", "--id", "whole-decision", "--as", "a")
        deed("ask", "b", "whole question", "--as", "a")
        deed("session", "start", "--as", "a", "--task", "t", "whole-session")
    size, words = deed.written(), words.replace("VERSION", f"sha256:{'0' * 64}")
    arguments = shlex.split(words)
    typed = next(word for word in arguments if word.startswith("whole-"))
    (meant,) = deed.refuses("NOT_FOUND", *arguments)["details"]["near"]
    said = deed.run(*arguments).err
    assert said.endswith(f" {words.replace(typed, meant)}\n")
    assert f": did you mean {meant}?\n  next: deed --home {deed.home} " in said
    assert deed.written() == size
    assert deed.data("handoff", "show", "whole-hand")["id"] == "whole-handoff"


def test_removing_an_unknown_agent_names_only_agents_that_can_be_removed(deed: Deed) -> None:
    for name, end in (("ritta", ": did you mean rita?"), ("roott", ": `deed agent list` shows them")):
        error = deed.refuses("AGENT_UNKNOWN", "agent", "remove", name)
        assert error["message"] == f"there is no agent {name}{end}"


@pytest.mark.parametrize(
    "words",
    [
        "handoff create near-part --as a --to nobdy --reviewer rita --title t",  # like node, which receives nothing
        "handoff create near-part --as a --to b --reviewer aa --title t",  # like a, which reviews nothing
    ],
)
def test_agent_that_cannot_take_the_part_is_not_suggested(deed: Deed, words: str) -> None:
    assert "did you mean" not in deed.refuses("AGENT_UNKNOWN", *words.split())["message"]


@pytest.fixture
def alone_named(deed: Deed) -> Deed:
    """A ledger that holds one thing of each name."""
    if not deed.run("handoff", "show", "near-event-bus").out:
        create(deed, "near-event-bus")
        deed("session", "start", "--as", "a", "--task", "t", "near-session")
        deed("reasoning", "start", "near-reasoning", "--as", "a", "--task", "t")
    return deed


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("log --author ritta", "there is no agent ritta: did you mean rita?"),
        ("handoff list --to ritta", "there is no agent ritta: did you mean rita?"),
        ("session list --agent ritta", "there is no agent ritta: did you mean rita?"),
        ("log --stream near-event-bus", "there is no stream near-event-bus: did you mean handoff/near-event-bus?"),
        ("log --stream handoff/near-event-bus --author b", ""),
        ("log --stream zzz", "there is no stream zzz: a stream is TYPE/ID, such as zzz/ID"),
    ],
)
def test_list_that_is_empty_says_which_of_its_filters_names_nothing(alone_named: Deed, words: str, hint: str) -> None:
    said = alone_named.run(*words.split())
    assert (said.code, said.out.strip(), said.err.strip()) == (0, "(none)", hint)


@pytest.mark.parametrize("words", ["export near.tar", "export near.txt --text"])
@pytest.mark.parametrize(
    ("stream", "advice", "alike"),
    [
        ("handoff/near-event-bs", ": did you mean handoff/near-event-bus?", ["handoff/near-event-bus"]),
        ("near-event-bus", ": did you mean handoff/near-event-bus?", ["handoff/near-event-bus"]),
        ("zzz", ": `deed log` prints the stream of each event", []),
    ],
)
def test_export_of_an_unknown_stream_names_those_that_were_meant(
    alone_named: Deed, words: str, stream: str, advice: str, alike: list[str]
) -> None:
    refused = alone_named.refuses("NOT_FOUND", *words.split(), "--stream", stream)
    assert (refused["message"], refused["details"]["near"]) == (f"there is no stream {stream}{advice}", alike)


@pytest.mark.served
def test_refusal_and_success_end_with_the_command_that_goes_on(deed: Deed, fresh: Fresh) -> None:
    first, second = fresh("onward"), fresh("onward")
    approve = f"deed handoff show --as rita {first}"
    words = ("handoff", "create", first, "--as", "a", "--to", "b", "--reviewer", "rita", "--title", "t")
    document = deed.document(*words, "--criterion", "it works")
    assert (document["next"], document["data"]["next"]) == (approve, [approve])
    create(deed, second, "--depends-on", first)
    error = deed.refuses("NOT_APPROVED", "handoff", "claim", first, "--as", "b")
    assert error["details"]["next"] == [approve]
    assert error["message"].endswith(f"\n  next, for rita: {approve}")
    for name in (first, second):
        deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    claim = f"next: deed handoff claim --as b {first}"
    assert claim in deed.refuses("DEPENDENCY_PENDING", "handoff", "claim", second, "--as", "b")["message"]
    assert claim in deed.refuses("TRANSITION_NOT_ALLOWED", "handoff", "complete", first, "--as", "b")["message"]
    other = claim.replace("next:", "next, for b:")
    assert other in deed.refuses("NOT_AUTHORIZED", "handoff", "claim", first, "--as", "a")["message"]
    assert f"next: deed handoff show --as b {first}" in deed("handoff", "claim", first, "--as", "b")
    message = deed.refuses("CRITERIA_OPEN", "handoff", "complete", first, "--as", "b")["message"]
    assert f"next: deed handoff check --criterion 1 --as b {first}" in message


def test_dependency_that_does_not_exist_is_said_to_sender_and_reviewer(deed: Deed, fresh: Fresh) -> None:
    real, name = create(deed, fresh("schema-of-tables")), fresh("stuck")
    typed = real.replace("tables", "tabels")
    words = ("--as", "a", "--to", "b", "--reviewer", "rita", "--title", "t", "--depends-on", typed)
    said = deed.run("handoff", "create", name, *words)
    assert f"warning: {name} can never be claimed before there is a handoff {typed}: did you mean {real}" in said.err
    assert "warning" in deed.run("handoff", "approve", name, "--as", "rita", *deed.as_read(name)).err
    (item,) = [one for one in deed.data("next", "--as", "a", "--limit", 500)["items"] if one["id"] == name]
    assert (item["action"], item["status"]) == ("amend", "approved")
    assert item["why"].startswith(f"it waits for {typed}, which does not exist")
    deed("handoff", "amend", name, "--as", "a", "--depends-on", real)
    assert name not in [one["id"] for one in deed.data("next", "--as", "a", "--limit", 500)["items"]]


def test_suggestion_for_a_dependency_is_never_the_handoff_itself(deed: Deed, fresh: Fresh) -> None:
    name = fresh("export-table")
    words = ("--as", "a", "--to", "b", "--reviewer", "rita", "--title", "t", "--depends-on", f"{name}s")
    assert "did you mean" not in deed.run("handoff", "create", name, *words).err


def test_handoff_of_a_human_says_that_it_needs_no_approval(deed: Deed, fresh: Fresh) -> None:
    name = fresh("own")
    said = deed("handoff", "create", name, "--as", "rita", "--to", "b", "--title", "t")
    assert said.startswith(f"{name} is approved (entry ")
    assert "; it needs no approval: rita is human)\n" in said
    said = deed("handoff", "amend", name, "--as", "rita", "--title", "other")
    assert "; this approves it: rita is human)\n" in said


def test_page_of_settings_is_read_as_settings(nowhere: Deed, tmp_path: Path) -> None:
    page = nowhere("doctor", "--settings").splitlines()
    assert page == list(settings_page())
    every = {field.name for section in (Config, Actions) for field in msgspec.structs.fields(section)}
    named = {line.split()[1].strip("[]") for line in page if line.startswith("# ") and (" = " in line or "[" in line)}
    assert every <= named
    assert {name for name in every if f"# {name} = " not in "\n".join(page)} == set(TABLES)
    given = [line.removeprefix("# ") for line in page if " = " in line or line.startswith("# [")]
    plain = [line for line in given if line.split()[0] not in ("nats_server", "validator_tree", "default_reviewer")]
    read = tomllib.loads("\n".join(plain))
    assert parse_config("\n".join(plain).encode(), tmp_path)[0] == Config()
    for name, table in TABLES.items():
        rows = read[name] if isinstance(read[name], list) else [read[name]]
        assert all(row.keys() == {field.name for field in msgspec.structs.fields(table)} for row in rows)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(nowhere: Deed, shell: str) -> None:
    assert f"_DEED_COMPLETE={shell}_complete" in nowhere("completion", shell)


def test_services_are_listed_only_when_asked_for(deed: Deed) -> None:
    names = [one["name"] for one in deed.data("agent", "list")["agents"]]
    assert ("node" in names, "a" in names) == (False, True)
    assert "node" in [one["name"] for one in deed.data("agent", "list", "--all")["agents"]]
    assert "not shown: 1 service (--all)" in deed("agent", "list")


@pytest.mark.parametrize("words", [["help", "handoff", "create"], ["handoff", "help", "create"]])
def test_help_is_a_verb_too(alone: Deed, words: list[str]) -> None:
    assert alone(*words) == alone("handoff", "create", "--help")


def test_first_guesses_lead_to_the_verb(alone: Deed) -> None:
    for guess in ("status", "inbox", "todo"):
        assert alone(guess, "--help").startswith("Usage: deed next") or "Show what waits" in alone(guess, "--help")
    assert "Start work on an approved handoff" in alone("handoff", "start", "--help")
    assert "Record what you found out" in alone("session", "add", "--help")
