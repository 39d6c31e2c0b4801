"""Six phases, told by verbs: all created at once, and each becomes ready when its turn comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from calling import Deed

# Their order: Phase 2a → 2c → 2b → 3a → 3b → 4.
ORDER: Final = ("2a", "2c", "2b", "3a", "3b", "4")


def phase(name: str) -> str:
    return f"2026-02-12-reactive-phase-{name}"


@pytest.fixture
def phases(alone: Deed) -> Deed:
    """The six handoffs from kuro to claude-code, created and approved in the wrong order."""
    for name, role in (("kuro", "agent"), ("claude-code", "agent"), ("alex", "human")):
        reviews = ("--role", "reviewer") if role == "human" else ()
        alone("agent", "add", name, "--role", role, *reviews, "--unprotected")
    for name, before in reversed(list(zip(ORDER, (None, *ORDER), strict=False))):
        waits = ("--depends-on", f"{phase(before)}.md") if before else ()
        alone(
            "handoff",
            "create",
            "--as",
            "kuro",
            "--to",
            "claude-code",
            "--reviewer",
            "alex",
            *waits,
            "--title",
            f"Reactive Phase {name}",
            "--id",
            phase(name),
            "--task",
            "建立 src/event-bus.ts",
        )
    for name in reversed(ORDER):
        alone("handoff", "approve", phase(name), "--as", "alex", *alone.as_read(phase(name)))
    return alone


def test_phases_become_ready_one_after_another_in_the_stated_order(phases: Deed) -> None:
    for name in ORDER:
        ready = [one["id"] for one in phases.data("handoff", "list", "--ready")["handoffs"]]
        assert ready == [phase(name)]
        assert [one["id"] for one in phases.data("next", "--as", "claude-code")["items"]] == ready
        for later in ORDER[ORDER.index(name) + 1 :]:
            error = phases.refuses("DEPENDENCY_PENDING", "handoff", "claim", phase(later), "--as", "claude-code")
            assert error["details"]["on"] == phase(ORDER[ORDER.index(later) - 1])
        phases("handoff", "claim", phase(name), "--as", "claude-code")
        phases("handoff", "complete", phase(name), "--as", "claude-code")
    assert phases.data("handoff", "list", "--ready")["handoffs"] == []


def test_why_of_the_last_phase_names_its_chain(phases: Deed) -> None:
    (reason,) = phases.data("handoff", "why", phase("4"))["reasons"]
    assert reason["chain"] == [phase(name) for name in ("3b", "3a", "2b", "2c", "2a")]
    sentence = phases("handoff", "why", phase("4"))
    assert [sentence.index(phase(name)) for name in ("3b", "3a", "2b", "2c", "2a")] == sorted(
        sentence.index(phase(name)) for name in ORDER[:-1]
    )
    assert "approved and not yet claimed by claude-code" in sentence


def test_graph_draws_the_chain_as_its_critical_path(phases: Deed) -> None:
    found = phases.data("handoff", "graph", phase("4"))
    assert found["critical_path"] == [phase(name) for name in ORDER]
    assert found["order"] == [phase(name) for name in ORDER]
    listed = phases("handoff", "list")
    assert "[approved → claude-code]" in listed
    assert "0/1 tasks done" in listed


def test_work_comes_back_as_a_handoff_that_answers(phases: Deed) -> None:
    phases("handoff", "claim", phase("2a"), "--as", "claude-code")
    phases("handoff", "complete", phase("2a"), "--as", "claude-code")
    phases(
        "handoff",
        "create",
        "--as",
        "claude-code",
        "--to",
        "kuro",
        "--reviewer",
        "alex",
        "--title",
        "整合驗證",
        "--id",
        "back",
        "--depends-on",
        phase("2a"),
        "--answers",
        phase("2a"),
        "--criterion",
        "Behavior log 格式正確",
    )
    shown = phases.data("handoff", "show", "back")
    assert (shown["from"], shown["to"], shown["answers"]) == ("claude-code", "kuro", phase("2a"))
    assert phases.data("handoff", "show", phase("2a"))["answered_by"] == [{"id": "back", "status": "pending"}]
