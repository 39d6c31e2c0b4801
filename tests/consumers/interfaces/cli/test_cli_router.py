"""`deed router`: chains are checked and tried without a signature, run on what happens, and what failed is shown."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from calling import Running, call, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

CHAINS = """
[[chain]]
name = "look"
when = "handoff.created"
where = {to = "b", chain = ""}
then = {to = "a", reviewer = "rita", title = "Look at {title}", depends_on = ["{id}"]}

[[chain]]
name = "lost"
when = ["handoff.created", "handoff.verified"]
where = {title = "Lost*"}
then = {to = "nobody", reviewer = "rita", title = "Find {id}"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of chains."""
    path = tmp_path / "ours.toml"
    path.write_text(CHAINS, "utf-8")
    return path


def hand_over(deed: Deed, name: str, title: str = "Tests", to: str = "b") -> int:
    """Create a handoff and return the index of that event."""
    created = deed.data(
        "handoff", "create", "--as", "a", "--to", to, "--title", title, "--id", name, "--reviewer", "rita"
    )
    index: int = created["accepted"][0]["index"]
    return index


def test_check_shows_the_chains_and_warns_of_strangers(deed: Deed, file: Path) -> None:
    data = deed.data("router", "check", file)
    assert data["chains"] == ["look", "lost"]
    assert data["warnings"] == ["chain lost, step 1: there is no agent nobody"]
    said = deed.run("router", "check", file)
    assert said.err == "warning: chain lost, step 1: there is no agent nobody\n"
    assert "look, lost" in said.out


def test_check_needs_no_ledger(nowhere: Deed, file: Path) -> None:
    data = nowhere.data("router", "check", file)
    assert (data["agents_checked"], data["warnings"]) == (False, [])
    assert "names were not checked" in nowhere.run("router", "check", file).err
    nowhere.refuses("NO_LEDGER", "router", "check")


def test_check_refuses_what_is_wrong_with_its_place(deed: Deed, file: Path) -> None:
    file.write_text(CHAINS.replace("{title}", "{tittle}"), "utf-8")
    error = deed.refuses("INVALID_FIELD", "router", "check", file)
    assert error["details"] == {
        "file": str(file),
        "path": "$.chain[0].then[0].title",
        "line": 6,
        "placeholder": "{tittle}",
    }
    deed.refuses("NOT_FOUND", "router", "check", file.with_name("none.toml"))


def test_ledger_without_chains_has_none(deed: Deed) -> None:
    assert deed.data("router", "check")["chains"] == []
    assert "no chains" in deed("router", "check")
    assert deed.data("router", "dry-run")["events"] == []


@pytest.mark.served
def test_dry_run_says_what_would_be_made_and_why_nothing_else(
    deed: Deed, file: Path, fresh: Callable[[str], str]
) -> None:
    name = fresh("dry")
    index = hand_over(deed, name)
    size = deed.written()
    (event,) = deed.data("router", "dry-run", file, "--after", index - 1)["events"]
    assert (event["index"], event["handoff"], event["hop"]) == (index, name, 0)
    look, lost = event["chains"]
    assert look["steps"] == [
        {
            "step": 1,
            "id": f"{name}-look-1",
            "to": "a",
            "reviewer": "rita",
            "title": "Look at Tests",
            "depends_on": [name],
            "tasks": 0,
            "criteria": 0,
            "hop": 1,
            "is_there": False,
        }
    ]
    assert (lost["fires"], lost["why_not"]) == (False, "where.title: 'Tests' is not 'Lost*'")
    text = deed("router", "dry-run", file, "--after", index - 1)
    assert f"would create: {name}-look-1 [→ a] Look at Tests (hop 1)" in text
    assert deed.written() == size


def test_dry_run_of_one_event_tells_of_every_chain(deed: Deed, file: Path, fresh: Callable[[str], str]) -> None:
    name = fresh("one")
    index = hand_over(deed, name)
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    (event,) = deed.data("router", "dry-run", file, "--event", index + 1)["events"]
    assert [chain["why_not"] for chain in event["chains"]] == [
        "when: handoff.approved is not handoff.created",
        "when: handoff.approved is not handoff.created or handoff.verified",
    ]
    deed.refuses("USAGE", "router", "dry-run", file, "--event", 0)
    deed.refuses("NOT_FOUND", "router", "dry-run", file, "--event", 10**6)


def test_dry_run_goes_on_where_its_page_ended(deed: Deed, file: Path, fresh: Callable[[str], str]) -> None:
    first = hand_over(deed, fresh("page"))
    second = hand_over(deed, fresh("page"))
    document = deed.document("router", "dry-run", file, "--after", first - 1, "--limit", 1)
    assert [event["index"] for event in document["data"]["events"]] == [first]
    assert document["next"] == f"deed router dry-run {file} --after {first} --limit 1"
    rest = deed.document(*document["next"].split()[1:])
    assert [event["index"] for event in rest["data"]["events"]] == [second]
    assert "continue with: " in deed("router", "dry-run", file, "--after", first - 1, "--limit", 1)


def test_run_signs_as_the_routers_own_agent_and_status_tells_what_failed(alone: Deed) -> None:
    for agent, role in (("a", "agent"), ("b", "agent"), ("rita", "reviewer")):
        alone("agent", "add", agent, "--role", role, "--unprotected")
    (alone.home / "chains.toml").write_text(CHAINS, "utf-8")
    alone("trust", "--yes")
    assert alone.data("router", "status")["position"] is None
    run_once(alone)
    hand_over(alone, "t1", "Lost tests")
    assert alone.data("router", "status")["behind"] == 1
    assert "router routes 2 chains" in run_once(alone)
    made = alone.data("handoff", "show", "t1-look-1")
    assert (made["from"], made["to"], made["title"]) == ("router", "a", "Look at Lost tests")
    (letter,) = alone.data("router", "status")["dead_letters"]
    assert letter["error"].startswith("chain lost, step 1: AGENT_UNKNOWN")
    assert "AGENT_UNKNOWN" in alone("router", "status")
    dry = alone.data("router", "dry-run")["events"][0]
    assert dry["chains"][0]["steps"][0]["is_there"] is True
    alone("agent", "add", "nobody", "--role", "agent", "--unprotected")
    assert "not routed" not in alone("router", "status", "--retry", letter["index"])
    assert alone.data("router", "status")["dead_letters"] == []
    alone.refuses("NOT_FOUND", "router", "status", "--retry", letter["index"])
    (alone.home / "chains.toml").write_text("[[chain]", "utf-8")
    assert alone.data("router", "status")["problem"]["code"] == "NOT_TRUSTED"
    alone("trust", "--yes")
    assert alone.data("router", "status")["problem"]["code"] == "INVALID_FORMAT"
    assert "is not used" in alone("router", "status")


def run_once(deed: Deed) -> str:
    """Let a router handle what there is, in a process of its own: it takes the signals of its process."""
    done = call("--home", deed.home, "router", "run", "--once")
    assert done.code == 0, done.err
    return done.out


def test_run_goes_on_until_it_is_told_to_stop(alone: Deed, file: Path) -> None:
    for agent, role in (("a", "agent"), ("b", "agent"), ("rita", "reviewer")):
        alone("agent", "add", agent, "--role", role, "--unprotected")
    with Running("--home", alone.home, "router", "run", file) as running:
        assert "routes 2 chains" in running.line()
        wait_until(lambda: alone.data("router", "status")["behind"] == 0, "the router has begun")
        hand_over(alone, "t")
        wait_until(lambda: alone.run("handoff", "show", "t-look-1").code == 0, "the handoff is made")
        assert running.signal(signal.SIGTERM).code == 0


@pytest.mark.served
def test_router_needs_the_role_of_a_service(deed: Deed, file: Path) -> None:
    error = deed.refuses("NOT_AUTHORIZED", "router", "run", file, "--once", "--as", "a")
    assert error["details"] == {"role": "service"}
    if deed.is_remote:
        deed.refuses("USAGE", "router", "run", file, "--once")


def test_a_single_chain_is_one_chain(alone: Deed) -> None:
    (alone.home / "chains.toml").write_text("[[chain]]" + CHAINS.split("[[chain]]")[1], "utf-8")
    alone("trust", "--yes")
    for agent in ("a", "b", "rita"):
        alone("agent", "add", agent, "--role", "reviewer", "--unprotected")
    assert "router routes 1 chain of " in run_once(alone)
