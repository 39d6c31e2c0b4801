"""`deed router`: chains are checked and tried without a signature, run on events, and failures are shown."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import inside
import pytest
from calling import Running, wait_until

if TYPE_CHECKING:
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
    created = deed.data("handoff", "create", name, "--as", "a", "--to", to, "--title", title, "--reviewer", "rita")
    index: int = created["accepted"][0]["index"]
    return index


def test_check_needs_no_ledger(nowhere: Deed, file: Path) -> None:
    data = nowhere.data("router", "check", file)
    assert (data["agents_checked"], data["warnings"]) == (False, [])
    assert "names were not checked" in nowhere.run("router", "check", file).err
    nowhere.refuses("NO_LEDGER", "router", "check")


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
    """Let a router handle all events so far."""
    done = inside.deed("--home", deed.home, "router", "run", "--once")
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


def test_a_single_chain_is_one_chain(alone: Deed) -> None:
    (alone.home / "chains.toml").write_text("[[chain]]" + CHAINS.split("[[chain]]")[1], "utf-8")
    alone("trust", "--yes")
    for agent in ("a", "b", "rita"):
        alone("agent", "add", agent, "--role", "reviewer", "--unprotected")
    assert "router routes 1 chain of " in run_once(alone)
