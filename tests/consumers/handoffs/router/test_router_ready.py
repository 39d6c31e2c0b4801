"""`handoff.ready` is announced once for each time of waiting, with the event since which it can be claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deedbook.consumers.handoffs.router import worker as module
from deedbook.ledger.events.handoff import HandoffCancelled, HandoffReleased

if TYPE_CHECKING:
    from pathlib import Path

    from routed_ledger import Routed


def test_ready_is_told_when_the_last_dependency_unlocks(routed: Routed) -> None:
    router = routed.router()
    routed.ledger.approve("c", routed.ledger.hand_over("c", depends_on=["a", "b"]))
    routed.route(router)
    routed.ledger.finish("a")
    routed.route(router)
    assert "c" not in routed.announced()
    routed.ledger.finish("b", verify=True)
    unlocked = routed.events("handoff.completed")[-1].id
    routed.route(router)
    (ready,) = [one for one in routed.events("handoff.ready") if one.name == "c"]
    assert ready.causes == [unlocked]
    assert (ready.data.to, ready.data.version) == ("bob", routed.ledger.handoff("c").version)


def test_ready_is_told_once_a_waiting_episode(routed: Routed, tmp_path: Path) -> None:
    router, other = routed.router(), routed.router("pilot", tmp_path / "pilot.db")
    routed.ledger.approve("a", routed.ledger.hand_over("a"))
    for worker in (router, other, router):
        routed.route(worker)
    assert routed.announced() == ["a"]
    routed.ledger.claim("a")
    routed.route(router)
    routed.ledger.emit("bob", "handoff/a", HandoffReleased())
    for worker in (router, other):
        routed.route(worker)
    assert routed.announced() == ["a", "a"]
    routed.ledger.emit("alice", "handoff/a", HandoffCancelled(reason="no"))
    routed.route(router)
    assert routed.announced() == ["a", "a"]


def test_sweep_finds_a_lease_that_ran_out(routed: Routed) -> None:
    router = routed.router()
    routed.ledger.approve("a", routed.ledger.hand_over("a"))
    routed.route(router)
    claimed = routed.ledger.claim("a", lease_seconds=0)
    routed.route(router)
    assert routed.announced() == ["a", "a"]
    assert routed.events("handoff.ready")[-1].causes == [claimed.id]


def test_cause_of_ready_is_the_approval_when_all_else_was_done_before(routed: Routed) -> None:
    router = routed.router()
    routed.ledger.finish("a")
    data = routed.ledger.hand_over("c", depends_on=["a"])
    routed.route(router)
    routed.ledger.approve("c", data)
    approved = routed.ledger.event(-1).id
    routed.ledger.verify("rita", "a")
    routed.route(router)
    assert [one.causes for one in routed.events("handoff.ready") if one.name == "c"] == [[approved]]


def test_start_tells_what_became_ready_while_no_router_ran(routed: Routed) -> None:
    for name in ("a", "b", "c"):
        routed.ledger.approve(name, routed.ledger.hand_over(name))
    routed.router()
    assert routed.announced() == ["a", "b", "c"]


def test_more_than_a_page_is_told_in_one_sweep(routed: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ready_page_rows", 2)
    router = routed.router()
    for number in range(5):
        routed.ledger.approve(f"a{number}", routed.ledger.hand_over(f"a{number}"))
    assert router.announce() == 5
    assert router.announce() == 0
    assert routed.announced() == [f"a{number}" for number in range(5)]


def test_page_that_is_full_of_refused_ones_ends_the_sweep(routed: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ready_page_rows", 1)
    router = routed.router()
    routed.ledger.approve("a", routed.ledger.hand_over("a"))
    stale: list[dict[str, Any]] = [{"id": "a", "to": "bob", "version": "sha256:" + "0" * 64}]
    monkeypatch.setattr(router._source, "ready", lambda *_: stale)
    assert router.announce() == 0


def test_refused_announcement_is_passed_over(routed: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    router = routed.router()
    routed.ledger.approve("a", routed.ledger.hand_over("a"))
    stale: list[dict[str, Any]] = [{"id": "a", "to": "bob", "version": "sha256:" + "0" * 64}]
    with monkeypatch.context() as patch:
        patch.setattr(router._source, "ready", lambda *_: stale)
        routed.route(router)
    assert routed.announced() == []
    routed.route(router)
    assert routed.announced() == ["a"]


def test_router_without_its_role_announces_nothing_and_says_so(
    routed: Routed, capsys: pytest.CaptureFixture[str]
) -> None:
    routed.ledger.register("plain", "agent")
    routed.ledger.approve("a", routed.ledger.hand_over("a"))
    routed.router("plain")
    assert routed.announced() == []
    assert "NOT_AUTHORIZED" in "".join(capsys.readouterr())
