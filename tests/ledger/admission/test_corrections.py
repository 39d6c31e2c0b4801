"""Who corrects what a session recorded: its author or an admin, an event of that very session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from building import ids_of

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.session import (
    DeadEndLogged,
    DeadEndRetracted,
    FindingLogged,
    FindingRetracted,
    SessionEnded,
    SessionStarted,
    UnknownLogged,
    UnknownResolved,
)

if TYPE_CHECKING:
    from building import Ledger


def refused(ledger: Ledger, author: str, stream: str, target: str) -> str:
    """Return the code of a retraction's refusal, which left nothing behind."""
    before = ledger.head()
    with pytest.raises(Refused) as caught:
        ledger.emit(author, stream, FindingRetracted(target=target, reason="it does not hold"))
    assert ledger.head() == before
    return caught.value.code


def test_author_and_admin_correct_a_session_after_its_end_and_nobody_else_does(ledger: Ledger) -> None:
    ledger.register("ada", "admin")
    ledger.emit("alice", "session/s", SessionStarted())
    finding = ledger.emit("alice", "session/s", FindingLogged(finding="f")).id
    unknown = ledger.emit("alice", "session/s", UnknownLogged(unknown="u")).id
    dead_end = ledger.emit("alice", "session/s", DeadEndLogged(approach="a", why_failed="w")).id
    ledger.emit("alice", "session/s", SessionEnded())
    assert refused(ledger, "bob", "session/s", finding) == "NOT_AUTHORIZED"
    assert refused(ledger, "rita", "session/s", finding) == "NOT_AUTHORIZED"
    ledger.emit("alice", "session/s", FindingRetracted(target=finding, reason="r"))
    ledger.emit("ada", "session/s", UnknownResolved(target=unknown, answer="a"))
    ledger.emit("root", "session/s", DeadEndRetracted(target=dead_end, reason="r"))


def test_what_is_corrected_stands_in_the_session_itself(ledger: Ledger) -> None:
    for name in ("session/s", "session/t"):
        ledger.emit("alice", name, SessionStarted())
    elsewhere = ledger.emit("alice", "session/t", FindingLogged(finding="f")).id
    assert refused(ledger, "alice", "session/s", elsewhere) == "NOT_FOUND"
    assert refused(ledger, "alice", "session/s", "blake3:" + "0" * 64) == "NOT_FOUND"
    assert refused(ledger, "alice", "session/none", elsewhere) == "NOT_FOUND"


def test_event_of_another_session_in_the_same_submission_is_not_corrected(ledger: Ledger) -> None:
    for name in ("session/s", "session/t"):
        ledger.emit("alice", name, SessionStarted())
    found = Draft(stream="session/t", data=FindingLogged(finding="f"))
    [elsewhere] = ids_of(ledger.sign("alice", found))
    wrong = FindingRetracted(target=elsewhere, reason="r")
    with pytest.raises(Refused) as caught:
        ledger.submit(ledger.sign("alice", found, Draft(stream="session/s", data=wrong)))
    assert caught.value.code == "NOT_FOUND"
    ledger.submit(ledger.sign("alice", found, Draft(stream="session/t", data=wrong)))
