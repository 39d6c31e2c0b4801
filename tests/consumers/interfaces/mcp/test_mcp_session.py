"""A client of the official SDK works through MCP alone: a session, its reasoning, its report, a handoff."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_clients import AFTER, BEFORE, REASONED, Caller, call_tools, calling, kinds_in, over_stdio

from deedbook.consumers.interfaces.mcp import record
from deedbook.consumers.reasoning.validator.reads import digest_of
from deedbook.consumers.sdk.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path


def test_session_from_preflight_to_resuming_goes_through_mcp_alone(own_home: Path) -> None:
    async def work() -> None:
        async with over_stdio(own_home, "--as", "alice") as call:
            started = await call("record_reasoning", task="Find the leak in the pool", entries=[BEFORE])
            name = started.data["session_id"]
            assert [one["kind"] for one in started.data["events"]] == ["session.started", "assessment.recorded"]
            recorded = await call("record_reasoning", session_id=name, task="Why it leaks", entries=REASONED)
            assert [one.get("step") for one in recorded.data["events"]][-5:] == [1, 2, 3, 4, None]
            closed = await call("record_reasoning", session_id=name, entries=[AFTER])
            assert closed.data["report_id"].startswith("event:")
            made = await call(
                "generate_handoff_report",
                session_id=name,
                task_summary="Found and closed the leak in the pool.",
                key_findings=["The pool is never closed", "It grows by 3 MB a second", "Closing it is enough"],
                remaining_unknowns=["Who opened it first"],
                next_session_context="Watch the memory for a day.",
                artifacts_created=["pool.py"],
            )
            assert made.data["status"] == "success"
            assert "## What I Learned\n\n- The pool is never closed" in made.data["markdown"]
        async with over_stdio(own_home, "--as", "bob") as call:
            following = await resumes(call, name, recorded.data["reasoning_id"])
        with Ledger(home=own_home) as opened:
            assert opened.ask("sessions.show", id=following)["resumes"] == name

    asyncio.run(work())


async def resumes(call: Caller, name: str, reasoning: str) -> str:
    """Let another agent, in another process, continue the first one's work; return its session."""
    (session,) = (await call("resume_previous_session", ai_id="alice", detail_level="detailed")).data["sessions"]
    assert name.startswith(session["session_id"])
    assert (session["task"], session["outcome"]) == (
        "Find the leak in the pool",
        "Found and closed the leak in the pool.",
    )
    assert session["epistemic_deltas"]["uncertainty"] == -0.4
    again = await call("record_reasoning", task="Another leak in the pool", resumes=name[:12], entries=[BEFORE])
    assert again.data["dead_ends"][0]["approach"] == "collecting garbage"
    brief = (await call("fetch_reasoning", ref=reasoning)).data
    assert "Close the pool at shutdown" in brief["prompt"]
    assert brief["gate"]["gate"] == "passed"
    found = (await call("search", text="referenced")).data
    assert "dead_end.logged" in [one["kind"] for one in found["hits"]]
    assert not any(one.get("correction") for one in found["hits"])
    listed = {str(one.uri) for one in (await call.client.list_resources()).resources}
    assert {f"deedbook://report/{name}", f"deedbook://brief/{reasoning}"} <= listed
    report = await call.client.read_resource(f"deedbook://report/{name}")
    assert "Watch the memory for a day." in report.contents[0].text
    text = await call.client.read_resource(f"deedbook://brief/{brief['reasoning_ref']}")
    assert "Close the pool at shutdown" in text.contents[0].text
    with pytest.raises(MCPError, match="NOT_FOUND"):
        await call.client.read_resource("deedbook://report/nobody")
    return str(again.data["session_id"])


def test_answers_have_the_keys_of_the_reports_that_the_examples_read(own_home: Path) -> None:
    """The four usage examples of handoff reports, over MCP; a single text in place of a list counts as a list."""

    async def work(call: Caller) -> None:
        begun = await call("record_reasoning", session_id="s", task="Validate Phase 1", entries=[BEFORE, REASONED[3]])
        assert not begun.error
        await call("record_reasoning", session_id="s", entries=REASONED[0] | {"evidence": "pool.py:3"})
        await call("record_reasoning", session_id="s", entries=[AFTER])
        handoff = await call(
            "generate_handoff_report",
            session_id="s",
            task_summary="Validated Phase 1 - all tests passing",
            key_findings="All 4 test categories passed",
            remaining_unknowns=["Performance with 100+ goals", "Response times"],
            next_session_context="Phase 1 is ready for production.",
            artifacts_created="manual_test_goals.py",
        )
        assert {"report_id", "token_count", "storage_location"} <= handoff.data.keys()

        resumed = (await call("resume_previous_session", ai_id="alice", detail_level="detailed")).data
        previous = resumed["sessions"][0]
        assert (previous["task"], previous["key_findings"]) == ("Validate Phase 1", ["All 4 test categories passed"])
        assert previous["remaining_unknowns"] == ["Performance with 100+ goals", "Response times"]
        assert previous["investigation_tools"] == ["tracemalloc"]
        assert previous["artifacts_created"] == ["manual_test_goals.py"]
        assert previous["epistemic_deltas"] == {"overall_confidence": 0.4, "know": 0.4, "uncertainty": -0.4}
        assert "" not in {previous["calibration_status"], previous["next_steps"][0]}
        assert resumed["token_estimate"] <= 800

        brief = (await call("resume_previous_session", ai_id="alice")).data
        assert brief["sessions"][0]["key_findings"] == previous["key_findings"]
        assert brief["token_estimate"] <= 400

        (report,) = (await call("query_handoff_reports", since="7 days ago", limit=20)).data["reports"]
        assert (report["ai_id"], report["task"]) == ("alice", "Validate Phase 1")
        assert f"{report['timestamp']} {report['epistemic_growth']:+.2f}".endswith("Z +0.40")
        assert report["key_findings"] == ["All 4 test categories passed"]
        found = await call("query_handoff_reports", ai_id="alice", task_pattern="test|validat", limit=10)
        assert found.data["total_found"] == 1

    call_tools(own_home, work)


