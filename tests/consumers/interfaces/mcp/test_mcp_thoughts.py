"""A search through the tools: begun in one call, asked about in others, and refused where nobody may start one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from mcp_clients import Called, Caller, call_tools, over_stdio

from deedbook.consumers.interfaces.mcp import thoughts

if TYPE_CHECKING:
    from pathlib import Path

ANSWER = "(10 - (13 - 9)) × 4 = 24"


async def thought(call: Caller, **fields: Any) -> Called:
    """Make a call whose one entry is of type thoughts."""
    return await call("record_reasoning", entries=[{"type": "thoughts", **fields}])


async def ended(call: Caller, task: str) -> dict[str, Any]:
    """Ask how a search stands until it has ended."""
    while True:
        data = (await thought(call, ref=task)).data
        if data["status"] not in {"started", "searching"}:
            return data
        await asyncio.sleep(0.2)


def test_search_is_begun_asked_about_and_answered_over_stdio(own_home: Path) -> None:
    async def work() -> tuple[dict[str, Any], dict[str, Any]]:
        async with over_stdio(own_home, "--as", "alice") as call:
            begun = (await thought(call, problem="4 9 10 13")).data
            return begun, await ended(call, begun["task_id"])

    begun, data = asyncio.run(work())
    assert begun["status"] in {"started", "searching"}
    assert begun["is_searched_here"]
    assert begun["problem"] == "4 9 10 13"
    assert (data["task_id"], data["status"], data["thinker"]) == (begun["task_id"], "solved", "game24")
    assert data["verification"] == {"is_valid": True, "by": "program"}
    assert data["answer"] == ANSWER
    assert data["stats"]["total_nodes"] == 51

    async def look(call: Caller) -> tuple[Called, Called]:
        return await thought(call, ref=data["task_id"], after=1), await thought(call, ref=data["task_id"], resume=True)

    first, again = call_tools(own_home, look)
    assert len(first.data["timeline"]) == thoughts.lines_max
    assert again.data["answer"] == ANSWER


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({}, "INVALID_FIELD"),
        ({"problem": "4 9", "ref": "tot-1"}, "INVALID_FIELD"),
        ({"problem": " "}, "INVALID_FIELD"),
        ({"ref": "tot-19990101-000000-nobody"}, "NOT_FOUND"),
        ({"problem": "Write a poem", "task_type": "creative_writing"}, "USAGE"),
        ({"problem": "4 9 10 13", "task_type": "my own"}, "INVALID_FIELD"),
    ],
)
def test_what_cannot_be_searched_is_refused(shared_home: Path, entry: dict[str, Any], code: str) -> None:
    called: Called = call_tools(shared_home, lambda call: thought(call, **entry))
    assert called.code == code


def test_search_stands_alone_and_nobody_begins_one_who_may_not_sign(shared_home: Path) -> None:
    entries = [{"type": "thoughts", "problem": "4 9 10 13"}, {"type": "finding", "finding": "f"}]
    called = call_tools(shared_home, lambda call: call("record_reasoning", entries=entries, task="t"))
    assert called.code == "USAGE"
    for agent in ("ada", None):
        called = call_tools(shared_home, lambda call: thought(call, problem="4 9 10 13"), agent)
        assert called.code in {"NOT_AUTHORIZED", "USAGE"}


def test_model_that_the_user_has_not_allowed_is_not_asked(own_home: Path) -> None:
    with (own_home / "config.toml").open("a") as config:
        config.write('[llm]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n')
    problem = {"problem": "Write a poem", "task_type": "creative_writing"}
    called = call_tools(own_home, lambda call: thought(call, **problem))
    assert called.code == "NOT_TRUSTED"


def test_more_searches_than_a_server_plays_are_refused(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thoughts, "searches_max", 0)
    called = call_tools(shared_home, lambda call: thought(call, problem="4 9 10 13"))
    assert called.code == "USAGE"
    assert "are already running" in called.error["message"]
