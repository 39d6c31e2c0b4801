"""A submission of several events is committed whole or not at all, and a refusal names the fault of each event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from building import ids_of, key_named

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import KeyRevoked
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.handoff import HandoffCreated
from deedbook.ledger.events.session import FindingLogged, SessionEnded, SessionStarted
from deedbook.ledger.format.envelope import Submission, decode_entry
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.limits import batch_events_max

if TYPE_CHECKING:
    from building import Ledger


def draft(stream: str, data: EventData, **fields: object) -> Draft:
    """Return a draft on a session."""
    return Draft(stream=f"session/{stream}", data=data, **fields)  # type: ignore[arg-type]  # fields of Draft


def found(text: str, stream: str = "s1", **fields: object) -> Draft:
    """Return the draft of a finding."""
    return draft(stream, FindingLogged(finding=text), **fields)


def refused(ledger: Ledger, submission: Submission) -> Refused:
    """Return the refusal of a submission, which must leave the log unchanged."""
    return ledger.refusal_of(lambda: ledger.submit(submission))


def codes(refusal: Refused) -> dict[int, str]:
    """Return the error code of each faulty event, by position."""
    return {one["position"]: one["code"] for one in refusal.details["events"]}


def test_batch_is_committed_contiguous_in_its_order(ledger: Ledger) -> None:
    drafts = [draft("s1", SessionStarted()), *(found(f"f{number}") for number in range(batch_events_max - 1))]
    signed = ledger.sign("alice", *drafts)
    start = ledger.head()[0]
    accepted = ledger.submit(signed)
    assert [one.index for one in accepted] == list(range(start, start + batch_events_max))
    assert [one.id for one in accepted] == ids_of(signed)
    with ledger.log.snapshot() as snapshot:
        entries = [decode_entry(snapshot.entry(one.index)) for one in accepted]
    assert [entry.batch_index for entry in entries] == list(range(batch_events_max))
    assert {(entry.batch_size, entry.sig) for entry in entries} == {(batch_events_max, signed.sig)}
    assert [entry.body for entry in entries] == list(signed.bodies)


def test_later_event_of_a_batch_sees_the_earlier_ones(ledger: Ledger) -> None:
    ledger.submit(
        ledger.sign("alice", draft("s1", SessionStarted(), expect=0), found("f", expect=1), draft("s1", SessionEnded()))
    )
    assert refused(ledger, ledger.sign("alice", found("late"))).code == "TRANSITION_NOT_ALLOWED"


def test_one_bad_event_refuses_the_batch_and_every_bad_one_is_named(ledger: Ledger) -> None:
    ledger.submit(ledger.sign("alice", draft("s1", SessionStarted())))
    refusal = refused(
        ledger,
        ledger.sign("alice", found("good"), found("lost", "never"), found("stale", "s2", expect=9), found("fine")),
    )
    assert (refusal.code, codes(refusal)) == (
        "NOT_FOUND",
        {1: "NOT_FOUND", 2: "STREAM_CONFLICT"},
    )
    assert all(one["message"] for one in refusal.details["events"])


def test_every_event_with_bad_bytes_is_named(ledger: Ledger) -> None:
    from bad_inputs import body

    bodies = [body(ledger), b"{", body(ledger, b'{"mood":1}'), body(ledger), b'{"a":1,"a":2}']
    refusal = refused(ledger, ledger.sign_bytes("alice", *bodies))
    assert codes(refusal) == {1: "INVALID_FORMAT", 2: "UNKNOWN_FIELD", 4: "DUPLICATE_KEY"}


def test_a_signature_of_other_events_is_refused(ledger: Ledger) -> None:
    good = ledger.sign("alice", draft("s1", SessionStarted()), found("a"), found("b"))
    for bodies in (good.bodies[:2], good.bodies[::-1], (*good.bodies, *good.bodies)):
        assert refused(ledger, Submission(1, good.key, good.sig, bodies)).code == "SIGNATURE_INVALID"


def test_events_that_follow_a_refused_one_are_marked_and_not_judged(ledger: Ledger) -> None:
    drafts = [draft("s1", SessionStarted(), expect=4), found("a"), draft("s2", SessionStarted()), found("b")]
    (first, *_) = ids_of(ledger.sign("alice", drafts[0]))
    drafts.append(draft("s3", SessionStarted(), causes=[first]))
    drafts.append(found("c", "s3"))
    drafts.append(found("d", "s2"))
    refusal = refused(ledger, ledger.sign("alice", *drafts))
    assert codes(refusal) == {
        0: "STREAM_CONFLICT",
        1: "DEPENDS_ON_REFUSED",
        3: "DEPENDS_ON_REFUSED",
        4: "DEPENDS_ON_REFUSED",
        5: "DEPENDS_ON_REFUSED",
    }


def test_refusal_of_a_single_event_needs_no_list(ledger: Ledger) -> None:
    assert "events" not in refused(ledger, ledger.sign("alice", found("f"))).details


def test_retry_of_the_whole_batch_returns_the_first_receipts(ledger: Ledger) -> None:
    batch = ledger.sign("alice", draft("s1", SessionStarted()), found("a"), found("b"))
    first = ledger.submit(batch)
    ledger.clock.advance(9)
    before = ledger.head()
    again = ledger.submit(batch)
    assert [(one.index, one.id, one.accepted_ms) for one in again] == [
        (one.index, one.id, one.accepted_ms) for one in first
    ]
    assert all(one.is_repeat for one in again)
    assert ledger.head() == before


def test_part_of_a_batch_again_is_refused_with_the_receipts_of_what_is_there(ledger: Ledger) -> None:
    first = ledger.submit(ledger.sign("alice", draft("s1", SessionStarted()), found("a")))
    refusal = refused(ledger, ledger.sign("alice", found("a"), found("b")))
    assert refusal.code == "PARTIAL_RETRY"
    assert refusal.details["accepted"] == [{"index": first[1].index, "id": first[1].id}]
    assert ledger.submit(ledger.sign("alice", found("a")))[0].is_repeat


def test_same_event_twice_in_one_batch_is_refused(ledger: Ledger) -> None:
    refusal = refused(ledger, ledger.sign("alice", draft("s1", SessionStarted()), found("a"), found("a")))
    assert codes(refusal) == {2: "PARTIAL_RETRY"}


def test_event_of_a_batch_under_another_key_is_named_by_position(ledger: Ledger) -> None:
    started = ledger.sign("alice", draft("s1", SessionStarted()))
    ledger.submit(started)
    other = ledger.sign("alice", found("a"))
    refusal = refused(ledger, ledger.sign_bytes("bob", *other.bodies, *started.bodies))
    assert codes(refusal)[1] == "ALREADY_RECORDED"


def test_idempotency_conflict_in_a_batch_is_named_by_position(ledger: Ledger) -> None:
    ledger.submit(ledger.sign("alice", draft("s1", SessionStarted()), found("a", idem="k")))
    refusal = refused(ledger, ledger.sign("alice", found("b"), found("c", idem="k")))
    assert codes(refusal) == {1: "IDEMPOTENCY_CONFLICT"}


def test_same_idempotency_key_twice_in_one_batch_is_refused(ledger: Ledger) -> None:
    drafts = [draft("s1", SessionStarted()), found("a", idem="k"), found("b", idem="k")]
    assert codes(refused(ledger, ledger.sign("alice", *drafts))) == {2: "IDEMPOTENCY_CONFLICT"}


def test_batch_that_registers_an_agent_can_use_it(ledger: Ledger) -> None:
    key = key_named("carl")
    handed = HandoffCreated(title="t", to="carl", reviewer="rita")
    registered = ledger.registered("carl", ["agent"], key)
    assert refused(ledger, ledger.sign("alice", Draft(stream="handoff/h1", data=handed))).code == "AGENT_UNKNOWN"
    ledger.submit(ledger.sign(ROOT, registered))
    ledger.emit("alice", "handoff/h1", handed)


def test_key_revoked_within_a_batch_signs_nothing_after(ledger: Ledger) -> None:
    revoked = Draft(stream="agent/alice", data=KeyRevoked(key=ledger.keys["alice"].public.hex()))
    refusal = refused(ledger, ledger.sign("alice", draft("s1", SessionStarted()), revoked, found("a")))
    assert codes(refusal) == {2: "KEY_REVOKED"}
