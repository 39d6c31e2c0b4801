"""A search through the tools: started in one call, polled in others, and refused if nobody may start one."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from building import Ledger
from mcp_clients import Called, Caller, call_tools, over_stdio

from deedbook.consumers.thoughts.interfaces import tool as thoughts
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

ANSWER = "(10 - (13 - 9)) × 4 = 24"


async def thought(call: Caller, **fields: Any) -> Called:
    """Make a call with one entry, of type thoughts."""
    return await call("record_reasoning", entries=[{"type": "thoughts", **fields}])


async def ended(call: Caller, task: str) -> dict[str, Any]:
    """Poll the status of a search until it has ended."""
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
    assert (data["answer"], data["confidence"]) == (ANSWER, 1.0)
    assert data["alternative_solutions"][0] == "(9 - (13 - 10)) × 4 = 24"
    assert data["stats"]["total_nodes"] == 51

    async def look(call: Caller) -> tuple[Called, Called]:
        return await thought(call, ref=data["task_id"], after=1), await thought(call, ref=data["task_id"], resume=True)

    first, again = call_tools(own_home, look)
    assert len(first.data["timeline"]) == thoughts.lines_max
    assert again.data["answer"] == ANSWER


def test_lines_that_do_not_fit_come_in_the_next_answers(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(call: Caller) -> tuple[list[str], list[str]]:
        data = (await thought(call, problem="Move the shop", task_type="planning", criteria=["cost"])).data
        while question := data.get("question"):
            answer = thoughts_of(question)
            data = (await thought(call, ref=data["task_id"], question=question["id"], answer=answer)).data
        task, pages = data["task_id"], []
        for tokens in (300, 60):
            monkeypatch.setitem(thoughts._lists, "timeline", tokens)
            page, lines = (await thought(call, ref=task, after=1)).data, []
            while page.get("timeline"):
                lines += page["timeline"]
                page = (await thought(call, ref=task, after=page["after"])).data
            pages.append(lines)
        return pages[0], pages[1]

    roomy, narrow = call_tools(own_home, work)
    assert len(roomy) > thoughts.lines_max
    assert roomy == narrow


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({}, "INVALID_FIELD"),
        ({"problem": "4 9", "ref": "tot-1"}, "INVALID_FIELD"),
        ({"problem": " "}, "INVALID_FIELD"),
        ({"ref": "tot-19990101-000000-nobody"}, "NOT_FOUND"),
        ({"ref": "tot-19990101-000000-nobody", "answer": {}}, "INVALID_FIELD"),
        ({"problem": "4 9 10 13", "task_type": "my own"}, "INVALID_FIELD"),
    ],
)
def test_what_cannot_be_searched_is_refused(shared_home: Path, entry: dict[str, Any], code: str) -> None:
    called: Called = call_tools(shared_home, lambda call: thought(call, **entry))
    assert called.code == code


def thoughts_of(question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of an agent that plans two steps; the second thought of each step is the better one."""
    about, text = json.loads(question["about"]), question["text"]
    if "task_type" in about:
        return {"thought_granularity": "step", "intermediate_steps": ["pack", "move"], "depth_estimate": 2}
    if "steps_so_far" in about:
        step = len(about["steps_so_far"]) + 1
        return {"candidates": [{"content": f"step {step}, way {way}", "is_solution": step == 2} for way in (1, 2)]}
    if "candidates" in about:
        assert '"cost": 0 to 10' in text
        scores = {one["node_id"]: 9 if one["steps"][-1].endswith("2") else 6 for one in about["candidates"]}
        dimensions = {"dimension_scores": {"cost": 7}}
        return {"evaluations": [{"node_id": id_, "score": score} | dimensions for id_, score in scores.items()]}
    return {
        "answer": " → ".join(about["steps"]),
        "reasoning_trace": about["steps"],
        "confidence": 0.8,
        "is_valid": True,
    }


def test_agent_that_calls_thinks_where_no_model_is_configured(own_home: Path) -> None:
    async def work(call: Caller) -> tuple[list[dict[str, Any]], Called, Called, Called]:
        asked = [(await thought(call, problem="Move the shop", task_type="planning", criteria=["cost"])).data]
        task, wrong = asked[0]["task_id"], {"answer": {"depth_estimate": 0}}
        refused = await thought(call, ref=task, question=asked[0]["question"]["id"], **wrong)
        stranger = await thought(call, ref=task, question="x", answer={"depth_estimate": 2})
        while question := asked[-1].get("question"):
            again = (await thought(call, ref=task)).data  # polling the state changes nothing
            assert again["question"] == question
            answer = thoughts_of(question)
            asked.append((await thought(call, ref=task, question=question["id"], answer=answer)).data)
        late = await thought(call, ref=task, question=asked[0]["question"]["id"], answer={"depth_estimate": 2})
        return asked, refused, stranger, late

    asked, refused, stranger, late = call_tools(own_home, work)
    assert (refused.code, stranger.code, late.code) == (
        "INVALID_FIELD",
        "TRANSITION_NOT_ALLOWED",
        "TRANSITION_NOT_ALLOWED",
    )
    data = asked[-1]
    assert (data["status"], data["thinker"], data["answer"]) == (
        "solved",
        "agent:alice",
        "step 1, way 2 → step 2, way 2",
    )
    assert data["verification"] == {"is_valid": True, "by": "model"}
    assert (data["stats"]["llm_calls"], len(asked)) == (0, 1 + 6)
    task = data["task_id"]
    other = call_tools(own_home, lambda call: thought(call, ref=task, question="x", answer={}), "bob")
    assert other.code == "NOT_AUTHORIZED"
    with Ledger(own_home) as ledger, ledger.client() as client, Reader(client, ledger.settings()) as reader:
        proof, tree = (reader.answer(name, {"id": task}) for name in ("tot.prove", "tot.tree"))
    assert (proof["passed"], len(proof["answers"])) == (True, 7)
    assert {id_: node["status"] for id_, node in tree["nodes"].items()} == {
        "root": "expanded",
        "node_1_1": "not_taken",
        "node_1_2": "expanded",
        "node_2_1": "terminal",
        "node_2_2": "terminal",
    }
    assert tree["nodes"]["node_1_2"]["evaluation"]["dimension_scores"] == {"cost": 7}


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
