"""The gate makes its checks in a fixed order, and the first check that fails decides the answer.

The order: form, signature, duplicate, key, ledger, idempotency, stream version, rule of the kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import START_MS, ids_of, key_named

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import KeyRevoked
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.ledger.format.envelope import Submission

SESSION = "session/s1"


@pytest.fixture(autouse=True)
def _session(ledger: Ledger) -> None:
    ledger.emit("alice", SESSION, SessionStarted(task="find out"))


def finding(ledger: Ledger, text: str = "f", **fields: Any) -> Submission:
    """Return a finding, signed by alice but not submitted."""
    return ledger.sign("alice", Draft(stream=SESSION, data=FindingLogged(finding=text), **fields))


def revoke(ledger: Ledger) -> None:
    """Revoke alice's key."""
    ledger.emit(ROOT, "agent/alice", KeyRevoked(key=ledger.keys["alice"].public.hex()))


def refused(ledger: Ledger, submission: Submission) -> Refused:
    """Return the refusal of a submission, which must leave the log unchanged."""
    return ledger.refusal_of(lambda: ledger.submit(submission))


def test_same_event_again_returns_its_first_receipt(ledger: Ledger) -> None:
    submission = finding(ledger)
    first = ledger.submit(submission)[0]
    ledger.clock.advance(60)
    ledger.submit(finding(ledger, "another"))
    size = ledger.head()[0]
    again = ledger.submit(submission)[0]
    assert (again.index, again.id, again.accepted_ms) == (first.index, first.id, first.accepted_ms)
    assert (first.is_repeat, again.is_repeat, ledger.head()[0]) == (False, True, size)


def test_duplicate_returns_its_first_receipt_even_after_the_key_was_revoked(ledger: Ledger) -> None:
    submission = finding(ledger)
    first = ledger.submit(submission)[0]
    revoke(ledger)
    assert ledger.submit(submission)[0].index == first.index
    assert refused(ledger, finding(ledger, "new")).code == "KEY_REVOKED"


def test_same_bytes_signed_with_another_key_are_no_retry(ledger: Ledger) -> None:
    first = finding(ledger)
    index = ledger.submit(first)[0].index
    bob = ledger.sign_bytes("bob", *first.bodies)
    answer = refused(ledger, bob)
    assert (answer.code, answer.details["index"]) == ("ALREADY_RECORDED", index)


def test_duplicate_comes_before_the_key_and_the_key_before_ledger_and_rule(ledger: Ledger) -> None:
    revoke(ledger)
    for fields in ({"expect": 99}, {"idem": "k"}):
        assert refused(ledger, finding(ledger, **fields)).code == "KEY_REVOKED"
    other = ledger.sign("alice", Draft(stream="session/never-started", data=FindingLogged(finding="f")))
    assert refused(ledger, other).code == "KEY_REVOKED"


def test_form_comes_before_the_signature_and_the_signature_before_the_key(ledger: Ledger) -> None:
    from bad_inputs import body

    ledger.keys["stranger"] = key_named("stranger")
    assert refused(ledger, ledger.sign_bytes("stranger", body(ledger, b'{"mood":1}'))).code == "UNKNOWN_FIELD"
    good = ledger.sign_bytes("stranger", body(ledger))
    bad = type(good)(1, good.key, bytes(64), good.bodies)
    assert refused(ledger, bad).code == "SIGNATURE_INVALID"
    assert refused(ledger, good).code == "KEY_UNKNOWN"


def test_ledger_comes_before_idempotency_and_that_before_the_version_and_the_rule(ledger: Ledger) -> None:
    from bad_inputs import body

    ledger.submit(finding(ledger, idem="k"))
    elsewhere = {"ledger": "0" * 32, "idem": "k", "expect": 99, "stream": "session/s0"}
    assert refused(ledger, ledger.sign_bytes("alice", body(ledger, **elsewhere))).code == "WRONG_LEDGER"  # type: ignore[arg-type]
    here = {"idem": "k", "expect": 99, "stream": "session/s0"}
    assert refused(ledger, ledger.sign_bytes("alice", body(ledger, **here))).code == "IDEMPOTENCY_CONFLICT"  # type: ignore[arg-type]
    fresh = {"expect": 99, "stream": "session/s0"}
    assert refused(ledger, ledger.sign_bytes("alice", body(ledger, **fresh))).code == "STREAM_CONFLICT"  # type: ignore[arg-type]
    assert refused(ledger, ledger.sign_bytes("alice", body(ledger, stream="session/s0"))).code == "NOT_FOUND"


def test_same_idempotency_key_and_content_at_another_time_returns_the_first_receipt(ledger: Ledger) -> None:
    first = ledger.submit(finding(ledger, idem="k"))[0]
    ledger.clock.advance(5)
    before = ledger.head()
    again = ledger.submit(finding(ledger, idem="k"))[0]
    assert (again.index, again.id, again.accepted_ms, again.is_repeat) == (first.index, first.id, START_MS, True)
    assert ledger.head() == before


