"""A reader replays a part of a log: the result is valid, or names what is missing; every omission is detected."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest
from building import key_named
from checking import stored_entries, stored_state

from deedbook.ledger.admission.replay import MissingEntries, PartialReplay
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.client import read_batch_path
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import KeyCompromised
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.log.keys import stream_key

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.ledger.events.body import Event

ENDS = {"handoff/a": 5, "handoff/b": 4, "handoff/top": 3}
PATHS: dict[bytes, list[bytes]] = {}


@pytest.fixture
def entries(ledger: Ledger) -> dict[int, bytes]:
    """All entries but a session's: events of authority, a handoff that waited for two others, and these two."""
    ledger.emit("alice", "session/s", SessionStarted())
    ledger.finish("a", verify=True)
    ledger.finish("b", sender="alice")
    ledger.delegate("bob", key_named("session of bob"))
    ledger.emit("alice", "session/s", FindingLogged(finding="f"))
    ledger.approve("top", ledger.hand_over("top", depends_on=["a", "b"]))
    ledger.claim("top")
    ledger.emit("alice", "session/s", FindingLogged(finding="g"))
    return given(ledger)


def given(ledger: Ledger) -> dict[int, bytes]:
    """Return all entries except those of sessions; store the path of each entry in its batch in ``PATHS``."""
    entries = stored_entries(ledger.log)
    with ledger.client() as client:
        for index, data in enumerate(entries):
            entry = decode_entry(data)
            PATHS[entry.body] = read_batch_path(client, index, entry)
    return {index: data for index, data in enumerate(entries) if b'"session/' not in data}


def events_of(entries: dict[int, bytes]) -> list[Event]:
    return [read_event(index, decode_entry(data)) for index, data in entries.items()]


def part_of(entries: dict[int, bytes], **changes: object) -> PartialReplay:
    part = PartialReplay()
    for index, data in entries.items():
        part.feed(index, data, PATHS[decode_entry(data).body])
    part.finish(**{"stream_versions": ENDS, "authority": 5, "size": 99} | changes)  # type: ignore[arg-type]
    return part


def codes(refusals: list[Refused]) -> list[str]:
    return [refusal.code for refusal in refusals]


def test_a_whole_part_is_right_and_leads_to_the_state_of_the_log(ledger: Ledger, entries: dict[int, bytes]) -> None:
    part = part_of(entries)
    assert (part.refused, part.doubtful, part.missing, part.compromised()) == ({}, {}, [], {})
    assert part.kinds == Counter(event.kind for event in events_of(entries))
    stored = stored_state(ledger.log)
    for stream in ENDS:
        assert stored[stream_key(stream)] == encode_packed(part.state.stream(stream))


def test_no_entry_can_be_taken_out_unseen(entries: dict[int, bytes]) -> None:
    for left_out in entries:
        part = part_of({index: data for index, data in entries.items() if index != left_out})
        assert part.missing or part.refused, left_out


def test_what_is_missing_is_named(entries: dict[int, bytes]) -> None:
    events = {event.index: event for event in events_of(entries)}
    completed = next(index for index, event in events.items() if event.kind == "handoff.completed")
    part = part_of({index: data for index, data in entries.items() if index != completed})
    assert [str(one) for one in part.missing] == ["entry 4 of handoff/a"]
    assert part.refused == {}
    registered = [index for index, event in events.items() if event.kind == "agent.registered"]
    part = part_of({index: data for index, data in entries.items() if index not in registered[1:]})
    assert "entries 3 to 4 of authority" in map(str, part.missing)


def test_an_entry_of_authority_after_missing_ones_is_only_doubtful(entries: dict[int, bytes]) -> None:
    kinds = {event.index: event.kind for event in events_of(entries)}
    kept = {index: entries[index] for index, kind in kinds.items() if kind in ("ledger.created", "key.delegated")}
    part = part_of(kept, stream_versions=None)
    delegated = max(kept)
    assert (part.refused, list(part.doubtful)) == ({}, [delegated])
    assert MissingEntries(None, 2, 4, delegated, 1) in part.missing


def test_streams_that_rules_looked_at_are_missed(entries: dict[int, bytes]) -> None:
    names = {event.index: event.stream for event in events_of(entries)}
    without = {index: data for index, data in entries.items() if names[index] != "handoff/b"}
    part = part_of(without, stream_versions={name: end for name, end in ENDS.items() if name != "handoff/b"})
    created = next(index for index, name in names.items() if name == "handoff/top")
    assert part.missing == [MissingEntries("handoff/b", 1, None, created, created)]
    assert [codes(refusals) for refusals in part.doubtful.values()] == [["DEPENDENCY_MISSING"]]


