"""A key may sign if it is registered for the author, neither revoked nor expired, in scope, and within its budget."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from given import fact
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KIND_OF, KINDS
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.authority import KeyDelegated
from deedbook.ledger.lifecycle.authority import (
    KeyRecord,
    check_key,
    covers,
    delegated,
    is_delegable,
    to_ms,
)
from deedbook.ledger.lifecycle.clock import Span

KEY = "ab" * 32
IDENTITY = KeyRecord("alice", KEY, "identity", since_index=1)
SESSION = KeyRecord("alice", KEY, "session", since_index=2, span=Span(100, 1000), kinds=("finding.*",), max_events=2)


def check(record: KeyRecord | None, **use: object) -> KeyRecord:
    """Check a use of a key that is allowed, except for the fields in ``use``."""
    fits: dict[str, object] = {
        "author": "alice",
        "kind": "finding.logged",
        "stream": "session/s1",
        "data": {},
        "now_ms": 999,
    }
    delegator = use.pop("delegator", IDENTITY)
    return check_key(record, delegator, **(fits | use))  # type: ignore[arg-type] # only the tested field differs


@pytest.mark.parametrize(
    ("record", "use", "code"),
    [
        (None, {}, "KEY_UNKNOWN"),
        (IDENTITY, {"author": "bob"}, "AUTHOR_MISMATCH"),
        (KeyRecord("alice", KEY, "identity", since_index=1, ended_index=5, ended_as="revoked"), {}, "KEY_REVOKED"),
        (SESSION, {"now_ms": 1000}, "KEY_EXPIRED"),
        (SESSION, {"now_ms": 99}, "KEY_EXPIRED"),
        (SESSION, {"kind": "tool.used"}, "KEY_OUT_OF_SCOPE"),
        (KeyRecord("alice", KEY, "session", since_index=2, streams=("session/s2",)), {}, "KEY_OUT_OF_SCOPE"),
        (KeyRecord("alice", KEY, "session", since_index=2, max_events=2, used=2), {}, "KEY_EXHAUSTED"),
        (KeyRecord("alice", KEY, "session", since_index=2, max_events=0), {}, "KEY_EXHAUSTED"),
    ],
)
def test_key_that_may_not_sign_is_refused_with_the_reason(record: KeyRecord, use: dict[str, object], code: str) -> None:
    with pytest.raises(Refused) as refused:
        check(record, **use)
    assert refused.value.code == code


def test_identity_key_signs_anything_of_its_agent_at_any_time() -> None:
    assert check(IDENTITY, kind="handoff.approved", stream="handoff/h1", now_ms=2**60) == IDENTITY


def test_each_use_of_a_budget_is_counted() -> None:
    twice = check(check(SESSION))
    assert twice.used == 2
    with pytest.raises(Refused):
        check(twice)


def test_key_without_a_budget_is_not_counted() -> None:
    record = KeyRecord("alice", KEY, "session", since_index=2)
    assert check(record) == record


@pytest.mark.parametrize(
    ("kinds", "streams", "is_covered"),
    [
        ([], [], True),
        (["finding.logged"], [], True),
        (["finding.*"], ["session/*"], True),
        (["*"], ["*"], True),
        (["tool.used", "finding.*"], ["session/s1"], True),
        (["finding"], [], False),
        (["finding.logge"], [], False),
        ([], ["session/s"], False),
        ([], ["session/s2*"], False),
        (["finding.*"], ["handoff/*"], False),
    ],
)
def test_scope_is_a_list_of_names_and_prefixes(kinds: list[str], streams: list[str], is_covered: bool) -> None:
    assert covers(kinds, streams, "finding.logged", "session/s1") is is_covered


DECISIONS = ("approved", "rejected", "criterion_waived", "changes_requested", "verified")
WITH_IDENTITY_KEY = {kind for kind in KINDS if KINDS[kind].stream in ("agent", "ledger")} | {
    "review.answered",
    *(f"handoff.{decision}" for decision in DECISIONS),
}


@pytest.mark.parametrize("kind", sorted(WITH_IDENTITY_KEY))
@pytest.mark.parametrize("scope", [(), ("*",)])
def test_approvals_and_authority_are_in_no_scope(kind: str, scope: tuple[str, ...]) -> None:
    assert kind in KINDS
    session, stream = replace(SESSION, kinds=scope and (kind, *scope)), f"{KINDS[kind].stream}/h1"
    with pytest.raises(Refused) as refused:
        check(session, kind=kind, stream=stream)
    assert refused.value.code == "KEY_OUT_OF_SCOPE"
    assert "the session key of alice may not sign" in refused.value.message
    assert check(IDENTITY, kind=kind, stream=stream) == IDENTITY


@pytest.mark.parametrize("kind", [kinds.HandoffCreated, kinds.HandoffAmended])
def test_what_names_no_reviewer_is_an_approval(kind: type[kinds.HandoffCreated | kinds.HandoffAmended]) -> None:
    name = KIND_OF[kind]
    assert is_delegable(name, "handoff/h1", kind(title="t", to="bob", reviewer="rita"))
    assert not is_delegable(name, "handoff/h1", kind(title="t", to="bob"))
    for fields, expected in (({"reviewer": "rita"}, True), ({"reviewer": None}, False), ({}, False)):
        assert is_delegable(name, "handoff/h1", fields) is expected
    assert is_delegable("handoff.claimed", "handoff/h1", {})


def test_handing_a_review_over_is_an_approval() -> None:
    data = kinds.HandoffAmended(title="t", to="bob", reviewer="ruth", hands_over=True)
    assert not is_delegable("handoff.amended", "handoff/h1", data)


def test_delegation_is_remembered_as_it_was_made() -> None:
    until = "2026-02-12T10:00:01Z"
    data = KeyDelegated(key=KEY, proof="cd" * 64, expires_at=until, kinds=["finding.*"], max_events=2)
    event = fact("alice", data, stream="agent/alice", index=2)
    wanted = replace(
        SESSION,
        since_ms=event.accepted_ms,
        expires_at=until,
        span=Span(event.accepted_ms, to_ms(until)),
        delegated_by=event.key,
    )
    assert delegated(event, data) == wanted


@given(st.integers(0, 253402300799999))
@example(4105413)  # this time in seconds, as a float, loses a millisecond
def test_times_are_read_to_the_millisecond(moment: int) -> None:
    text = datetime.fromtimestamp(moment // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{moment % 1000:03d}Z"
    assert to_ms(text) == moment


def test_day_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        to_ms("2026-02-30T00:00:00Z")
    assert refused.value.code == "INVALID_FIELD"


def test_session_key_falls_with_the_identity_key_that_delegated_it() -> None:
    revoked = KeyRecord("alice", KEY, "identity", since_index=1, ended_index=5, ended_as="revoked")
    with pytest.raises(Refused) as refusal:
        check(SESSION, delegator=revoked)
    assert refusal.value.code == "KEY_REVOKED"
