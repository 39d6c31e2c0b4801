"""Who may register, grant, revoke and hand over: roles decide, at the index at which they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import key_named

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import (
    AgentRegistered,
    HistoryReset,
    KeyRevoked,
    LedgerCreated,
    RoleGranted,
    RoleRevoked,
)
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.lifecycle.authority import NODE, ROOT

if TYPE_CHECKING:
    from building import Ledger


def refusal(ledger: Ledger, author: str, stream: str, data: Any, **fields: Any) -> str:
    """Return the code with which an event is refused."""
    before = ledger.head()
    with pytest.raises(Refused) as refused:
        ledger.emit(author, stream, data, **fields)
    assert ledger.head() == before
    return refused.value.code


def registration(ledger: Ledger, name: str, **change: Any) -> AgentRegistered:
    """Return the data that registers an agent, something about it changed."""
    key = key_named(change.pop("key", name))
    proof = key.prove_possession(change.pop("for_ledger", ledger.id), change.pop("proven_for", name))
    return AgentRegistered(**{"name": name, "key": key.public.hex(), "proof": proof, "roles": ["agent"]} | change)


def test_root_registers_and_agents_do_not(ledger: Ledger) -> None:
    for author in ("alice", "rita", NODE):
        assert refusal(ledger, author, "agent/carl", registration(ledger, "carl")) == "NOT_AUTHORIZED"
    ledger.emit(ROOT, "agent/carl", registration(ledger, "carl"))


def test_admin_registers_as_root_does(ledger: Ledger) -> None:
    ledger.register("ada", "admin")
    ledger.emit("ada", "agent/carl", registration(ledger, "carl", roles=["human", "reviewer"]))
    ledger.emit(ROOT, "agent/ada", RoleRevoked(agent="ada", role="admin"))
    assert refusal(ledger, "ada", "agent/dora", registration(ledger, "dora")) == "NOT_AUTHORIZED"


def test_node_registers_services_and_nothing_more(ledger: Ledger) -> None:
    ledger.emit(NODE, "agent/compressor", registration(ledger, "compressor", roles=["service"]))
    for roles in (["agent"], ["service", "admin"], ["service", "service"], []):
        assert refusal(ledger, NODE, "agent/x", registration(ledger, "x", roles=roles)) == "NOT_AUTHORIZED"


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("alice", {"key": "another"}, "AGENT_EXISTS"),
        ("root", {"key": "another"}, "AGENT_EXISTS"),
        ("node", {"key": "another"}, "AGENT_EXISTS"),
        ("carl", {"key": "alice"}, "KEY_EXISTS"),
        ("carl", {"key": "root"}, "KEY_EXISTS"),
        ("carl", {"proven_for": "carla"}, "SIGNATURE_INVALID"),
        ("carl", {"for_ledger": "0" * 32}, "SIGNATURE_INVALID"),
        ("carl", {"proof": "0" * 128}, "SIGNATURE_INVALID"),
        ("carl", {"roles": ["king"]}, "INVALID_FIELD"),
    ],
)
def test_registration_that_cannot_stand_is_refused(ledger: Ledger, name: str, change: Any, code: str) -> None:
    assert refusal(ledger, ROOT, f"agent/{name}", registration(ledger, name, **change)) == code


def test_registration_belongs_on_the_agents_own_stream(ledger: Ledger) -> None:
    assert refusal(ledger, ROOT, "agent/bob", registration(ledger, "carl")) == "INVALID_FIELD"


def test_roles_are_granted_and_revoked_by_admins(ledger: Ledger) -> None:
    ledger.emit(ROOT, "agent/bob", RoleGranted(agent="bob", role="reviewer"))
    with ledger.log.snapshot() as snapshot:
        assert {one.name: one.roles for one in snapshot.agents()}["bob"] == {"agent", "reviewer"}
    assert refusal(ledger, "bob", "agent/bob", RoleGranted(agent="bob", role="admin")) == "NOT_AUTHORIZED"
    assert refusal(ledger, ROOT, "agent/nobody", RoleGranted(agent="nobody", role="agent")) == "AGENT_UNKNOWN"
    assert refusal(ledger, ROOT, "agent/root", RoleRevoked(agent="root", role="admin")) == "NOT_AUTHORIZED"


def test_keys_of_root_and_node_are_not_revoked(ledger: Ledger) -> None:
    for name in (ROOT, NODE):
        revoked = KeyRevoked(key=ledger.keys[name].public.hex())
        assert refusal(ledger, ROOT, f"agent/{name}", revoked) == "NOT_AUTHORIZED"


def test_unknown_key_is_not_revoked(ledger: Ledger) -> None:
    assert refusal(ledger, ROOT, "agent/alice", KeyRevoked(key="ab" * 32)) == "KEY_UNKNOWN"


def test_agent_revokes_its_own_key_and_not_anothers(ledger: Ledger) -> None:
    revoked = KeyRevoked(key=ledger.keys["alice"].public.hex())
    assert refusal(ledger, "bob", "agent/alice", revoked) == "NOT_AUTHORIZED"
    ledger.emit("alice", "agent/alice", revoked)
    assert refusal(ledger, "alice", "session/s1", SessionStarted()) == "KEY_REVOKED"


def test_only_root_starts_an_epoch_and_it_names_a_head(ledger: Ledger) -> None:
    reset = HistoryReset(abandoned_size=40, abandoned_root="ab" * 32, reason="the disk failed")
    ledger.register("ada", "admin")
    for author in ("alice", "ada", NODE):
        assert refusal(ledger, author, "ledger", reset) == "NOT_AUTHORIZED"
    headless = HistoryReset(abandoned_size=0, abandoned_root="ab" * 32, reason="the disk failed")
    assert refusal(ledger, ROOT, "ledger", headless) == "INVALID_FIELD"
    ledger.emit(ROOT, "ledger", reset)


def test_ledger_is_created_once_by_the_key_it_names(ledger: Ledger) -> None:
    again = ledger.created().data
    assert isinstance(again, LedgerCreated)
    ledger.clock.advance(1)
    assert refusal(ledger, ROOT, "ledger", again) == "NOT_AUTHORIZED"


@pytest.mark.parametrize(
    ("author", "change", "code"),
    [
        ("alice", {}, "NOT_AUTHORIZED"),
        (NODE, {}, "NOT_AUTHORIZED"),
        (ROOT, {"root": key_named("eve").public.hex()}, "NOT_AUTHORIZED"),
        (ROOT, {"node_key": key_named(ROOT).public.hex()}, "INVALID_FIELD"),
        (ROOT, {"checkpoint_key": key_named(NODE).public.hex()}, "INVALID_FIELD"),
    ],
)
def test_first_entry_that_does_not_name_its_own_keys_is_refused(
    home: Any, author: str, change: dict[str, str], code: str
) -> None:
    from building import Actors
    from msgspec.structs import replace

    from deedbook.ledger.admission.gate import Gate
    from deedbook.ledger.log.log import Log

    (home / "log").mkdir(parents=True)
    with Log(home, create=True, map_size=2**26) as log:
        actors = Actors(Gate(log).submit)
        data = replace(actors.created().data, **change)
        with pytest.raises(Refused) as refused:
            actors.emit(author, "ledger", data)
        assert refused.value.code == code
        with pytest.raises(Refused) as refused:
            actors.emit("alice", "session/s1", SessionStarted())
        assert refused.value.code == "KEY_UNKNOWN"
        with log.snapshot() as snapshot:
            assert snapshot.size == 0


def test_first_entry_of_another_ledger_is_refused(home: Any) -> None:
    from building import Actors

    from deedbook.ledger.admission.gate import Gate
    from deedbook.ledger.client.author import draft_and_sign
    from deedbook.ledger.log.log import Log

    (home / "log").mkdir(parents=True)
    with Log(home, create=True, map_size=2**26) as log:
        actors = Actors(Gate(log).submit)
        drafts: list[Draft] = [actors.created()]
        with pytest.raises(Refused) as refused:
            actors.submit(draft_and_sign(drafts, actors.keys[ROOT], ledger="0" * 32, author=ROOT))
        assert refused.value.code == "WRONG_LEDGER"
