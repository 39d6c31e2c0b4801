"""`deed next` (and `ready`): the queue of who acts, with commands that do what they say."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from calling import Deed

    Fresh = Callable[[str], str]


def only(deed: Deed, agent: str) -> dict[str, Any]:
    """Return the one item that waits for an agent."""
    (item,) = deed.data("next", "--as", agent)["items"]
    found: dict[str, Any] = item
    return found


@pytest.mark.served
def test_commands_lead_a_handoff_through_its_life(deed: Deed, fresh: Fresh, carl: str, rob: str) -> None:
    name = fresh("life 第一")
    parties = ["--as", "a", "--to", carl, "--reviewer", rob]
    deed("handoff", "create", "--id", name, "--title", "修復迴圈", "--criterion", "綠", *parties)
    turns = []
    for agent in (rob, carl, carl, carl, rob):
        item = only(deed, agent)
        turns.append(item["action"])
        command = item["command"]
        if "VERSION" in command:
            command = command.replace("--version VERSION", shlex.join(deed.as_read(name)))
        deed(*shlex.split(command)[1:])
    assert turns == ["approve", "claim", "continue", "continue", "verify"]
    assert deed.data("handoff", "show", name)["status"] == "verified"
    assert deed("next", "--as", carl) == f"nothing waits for {carl}\n"


def test_text_shows_action_why_and_command(deed: Deed, fresh: Fresh, carl: str, rob: str) -> None:
    name = fresh("text")
    deed("handoff", "create", "--id", name, "--title", "修復\u202e迴圈", "--as", "a", "--to", carl, "--reviewer", rob)
    lines = deed("ready", "--as", rob).splitlines()
    assert lines[0].startswith(f"approve   [pending → {carl}] 修復�迴圈  (since 2")
    assert lines[1].strip() == f"a hands it to {carl}, and it is not approved"
    assert lines[2].strip() == f"deed handoff approve --version VERSION --as {rob} {name}"


def test_everybody_is_listed_agent_by_agent(deed: Deed, fresh: Fresh, carl: str, rob: str) -> None:
    deed("handoff", "create", "--id", fresh("all"), "--title", "t", "--as", "a", "--to", carl, "--reviewer", rob)
    items, same = (deed.data(*words, "--limit", 500)["items"] for words in (["next"], ["next", "--all", "--as", "a"]))
    assert [one["agent"] for one in items] == sorted(one["agent"] for one in items)
    # Other tests' reasonings stand here too, and how long ago they were validated: that changes from call to call.
    assert [{**one, "reasoning": []} for one in same] == [{**one, "reasoning": []} for one in items]
    assert rob in deed("next", "--limit", 500).splitlines()


def test_pages_go_on_with_the_command_that_is_printed(deed: Deed, fresh: Fresh, carl: str, rob: str) -> None:
    names = [fresh("page") for _ in range(5)]
    for name in names:
        deed("handoff", "create", "--id", name, "--title", "t", "--as", "a", "--to", carl, "--reviewer", rob)
    assert "5 in all; continue with: deed next" in deed("next", "--as", rob, "--limit", 2)
    seen: list[str] = []
    arguments = ["next", "--as", rob, "--limit", "2"]
    while arguments:
        document = deed.document(*arguments)
        assert document["data"]["total"] == 5
        seen += [one["id"] for one in document["data"]["items"]]
        arguments = shlex.split(document.get("next", ""))[1:]
    assert seen == names


@pytest.mark.served
def test_wrong_agents_and_cursors_are_refused(deed: Deed) -> None:
    # Who has no key cannot even ask a server.
    deed.refuses("KEY_FILE_MISSING" if deed.is_remote else "AGENT_UNKNOWN", "next", "--as", "nobody-here")
    deed.refuses("INVALID_FIELD", "next", "--as", "Not A Name")
    deed.refuses("INVALID_FIELD", "next", "--cursor", "17")
    deed.refuses("USAGE", "next", "--limit", 0)