def test_the_end_of_a_stream_is_shown_by_the_ledgers_word_alone(entries: dict[int, bytes]) -> None:
    shorter = dict(list(entries.items())[:-1])
    kinds = {event.kind: event.index for event in events_of(entries)}
    delegated, verified = kinds["key.delegated"], kinds["handoff.verified"]
    assert part_of(shorter, stream_versions=None).missing == []
    assert part_of(shorter).missing == [MissingEntries("handoff/top", 3, 3, 99, max(shorter) + 1)]
    assert part_of(entries, authority=6).missing == [MissingEntries(None, 6, 6, 99, delegated + 1)]
    unnamed = part_of(entries, stream_versions={name: end for name, end in ENDS.items() if name != "handoff/a"})
    assert {index: codes(found) for index, found in unnamed.refused.items()} == {verified: ["VERIFICATION_FAILED"]}
    for fewer in ({"stream_versions": ENDS | {"handoff/top": 2}}, {"authority": 4}):
        assert [codes(found) for found in part_of(entries, **fewer).refused.values()] == [["VERIFICATION_FAILED"]]


@pytest.mark.parametrize("field", ["stream_version", "authority_version"])
def test_a_version_that_was_given_before_is_refused(entries: dict[int, bytes], field: str) -> None:
    index = max(entries)
    entry = decode_entry(entries[index])
    lower = msgspec.structs.replace(entry, **{field: getattr(entry, field) - 1})
    assert "VERIFICATION_FAILED" in codes(part_of(entries | {index: lower.encode()}).refused[index])


def test_what_a_rule_refuses_is_refused_when_nothing_before_it_is_missing(entries: dict[int, bytes]) -> None:
    approved = next(event.index for event in events_of(entries) if event.kind == "handoff.approved")
    kept = {index: data for index, data in entries.items() if index != approved}
    renumbered = {
        index: msgspec.structs.replace(entry, stream_version=entry.stream_version - 1).encode()
        if index > approved and b'"handoff/a"' in data
        else data
        for index, data in kept.items()
        if (entry := decode_entry(data))
    }
    part = part_of(renumbered, stream_versions=ENDS | {"handoff/a": 4})
    assert (part.missing, codes(part.refused[min(part.refused)])) == ([], ["NOT_APPROVED"])


def test_signature_form_and_time_are_checked(ledger: Ledger, entries: dict[int, bytes]) -> None:
    index = max(entries)
    entry = decode_entry(entries[index])
    for change, code in (
        ({"sig": bytes(64)}, "SIGNATURE_INVALID"),
        ({"accepted_ms": entry.accepted_ms - 10_000}, "VERIFICATION_FAILED"),
    ):
        changed = msgspec.structs.replace(entry, **change).encode()
        assert codes(part_of(entries | {index: changed}).refused[index]) == [code]
    ledger.submit(
        ledger.sign(
            "alice",
            Draft(stream="session/t", data=SessionStarted()),
            Draft(stream="session/t", data=FindingLogged(finding="f")),
        )
    )
    data = stored_entries(ledger.log)[-1]
    alone = PartialReplay()
    alone.feed(ledger.head()[0] - 1, data)
    assert [codes(refusals) for refusals in alone.refused.values()] == [["SIGNATURE_INVALID"]]
    assert decode_entry(data).batch_size == 2


def test_what_a_compromised_key_signed_is_compromised(ledger: Ledger, entries: dict[int, bytes]) -> None:
    ledger.emit("root", "agent/rita", KeyCompromised(key=ledger.keys["rita"].public.hex(), since=6))
    last = ledger.head()[0] - 1
    entries = given(ledger)
    compromised = part_of(entries, authority=6).compromised()
    assert {event.author for event in events_of(entries) if event.index in compromised} == {"rita"}
    assert set(compromised.values()) == {last}


def test_a_handoff_that_was_made_later_is_not_missed(ledger: Ledger) -> None:
    ledger.hand_over("early", depends_on=["late"])
    ledger.hand_over("late")
    part = part_of(given(ledger), stream_versions={"handoff/early": 1, "handoff/late": 1}, authority=4)
    assert (part.missing, part.refused) == ([], {})
    with pytest.raises(Refused, match="DEPENDENCY_CYCLE"):
        ledger.hand_over("later", depends_on=["later"])
