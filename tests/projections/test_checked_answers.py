"""An answer on which somebody acts comes from signed entries. It equals the answer of unmanipulated views."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from deedbook.ledger.client import stream_reader
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.authority import AgentRemoved, KeyCompromised
from deedbook.ledger.events.handoff import HandoffAmended, HandoffBlocked
from deedbook.ledger.events.reasoning import ReasoningConcluded, ReasoningExtended, ReasoningStarted, Step
from deedbook.ledger.events.review import ReviewRequested
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.answers import checked
from deedbook.projections.answers.checked import ask
from deedbook.projections.answers.reader import Reader
from deedbook.projections.handoffs.dependencies import blockers_named_max
from deedbook.projections.handoffs.why import chain_links_max
from deedbook.projections.views.runner import read_logged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from building import Ledger

    from deedbook.ledger.client.client import Client
    from deedbook.ledger.client.stream_reader import CheckedStream
    from deedbook.projections.views.projection import Logged


@pytest.fixture
def client(ledger: Ledger) -> Iterator[Client]:
    with LocalClient(ledger.settings(), log=ledger.log, views=Reader) as made:
        yield made


def story(ledger: Ledger) -> None:
    """Append handoffs in every state that a view distinguishes; some wait for others or answer others."""
    ledger.finish("first", verify=True, criteria=["it is checked"], tasks=["one", "two"])
    ledger.hand_over("second", depends_on=["first", "third"], answers="first", title="线程 one")
    ledger.hand_over("third", depends_on=["fourth", "missing"])
    ledger.approve("fourth", ledger.hand_over("fourth", to="carol"))
    ledger.claim("fourth", by="carol", lease_seconds=3600)
    ledger.emit("carol", "handoff/fourth", HandoffBlocked(reason="no machine"))
    ledger.emit("alice", "handoff/second", HandoffAmended(title="x", to="bob", reviewer="rita", depends_on=["third"]))
    ledger.approve("fifth", ledger.hand_over("fifth", to="dora"))
    ledger.emit("root", "agent/dora", AgentRemoved(agent="dora", reason="gone"))
    ledger.approve("sixth", ledger.hand_over("sixth"))
    rita = ledger.keys["rita"].public.hex()
    ledger.emit("root", "agent/rita", KeyCompromised(key=rita, since=ledger.head()[0] - 1, reason="stolen"))


NAMES = ("first", "second", "third", "fourth", "fifth", "sixth")


def test_checked_answers_are_those_of_the_views_where_nobody_lies(ledger: Ledger, client: Client) -> None:
    for name in ("carol", "dora"):
        ledger.register(name)
    story(ledger)
    for query in ("handoffs.facts", "handoffs.show", "handoffs.versions", "handoffs.why"):
        for name in NAMES:
            wanted, answer = client.view(query, {"id": name}), ask(client, query, {"id": name})
            as_of = answer.pop("as_of")
            assert answer == wanted, (query, name)
            assert (as_of["size"], as_of["root"]) == (client.head().size, client.head().root)


def test_chain_that_is_longer_than_what_is_told_of_it_ends_as_in_the_view(ledger: Ledger, client: Client) -> None:
    for number in range(chain_links_max + 2):
        ledger.hand_over(f"h{number}", depends_on=[f"h{number + 1}"])
    ledger.finish(f"h{chain_links_max + 2}")
    last = f"h{chain_links_max + 1}"
    for name in ("h0", "h1", "h2"):  # the chain of h0 is too long to be followed to its end; those of h1 and h2 are not
        answer = ask(client, "handoffs.why", {"id": name})
        answer.pop("as_of")
        assert answer == client.view("handoffs.why", {"id": name})
        assert "does not exist" not in answer["sentence"]
        assert answer["reasons"][-1]["chain"][-1] == (last if name != "h0" else f"h{chain_links_max}")
        assert {wait["action"] for wait in answer["waits"]} == {"approve"}  # no other action is needed


def test_every_dependency_is_followed_to_the_end_of_its_chain_and_few_other_blockers_are_named(
    ledger: Ledger, client: Client
) -> None:
    count = blockers_named_max + 8
    chains = [[f"{letter}{number}" for letter in "abc"] for number in range(count)]
    for name, on, end in chains:
        ledger.hand_over(name, depends_on=[on])
        ledger.hand_over(on, depends_on=[end])
        ledger.hand_over(end)
    ledger.hand_over("top", depends_on=[chain[0] for chain in chains])
    answer = ask(client, "handoffs.why", {"id": "top"})
    assert "does not exist" not in answer["sentence"]
    assert [reason["chain"] for reason in answer["reasons"][1:]] == chains
    ledger.hand_over("wide", depends_on=["middle"])
    ledger.hand_over("middle", depends_on=[end for *_, end in chains])
    waits = ask(client, "handoffs.why", {"id": "wide"})["waits"]
    assert [wait["id"] for wait in waits] == ["wide", "middle", *(end for *_, end in chains[: 1 + blockers_named_max])]


def test_card_names_two_links_of_a_chain(ledger: Ledger, client: Client) -> None:
    for number in range(5):
        ledger.approve(f"h{number}", ledger.hand_over(f"h{number}", depends_on=[f"h{number + 1}"]))
    ledger.hand_over("h5")
    (approved,) = (
        column["handoffs"] for column in client.view("handoffs.board", {})["columns"] if column["status"] == "approved"
    )
    assert approved[-1]["why"] == "it waits for h1, which is approved and waits for h2, which is approved"


def test_a_question_asked_again_folds_what_its_streams_have_since(
    ledger: Ledger, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded: list[int] = []

    def noted(index: int, data: bytes) -> Logged:
        folded.append(index)
        return read_logged(index, data)

    monkeypatch.setattr("deedbook.projections.answers.checked.read_logged", noted)
    ledger.emit("alice", "reasoning/leak", ReasoningStarted(task="find it"))
    ledger.hand_over("pool", tasks=["one", "two"])
    questions = [("reasoning.show", {"id": "leak"}), ("validations.latest", {"id": "leak"})]
    questions.append(("handoffs.show", {"id": "pool"}))
    for number in range(1, 6):
        step = Step(step_number=number, type="inference", content=f"look at pool {number}")
        first = ledger.emit("alice", "reasoning/leak", ReasoningExtended(steps=[step])).index
        tasks = [f"task {one}" for one in range(number)]
        ledger.emit("alice", "handoff/pool", HandoffAmended(title="x", to="bob", reviewer="rita", tasks=tasks))
        folded.clear()
        for query, arguments in questions:
            wanted, answer = client.view(query, arguments), ask(client, query, arguments)
            assert {**answer, "as_of": None} == {**wanted, "as_of": None}
        assert number == 1 or set(folded) == {first, first + 1}
        folded.clear()
        ask(client, *questions[0])
        assert folded == []
    at = first - 6  # an answer about this index uses no later event
    assert ask(client, *questions[0], at)["steps"] == 2
    assert ask(client, *questions[0])["steps"] == 5


def test_checked_answers_of_a_past_are_those_of_its_views(ledger: Ledger, client: Client) -> None:
    for name in ("carol", "dora"):
        ledger.register(name)
    start = ledger.head()[0]
    story(ledger)
    size = ledger.head()[0]
    for index in (0, start, (start + size) // 2, size - 3, size - 1):
        at = clock_text(ledger.event(index).accepted_ms + 7)
        for query, name in itertools.product(("handoffs.facts", "handoffs.show", "handoffs.why"), NAMES):
            for moment in (index, at):
                wanted = or_refusal(partial(client.view, query, {"id": name}, moment))
                answer = or_refusal(partial(ask, client, query, {"id": name}, moment))
                as_of = answer.pop("as_of", None)
                assert answer == wanted, (query, name, moment)
                if moment == index and as_of is not None:
                    assert (as_of["size"], as_of["root"]) == (index + 1, client.consistency(0, index + 1).root)
        for agent in ("bob", "rita"):
            wanted = or_refusal(partial(client.view, "handoffs.next", {"agent": agent}, index))
            answer = or_refusal(partial(ask, client, "handoffs.next", {"agent": agent}, index))
            answer.pop("as_of", None)
            assert answer == wanted, (index, agent)


def or_refusal(asked: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return asked()
    except Refused as refusal:
        return refusal.to_dict()


def test_checked_reasoning_is_that_of_the_views_by_its_id_its_ref_and_the_beginning_of_either(
    ledger: Ledger, client: Client
) -> None:
    for name, author in (("leak", "alice"), ("same", "bob")):
        ledger.emit(author, f"reasoning/{name}", ReasoningStarted(task="find it", domain="security"))
        step = Step(step_number=1, type="inference", content="look at the pool")
        ledger.emit(author, f"reasoning/{name}", ReasoningExtended(steps=[step]))
        ledger.emit(author, f"reasoning/{name}", ReasoningConcluded(conclusion="it leaks"))
    versions = client.view("reasoning.show", {"id": "leak"})["versions"]
    base, ref = versions[0]["ref"], versions[-1]["ref"]
    asked = [("reasoning.show", {"id": one}) for one in ("leak", "reasoning/leak", ref, ref[:20])]
    asked += [("reasoning.fetch", {"id": one}) for one in ("leak", ref, ref[7:20])]
    asked += [("reasoning.fetch", {"id": "leak", "have": base}), ("reasoning.origins", {"id": ref})]
    asked += [("validations.latest", {"id": one}) for one in ("leak", base, ref)]
    asked += [("validations.list", {"id": ref}), ("snapshots.domains", {"reasoning_ref": ref})]
    for query, arguments in asked:
        answer = ask(client, query, arguments)
        assert answer.pop("as_of")["size"] == client.head().size
        assert answer == client.view(query, arguments), (query, arguments)
    for query, arguments in (
        ("reasoning.show", {"id": "none"}),
        ("reasoning.fetch", {"id": "leak", "have": "f" * 64}),
    ):
        with pytest.raises(Refused) as refused:
            ask(client, query, arguments)
        assert refused.value.code == "NOT_FOUND"
    assert ask(client, "reasoning.origins", {"id": "sha256:" + "0" * 64})["ids"] == []


def test_thing_is_found_by_the_beginning_of_its_id_and_by_its_file(ledger: Ledger, client: Client) -> None:
    ledger.hand_over("2026-02-12-logs")
    for asked in ("2026-02-12-logs", "handoff/2026-02-12-logs", "2026-02-12-logs.md", "2026-02-12"):
        assert ask(client, "handoffs.facts", {"id": asked})["id"] == "2026-02-12-logs"
    for asked in ("nothing", ""):
        with pytest.raises(Refused) as refused:
            ask(client, "handoffs.show", {"id": asked})
        assert refused.value.code == "NOT_FOUND"


def test_view_that_names_another_handoff_than_was_asked_for_is_not_believed(
    ledger: Ledger, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("logs", "production"):
        ledger.hand_over(name)
    monkeypatch.setattr(client, "view", lambda *_: {"id": "production"})
    assert ask(client, "handoffs.facts", {"id": "prod"})["id"] == "production"
    for asked in ("log", "log.md", "handoff/log"):
        with pytest.raises(Corrupted, match="answered production") as refused:
            ask(client, "handoffs.facts", {"id": asked})
        assert refused.value.code == "VERIFICATION_FAILED"


def test_wrong_arguments_are_refused_before_a_view_is_asked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "view", lambda *_: {"id": "production"})
    for arguments, code in (({"id": 3}, "INVALID_FIELD"), ({"id": "a", "colour": "red"}, "UNKNOWN_FIELD")):
        with pytest.raises(Refused) as refused:
            ask(client, "handoffs.show", arguments)
        assert refused.value.code == code


def test_no_handoff_is_what_an_empty_name_means(
    ledger: Ledger, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.hand_over("production")
    monkeypatch.setattr(client, "view", lambda *_: {"id": "production"})
    for reference in ("", ".md", "handoff/"):
        with pytest.raises(Corrupted, match="answered production"):
            ask(client, "handoffs.facts", {"id": reference})


def queues(ledger: Ledger, client: Client) -> None:
    """Append handoffs and a review so that every type of wait occurs."""
    for name in ("carol", "dora"):
        ledger.register(name)
    ledger.register("hugo", "human")
    for name in ("ready", "begun"):
        ledger.approve(name, ledger.hand_over(name))
    ledger.claim("begun")
    story(ledger)
    ledger.emit("alice", "review/r", ReviewRequested(question="may it go?", rule="high_risk_domain"))
    assert {item["action"] for item in client.view("handoffs.next", {})["items"]} >= {
        "approve",
        "claim",
        "continue",
        "amend",
        "review",
        "unblock",
    }


@pytest.mark.parametrize("page", [{}, {"limit": 3}, *({"agent": name} for name in ("alice", "bob", "rita", "hugo"))])
def test_what_waits_is_what_the_views_say_where_nobody_lies(
    ledger: Ledger, client: Client, page: dict[str, object]
) -> None:
    queues(ledger, client)
    answer = ask(client, "handoffs.next", page)
    assert answer.pop("as_of")["size"] == client.head().size
    assert answer == client.view("handoffs.next", page)


def test_nothing_waits_that_its_entries_do_not_say(
    ledger: Ledger, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues(ledger, client)
    honest = client.view("handoffs.next", {})
    waits = [{name: item[name] for name in ("kind", "id", "agent", "action")} for item in honest["items"]]
    invented = {"kind": "handoff", "id": "invented", "agent": "rita", "action": "approve"}
    elsewhere = [wait | {"agent": agent} for wait in waits for agent in ("root", "nobody")]
    monkeypatch.setattr(client, "view", lambda *_: {"items": [*waits, invented, *elsewhere], "total": 99, "next": None})
    shown = ask(client, "handoffs.next", {})
    assert shown["items"] == honest["items"]
    assert shown["total"] == 99 - 1 - len(elsewhere)
    monkeypatch.setattr(client, "view", lambda *_: {"items": [invented], "total": 1, "next": None})
    assert ask(client, "handoffs.next", {})["items"] == []


@pytest.mark.parametrize(
    "answer", [{}, {"items": None, "total": 1}, {"items": [{"kind": "agent", "id": "x", "agent": "y"}], "total": 1}]
)
def test_view_that_answers_in_another_form_is_not_believed(
    ledger: Ledger, client: Client, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    ledger.hand_over("h")
    monkeypatch.setattr(client, "view", lambda *_: answer)
    for query, arguments in (("handoffs.next", {}), ("handoffs.show", {"id": "h"})):
        with pytest.raises(Corrupted, match="the answer of a view has the wrong form") as refused:
            ask(client, query, arguments)
        assert refused.value.code == "VERIFICATION_FAILED"


def test_id_that_begins_as_a_ref_is_read_in_no_place_of_it(ledger: Ledger, client: Client) -> None:
    def record(name: str, author: str, content: str) -> str:
        step = Step(step_number=1, type="inference", content=content)
        for data in (ReasoningStarted(task="find it"), ReasoningExtended(steps=[step])):
            ledger.emit(author, f"reasoning/{name}", data)
        ref: str = client.view("reasoning.show", {"id": name})["ref"]
        return ref

    short = record("leak", "alice", "look at the pool").removeprefix("sha256:")[:12]
    record(short, "bob", "delete the pool")
    record("abcdefabcdef", "bob", "a hexadecimal name")
    for asking in (client.view, lambda query, asked: ask(client, query, asked)):
        shown = [asking("reasoning.show", {"id": one})["id"] for one in (short, f"reasoning/{short}", "abcdefabcdef")]
        assert shown == ["leak", short, "abcdefabcdef"]


def test_streams_are_read_again_only_when_the_log_has_grown(
    ledger: Ledger, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues(ledger, client)
    read: list[str] = []
    real = client.streams.read

    def noted(stream: str, size: int | None = None) -> CheckedStream:
        read.append(stream)
        return real(stream, size)

    monkeypatch.setattr(client.streams, "read", noted)
    first = ask(client, "handoffs.next", {})
    assert len(read) == len(set(read)) > len(first["items"]) / 2
    read.clear()
    assert ask(client, "handoffs.next", {}) == first
    assert read == []
    ledger.claim("ready")
    after = ask(client, "handoffs.next", {})
    assert read
    assert {**after, "as_of": None} == {**client.view("handoffs.next", {}), "as_of": None}
    assert after != first


def test_what_is_kept_of_streams_is_bounded(ledger: Ledger, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "folds_cached_max_bytes", 30_000)
    monkeypatch.setattr(stream_reader, "streams_cached_max_bytes", 30_000)
    names = [f"h{number}" for number in range(20)]
    for name in names:
        ledger.hand_over(name)
    for name in [*names, *names]:
        answer = ask(client, "handoffs.show", {"id": name})
        assert {**answer, "as_of": None} == {**client.view("handoffs.show", {"id": name}), "as_of": None}
    kept = client.streams.folds["streams"]._known
    assert 0 < sum(known.fold.size_bytes for known in kept.values()) <= 30_000
    assert [key for key, _ in kept] == [f"handoff/{name}" for name in names[-len(kept) :]]
    runs = client.streams._runs
    assert 0 < sum(run.size_bytes for run in runs.values()) == client.streams._cached_bytes <= 30_000
