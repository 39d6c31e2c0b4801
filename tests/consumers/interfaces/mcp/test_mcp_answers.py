"""Answers stay small: pages end after whole items, texts after whole words, omissions are named, no item is lost."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from graphs import chain
from mcp.shared.exceptions import MCPError
from mcp_clients import Caller, call_tools

from deedbook.consumers.interfaces.mcp.answers import fitting, paged, share_of, shorten, shorten_list
from deedbook.consumers.interfaces.mcp.lookup import page_of
from deedbook.consumers.interfaces.mcp.reports import fit_found
from deedbook.ledger.errors import Unavailable
from deedbook.projections.briefs.prompt import fidelity_text
from deedbook.projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from pathlib import Path

WORDS = "the pool of connections grows without an end until memory is gone "
CHINESE = "连接池不断增长，直到内存耗尽。"


async def report_on(call: Caller, name: str, text: str) -> dict[str, Any]:
    """Record a session whose report is as long as its findings."""
    await call("record_reasoning", session_id=name, task="t", entries=[{"type": "finding", "finding": "f"}])
    findings = [f"{number} {text}" for number in range(5)]
    made = await call(
        "generate_handoff_report",
        session_id=name,
        task_summary=f"{name} {text}",
        key_findings=findings,
        remaining_unknowns=findings,
        next_session_context=text,
    )
    return made.data


@pytest.mark.parametrize("text", [WORDS * 60, CHINESE * 100], ids=["words", "chinese"])
def test_reports_longer_than_an_answer_are_paged_and_cut_between_words(own_home: Path, text: str) -> None:
    async def work(call: Caller) -> None:
        for number in range(6):
            made = await report_on(call, f"s{number}", text)
            assert "## Epistemic Trajectory" in made["markdown"]
            assert "What I Learned" in made["left_out"]
        seen: list[str] = []
        cursor = None
        while True:
            page = (await call("query_handoff_reports", **({} if cursor is None else {"after": cursor}))).data
            assert page["total_found"] == 6
            for one in page["reports"]:
                assert one["shortened"] == ["outcome"]
                assert one["outcome"].removesuffix("…").strip() in f"{one['session_id']} {text}"
                assert one["findings_left_out"] >= 1
            seen += [one["session_id"] for one in page["reports"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert seen == [f"s{number}" for number in reversed(range(6))]
        whole = await call.client.read_resource(made["resource"])
        assert text.strip() in whole.contents[0].text
        for level in ("summary", "detailed", "full"):
            await call("resume_previous_session", detail_level=level)

    call_tools(own_home, work)


def test_a_page_of_twenty_imported_reports_has_all_of_them_with_findings() -> None:
    name = "1e9530e5-0757-4f02-9738-cdd58a5272cb"
    mark = {"source": f"refs/notes/empirica/handoff/{name}/ca10d3cf88", "importer": "claude-code", "event_index": 33}
    mark |= {"claimed_at": "2025-12-22T16:58:41.023298Z", "format": "empirica/handoff"}
    report = {"session_id": name, "ai_id": "claude-rovo-dev", "author": "claude-code", "outcome": "", "imported": mark}
    report |= {"timestamp": "2025-12-22T16:58:41.023Z", "task": "Add a command that lists all projects " * 4}
    report |= {"key_findings": ["The health score is effective"] * 5, "epistemic_growth": 0.2, "is_assessed": True}
    rows = [fit_found(report, share_of(20)) for _ in range(20)]
    page = paged({"reports": rows, "total_found": 20, "next": None}, rows, "reports", lambda _: {"shorter": ""})
    assert ("shorter" in page, len(page["reports"])) == (False, 20)
    assert len(page["reports"][0]["key_findings"]) >= 2
    assert page["reports"][0]["imported"] == {"importer": "claude-code", "format": "empirica/handoff"}


def test_first_page_of_a_long_graph_holds_some_of_it(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        steps = [
            {"type": step.type, "content": step.content, "evidence": list(step.evidence), "rests_on": [number][:number]}
            for number, step in enumerate(chain(99).steps)
        ]
        await call("record_reasoning", task="Which is it?", reasoning_id="rows", entries=steps)
        page = (await call("fetch_reasoning", ref="rows", level="full")).data
        assert len(page["graph"]["payload"]) > 700
        assert len(page["dropped"]["steps"]) < page["dropped"]["steps_count"]

    call_tools(own_home, work)


def test_pages_of_a_graph_are_the_bytes_that_its_ref_names(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        steps = [
            {"type": "observation", "content": f"{number}: {WORDS * 4}", "evidence": [f"pool.py:{number + 1}"]}
            for number in range(40)
        ]
        concluded = {"type": "conclusion", "content": "Close the pool", "rests_on": [1, 40]}
        made = await call("record_reasoning", task="Why", reasoning_id="why", entries=[*steps, concluded])
        assert made.data["events_left_out"] + len(made.data["events"]) == 43
        page = (await call("fetch_reasoning", ref="why", level="full")).data
        first = page["reasoning_ref"]
        assert page["prompt"]
        texts = [page["graph"]["payload"]]
        while page["next"] is not None:
            assert texts[-1][-1] in " ,"
            page = (await call("fetch_reasoning", ref="why", after=page["next"])).data
            assert page["prompt"] == ""
            texts.append(page["graph"]["payload"])
        whole = "".join(texts)
        assert "sha256:" + hashlib.sha256(whole.encode()).hexdigest() == first
        assert (await call("fetch_reasoning", ref="why", after=f"{first}@{len(whole) + 1}")).code == "INVALID_FIELD"
        more = {"type": "observation", "content": "It was closed"}
        await call("record_reasoning", reasoning_id="why", entries=[more])
        delta = (await call("fetch_reasoning", ref="why", have=first)).data
        assert delta["graph"]["sent_as"] in {"chain", "squashed"}
        assert delta["graph"]["base"] == first
        assert delta["graph"]["chars"] < len(whole) / 10
        brief = (await call("fetch_reasoning", ref="why", level="standard", budget=120)).data
        assert brief["tokens"] <= 120
        tiny = (await call("fetch_reasoning", ref="why", level="standard", budget=12)).data
        assert tiny["reasons"][0] == f"The fidelity is {fidelity_text(tiny['fidelity'])}, below 0.75."
        assert (tiny["gate"]["gate"], tiny["may_act"]) == ("failed", False)

    call_tools(own_home, work)


def test_amended_handoff_says_which_notes_it_still_lacks(own_home: Path) -> None:
    async def amend(call: Caller) -> None:
        parts = {"title": "Short", "to": "bob", "reviewer": "critic", "criteria": ["it works"]}
        assert not (await call("handoff_act", action="create", id="short", **parts)).error
        amended = await call("handoff_act", action="amend", id="short", notes={"baseline": "1 fails"}, reason="more")
        assert "needs: reproduce, tested-by, trap, tried (" in amended.data["warnings"][0]

    call_tools(own_home, amend)


def test_long_handoff_is_shown_in_parts_and_says_which_are_missing(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        made = await call(
            "handoff_act",
            action="create",
            id="long",
            title="Long",
            to="bob",
            reviewer="critic",
            body=WORDS * 100,
            tasks=[f"task {number} {WORDS * 5}" for number in range(30)],
            criteria=[f"criterion {number} {WORDS * 5}" for number in range(30)],
            notes={"traps": "two configs", "tried": [f"try {number} {WORDS}" for number in range(5)]},
        )
        assert not made.error, made.error
        assert "tested-by" in made.data["warnings"][0]
        assert "--trap" not in made.data["warnings"][0]
        for number in range(12):
            await call("handoff_act", action="log", id="long", text=f"line {number} {WORDS * 20}")
        shown = (await call("handoff_act", action="show", id="long")).data
        assert shown["handoff"]["notes"][0] == {"of": "traps", "text": "two configs"}
        *known, last = shown["handoff"]["notes"]
        assert len(known) == 6 + 5 - 1, "its own, and the newest that its sender logged"
        assert (last["of"], last["text"][:7]) == ("later", "line 11")
        assert shown["handoff"]["criteria"][0]["text"].startswith("criterion 0")
        assert "the rest of task" in shown["left_out"]
        assert any(one.endswith("of 30 tasks") for one in shown["left_out"])
        found = (await call("search", text="pool", limit=50)).data
        assert 0 < len(found["hits"]) <= found["total"]
        for number in range(12):
            await call("handoff_act", action="create", id=f"n{number}", title="N " * 90, to="bob", reviewer="critic")
        seen: list[str] = []
        cursor = ""
        while True:
            page = (await call("handoff_next", agent="critic", limit=50, after=cursor)).data
            seen += [one["id"] for one in page["items"]]
            if page["next"] is None:
                break
            cursor = page["next"]
        assert len(seen) == page["total"] == 13

    call_tools(own_home, work)


def test_list_ends_at_the_item_that_fits_last_and_keeps_one() -> None:
    items = [{"text": WORDS}] * 20
    kept = fitting(items, {"items": []}, limit=200)
    assert 0 < kept < 20
    assert count_tokens(str(items[: kept + 1])) > 200 - 60 - 20
    assert fitting([{"text": WORDS * 100}], {}, limit=100) == 1
    assert fitting([], {}) == 0


def test_texts_are_cut_at_a_word_and_named() -> None:
    assert shorten({"why": "short", "id": "x"}, ("why",), 50) == {"why": "short", "id": "x"}
    cut = shorten({"why": WORDS * 9}, ("why", "missing"), 12)
    assert cut["shortened"] == ["why"]
    assert WORDS.startswith(cut["why"].removesuffix("…"))
    kept, left = shorten_list([WORDS * 9, "next"], 12)
    assert (len(kept), left) == (1, 1)


@pytest.mark.parametrize(("text", "tokens"), [("word " * 50, 10), ("x" * 300 + " tail", 5), (CHINESE * 20, 20)])
def test_page_ends_between_words_and_never_is_empty(text: str, tokens: int) -> None:
    rest, parts = text, []
    while rest:
        parts.append(page_of(rest, tokens))
        rest = rest[len(parts[-1]) :]
    assert "".join(parts) == text
    assert all(part for part in parts)
    assert all(part[-1] in " ，。" for part in parts[:-1])


def test_resources_that_cannot_be_listed_now_are_a_typed_error(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise Unavailable("STORE_FULL", "the disk has no room")

    monkeypatch.setattr("deedbook.consumers.interfaces.mcp.server.latest", full)

    async def work(call: Caller) -> None:
        with pytest.raises(MCPError) as failed:
            await call.client.list_resources()
        assert failed.value.error.data["code"] == "STORE_FULL"

    call_tools(own_home, work)
    assert caplog.text == ""
