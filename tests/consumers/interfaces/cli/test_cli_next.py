"""`deed next` (and `ready`): the queue of the acting agent, with commands that work."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from calling import Deed

    Fresh = Callable[[str], str]


def test_text_shows_action_why_and_command(deed: Deed, fresh: Fresh, carl: str, rob: str) -> None:
    name = fresh("text")
    deed("handoff", "create", name, "--title", "修復\u202e迴圈", "--as", "a", "--to", carl, "--reviewer", rob)
    deed("unread", "--as", rob)
    lines = deed("ready", "--as", rob).splitlines()
    assert lines[0].startswith(f"approve   [pending → {carl}] 修復�迴圈  (since 2")
    assert lines[1].strip() == f"a hands it to {carl}, and it is not approved"
    assert lines[2].strip() == f"deed handoff show --as {rob} {name}"


def test_everybody_is_listed_agent_by_agent(deed: Deed, fresh: Fresh, carl: str, rob: str) -> None:
    deed("handoff", "create", fresh("all"), "--title", "t", "--as", "a", "--to", carl, "--reviewer", rob)
    items, same = (deed.data(*words, "--limit", 500)["items"] for words in (["next"], ["next", "--all", "--as", "a"]))
    assert [one["agent"] for one in items] == sorted(one["agent"] for one in items)
    # Leave out the reasonings: other tests add some, and the time since their validation changes from call to call.
    assert [{**one, "reasoning": []} for one in same] == [{**one, "reasoning": []} for one in items]
    assert rob in deed("next", "--limit", 500).splitlines()


def test_empty_queue_says_what_comes_later_and_why(deed: Deed, fresh: Fresh, carl: str, rob: str) -> None:
    parties = ("--title", "t", "--as", "a", "--to", carl, "--reviewer", rob)
    first, second = fresh("later"), fresh("later")
    deed("handoff", "create", first, *parties[:-4], "--to", "b", "--reviewer", rob)
    deed("handoff", "create", second, *parties, "--depends-on", first)
    deed("unread", "--as", carl)
    said = deed("next", "--as", carl)
    assert f"nothing waits for {carl}\n  later: {second} is pending, waits for {first}" in said
    assert said.endswith(f" (`deed handoff why {second}`)\n")
    assert [row["id"] for row in deed.data("next", "--as", carl)["later"]["items"]] == [second]
    deed("handoff", "cancel", second, "--reason", "enough", "--as", "a")
    assert "  later: " not in deed("next", "--as", carl)
    assert "later" not in deed.data("next", "--as", rob)


def test_empty_queue_says_how_much_waits_for_others(alone: Deed) -> None:
    for name in ("a", "b"):
        alone("agent", "add", name)
    alone("agent", "add", "rita", "--role", "reviewer", "--unprotected")
    assert alone("next", "--as", "b") == "nothing waits for b\n"
    assert alone.data("next", "--as", "b")["others"] == 0
    alone("handoff", "create", "h1", "--title", "t", "--as", "a", "--to", "b", "--reviewer", "rita")
    assert alone("next", "--as", "a") == "nothing waits for a\n  1 item for others: `deed next --all --as a`\n"
    assert alone.data("next", "--as", "a")["others"] == 1
    assert [item["agent"] for item in alone.data("next", "--all", "--as", "a")["items"]] == ["rita"]
    assert "others" not in alone.data("next", "--as", "rita")


def test_pages_go_on_with_the_command_that_is_printed(deed: Deed, fresh: Fresh, carl: str, rob: str) -> None:
    names = [fresh("page") for _ in range(5)]
    for name in names:
        deed("handoff", "create", name, "--title", "t", "--as", "a", "--to", carl, "--reviewer", rob)
    assert "5 in all; continue with: deed next" in deed("next", "--as", rob, "--limit", 2)
    seen: list[str] = []
    arguments = ["next", "--as", rob, "--limit", "2"]
    while arguments:
        document = deed.document(*arguments)
        assert document["data"]["total"] == 5
        seen += [one["id"] for one in document["data"]["items"]]
        arguments = shlex.split(document.get("next", ""))[1:]
    assert seen == names


def test_the_first_unread_lines_come_first_and_stay_unread(deed: Deed, fresh: Fresh, carl: str, rob: str) -> None:
    name = fresh("unread")
    deed("unread", "--as", rob)  # decisions of other tests are for everybody
    deed("handoff", "create", name, "--title", "t", "--as", "a", "--to", carl, "--reviewer", rob)
    for number in range(3):
        deed("handoff", "log", name, f"line {number}\nfor {rob}", "--as", carl)
    for _ in range(2):
        first, *lines = deed("next", "--as", rob).splitlines()
        assert first == f"4 new lines for you: deed unread --as {rob}"
        assert lines[:2] == [f"  {name}: a created the handoff to {carl}", f"  {name}: {carl} line 0 for {rob}"]
        assert lines[3] == "  … and 1 more"
        assert lines[4].startswith("approve")
    assert deed.data("next", "--as", rob)["unread"]["total"] == 4
    assert len(deed.data("unread", "--as", rob)["items"]) == 4
    assert deed.data("next", "--as", rob)["unread"]["items"] == []
    assert "unread" not in deed.data("next", "--as", rob, "--as-of", "now")
    assert deed("next", "--as", rob).startswith("approve")
