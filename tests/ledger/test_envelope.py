"""Signed bytes, ids and stored entries have one form, and every other form is refused."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest
from building import ids_of, key_named
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from deedbook.ledger.client.author import sign
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.format.envelope import (
    BATCH_TYPE,
    EVENT_TYPE,
    Entry,
    Submission,
    check_shape,
    commitment_to,
    decode_entry,
    decode_submission,
    entry_leaf,
    event_id,
    is_remnant,
    pae,
    signed_bytes,
    split_entry,
    to_dsse,
)
from deedbook.ledger.format.identity import verify
from deedbook.ledger.format.merkle import inclusion_path, root_of, tree_size_max
from deedbook.ledger.limits import (
    batch_events_max,
    batch_size_max_bytes,
    body_size_max_bytes,
    clock_max_ms,
    entry_size_max_bytes,
)

KEY = key_named("alice")
GOOD = Entry(1, b'{"a":1}', KEY.public, 1, bytes(64), 0, 1, 1_770_890_400_000, 1, 1)


def test_pae_is_dsse_v1() -> None:
    # DSSE protocol.md: "DSSEv1" SP LEN(type) SP type SP LEN(body) SP body, lengths in bytes.
    body = '{"缓":1}'.encode()
    assert pae(body) == b"DSSEv1 38 application/vnd.deedbook.event.v1+json 9 " + body
    assert len(EVENT_TYPE) == 38


def test_id_is_the_leaf_hash_of_the_pae_and_leaves_out_the_signature() -> None:
    body = b'{"a":1}'
    wanted = "event:" + hashlib.sha256(b"\0" + pae(body)).hexdigest()
    assert event_id(commitment_to(body)) == wanted
    assert ids_of(sign([body], KEY)) == ids_of(sign([body], key_named("bob"))) == [wanted]


def test_signature_covers_size_and_rfc_6962_root_of_the_commitments() -> None:
    def leaf(data: bytes) -> bytes:
        return hashlib.sha256(b"\0" + data).digest()

    def node(left: bytes, right: bytes) -> bytes:
        return hashlib.sha256(b"\1" + left + right).digest()

    first, second, third = (leaf(pae(body)) for body in (b"1", b"2", b"3"))
    head = f"DSSEv1 {len(BATCH_TYPE)} {BATCH_TYPE} 40 ".encode()
    assert signed_bytes([first]) == head + (1).to_bytes(8, "big") + first
    assert signed_bytes([first, second, third]) == head + (3).to_bytes(8, "big") + node(node(first, second), third)


def test_one_signature_covers_a_submission_and_no_other() -> None:
    submission = sign([b"1", b"2", b"3"], KEY)
    assert verify(KEY.public, signed_bytes([commitment_to(body) for body in (b"1", b"2", b"3")]), submission.sig)
    for other in ([b"1"], [b"1", b"2"], [b"2", b"1", b"3"], [b"1", b"2", b"3", b"3"]):
        assert not verify(KEY.public, signed_bytes([commitment_to(body) for body in other]), submission.sig)


def test_bare_form_has_the_leaf_of_its_entry_and_no_other_bytes_have_it() -> None:
    bare = GOOD.bare_form()
    assert decode_entry(bare).body == GOOD.commitment == commitment_to(GOOD.body)
    assert entry_leaf(GOOD.encode()) == GOOD.leaf() == hashlib.sha256(b"\0" + bare).digest()
    assert entry_leaf(bare) != GOOD.leaf()  # as an entry, the bare form would have the commitment as its body
    for changed in ({"body": b'{"a":2}'}, {"accepted_ms": 1}, {"sig": bytes(63) + b"1"}, {"stream_version": 2}):
        assert replace(GOOD, **changed).leaf() != GOOD.leaf()


@given(
    body=st.binary(max_size=300).filter(lambda body: not is_remnant(body)),
    position=st.integers(1, batch_events_max).flatmap(lambda size: st.tuples(st.integers(0, size - 1), st.just(size))),
    accepted_ms=st.integers(0, clock_max_ms),
    versions=st.tuples(*2 * [st.integers(1, tree_size_max)]),
)
def test_entries_round_trip_in_one_form(
    body: bytes, position: tuple[int, int], accepted_ms: int, versions: tuple[int, int]
) -> None:
    entry = Entry(1, body, KEY.public, 1, bytes(64), *position, accepted_ms, *versions)
    assert decode_entry(entry.encode()) == entry
    assert entry_leaf(entry.encode()) == entry.leaf()


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_535, 65_536, 65_537])
def test_leaf_is_computed_from_the_bytes_of_an_entry_with_a_body_of_any_length(size: int) -> None:
    entry = replace(GOOD, body=bytes(size))
    assert split_entry(entry.encode()) == (entry.body, encode_packed(astuple(entry)[2:])[1:])
    assert entry_leaf(entry.encode()) == entry.leaf()


@given(st.data())
def test_changed_entry_is_another_entry_or_none(data: st.DataObject) -> None:
    good = GOOD.encode()
    position = data.draw(st.integers(0, len(good) - 1))
    changed = bytearray(good)
    changed[position] ^= data.draw(st.integers(1, 255))
    assert entry_leaf(bytes(changed)) != GOOD.leaf()
    try:
        entry = decode_entry(bytes(changed))
    except Refused:
        return
    assert entry.encode() == bytes(changed)


@pytest.mark.parametrize("changed", [{"version": 2}, {"alg": 2}])
def test_entry_of_newer_software_is_refused_as_such(changed: dict[str, int]) -> None:
    with pytest.raises(Refused) as refusal:
        decode_entry(replace(GOOD, **changed).encode())
    assert refusal.value.code == "UNSUPPORTED_VERSION"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD.encode() + b"\0",
        GOOD.encode()[:-1],
        GOOD.encode().replace(b"\x9a\x01", b"\x9a\xcc\x01", 1),
        GOOD.encode().replace(b"\x9a", b"\xdc\x00\x0a", 1),
        GOOD.encode().replace(b"\xc4\x07", b"\xc5\x00\x07", 1),
        encode_packed([*astuple(GOOD), 1]),
        replace(GOOD, key=b"short").encode(),
        replace(GOOD, sig=bytes(65)).encode(),
        replace(GOOD, batch_index=1).encode(),
        replace(GOOD, batch_size=0).encode(),
        replace(GOOD, batch_size=257).encode(),
        replace(GOOD, accepted_ms=-1).encode(),
        replace(GOOD, accepted_ms=clock_max_ms + 1).encode(),
        replace(GOOD, stream_version=0).encode(),
        replace(GOOD, authority_version=0).encode(),
        replace(GOOD, stream_version=tree_size_max + 1).encode(),
    ],
)
def test_what_is_not_an_entry_in_its_one_form_is_refused(data: bytes) -> None:
    with pytest.raises(Refused) as refused:
        decode_entry(data)
    assert refused.value.code == "INVALID_FORMAT"
    assert entry_leaf(data) != GOOD.leaf()


def test_entry_beyond_its_size_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        decode_entry(replace(GOOD, body=bytes(entry_size_max_bytes)).encode())
    assert refused.value.code == "TOO_LARGE"


def test_submission_travels_as_msgpack() -> None:
    submission = sign([b"1", b"2"], KEY)
    assert decode_submission(submission.encode()) == submission


def dsse_of(submission: Submission, **changes: object) -> bytes:
    """Return a submission as DSSE JSON."""
    bodies = submission.bodies
    signed = len(bodies).to_bytes(8, "big") + root_of([commitment_to(body) for body in bodies])
    envelope = {
        "payloadType": BATCH_TYPE,
        "payload": base64.b64encode(signed).decode(),
        "signatures": [{"keyid": "ed25519:" + submission.key.hex(), "sig": base64.b64encode(submission.sig).decode()}],
        "bodies": [base64.b64encode(body).decode() for body in bodies],
    }
    return json.dumps(envelope | changes, indent=2).encode()


def test_submission_travels_as_dsse_json() -> None:
    for bodies in ([b'{"a":1}'], [b"1", b"2", b"3"]):
        submission = sign(bodies, KEY)
        assert decode_submission(dsse_of(submission)) == submission


def test_dsse_export_of_one_event_names_its_position_and_cannot_be_submitted() -> None:
    submission = sign([b"0", b'{"a":1}', b"2"], KEY)
    entry = replace(GOOD, sig=submission.sig, batch_index=1, batch_size=3)
    path = inclusion_path([commitment_to(body) for body in submission.bodies], 1)
    envelope = to_dsse(entry, path)
    bodies, siblings = [base64.b64encode(GOOD.body).decode()], [base64.b64encode(sibling).decode() for sibling in path]
    wanted = dsse_of(submission, bodies=bodies, index=1, path=siblings)
    assert envelope == json.loads(wanted)
    with pytest.raises(Refused) as refused:
        decode_submission(wanted)
    assert refused.value.code == "INVALID_FORMAT"
    with pytest.raises(Refused):
        to_dsse(entry, path[:1])


@pytest.mark.parametrize(
    ("submission", "code"),
    [
        (Submission(1, KEY.public, bytes(64), ()), "INVALID_FORMAT"),
        (Submission(1, KEY.public, b"", (b"1",)), "INVALID_FORMAT"),
        (Submission(1, KEY.public, bytes(63), (b"1",)), "INVALID_FORMAT"),
        (Submission(1, KEY.public[:31], bytes(64), (b"1",)), "INVALID_FORMAT"),
        (Submission(1, KEY.public, bytes(64), (b"1",) * (batch_events_max + 1)), "TOO_LARGE"),
        (Submission(1, KEY.public, bytes(64), (bytes(batch_size_max_bytes), b"1")), "TOO_LARGE"),
    ],
)
def test_submission_of_impossible_counts_or_lengths_is_refused(submission: Submission, code: str) -> None:
    with pytest.raises(Refused) as refused:
        check_shape(submission)
    assert refused.value.code == code


def test_submission_of_the_most_and_largest_is_let_through() -> None:
    body = bytes(batch_size_max_bytes // batch_events_max)
    submission = Submission(1, KEY.public, bytes(64), (body,) * batch_events_max)
    assert decode_submission(submission.encode()) == submission


@given(st.binary(max_size=200))
def test_hostile_bytes_are_never_more_than_refused(data: bytes) -> None:
    for text in (data, b"{" + data, b"[" + data, b"\x94\x01" + data):
        with pytest.raises(Refused):
            decode_submission(text)


def test_largest_body_fits_into_an_entry_whatever_its_numbers() -> None:
    position = (batch_events_max - 1, batch_events_max, clock_max_ms)
    entry = Entry(1, bytes(body_size_max_bytes), KEY.public, 1, bytes(64), *position, tree_size_max, tree_size_max)
    assert decode_entry(entry.encode()) == entry
