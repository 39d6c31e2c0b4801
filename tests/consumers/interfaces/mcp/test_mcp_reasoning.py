"""A reasoning goes with its handoff and is validated by tools alone, while the code that it cites changes."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest
from mcp_clients import Caller, call_tools

from deedbook.projections.briefs.tokens import count_tokens
from deedbook.seeds import take_snapshot

if TYPE_CHECKING:
    from pathlib import Path

CODE: Final = "def check(token):\n    entry = CACHE.get(token)\n    return entry\n\nTTL = 3600\n"
STEPS: Final = [
    {"type": "observation", "content": "check() takes the entry from a cache", "evidence": ["auth.py:2"]},
    {"type": "observation", "content": "It returns the entry whatever its age", "evidence": ["auth.py:3"]},
    {"type": "observation", "content": "A TTL is defined and read nowhere", "evidence": ["auth.py:5"]},
    {"type": "inference", "content": "Tokens live until a restart", "rests_on": [1, 2, 3], "confidence": 0.9},
    {"type": "conclusion", "content": "Compare the age with TTL", "rests_on": [4], "confidence": 0.9},
]


@pytest.fixture
def work_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the code that the reasoning cites, in which the servers run."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "auth.py").write_text(CODE)
    identity = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "code"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    monkeypatch.chdir(folder)
    return folder


def check_out(folder: Path) -> None:
    subprocess.run(["git", "checkout", "-q", "auth.py"], cwd=folder, check=True)


async def validated(call: Caller, ref: str) -> dict[str, Any]:
    return (await call("record_reasoning", entries=[{"type": "validation", "ref": ref}])).data


def test_receiver_reads_the_reasoning_with_the_state_of_its_evidence(own_home: Path, work_tree: Path) -> None:
    async def hand_over(call: Caller) -> None:
        await call("record_reasoning", reasoning_id="expiry", task="Why do tokens never expire?", entries=STEPS)
        made = await call(
            "handoff_act",
            action="create",
            id="fix",
            title="Fix it",
            to="bob",
            reviewer="critic",
            reasoning=["expiry", "sha256:" + "0" * 64],
        )
        assert ", fidelity " in made.data["reasoning"][0]["said"]
        assert "belongs to another ledger" in made.data["reasoning"][1]["said"]
        assert "not_published" in await validated(call, "expiry")

    async def review(call: Caller) -> None:
        (item,) = (await call("handoff_next")).data["items"]
        shown = (await call("handoff_act", **item["call"]["arguments"])).data
        assert "CONCLUSION: Compare the age with TTL" in shown["reasoning"][0]["prompt"]
        assert (await validated(call, "expiry"))["stand"] == 3
        await call("handoff_act", action="approve", id="fix", version=shown["version"])

    async def receive(call: Caller) -> None:
        (item,) = (await call("handoff_next")).data["items"]
        ground, unknown = item["reasoning"]
        assert re.search(r"3 of 3 stand, validated by critic (just now|\d+ min ago); act on the brief", ground["said"])
        assert (ground["action"], ground["author"]) == ("act", "alice")
        assert "CONCLUSION: Compare the age with TTL" in ground["prompt"]
        assert unknown.keys() == {"reasoning_ref", "said", "action"}

    call_tools(own_home, hand_over)
    call_tools(own_home, review, agent="critic")
    call_tools(own_home, receive, agent="bob")


def test_every_change_of_the_code_is_a_verdict_and_what_fails_asks_a_human(own_home: Path, work_tree: Path) -> None:
    code = work_tree / "auth.py"
    changed = CODE.replace("CACHE.get", "STORE.find").replace("return entry", "return fresh(entry)")

    async def hand_over(call: Caller) -> None:
        await call("record_reasoning", reasoning_id="expiry", task="Why do tokens never expire?", entries=STEPS)

    async def watch(call: Caller) -> None:
        entries = []
        for text, stand, action in [(CODE, 3, "act"), (changed, 1, "human_review_required")] * 2 + [(CODE, 3, "act")]:
            check_out(work_tree) if text == CODE else code.write_text(text)
            done = await validated(call, "expiry")
            assert (done["stand"], done["references"]) == (stand, 3)
            assert (await validated(call, "expiry"))["same_as"] == done["published"]
            entries.append(done["published"])
            fetched = (await call("fetch_reasoning", ref="expiry")).data
            assert fetched["action"] == action
            assert fetched["verdict"]["text"].startswith(f"{stand} of 3 stand, ")
        assert len(set(entries)) == 5

    call_tools(own_home, hand_over)
    call_tools(own_home, watch, agent="critic")


def test_a_human_is_asked_by_a_tool_and_looking_shows_the_answer_without_asking(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        secret = {"type": "observation", "content": "The key is in the log", "evidence": ["secrets/key.txt:1"]}
        concluded = {"type": "conclusion", "content": "Rotate it", "rests_on": [1]}
        await call("record_reasoning", reasoning_id="leak", task="Where does it leak?", entries=[secret, concluded])
        looked = (await call("fetch_reasoning", ref="leak")).data
        assert (looked["action"], looked["may_act"]) == ("human_review_required", False)
        assert "review" not in looked
        review = [{"type": "review", "ref": "leak"}]
        asked = (await call("record_reasoning", entries=review)).data
        assert (asked["may_act"], asked["answer"]) == (False, None)
        assert (await call("fetch_reasoning", ref="leak", level="full")).data["review"] == asked["review"]
        assert (await call("record_reasoning", entries=review)).data["review"] == asked["review"]
        assert (await call("record_reasoning", entries=[*review, secret])).code == "USAGE"
        assert (await call("record_reasoning", entries=review, idempotency_key="k")).code == "USAGE"
        taken = (await call("record_reasoning", entries=[{"type": "snapshot", "ref": "leak", "context": "Seen"}])).data
        for budget in ({}, {"budget": 300}):
            received = (await call("fetch_reasoning", ref=f"snapshot/{taken['snapshot_id']}", **budget)).data
            assert received["reasoning_ref"] == looked["reasoning_ref"]
            assert received["prompt"].startswith("CONTEXT: Seen\nCONCLUSION: Rotate it")

    call_tools(own_home, work)


def test_snapshot_without_reasoning_is_its_context(own_home: Path) -> None:
    take_snapshot(snapshot_id="early", context="No reasoning yet", home=own_home, agent="alice")

    async def work(call: Caller) -> None:
        received = (await call("fetch_reasoning", ref="snapshot/early")).data
        assert (received["prompt"], received["action"]) == ("CONTEXT: No reasoning yet", "act")
        assert "reasoning_ref" not in received

    call_tools(own_home, work)


def test_a_delta_is_sent_instead_of_the_graph(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        await call("record_reasoning", reasoning_id="expiry", task="Why do tokens never expire?", entries=STEPS)
        first = (await call("fetch_reasoning", ref="expiry")).data
        more = {"type": "observation", "content": "A restart logs everybody out", "evidence": ["auth.py:1"]}
        await call("record_reasoning", reasoning_id="expiry", entries=[more])
        whole = (await call("fetch_reasoning", ref="expiry", level="full")).data
        delta = (await call("fetch_reasoning", ref="expiry", have=first["reasoning_ref"])).data
        assert (delta["prompt"], delta["tokens"]) == ("", 0)
        assert delta["graph"]["base"] == first["reasoning_ref"]
        told = delta["prompt"] + delta["graph"]["payload"]
        assert "A restart logs everybody out" in told
        assert "read nowhere" not in told
        assert count_tokens(told) < count_tokens(whole["prompt"]) / 2

    call_tools(own_home, work)


def test_work_and_text_are_found_by_a_tag_of_their_reasoning(own_home: Path, work_tree: Path) -> None:
    async def route(call: Caller) -> None:
        await call("record_reasoning", reasoning_id="expiry", task="Why do tokens never expire?", entries=STEPS)
        handoff = {"id": "fix", "title": "Fix it", "to": "bob", "reviewer": "critic", "reasoning": ["expiry"]}
        await call("handoff_act", action="create", **handoff)
        prompt = (await call("fetch_reasoning", ref="expiry")).data["prompt"]
        found = re.search(r"TAGS: ([^,\s]+)", str(prompt))
        assert found is not None, prompt
        for tag, is_found in ((found[1], True), ("no_such_tag", False)):
            waiting = (await call("handoff_next", agent="critic", tag=tag)).data["items"]
            hits = (await call("search", text="restart", tag=tag)).data["hits"]
            assert (bool(waiting), bool(hits)) == (is_found, is_found), tag
        assert (await call("handoff_next", scope="all", tag="x")).code == "USAGE"

    call_tools(own_home, route)
