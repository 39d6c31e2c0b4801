"""What is shown to be acted on is what its signed entries say, in the words of the view where nobody lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.errors import Corrupted, Refused
from ledger.events.authority import AgentRemoved, KeyCompromised
from ledger.events.handoff import HandoffAmended, HandoffBlocked
from ledger.events.reasoning import ReasoningConcluded, ReasoningExtended, ReasoningStarted, Step
from ledger.local import LocalClient
from projections import checked
from projections.checked import answer_checked
from projections.reader import Reader
from projections.views import CHECKED, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from building import Ledger

    from ledger.client import Client


@pytest.fixture
def client(ledger: Ledger) -> Iterator[Client]:
    with LocalClient(ledger.settings(), log=ledger.log, views=Reader) as made:
        yield made


def story(ledger: Ledger) -> None:
    """Handoffs in every state that a view tells apart, that wait for each other and answer each other."""
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
    for query in sorted(query for query in CHECKED if query.startswith("handoffs.")):
        for name in NAMES:
            wanted, answer = client.view(query, {"id": name}), answer_checked(client, query, {"id": name})
            as_of = answer.pop("as_of")
            assert answer == wanted, (query, name)
            assert (as_of["size"], as_of["root"]) == (client.head().size, client.head().root)


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
    asked += [("reasoning.fetch", {"ref": one}) for one in ("leak", ref, ref[7:20])]
    asked += [("reasoning.fetch", {"ref": "leak", "have": base}), ("reasoning.origins", {"ref": ref})]
    asked += [("validations.latest", {"ref": one}) for one in ("leak", base, ref)]
    asked += [("validations.list", {"ref": ref, "independent": True}), ("snapshots.domains", {"reasoning_ref": ref})]
    for query, arguments in asked:
        answer = ask(client, query, arguments)
        assert answer.pop("as_of")["size"] == client.head().size
        assert answer == client.view(query, arguments), (query, arguments)
    for query, arguments in (
        ("reasoning.show", {"id": "none"}),
        ("reasoning.fetch", {"ref": "leak", "have": "f" * 64}),
    ):
        with pytest.raises(Refused) as refused:
            ask(client, query, arguments)
        assert refused.value.code == "NOT_FOUND"
    assert ask(client, "reasoning.origins", {"ref": "sha256:" + "0" * 64})["ids"] == []


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
        with pytest.raises(Corrupted, match="names production") as refused:
            ask(client, "handoffs.facts", {"id": asked})
        assert refused.value.code == "VERIFICATION_FAILED"


def test_graph_too_long_to_be_folded_is_the_word_of_the_view_and_said_to_be(
    ledger: Ledger, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.emit("alice", "reasoning/leak", ReasoningStarted(task="find it"))
    step = Step(step_number=1, type="inference", content="look at the pool")
    ledger.emit("alice", "reasoning/leak", ReasoningExtended(steps=[step]))
    assert "as_of" in ask(client, "reasoning.show", {"id": "leak"})
    assert caplog.messages == []
    monkeypatch.setattr(checked, "graph_events_max", 1)
    assert "as_of" not in ask(client, "reasoning.show", {"id": "leak"})
    (notice,) = caplog.messages
    assert "reasoning/leak" in notice
    assert "was not checked" in notice
