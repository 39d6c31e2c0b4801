"""Corrections of a session's records: only their author or an admin may sign one, for an event of that session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from building import ids_of

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.session import (
    FindingLogged,
    FindingRetracted,
    SessionStarted,
)

if TYPE_CHECKING:
    from building import Ledger


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
