"""The ledger in Python, from the first event to the audit, in a folder and behind a server."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from calling import Place
from deedbook_use import awaited, fresh, opened, refusal

from deedbook import AsyncLedger, DeedbookError, Event, Ledger, Page
from deedbook.consumers.handoffs.operations import OPERATIONS
from deedbook.consumers.interfaces.python import nouns
from deedbook.consumers.interfaces.python.async_ledger import (
    AsyncAskedQuestion,
    AsyncDecision,
    AsyncHandoff,
    AsyncReasoning,
    AsyncSession,
)
from deedbook.consumers.interfaces.python.nouns import AskedQuestion, Decision, Handoff, Reasoning, Session
from deedbook.consumers.reasoning.operations import OPERATIONS as REASONING
from deedbook.consumers.sdk.operations import Operation
from deedbook.consumers.sessions.operations import OPERATIONS as SESSION
from deedbook.ledger.events.session import FindingLogged, SessionStarted


def test_a_handoff_goes_from_its_creation_to_its_verification(place: Place) -> None:
    name = fresh("work")
    with opened(place) as kuro, opened(place, "claude-code") as claude, opened(place, "alex") as alex:
        kuro.handoff(name).create(to="claude-code", reviewer="alex", title="It", tasks=["do"], criteria=["done"])
        assert "waits for the approval of alex" in kuro.handoff(name).why().sentence
        alex.handoff(name).approve(alex.handoff(name).show().version)
        work = claude.handoff(name)
        work.claim()
        work.log("on it")
        assert len(work.check(all_open=True)) == 2
        work.complete("all of it", artifacts=["a.py"])
        done = alex.handoff(name).show()
        alex.handoff(name).verify(done.result, comment="good")
        shown = kuro.handoff(name).show()
        assert (shown.status, shown.summary) == ("verified", "all of it")
        kinds = [event.kind for event in kuro.events(stream=f"handoff/{name}")]
        kinds = [kind for kind in kinds if kind != "handoff.ready"]  # a server's router announces it at some time
    assert kinds == [
        "handoff.created",
        "handoff.approved",
        "handoff.claimed",
        "handoff.logged",
        "handoff.task_checked",
        "handoff.criterion_checked",
        "handoff.completed",
        "handoff.verified",
    ]


def test_the_same_verbs_are_awaited_on_an_event_loop(place: Place) -> None:
    name = fresh("work")

    async def create(ledger: AsyncLedger) -> str:
        await ledger.handoff(name).create(to="claude-code", reviewer="alex", title="It", criteria=["done"])
        version: str = (await ledger.handoff(name).show()).version
        return version

    async def work(ledger: AsyncLedger) -> list[str]:
        await ledger.handoff(name).claim()
        await ledger.handoff(name).check(criteria=[1])
        await ledger.handoff(name).complete("done")
        return [event.kind async for event in ledger.events(stream=f"handoff/{name}")]

    async def approve(ledger: AsyncLedger) -> None:
        await ledger.handoff(name).approve(version)

    version = awaited(place, create)
    awaited(place, approve, "alex")
    assert awaited(place, work, "claude-code")[-1] == "handoff.completed"


def test_what_was_so_then_is_asked_of_either_ledger(place: Place) -> None:
    name = fresh("work")
    with opened(place) as kuro:
        kuro.handoff(name).create(to="claude-code", reviewer="alex", title="first")
        (made,) = kuro.events("handoff.created", stream=f"handoff/{name}")
        kuro.handoff(name).amend(title="second", reason="more")
        then = kuro.handoffs.show(id=name, as_of=made.index)
        assert (then.title, kuro.handoff(name).show().title) == ("first", "second")
        before = kuro.handoffs.list(as_of=made.index - 1)
        assert name not in [row.id for row in before]
        assert refusal(lambda: kuro.handoffs.list(as_of="1999-01-01")).code == "NOT_FOUND"
        assert refusal(lambda: kuro.handoffs.list(as_of="soon")).code == "INVALID_FIELD"

    async def ask(ledger: AsyncLedger) -> tuple[Any, Any]:
        shown = await ledger.handoffs.show(id=name, as_of=made.index)
        return shown, await ledger.handoffs.list(as_of=made.index - 1)

    shown, listed = awaited(place, ask)
    assert (shown.title, shown.as_of.root) == ("first", then.as_of.root)
    assert listed.to_dict() == before.to_dict()


def test_a_loop_over_a_page_goes_over_all_pages_and_json_has_the_fields_alone(place: Place) -> None:
    session = fresh("pages")

    async def read(ledger: AsyncLedger) -> list[int]:
        page = await ledger.catalog.find(stream=stream, limit=2)
        assert page.total == 5
        assert page.to_dict() == whole.to_dict()
        waiting = await ledger.handoffs.next(agent="alex", limit=1)
        assert [row.id async for row in waiting] == waits
        return [row.event_index async for row in page]

    with opened(place) as ledger:
        for number in range(3):
            ledger.handoff(f"{session}-{number}").create(to="claude-code", reviewer="alex", title="It")
        stream = ledger.session(session).stream
        ledger.publish(stream, SessionStarted(), *(FindingLogged(finding=str(number)) for number in range(4)))
        whole = ledger.catalog.find(stream=stream, limit=2)
        indexes = [event.index for event in ledger.events(stream=stream)]
        assert ([row.event_index for row in whole], [row.event_index for row in whole]) == (indexes, indexes)
        assert (len(whole.items), whole.total, whole.next) == (2, 5, indexes[1])
        assert msgspec.to_builtins(whole) == whole.to_dict() == msgspec.json.decode(msgspec.json.encode(whole))
        assert whole == ledger.catalog.find(stream=stream, limit=2)
        assert isinstance(whole, Page)
        assert not ledger.catalog.find(stream="session/none")
        past = ledger.catalog.find(stream=stream, limit=1, as_of=indexes[2])
        assert [row.event_index for row in past] == indexes[:3]
        queue = ledger.handoffs.next(agent="alex", limit=1)
        waits = [row.id for row in queue]
        for page in (whole, queue):
            assert pickle.loads(pickle.dumps(page)) == page
            assert [*copy.copy(page)] == [*page]
        assert {f"{session}-{number}" for number in range(3)} <= set(waits)
        assert queue.as_of != msgspec.UNSET
        assert len(ledger.agents.keys().items) == len(list(ledger.agents.keys()))
        assert "cannot fetch" in str(refusal(lambda: list(msgspec.structs.replace(whole))))
    assert awaited(place, read) == indexes


def test_every_other_verb_of_a_handoff_leads_where_its_name_says(place: Place) -> None:
    def status() -> str:
        return kuro.handoffs.facts(id=name).status

    def approved() -> None:
        alex.handoff(name).approve(kuro.handoff(name).show().version)

    name, other = fresh("work"), fresh("work")
    with opened(place) as kuro, opened(place, "claude-code") as claude, opened(place, "alex") as alex:
        work, review = claude.handoff(name), alex.handoff(name)
        assert repr(work) == f"Handoff('{name}')"
        for one in (name, other):
            kuro.handoff(one).create(to="claude-code", reviewer="alex", title="It", criteria=["done", "shown"])
        alex.handoff(other).reject("not now")
        kuro.handoff(name).amend(title="That", reason="clearer")
        approved()
        work.claim(lease_minutes=10)
        work.block("no key")
        assert status() == "blocked"
        review.unblock("here it is")
        work.release("too much")
        assert status() == "approved"
        work.claim()
        work.check(criteria=[1])
        review.waive(2, "nobody looks at it")
        kuro.handoff(name).ask("claude-code", "Which port?", about="src/api.py:12")
        assert refusal(lambda: work.complete("done")).code == "QUESTION_OPEN"
        work.answer(1, "8080")
        assert work.show().questions[0].mark == "answered"
        kuro.handoff(name).settle(1, comment="thanks")
        work.complete("done")
        with pytest.raises(DeedbookError) as refused:  # no completion has this result
            review.request_changes(review.show().version, "the name")
        assert refused.value.code == "VERSION_MISMATCH"
        review.request_changes(review.show().result, "the name", "the date")
        assert status() == "in_progress"
        kuro.handoff(name).supersede(other, reason="that one says it all")
        assert status() == "superseded"
        third = fresh("work")
        kuro.handoff(third).create(to="claude-code", reviewer="alex", title="Third")
        kuro.handoff(third).cancel("not needed")
        assert kuro.handoff(third).show().status == "cancelled"


def test_reasoning_is_recorded_and_its_brief_is_checked_against_the_graph(place: Place) -> None:
    name = fresh("why")

    async def brief(ledger: AsyncLedger) -> str:
        return (await ledger.reasoning(name).brief(200)).prompt

    with opened(place) as ledger:
        reasoning = ledger.reasoning(name)
        reasoning.start("Which emitter?")
        reasoning.step("node:events has no dependency", type="observation", evidence=["package.json:1"])
        reasoning.step("An own emitter would only repeat it", rests_on=[1])
        reasoning.assume("Nobody needs wildcards", check="grep for '*'")
        reasoning.settle(3, "none in the tree", holds=True, evidence=["package.json:1"])
        reasoning.conclude("Use node:events", limitations=["Node only"])
        assert len(reasoning.show().memory.steps) == 3
        made = reasoning.brief(200)
    assert made.tokens <= 200
    assert "node:events" in made.prompt
    assert made.to_dict()["dropped"]["steps"] == made.dropped.steps
    assert awaited(place, brief) == made.prompt


def test_a_session_keeps_what_was_learned(place: Place) -> None:
    with opened(place) as ledger:
        session = ledger.session(fresh("session"))
        session.start("Find the leak")
        session.assess("PREFLIGHT", {"know": 0.5, "uncertainty": 0.6})
        session.finding("It is in the cache", evidence=["cache.py:7"], impact=0.9)
        session.unknown("Since when?")
        session.dead_end("raise the limit", "it only takes longer")
        session.tool("pytest", "to see it fail")
        session.end("found")
        shown = session.show()
        reported = [report.session_id for report in ledger.reports.list().reports]
    assert [finding.finding for finding in shown.findings] == ["It is in the cache"]
    assert shown.status == "ended"
    assert shown.id in reported


def test_a_reasoning_is_fetched_whole_and_validated(place: Place, tmp_path: Path) -> None:
    (tmp_path / "cache.py").write_text("TTL = 1\n", "utf-8")
    name = fresh("why")
    with opened(place) as kuro, opened(place, "alex") as alex:
        reasoning = kuro.reasoning(name)
        reasoning.start("Why does it leak?")
        reasoning.step("The cache has a TTL", type="observation", evidence=["cache.py:1"])
        reasoning.conclude("Read the TTL", rests_on=[1])
        graph = reasoning.fetch()
        assert (graph.conclusion, graph.dependencies) == ("Read the TTL", {2: [1]})
        report = reasoning.validate(tmp_path)
        assert (report.passed, report.counts().evidence_ok) == (True, 1)
        assert refusal(lambda: reasoning.validate(tmp_path, publish=True)).code == "SELF_APPROVAL"
        assert alex.reasoning(name).validate(tmp_path, publish=True).passed
        assert kuro.validations.latest(id=name).outcome == "passed"


def test_the_audit_passes_and_says_that_nobody_vouched_for_the_root(place: Place) -> None:
    async def verify(ledger: AsyncLedger) -> bool:
        return (await ledger.verify()).ok

    with opened(place) as ledger:
        done: list[int] = []
        report = ledger.verify(progress=lambda step, _: done.append(step))
        assert report.ok
        assert done[-1] == ledger.client.head().size
        wrong = ledger.verify(root="0" * 64)
    assert not wrong.ok
    assert awaited(place, verify)


def test_an_event_is_found_again_by_index_and_id_and_its_receipt_verifies(place: Place) -> None:
    async def find(ledger: AsyncLedger) -> tuple[Event, int]:
        return await ledger.get(accepted.id), (await ledger.receipt(accepted.index)).index

    with opened(place) as ledger:
        (accepted,) = ledger.publish(f"session/{fresh()}", SessionStarted(task="it"))
        event = ledger.get(accepted.index)
        assert ledger.get(accepted.id) == ledger.get(accepted.id[: len("blake3:") + 12]) == event
        assert ledger.receipt(accepted.id).index == accepted.index
        assert refusal(lambda: ledger.get("f" * 64)).code == "NOT_FOUND"
    assert awaited(place, find) == (event, accepted.index)


def test_evidence_is_checked_before_a_step_is_signed(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)  # evidence is looked up in the project of the present folder

    async def step(ledger: AsyncLedger) -> str:
        with pytest.raises(DeedbookError) as refused:
            await ledger.reasoning(name).step("x", evidence=["just words"])
        return refused.value.code

    with opened(place) as ledger:
        reasoning = ledger.reasoning(name := fresh())
        reasoning.start("it")
        assert refusal(lambda: reasoning.step("x", evidence=["/etc/passwd:1"])).code == "INVALID_FIELD"
        reasoning.step("x", evidence=["no/such/file.py:1"])
        assert len(reasoning.show().memory.steps) == 1
    assert "evidence 'no/such/file.py:1' of step 1: gone" in caplog.text
    assert awaited(place, step) == "INVALID_FIELD"


@pytest.mark.parametrize("changes", [{"status": "approved"}, {"template": f"blake3:{'0' * 64}"}, {"created": "x"}])
def test_an_amendment_sets_what_creating_takes_and_nothing_else(place: Place, changes: Any) -> None:
    with opened(place) as ledger:
        handoff = ledger.handoff(fresh())
        handoff.create(to="claude-code", reviewer="alex", title="It")
        assert refusal(lambda: handoff.amend(**changes)).code == "UNKNOWN_FIELD"
        handoff.amend(title="Another")
        assert handoff.show().title == "Another"


def test_every_act_on_a_handoff_is_a_verb_of_the_noun() -> None:
    assert {verb for verb in OPERATIONS if not callable(getattr(Handoff, verb, None))} == set()


def test_question_about_no_handoff_is_asked_answered_and_settled(place: Place) -> None:
    name = fresh()
    with opened(place) as ledger, opened(place, "claude-code") as other:
        ledger.question(name).ask("claude-code", "Which port?", about="a.py:3")
        assert name in [row.id for row in other.handoffs.next(agent="claude-code").items]
        assert refusal(lambda: ledger.question(name).answer("8080")).code == "NOT_AUTHORIZED"
        other.question(name).answer("8080")
        assert (ledger.question(name).show().status, ledger.question(name).show().answer) == ("answered", "8080")
        ledger.question(name).settle("thanks")
        shown = ledger.questions.list(settled=True, author="kuro").items
        assert [(row.comment, row.settled_by) for row in shown if row.id == name] == [("thanks", "kuro")]


def test_decision_is_made_replaced_and_withdrawn(place: Place) -> None:
    old, new = fresh(), fresh()
    with opened(place) as ledger:
        ledger.decision(old).make("Tabs", paths=["src/"], contract=True)
        assert len(ledger.decision(new).make("Spaces", why="diffs", paths=["src/a.py"], supersedes=[old])) == 2
        shown = ledger.decision(old).show()
        assert (shown.status, shown.superseded_by, shown.contract) == ("superseded", new, True)
        assert new in [row.id for row in ledger.decisions.list(paths=["src"], status="standing")]
        assert refusal(lambda: ledger.decision(old).withdraw("no")).code == "TRANSITION_NOT_ALLOWED"
        assert refusal(lambda: ledger.decision(fresh()).make("x", paths="src")).code == "USAGE"  # type: ignore[arg-type]
        with ledger.batch() as batch:
            ledger.decision(new).withdraw("no more")
            ledger.decision(fresh()).make("Nothing")
        assert len(batch.accepted) == 2


@pytest.mark.parametrize(
    ("blocking", "awaiting", "other"),
    [
        (Ledger, AsyncLedger, {"author", "client"}),
        (Handoff, AsyncHandoff, set()),
        (AskedQuestion, AsyncAskedQuestion, set()),
        (Decision, AsyncDecision, set()),
        (Reasoning, AsyncReasoning, set()),
        (Session, AsyncSession, set()),
    ],
)
def test_every_method_is_awaited_under_its_name_with_its_arguments_and_text(
    blocking: type, awaiting: type, other: set[str]
) -> None:
    def takes(owner: type, name: str) -> list[tuple[str, object]]:
        method = getattr(owner, name)
        return (
            [(it.name, it.default) for it in inspect.signature(method).parameters.values()] if callable(method) else []
        )

    public = {name for name in dir(blocking) if not name.startswith("_")} - {"family", "id_in"}
    assert public - set(dir(awaiting)) == other
    for name in public - other:
        assert getattr(awaiting, name).__doc__, name
        assert takes(awaiting, name) == takes(blocking, name), name


def test_every_argument_of_creating_is_one_of_the_noun() -> None:
    taken = set(inspect.signature(Handoff.create).parameters) - {"self"}
    assert taken == {argument.name for argument in OPERATIONS["create"].arguments}


@pytest.mark.parametrize(
    ("noun", "verb", "operation"),
    [
        *(("Session", verb, row) for verb, row in SESSION.items() if verb != "artifact"),
        *(("Reasoning", verb, row) for verb, row in REASONING.items()),
    ],
)
def test_every_argument_of_an_operation_is_one_of_its_verb(noun: str, verb: str, operation: Operation) -> None:
    """A Python method names an argument as the event does, or as the command line spells its option."""
    taken = {*inspect.signature(getattr(nouns, noun).__dict__[verb]).parameters} - {"self"}
    for argument in operation.arguments:
        option = argument.option.removeprefix("--").replace("-", "_")
        names = {argument.name, option, f"{option}s"} & taken
        assert len(names) == 1, (argument.name, taken)
        taken -= names
    assert not taken


def test_a_session_takes_back_what_it_found_and_says_what_an_unknown_came_to(place: Place) -> None:
    name = fresh("belief")
    with opened(place) as ledger:
        work = ledger.session(name)
        work.start("t")
        (finding,) = work.finding("The pool leaks")
        (unknown,) = work.unknown("Who opens it?")
        (dead_end,) = work.dead_end("Restart", "it comes back", basis="tried")
        work.end()
        work.retract(finding.index, "it does not")
        work.resolve(unknown.id, "the janitor")
        shown = work.show()
        elsewhere = refusal(lambda: ledger.session(fresh("other")).retract(dead_end.index, "x"))
    corrections = [shown.findings[0].correction, shown.unknowns[0].correction]
    assert [None if one is None else one.words for one in corrections] == ["it does not", "the janitor"]
    assert shown.dead_ends[0].basis == "tried"
    assert (elsewhere.code, "use that session" in elsewhere.message) == ("USAGE", True)
