"""Registering agents, granting and revoking roles, handing over: the roles at the index of an event decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import key_named

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import (
    KeyRevoked,
    RoleGranted,
    RoleRevoked,
)
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.lifecycle.authority import NODE, ROOT

if TYPE_CHECKING:
    from building import Ledger


def refusal(ledger: Ledger, author: str, stream: str, data: Any, **fields: Any) -> str:
    """Return the code with which an event is refused."""
    return ledger.refusal_of(lambda: ledger.emit(author, stream, data, **fields)).code


def test_roles_are_granted_and_revoked_by_admins(ledger: Ledger) -> None:
    ledger.emit(ROOT, "agent/bob", RoleGranted(agent="bob", role="reviewer"))
    with ledger.log.snapshot() as snapshot:
        assert {one.name: one.roles for one in snapshot.agents()}["bob"] == ("agent", "reviewer")
    assert refusal(ledger, "bob", "agent/bob", RoleGranted(agent="bob", role="admin")) == "NOT_AUTHORIZED"
    assert refusal(ledger, ROOT, "agent/nobody", RoleGranted(agent="nobody", role="agent")) == "AGENT_UNKNOWN"
    assert refusal(ledger, ROOT, "agent/root", RoleRevoked(agent="root", role="admin")) == "NOT_AUTHORIZED"


def test_role_that_a_batch_revokes_does_not_count_after_it(ledger: Ledger) -> None:
    ledger.register("ada", "admin", "agent")
    before = ledger.head()
    first, revoked, second = (
        Draft(stream="session/s1", data=SessionStarted()),
        Draft(stream="agent/ada", data=RoleRevoked(agent="ada", role="agent")),
        Draft(stream="session/s2", data=SessionStarted()),
    )
    refused = ledger.refusal_of(lambda: ledger.submit(ledger.sign("ada", first, revoked, second)))
    assert (refused.code, refused.details["role"]) == ("NOT_AUTHORIZED", "agent or human or reviewer or service")
    assert [event["position"] for event in refused.details["events"]] == [2]
    assert ledger.head() == before
    ledger.submit(ledger.sign("ada", first, second, revoked))


def test_agent_revokes_its_own_key_and_not_anothers(ledger: Ledger) -> None:
    revoked = KeyRevoked(key=ledger.keys["alice"].public.hex())
    assert refusal(ledger, "bob", "agent/alice", revoked) == "NOT_AUTHORIZED"
    ledger.emit("alice", "agent/alice", revoked)
    assert refusal(ledger, "alice", "session/s1", SessionStarted()) == "KEY_REVOKED"


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