def test_repeated_call_under_its_key_adds_nothing(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        given = {"task": "Why it leaks", "entries": [BEFORE, *REASONED, AFTER], "idempotency_key": "first"}
        first = await call("record_reasoning", **given)
        again = await call("record_reasoning", **given)
        assert again.data["is_repeat"]
        assert [again.data[name] for name in ("session_id", "reasoning_id", "events", "report_id")] == [
            first.data[name] for name in ("session_id", "reasoning_id", "events", "report_id")
        ]
        other = await call("record_reasoning", **given | {"entries": [BEFORE]})
        assert other.code == "IDEMPOTENCY_CONFLICT"
        created = {"action": "create", "id": "a", "title": "A", "to": "bob", "reviewer": "critic"}
        for repeat in (False, True):
            made = await call("handoff_act", **created, idempotency_key="second")
            assert made.data["events"][0]["is_repeat"] is repeat

    call_tools(own_home, work)
    kinds = kinds_in(own_home)
    assert [kinds.count(kind) for kind in ("session.started", "report.generated", "handoff.created")] == [1, 1, 1]


def test_evidence_is_checked_and_hashed_as_by_the_command_line(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(call: Caller) -> None:
        def seen(*evidence: str) -> dict[str, Any]:
            return {"type": "observation", "content": f"Seen in {evidence}", "evidence": list(evidence)}

        for wrong in ("just words", "../pool.py:1", "pool.py:9-5"):
            refused = await call("record_reasoning", task="Leak", reasoning_id="leak", entries=[seen(wrong)])
            assert (refused.code, refused.error["details"]["field"]) == ("INVALID_FIELD", "evidence")
        entries = [seen("pool.py:1-2", "https://example.org/a"), seen("gone.py:1"), seen("pool.py:400")]
        made = (await call("record_reasoning", task="Leak", reasoning_id="leak", entries=entries)).data
        told = [one.partition(" of step ")[2].partition(";")[0] for one in made["warnings"]]
        assert told == ["2: gone (The file does not exist)", "3: no such line (The file has 2 lines)"]

    (tmp_path / "pool.py").write_text("a = 1\nb = 2\n", "utf-8")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    call_tools(own_home, work)
    with Ledger(home=own_home) as opened:
        steps = opened.client.view("reasoning.show", {"id": "leak"})["memory"]["steps"]
    digests = [[digest_of("a = 1\nb = 2"), ""], ["missing"], ["missing"]]
    assert [step.get("evidence_digests") for step in steps] == digests


def test_session_left_out_is_that_of_the_call_before_and_ends_when_told(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        found = {"type": "finding", "finding": "x"}
        first = (await call("record_reasoning", entries=[found])).data["session_id"]
        assert (await call("record_reasoning", entries=[found])).data["session_id"] == first
        second = (await call("record_reasoning", task="other", entries=[found])).data["session_id"]
        assert second != first
        assert (await call("record_reasoning", entries=[found])).data["session_id"] == second
        assert (await call("record_reasoning", session_id=first, entries=[found])).data["session_id"] == first
        assert (await call("record_reasoning", entries=[found])).data["session_id"] == first
        async with calling(own_home) as elsewhere:  # another process, while this one keeps running
            assert (await elsewhere("record_reasoning", entries=[found])).code == "REF_AMBIGUOUS"
        ended = {"type": "session_end", "summary": "done"}
        assert (await call("record_reasoning", session_id=first, entries=[ended])).data["session_id"] == first
        assert (await call("record_reasoning", entries=[found])).data["session_id"] == second
        assert (await call("record_reasoning", session_id=first, entries=[found])).code == "TRANSITION_NOT_ALLOWED"
        assert (await call("record_reasoning", session_id="mine", entries=[found])).code == "NOT_FOUND"
        named = await call("record_reasoning", session_id="mine", task="its own", entries=[found])
        assert named.data["session_id"] == "mine"

    call_tools(own_home, work)


def test_limit_is_honoured_also_where_texts_are_long(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        for number in range(15):
            entries = [{"type": "finding", "finding": f"Finding {number}: " + "the pool is never closed " * 20}]
            entries += [{"type": "assessment", "phase": "POSTFLIGHT", "vectors": {"know": 0.9}}]
            task = f"Task {number}: " + "why the pool leaks " * 20
            await call("record_reasoning", session_id=f"s{number}", task=task, entries=entries)
        for tool, name in (("query_handoff_reports", "reports"), ("search", "hits")):
            for limit in (3, 10, 15):
                page = (await call(tool, limit=limit, **({"text": "leaks"} if tool == "search" else {}))).data
                assert len(page[name]) == limit

    call_tools(own_home, work)


def test_name_that_another_begins_with_is_never_taken_for_it(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        found = [{"type": "finding", "finding": "x"}]
        await call("record_reasoning", session_id="cache-2", task="t", entries=found)
        refused = await call("record_reasoning", session_id="cache", entries=found)
        assert refused.code == "REF_AMBIGUOUS"
        assert refused.error["details"]["candidates"] == ["cache-2"]
        made = await call("record_reasoning", session_id="cache", task="t", entries=found)
        assert made.data["session_id"] == "cache"

    call_tools(own_home, work)


def test_calls_at_the_same_time_that_need_the_same_place_are_planned_again(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two calls plan the first step of one reasoning and start one session: the later one is planned again."""
    both = threading.Barrier(2)
    planned = record.plan

    def plan_together(*given: Any, **named: Any) -> Any:
        batch = planned(*given, **named)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(60)  # both have planned before either is submitted; the second plan does not wait
            both.abort()
        return batch

    monkeypatch.setattr(record, "plan", plan_together)

    async def work(call: Caller) -> None:
        steps = [
            [{"type": "finding", "finding": one}, {"type": "observation", "content": one}] for one in ("one", "other")
        ]
        calls = (call("record_reasoning", session_id="s", reasoning_id="r", task="t", entries=one) for one in steps)
        done = await asyncio.gather(*calls)
        assert sorted(one.data["events"][-1]["step"] for one in done) == [1, 2]

    call_tools(own_home, work)
    assert kinds_in(own_home).count("session.started") == 1


def test_report_that_cannot_be_made_is_a_warning_and_the_assessment_stands(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        closed = await call("record_reasoning", task="t", entries=[AFTER])
        assert closed.data["report_id"] is None
        assert "its report could not be made" in closed.data["warnings"][0]

    call_tools(own_home, work)
    assert kinds_in(own_home)[-1] == "assessment.recorded"


def test_report_that_fails_unforeseen_is_a_warning_too(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("inner words")

    monkeypatch.setattr("deedbook.consumers.interfaces.mcp.record.with_report", broken)

    async def work(call: Caller) -> None:
        closed = await call("record_reasoning", task="t", entries=[REASONED[0], AFTER])
        assert "deed session sweep" in closed.data["warnings"][-1]

    call_tools(own_home, work)
    assert kinds_in(own_home)[-1] == "assessment.recorded"


def test_what_no_longer_holds_is_taken_back_and_an_unknown_resolved_by_a_call_alone(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        recorded = (await call("record_reasoning", task="Find the leak", entries=REASONED[:4])).data
        places = {one["kind"]: one["event_index"] for one in recorded["events"]}
        wrong = {"type": "retraction", "ref": str(places["finding.logged"]), "reason": "It is closed at shutdown"}
        taken = (await call("record_reasoning", entries=[wrong])).data
        assert (taken["session_id"], taken["first_index"]) == (recorded["session_id"], places["tool.used"] + 1)
        known = {"type": "resolution", "ref": str(places["unknown.logged"]), "answer": "The loader"}
        await call("record_reasoning", entries=[known])
        failed = {"type": "retraction", "ref": str(places["dead_end.logged"]), "reason": "It works"}
        await call("record_reasoning", entries=[failed])
        (told,) = (await call("resume_previous_session")).data["sessions"]
        assert (told["key_findings"], told["remaining_unknowns"]) == ([], [])
        for text, kind, words in (
            ("pool is never closed", "finding.retracted", "It is closed at shutdown"),
            ("who opened it first", "unknown.resolved", "The loader"),
            ("collecting garbage", "dead_end.retracted", "It works"),
        ):
            hit = (await call("search", text=text, family=["session"])).data["hits"][0]
            correction = hit["correction"]
            assert (correction["kind"], correction["author"]) == (kind, "alice")
            assert correction["words"] == words
        again = await call("record_reasoning", entries=[wrong])
        assert again.error["code"] == "TRANSITION_NOT_ALLOWED"

    call_tools(own_home, work)