def test_same_idempotency_key_and_content_with_another_salt_returns_the_first_receipt(ledger: Ledger) -> None:
    from bad_inputs import body

    first = ledger.submit(ledger.sign_bytes("alice", body(ledger, idem="k")))[0]
    before = ledger.head()
    other = ledger.sign_bytes("alice", body(ledger, idem="k", salt="A" * 22))
    again = ledger.submit(other)[0]
    assert (again.index, again.id, again.is_repeat) == (first.index, first.id, True)
    assert ids_of(other) != [first.id]
    assert ledger.head() == before


def test_idempotent_retry_within_a_group_names_the_event_that_was_taken(ledger: Ledger) -> None:
    from deedbook.ledger.admission.check import check

    first = finding(ledger, idem="k")
    ledger.clock.advance(5)
    again = finding(ledger, idem="k")
    one, two = ledger.gate.admit([check(first), check(again)])
    assert isinstance(one, list)
    assert isinstance(two, list)
    assert (two[0].index, two[0].id, two[0].is_repeat) == (one[0].index, one[0].id, True)


def test_same_idempotency_key_for_other_content_is_refused(ledger: Ledger) -> None:
    ledger.submit(finding(ledger, idem="k"))
    assert refused(ledger, finding(ledger, "other", idem="k")).code == "IDEMPOTENCY_CONFLICT"


def test_idempotency_keys_are_each_authors_own(ledger: Ledger) -> None:
    ledger.submit(finding(ledger, idem="k"))
    ledger.emit("bob", "session/s2", SessionStarted(), idem="k")
    assert ledger.event(-1).author == "bob"


def test_idempotency_key_of_another_author_tells_nothing(ledger: Ledger) -> None:
    from bad_inputs import body

    ledger.submit(finding(ledger, idem="k"))
    pretended = ledger.sign_bytes("bob", body(ledger, b'{"finding":"f"}', idem="k", at=ledger.clock.text(9)))
    assert refused(ledger, pretended).code == "AUTHOR_MISMATCH"


def test_revoked_key_cannot_use_an_idempotency_key_again(ledger: Ledger) -> None:
    ledger.submit(finding(ledger, idem="k"))
    revoke(ledger)
    ledger.clock.advance(5)
    assert refused(ledger, finding(ledger, idem="k")).code == "KEY_REVOKED"
    assert refused(ledger, finding(ledger, "other", idem="k")).code == "KEY_REVOKED"


def test_refused_event_leaves_its_idempotency_key_free(ledger: Ledger) -> None:
    assert refused(ledger, finding(ledger, "f", idem="k", expect=99)).code == "STREAM_CONFLICT"
    (accepted,) = ledger.submit(finding(ledger, "other", idem="k"))
    assert accepted.index == ledger.head()[0] - 1


def test_expected_version_is_the_number_of_events_of_the_stream(ledger: Ledger) -> None:
    ledger.submit(finding(ledger, "second", expect=1))
    answer = refused(ledger, finding(ledger, "third", expect=1))
    assert (answer.code, answer.details, answer.recoverable) == ("STREAM_CONFLICT", {"expected": 1, "version": 2}, True)
    ledger.submit(finding(ledger, "third", expect=2))
    ledger.emit("alice", "session/s2", SessionStarted(), expect=0)


def test_clock_that_goes_back_does_not_take_the_ledger_with_it(ledger: Ledger) -> None:
    ledger.clock.advance(60)
    later = ledger.submit(finding(ledger, "one"))[0]
    ledger.clock.advance(-3600)
    assert ledger.submit(finding(ledger, "two"))[0].accepted_ms == later.accepted_ms


def test_same_event_twice_in_one_group_is_taken_once_and_both_callers_get_its_receipt(ledger: Ledger) -> None:
    from deedbook.ledger.admission.check import check

    submission = finding(ledger)
    one, two = ledger.gate.admit([check(submission), check(submission)])
    assert isinstance(one, list)
    assert isinstance(two, list)
    assert (two[0].index, two[0].id, two[0].accepted_ms, two[0].is_repeat) == (one[0].index, one[0].id, START_MS, True)
    assert ledger.head()[0] == one[0].index + 1


def test_same_bytes_under_another_key_in_one_group_are_no_retry(ledger: Ledger) -> None:
    from deedbook.ledger.admission.check import check

    submission = finding(ledger)
    one, two = ledger.gate.admit([check(submission), check(ledger.sign_bytes("bob", *submission.bodies))])
    assert isinstance(one, list)
    assert isinstance(two, Refused)
    assert two.code == "ALREADY_RECORDED"
