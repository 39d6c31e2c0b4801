"""The log as messages: a reader rebuilds an entry's exact bytes from its message and checks its signature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from building import key_named
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbook.ledger import limits
from deedbook.ledger.bus.message import ACCEPTED, AUTHORITY_VERSION, INDEX, STREAM_VERSION, entry_of, headers_of
from deedbook.ledger.bus.publisher import Outbox, next_group
from deedbook.ledger.bus.subjects import event_subject
from deedbook.ledger.client.author import Draft, sign
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import ED25519, ENTRY_VERSION, Entry, commitment_to, is_remnant
from deedbook.ledger.format.merkle import inclusion_path

if TYPE_CHECKING:
    from building import Ledger

KEY = key_named("alice")
BODY = st.binary(min_size=1, max_size=60).filter(lambda body: not is_remnant(body))  # hypothesis draws our constants
BODIES = st.lists(BODY, min_size=1, max_size=20, unique=True)


def published(bodies: list[bytes], position: int) -> tuple[Entry, dict[str, str]]:
    """Return one entry of a submission and the headers it is published under."""
    submission = sign(bodies, KEY)
    size = len(bodies)
    entry = Entry(
        ENTRY_VERSION, bodies[position], KEY.public, ED25519, submission.sig, position, size, 1_000, position + 1, 1
    )
    path = inclusion_path([commitment_to(body) for body in bodies], position) if size > 1 else []
    return entry, headers_of(40 + position, entry, path)


@given(BODIES, st.data())
def test_message_rebuilds_the_bytes_of_its_entry(bodies: list[bytes], data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(bodies) - 1))
    entry, headers = published(bodies, position)
    index, rebuilt = entry_of(entry.body, headers | {"Nats-Expected-Last-Sequence": "7"})
    assert (index, rebuilt.encode()) == (40 + position, entry.encode())


@settings(max_examples=300)
@given(BODIES, st.data())
def test_flipped_bit_is_refused_or_gives_another_leaf(bodies: list[bytes], data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(bodies) - 1))
    entry, headers = published(bodies, position)
    name = data.draw(st.sampled_from(["", *headers]))
    text = bytearray(entry.body if name == "" else headers[name].encode())
    bit = data.draw(st.integers(0, len(text) * 8 - 1))
    text[bit // 8] ^= 1 << bit % 8
    payload = bytes(text) if name == "" else entry.body
    changed = headers if name == "" else headers | {name: text.decode("latin-1")}
    if name not in {INDEX, ACCEPTED, STREAM_VERSION, AUTHORITY_VERSION}:
        with pytest.raises(Corrupted):
            entry_of(payload, changed)
        return
    # No signature covers these numbers of the ledger, but its tree does: another number gives another leaf or index.
    try:
        index, rebuilt = entry_of(payload, changed)
    except Corrupted:
        return
    assert (index, rebuilt.encode()) != (40 + position, entry.encode())


@pytest.mark.parametrize("name", sorted(headers_of(0, published([b"a", b"b"], 0)[0], [bytes(32)])))
@pytest.mark.parametrize("value", [None, "", "9" * 5000, "-1", "1/0", "1/99999999999999999999", "é", "AA==", "0/257"])
def test_header_that_is_missing_or_in_another_form_is_refused(name: str, value: str | None) -> None:
    entry, headers = published([b"a", b"b", b"c"], 1)
    changed = {key: text for key, text in headers.items() if key != name} | ({} if value is None else {name: value})
    with pytest.raises(Corrupted) as refused:
        entry_of(entry.body, changed)
    assert refused.value.code == "VERIFICATION_FAILED"


def test_header_that_no_entry_has_is_refused() -> None:
    entry, headers = published([b"a"], 0)
    with pytest.raises(Corrupted):
        entry_of(entry.body, headers | {"Deedbook-More": "1"})


def test_event_of_a_batch_is_refused_in_another_place_of_it() -> None:
    entry, headers = published([b"a", b"b", b"c"], 1)
    with pytest.raises(Corrupted):
        entry_of(entry.body, headers | {"Deedbook-Batch": "0/3"})


def fill(ledger: Ledger) -> None:
    """Append single events, the largest batch with one signature, and a batch whose events are signed one by one."""
    ledger.emit("alice", "session/s1", SessionStarted())
    drafts = [Draft(stream="session/s1", data=FindingLogged(finding=f"f{n}")) for n in range(limits.batch_events_max)]
    ledger.submit(ledger.sign("alice", *drafts))
    ledger.emit("alice", "session/s1", FindingLogged(finding="single"))
    drafts = [Draft(stream="session/s1", data=FindingLogged(finding="x" * 39_000 + str(n))) for n in range(20)]
    ledger.submit(ledger.sign("alice", *drafts))


def test_whole_log_goes_out_in_whole_units_and_comes_back_as_it_is(ledger: Ledger) -> None:
    fill(ledger)
    outbox, after = Outbox(ledger.log, ledger.id), -1
    rebuilt: list[bytes] = []
    while group := next_group(outbox.read(after, limits.batch_events_max)):
        assert group[-1].unit_left == 0
        for message in group:
            index, entry = entry_of(message.payload, message.headers)
            event = ledger.event(index)
            assert index == message.index == len(rebuilt)
            assert message.subject == event_subject(ledger.id, event.kind, event.stream)
            assert message.leaf_hash == entry.leaf()
            rebuilt.append(entry.encode())
        after = group[-1].index
    with ledger.log.snapshot() as snapshot:
        assert rebuilt == snapshot.entries(0, limit=10_000, size_max_bytes=2**30)


def test_read_from_within_a_batch_has_the_paths_of_the_whole_batch(ledger: Ledger) -> None:
    fill(ledger)
    outbox = Outbox(ledger.log, ledger.id)
    for after in range(5, 40, 7):
        (message,) = outbox.read(after, 1)
        assert entry_of(message.payload, message.headers)[0] == after + 1
