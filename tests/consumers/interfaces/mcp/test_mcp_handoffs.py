"""Handoffs through the tools alone: from creation to verification, every other operation, and pages of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_clients import Caller, call_tools, kinds_in

from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.handoff import HandoffApproved, HandoffCreated

if TYPE_CHECKING:
    from pathlib import Path


def test_handoff_goes_from_creation_to_verification_between_agents(own_home: Path) -> None:
    async def create(call: Caller) -> dict[str, Any]:
        made = await call(
            "handoff_act",
            action="create",
            id="check-pool",
            title="Check the pool",
            to="bob",
            reviewer="critic",
            tasks=["run it"],
            criteria=["memory is flat", "no error is logged"],
        )
        assert made.data["status"] == "pending"
        assert "approval of critic" in made.data["why"]
        return (await call("handoff_act", action="why", id="check-pool")).data

    async def follow(call: Caller) -> list[str]:
        """Do the waiting work, as the tools say, until there is none."""
        done: list[str] = []
        while items := (await call("handoff_next")).data["items"]:
            way = items[0]["call"]
            shown = await call(way["tool"], **way["arguments"])
            assert not shown.error
            done.append(way["arguments"]["action"])
            if done[-1] == "show":  # first read the version, and then judge the version that was read
                done.append(items[0]["action"])
                part = "result" if done[-1] == "verify" else "version"
                judged = {"action": done[-1], "id": items[0]["id"], part: shown.data[part]}
                assert not (await call("handoff_act", **judged)).error
        return done

    assert call_tools(own_home, create)["is_ready"] is False
    assert call_tools(own_home, follow, agent="critic") == ["show", "approve"]
    assert call_tools(own_home, follow, agent="bob") == ["claim", "check", "check", "check", "complete"]
    assert call_tools(own_home, follow, agent="critic") == ["show", "verify"]

    async def show(call: Caller) -> dict[str, Any]:
        return (await call("handoff_act", action="show", id="check-pool")).data

    shown = call_tools(own_home, show, agent=None)
    assert shown["status"] == "verified"
    assert [one["mark"] for one in shown["handoff"]["criteria"]] == ["checked", "checked"]


def test_lines_of_the_file_that_no_field_has_are_shown(own_home: Path) -> None:
    text = b"# Handoff: Filed\n\n## Meta\n- From: alice\n- To: bob\n- Reviewer: critic\n\n## Deployment\nDrop it all.\n"
    with Ledger("alice", home=own_home) as ledger:
        for name, content in (("filed", text), ("other", b"no handoff")):
            data = HandoffCreated(title="Filed", to="bob", reviewer="critic", template=ledger.put_blob(content))
            ledger.author().emit(Draft(stream=f"handoff/{name}", data=data))

    async def show(call: Caller) -> list[Any]:
        return [(await call("handoff_act", action="show", id=name)).data for name in ("filed", "other")]

    filed, other = call_tools(own_home, show, agent="critic")
    assert filed["handoff"]["only_in_file"] == ["## Deployment", "Drop it all."]
    assert other["handoff"]["only_in_file"] == []
    assert other["left_out"][0].startswith("the file of this version, blake3:")


def test_every_other_act_does_what_its_verb_does(own_home: Path) -> None:
    async def act(call: Caller, **given: Any) -> str:
        done = await call("handoff_act", **{"id": "work"} | given)
        assert not done.error, done.error
        return str(done.data["status"])

    async def begin(call: Caller) -> None:
        await act(call, action="create", title="Work", to="bob", reviewer="critic", criteria=["a", "b"], body="Do it.")
        assert await act(call, action="amend", criteria=["a", "b", "c"], reason="one more") == "pending"

    async def approve(call: Caller) -> None:
        shown = await call("handoff_act", id="work", action="show")
        refused = await call("handoff_act", id="work", action="approve")
        assert (refused.code, "send the version that you read" in refused.error["message"]) == ("USAGE", True)
        version = shown.data["version"]
        assert await act(call, action="approve", version=version, comment="good") == "approved"

    async def work(call: Caller) -> None:
        assert await act(call, action="claim", lease_minutes=60) == "in_progress"
        assert await act(call, action="log", text='{"looks": "like JSON"}') == "in_progress"
        assert await act(call, action="block", reason="no machine") == "blocked"
        assert await act(call, action="unblock", comment="found one") == "in_progress"
        assert await act(call, action="release", reason="another must") == "approved"
        assert await act(call, action="claim") == "in_progress"
        assert await act(call, action="check", all_open=True) == "in_progress"
        assert await act(call, action="check", criterion_numbers=[3], undo=True) == "in_progress"

    async def waive(call: Caller) -> None:
        assert await act(call, action="waive", criterion_numbers=[3], reason="not today") == "in_progress"

    async def complete(call: Caller) -> None:
        assert await act(call, action="complete", summary="done", artifacts=["a.txt"]) == "completed"

    async def ask_more(call: Caller) -> None:
        shown = (await call("handoff_act", action="show", id="work")).data
        refused = await call("handoff_act", action="request_changes", id="work", reason="no", result=shown["version"])
        assert refused.code == "VERSION_MISMATCH"
        assert await act(call, action="request_changes", reason="again", result=shown["result"]) == "in_progress"
        assert await act(call, action="cancel", reason="no more") == "cancelled"
        await act(call, action="create", id="other", title="Other", to="bob", reviewer="critic")

    async def reject(call: Caller) -> None:
        assert await act(call, action="reject", id="other", reason="no") == "rejected"

    call_tools(own_home, begin)
    for agent, doing in (("critic", approve), ("bob", work), ("critic", waive), ("bob", complete)):
        call_tools(own_home, doing, agent=agent)
    with_refusal = call_tools(own_home, lambda call: call("handoff_act", action="create", title="x", to="rita"))
    assert with_refusal.code == "REVIEWER_REQUIRED"
    assert "handoff.criterion_waived" in kinds_in(own_home)
    call_tools(
        own_home, lambda call: call("handoff_act", action="create", id="other", title="O", to="bob", reviewer="critic")
    )
    call_tools(own_home, reject, agent="critic")
    assert "handoff.rejected" in kinds_in(own_home)


def test_errors_name_the_arguments_of_the_tool_and_count_from_1(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        given = {"title": "H", "to": "alice", "reviewer": "critic", "tasks": ["a"], "criteria": ["c", "d"]}
        version = (await call("handoff_act", action="create", id="h", **given)).data["version"]
        with Ledger("critic", home=own_home) as opened:
            opened.author().emit(Draft(stream="handoff/h", data=HandoffApproved(version=version)))
        act = partial(call, "handoff_act", id="h")
        assert not (await act(action="claim")).error
        for name, what in (("task_numbers", "task 3"), ("criterion_numbers", "criterion 3")):
            wrong = await act(action="check", **{name: [3]})
            assert (wrong.error["details"], what in wrong.error["message"]) == ({"field": name}, True)
        await act(action="check", criterion_numbers=[1])
        assert (await act(action="complete")).error["details"] == {"criterion_numbers": [2]}
        tool = await call("record_reasoning", task="t", entries=[{"type": "tool", "tool": "a\nb"}])
        assert (tool.error["details"], "$.data" in tool.error["message"]) == ({"path": "tool", "entries": [1]}, False)

    call_tools(own_home, work)


def test_every_handoff_is_listed_in_pages(own_home: Path) -> None:
    async def work(call: Caller) -> None:
        for number in range(12):
            title = f"The handoff number {number} " + "with many words " * 10
            await call("handoff_act", action="create", id=f"h{number}", title=title, to="bob", reviewer="critic")
        mine = await call("handoff_next")
        assert mine.data["total"] == 0  # they wait for the reviewer
        listed, cursor = [], ""
        while cursor is not None:
            page = (await call("handoff_next", scope="all", limit=8, after=cursor)).data
            assert page["total"] == 12
            assert len(page["items"]) == 8 or page["next"] is None
            listed += page["items"]
            cursor = page["next"]
        assert [one["id"] for one in listed] == [f"h{number}" for number in reversed(range(12))]
        shown = listed[0]["call"]
        assert (await call(shown["tool"], **shown["arguments"])).data["id"] == "h11"

    call_tools(own_home, work)


def test_question_holds_the_completion_until_who_asked_settles_it(own_home: Path) -> None:
    with Ledger("alice", home=own_home) as ledger:
        data = HandoffCreated(title="Health", to="bob", reviewer="critic")
        ledger.author().emit(Draft(stream="handoff/health", data=data))
    with Ledger("critic", home=own_home) as ledger:
        version = ledger.ask("handoffs.facts", id="health")["version"]
        ledger.author().emit(Draft(stream="handoff/health", data=HandoffApproved(version=version)))

    async def act(call: Caller, **arguments: Any) -> Any:
        return await call("handoff_act", **{"id": "health"} | arguments)

    def does(agent: str, **arguments: Any) -> Any:
        return call_tools(own_home, partial(act, **arguments), agent=agent)

    does("bob", action="claim")
    does("alice", action="ask", to="bob", text="Which route?", about="src/api.py:12")
    answer = call_tools(own_home, lambda call: call("handoff_next"), agent="bob").data
    (item, _), unread = answer["items"], answer["unread"]
    assert (unread["total"], unread["command"]) == (3, "deed unread --as bob")
    assert unread["lines"][-1] == "health: alice asks bob about src/api.py:12: Which route?"
    assert "/unread/lines" in answer["others"]["fields"]
    assert item["why"] == "alice asks about src/api.py:12: Which route?"
    assert item["call"]["arguments"] == {"action": "answer", "id": "health", "question_numbers": [1]}
    assert "answer needs text" in does("bob", **item["call"]["arguments"]).error["message"]
    does("bob", action="answer", question_numbers=1, text="later")
    assert does("bob", action="complete").error["code"] == "QUESTION_OPEN"
    (shown,) = does("bob", action="show").data["handoff"]["questions"]
    assert (shown["mark"], shown["text"], shown["answer"]) == ("answered", "Which route?", "later")
    assert shown["place"] == "src/api.py:12"
    does("alice", action="settle", question_numbers=1)
    assert does("bob", action="complete").data["status"] == "completed"


def test_decision_is_recorded_and_shown_with_the_handoff_that_touches_its_files(own_home: Path) -> None:
    decision = {"type": "decision", "text": "One route", "paths": ["src/**"], "contract": True}

    async def work(call: Caller) -> list[Any]:
        made = (await call("record_reasoning", entries=[decision])).data
        more = {"text": "Another", "paths": ["src/a.py"], "supersedes": [made["decision_id"]]}
        await call("record_reasoning", entries=[{"type": "decision"} | more])
        create = {"action": "create", "id": "d", "title": "D", "to": "bob", "reviewer": "critic"}
        await call("handoff_act", **create, notes={"touches": ["src/a.py: callers"]})
        return [made, (await call("handoff_act", action="show", id="d")).data]

    made, shown = call_tools(own_home, work, agent="alice")
    assert made["decision_id"] == "one-route"
    (about,) = shown["handoff"]["decisions"]
    assert about == {"id": "another", "author": "alice", "contract": False, "text": "Another", "paths": ["src/a.py"]}
    assert "/handoff/decisions/0/text" in shown["others"]["fields"]


def test_question_about_no_handoff_is_asked_answered_and_settled(own_home: Path) -> None:
    def does(agent: str, **arguments: Any) -> Any:
        return call_tools(own_home, lambda call: call("handoff_act", **arguments), agent=agent)

    def waits(agent: str) -> Any:
        (item,) = call_tools(own_home, lambda call: call("handoff_next"), agent=agent).data["items"]
        return item["call"]

    question = {"to": "bob", "text": "Which port?", "about": "src/api.py:12"}
    asked = does("alice", action="ask", **question, idempotency_key="once").data
    with Ledger("bob", home=own_home) as ledger:
        assert ledger.ask("questions.show", id="which-port")["place"] == "src/api.py:12"
    assert (asked["id"], asked["status"], asked["question"]) == ("which-port", "open", "Which port?")
    assert "/question" in asked["others"]["fields"]
    call = waits("bob")
    assert call == {"tool": "handoff_act", "arguments": {"action": "answer", "id": "which-port"}}
    assert does("alice", **call["arguments"], text="8080").error["code"] == "NOT_AUTHORIZED"
    assert does("bob", **call["arguments"], text="8080").data["status"] == "answered"
    assert does("alice", **waits("alice")["arguments"]).data["status"] == "settled"
    assert "answer needs question_numbers" in does("bob", action="answer", id="nothing", text="x").error["message"]


def test_sealed_texts_are_named_and_not_opened(own_home: Path) -> None:
    with Ledger("alice", home=own_home) as ledger:
        ref = ledger.put_blob(b"any bytes")
        content = {"title": "Call", "to": "bob", "reviewer": "critic", "criteria": ["agreed"]}
        ledger.publish("handoff/h", HandoffCreated(**content, task=f"sealed:carol:{ref}/0"))

    async def show(call: Caller) -> Any:
        return await call("handoff_act", action="show", id="h")

    shown = str(call_tools(own_home, show).data)
    assert "[sealed for carol]" in shown
    assert "sealed:carol" not in shown
