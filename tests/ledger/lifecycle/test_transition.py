"""A package's rules for its own families are a function, ``transition``. If it fails, the event is refused."""

from __future__ import annotations

import msgspec
import pytest

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.declared import DeclaredData
from deedbook.ledger.lifecycle.machine import Transition


class Count(msgspec.Struct, frozen=True, array_like=True):
    """A state."""

    number: int = 0


def test_rules_that_fail_refuse_the_event_and_name_the_family() -> None:
    def step(_before: Count | None, event: Event) -> Count:
        return Count(1 // event.data["by"])

    def event(by: int) -> Event:
        known = {"id": "event:" + "0" * 64, "ledger": "0" * 32, "key": "", "at": "", "causes": [], "author": "bob"}
        data = DeclaredData(fields={"by": by})
        return Event(index=4, accepted_ms=0, kind="boom.counted", stream="boom/1", data=data, **known)

    rules = Transition(Count, step, frozenset({"agent"}), lambda state: state)
    assert rules.unpack(rules.decide(None, event(1))) == Count(1)
    with pytest.raises(
        Refused, match=r"the rules of the family boom failed on boom\.counted \(ZeroDivisionError"
    ) as refused:
        rules.decide(None, event(0))
    assert refused.value.code == "FAMILY_UNUSABLE"
