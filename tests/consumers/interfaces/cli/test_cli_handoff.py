"""`deed handoff`: the whole life of a handoff by verbs, why it is not ready, and refusals with their codes."""

from __future__ import annotations

import getpass
import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from calling import with_passphrase

from deedbook.consumers.handoffs.composition import split_ids
from deedbook.consumers.sdk.text import default_id
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    Fresh = Callable[[str], str]


def create(deed: Deed, name: str, *more: object) -> str:
    """Create a handoff from a to b that rita reviews, and return its id."""
    parties = ["--as", "a", "--to", "b", "--reviewer", "rita"]
    deed("handoff", "create", name, "--title", f"Do {name}", *parties, *more)
    return name


def status(deed: Deed, name: str) -> str:
    """Return the status of a handoff."""
    found: str = deed.data("handoff", "show", name)["status"]
    return found


def why(deed: Deed, name: str) -> str:
    """Return the sentence that says why a handoff is not ready."""
    data: dict[str, Any] = deed.data("handoff", "why", name)
    sentence: str = data["sentence"]
    shown, *commands = deed("handoff", "why", name).splitlines()
    assert (shown, commands) == (sentence, [f"next: {command}" for command in data["next"]])
    return sentence


def test_list_filters_and_goes_on_with_the_command_it_prints(deed: Deed, fresh: Fresh) -> None:
    carl = fresh("carl")
    deed("agent", "add", carl, "--as", "ada")
    names = [fresh("list") for _ in range(5)]
    for name in names:
        deed("handoff", "create", name, "--title", "t", "--as", "a", "--to", carl, "--reviewer", "rita")
    deed("handoff", "approve", names[0], "--as", "rita", *deed.as_read(names[0]))
    assert [one["id"] for one in deed.data("handoff", "list", "--to", carl, "--ready")["items"]] == [names[0]]
    seen: list[str] = []
    arguments = ["handoff", "list", "--to", carl, "--status", "pending", "--from", "a", "--limit", "3"]
    while arguments:
        document = deed.document(*arguments)
        assert document["data"]["total"] == 4
        seen += [one["id"] for one in document["data"]["items"]]
        arguments = document.get("next", "").split()[1:]
    assert seen == names[:0:-1]
    table = deed("handoff", "list", "--to", carl, "--limit", 2)
    assert f"[pending → {carl}]" in table
    assert "5 in all; continue with: deed handoff list" in table
    assert "(none)" in deed("handoff", "list", "--to", carl, "--status", "verified")
    deed.refuses("USAGE", "handoff", "list", "--status", "finished")


def test_default_reviewer_is_written_in_unless_it_is_a_party(alone: Deed) -> None:
    for agent in ("a", "b"):
        alone("agent", "add", agent)
    alone("agent", "add", "rita", "--role", "human", "--role", "reviewer", "--unprotected")
    (alone.home / "config.toml").write_text('default_reviewer = "rita"\n')
    made = alone.data("handoff", "create", "--as", "a", "--to", "b", "--title", "Wähle 东西 aus!")
    assert alone.data("handoff", "show", made["id"])["reviewer"] == "rita"
    assert made["id"] == default_id("Wähle 东西 aus!")
    assert made["id"].endswith("-wähle-东西-aus")
    alone.refuses("REVIEWER_REQUIRED", "handoff", "create", "--as", "a", "--to", "rita", "--title", "t")


def test_absent_reviewer_is_named_or_registered_with_the_printed_command(
    alone: Deed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "a")
    for agent in ("a", "b"):
        alone("agent", "add", agent)
    call = ("handoff", "create", "h1", "--as", "a", "--to", "b", "--title", "t")
    for code, more in {"REVIEWER_REQUIRED": (), "SELF_APPROVAL": ("--reviewer", "b")}.items():
        error = alone.refuses(code, *call, *more)
        (line,) = error["details"]["next"]
        assert error["message"].endswith(f"; here nobody else can. Register a person:\n  next: {line}")
    words = shlex.split(line)
    assert words[:4] == ["deed", "agent", "add", "a-2"]
    assert words[-3:] == ["--passphrase-fd", "3", "3<FILE"]
    with_passphrase("PASSPHRASE", alone, *words[1:-3])
    message = alone.refuses("SELF_APPROVAL", *call, "--reviewer", "b")["message"]
    assert message.endswith("name another reviewer; here that is a-2")
    alone(*call, "--reviewer", "a-2")


def test_text_of_a_handoff_is_read_from_files(alone: Deed, tmp_path: Path) -> None:
    test_default_reviewer_is_written_in_unless_it_is_a_party(alone)
    body = tmp_path / "body.md"
    body.write_text("第一行\nsecond line\n", "utf-8")
    created = ["handoff", "create", "from-file", "--as", "a", "--to", "b", "--title", "t"]
    alone(*created, "--body", f"@{body}")
    assert alone.data("handoff", "show", "from-file")["task"].startswith("第一行\nsecond")
    body.write_bytes(b"\xff\xfe")
    alone.refuses("INVALID_FORMAT", *created, "--body", f"@{body}")


def test_text_that_would_steer_a_terminal_is_shown_without_its_power(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("escape"), "--body", "\x1b[2J\u202egnol")
    shown = deed("handoff", "show", name)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert json.dumps(deed.data("handoff", "show", name)["task"]) == '"\\u001b[2J\\u202egnol"'


def test_id_of_a_title_needs_a_word() -> None:
    with pytest.raises(Refused) as refused:
        default_id("!?")
    assert refused.value.code == "USAGE"
    assert split_ids("a.md, b,(none),") == ["a", "b"]
