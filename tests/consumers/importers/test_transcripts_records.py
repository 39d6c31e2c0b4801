"""One original may become several events: they go in together or not at all, and count as one thing read."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from building import key_named

from deedbook.consumers.importers.records import Record, import_records, records_in_batch_max
from deedbook.ledger.client.author import Author
from deedbook.ledger.events.imported import RecordImported

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.consumers.importers.records import Counts

ORIGINAL = b"an answer"
REF = f"sha256:{sha256(ORIGINAL).hexdigest()}"


def imported(kind: str, **mapped: Any) -> RecordImported:
    """Return one event's data."""
    return RecordImported(original=REF, source="s:1", format="text", mapped_kind=f"reasoning.{kind}", mapped=mapped)


def steps(first: int, count: int = 1) -> RecordImported:
    """Return an extension by some steps."""
    numbers = range(first, first + count)
    return imported(
        "extended",
        steps=[{"step_number": number, "type": "observation", "content": f"It is {number}."} for number in numbers],
    )


def thought(name: str, *more: RecordImported, unmapped_stream: str = "") -> Record:
    """Return the record of a reasoning."""
    return Record(f"reasoning/{name}", imported("started", task=name), more=more, unmapped_stream=unmapped_stream)


def run(ledger: Ledger, *records: Record) -> Counts:
    """Import records as alice; their original is stored."""
    ledger.put_blob("alice", ORIGINAL)
    return import_records(Author(ledger.client(), "alice", lambda _: key_named("alice")), records)


def test_record_of_several_events_counts_once_and_is_one_batch(ledger: Ledger) -> None:
    counts = run(ledger, thought("a", steps(1), imported("concluded", conclusion="So.")), thought("b", steps(1)))
    assert (counts.read, counts.mapped, counts.added, counts.unmapped_records) == (2, 2, 5, ())
    assert run(ledger, thought("a", steps(1), imported("concluded", conclusion="So."))).added == 0


def test_record_with_one_event_that_is_refused_leaves_none_of_them(ledger: Ledger) -> None:
    before = ledger.head()[0]
    counts = run(ledger, thought("a", steps(1), steps(1, 2)), thought("b", steps(1)))
    assert (counts.read, counts.mapped, len(counts.unmapped_records)) == (2, 1, 1)
    assert counts.unmapped_records[0].reason.startswith("STEP_CONFLICT")
    streams = [ledger.event(index).stream for index in range(before, ledger.head()[0])]
    assert [stream for stream in streams if stream == "reasoning/a"] == []


def test_refused_record_is_kept_aside_on_the_stream_it_names(ledger: Ledger) -> None:
    refused = thought("a", steps(1), steps(1), unmapped_stream="record/mine")
    assert run(ledger, refused).added == 1
    assert ledger.event(-1).stream == "record/mine"
    again = run(ledger, refused)
    assert (again.added, len(again.unmapped_records)) == (0, 1)


def test_record_that_fills_more_than_a_batch_is_one_of_its_own(ledger: Ledger) -> None:
    many = thought("many", *(steps(number) for number in range(1, records_in_batch_max + 10)))
    counts = run(ledger, thought("a", steps(1)), many, thought("b", steps(1)))
    assert (counts.mapped, counts.added) == (3, 2 + records_in_batch_max + 10 + 2)


def test_record_that_no_batch_holds_is_kept_aside(ledger: Ledger) -> None:
    counts = run(ledger, thought("many", *(steps(number) for number in range(1, 300))), thought("b", steps(1)))
    assert (counts.read, counts.mapped, len(counts.unmapped_records)) == (2, 1, 1)


def test_same_data_on_two_streams_is_two_records(ledger: Ledger) -> None:
    counts = run(ledger, thought("a", steps(1)), Record("reasoning/b", imported("started", task="b"), more=(steps(1),)))
    assert (counts.mapped, counts.added, counts.unmapped_records) == (2, 4, ())
