"""Records of other tools are imported in full: a record that its kind's rules refuse is stored unmapped."""

from __future__ import annotations

import itertools
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from building import Ledger, key_named

from deedbook.consumers.importers.records import (
    Counts,
    Record,
    _batches,
    batch_size_max_bytes,
    import_records,
    reason_max_chars,
    records_in_batch_max,
    unmapped_record,
)
from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.lifecycle.authority import NODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.local import LocalClient
    from deedbook.ledger.format.envelope import Submission

ORIGINAL = b"# a handoff"
REF = f"sha256:{sha256(ORIGINAL).hexdigest()}"


class Counting:
    """A client that passes submissions on and remembers their sizes."""

    def __init__(self, client: LocalClient, *, fails_at: int = 10**9) -> None:
        self.client, self.ledger = client, client.ledger
        self.sizes: list[int] = []
        self.fails_at = fails_at

    def submit(self, submission: Submission) -> list[Accepted]:
        """Submit, or be cut off."""
        self.sizes.append(len(submission.bodies))
        if len(self.sizes) >= self.fails_at:
            raise Unavailable("STORE_UNAVAILABLE", "cut off")
        return self.client.submit(submission)


def author_of(ledger: Ledger, name: str = "alice", **options: int) -> tuple[Author, Counting]:
    """Return an importing author and their client; the original of all records is stored."""
    ledger.put_blob("alice", ORIGINAL)
    client = Counting(ledger.client(), **options)
    return Author(client, name, lambda _: key_named(name)), client  # type: ignore[arg-type]  # submits, no more


def handoff(name: str, **mapped: Any) -> Record:
    """Return the record of a handoff file."""
    content = {"title": name[:100], "to": "bob", "reviewer": "rita"} | mapped
    data = RecordImported(
        original=REF, source=f"{name}.md", format="handoff/v2", mapped_kind="handoff.created", mapped=content
    )
    return Record(f"handoff/{name}", data)


def handoffs(count: int) -> list[Record]:
    """Return the records of some files."""
    return [handoff(f"h{number:03}") for number in range(count)]


def kinds_of(ledger: Ledger, since: int) -> list[tuple[str, str | None]]:
    """Return the streams and mapped kinds of the events appended since."""
    events = [ledger.event(index) for index in range(since, ledger.head()[0])]
    return [(event.stream, event.data.mapped_kind) for event in events]


@pytest.mark.parametrize("count", [0, 1, records_in_batch_max, records_in_batch_max + 1, 2 * records_in_batch_max + 44])
def test_every_record_is_appended_in_order_and_in_few_submissions(ledger: Ledger, count: int) -> None:
    author, client = author_of(ledger)
    since, steps = ledger.head()[0], list[tuple[int, int]]()
    counts = import_records(author, handoffs(count), lambda done, total: steps.append((done, total)))
    assert counts == Counts(count, count, count, ())
    assert kinds_of(ledger, since) == [(record.stream, "handoff.created") for record in handoffs(count)]
    assert sum(client.sizes) == count
    assert max(client.sizes, default=0) <= records_in_batch_max
    assert len(client.sizes) == -(-count // records_in_batch_max)
    assert steps[-1:] == ([(count, count)] if count else [])


def test_answer_counts_what_was_read_and_loses_nothing(ledger: Ledger) -> None:
    author, _ = author_of(ledger)
    aside = unmapped_record(REF, "notes.txt", "unknown", "it has no title")
    answer = import_records(author, [*handoffs(2), aside, handoff("cyclic", depends_on=["cyclic"])]).answer()
    reasons = [one.pop("reason") for one in answer["unmapped_records"]]
    assert answer == {
        "read": 4,
        "mapped": 2,
        "unmapped": 2,
        "lost": 0,
        "added": 4,
        "unmapped_records": [{"source": "notes.txt"}, {"source": "cyclic.md"}],
    }
    assert reasons[0] == "it has no title"
    assert reasons[1].startswith("DEPENDENCY_CYCLE: ")


@pytest.mark.parametrize("bad", [{0}, {99}, {50}, {31, 32}, {0, 7, 64, 99}, set(range(0, 100, 9)), set(range(100))])
def test_refused_records_are_kept_aside_and_their_neighbours_go_in(ledger: Ledger, bad: set[int]) -> None:
    author, _ = author_of(ledger)
    since = ledger.head()[0]
    records = [
        handoff(f"h{number}", depends_on=[f"h{number}"] if number in bad else ["elsewhere"]) for number in range(100)
    ]
    counts = import_records(author, records)
    assert (counts.read, counts.mapped, len(counts.unmapped_records), counts.added) == (
        100,
        100 - len(bad),
        len(bad),
        100,
    )
    assert [one.source for one in counts.unmapped_records] == [f"h{number}.md" for number in sorted(bad)]
    appended = kinds_of(ledger, since)
    good = [(record.stream, "handoff.created") for number, record in enumerate(records) if number not in bad]
    assert appended[: len(good)] == good
    assert all(stream.startswith("record/") and kind is None for stream, kind in appended[len(good) :])
    assert len(appended) == 100


def test_one_refused_among_many_costs_few_submissions(ledger: Ledger) -> None:
    author, client = author_of(ledger)
    records = handoffs(128)
    records[77] = handoff("h077", depends_on=["h077"])
    import_records(author, records)
    # One call for all, two for each of seven halvings, and one to store the refused record.
    assert len(client.sizes) <= 1 + 2 * 7 + 1


def test_record_that_follows_a_refused_one_is_still_tried(ledger: Ledger) -> None:
    author, _ = author_of(ledger)
    first, second = handoff("h", depends_on=["h"]), handoff("h")
    counts = import_records(author, [first, second])
    assert (counts.mapped, len(counts.unmapped_records)) == (1, 1)
    assert ledger.handoff("h").depends_on == ()


def test_original_that_is_refused_stays_findable(ledger: Ledger) -> None:
    author, _ = author_of(ledger)
    import_records(author, [handoff("../../etc/passwd")])
    event = ledger.event(-1)
    assert (event.data.original, event.data.source, event.data.format) == (REF, "../../etc/passwd.md", "handoff/v2")
    assert event.data.reason.startswith("INVALID_FIELD: ")
    assert event.data.mapped == {}


def test_second_run_adds_nothing(ledger: Ledger) -> None:
    author, _ = author_of(ledger)
    records = [*handoffs(150), unmapped_record(REF, "x", "unknown", "no title"), handoff("c", depends_on=["c"])]
    first = import_records(author, records)
    before = ledger.head()
    second = import_records(author, records)
    assert ledger.head() == before
    assert second == replace(first, added=0)
    assert first.added == 152


def test_second_run_adds_only_what_is_new(ledger: Ledger) -> None:
    author, _ = author_of(ledger)
    import_records(author, handoffs(40))
    records = [*handoffs(20), handoff("new"), *handoffs(60)[20:]]
    counts = import_records(author, records)
    assert (counts.read, counts.mapped, counts.added, counts.unmapped_records) == (61, 61, 21, ())


def test_changed_file_is_imported_again_and_a_confirmed_one_kept_aside(ledger: Ledger) -> None:
    author, _ = author_of(ledger)
    import_records(author, [handoff("h")])
    assert import_records(author, [handoff("h", task="more")]).added == 1
    ledger.emit("alice", "handoff/h", {"title": "ours", "to": "bob", "reviewer": "rita"}, kind="handoff.amended")
    counts = import_records(author, [handoff("h", task="even more")])
    assert (counts.mapped, counts.added, counts.unmapped_records[0].reason.partition(":")[0]) == (
        0,
        1,
        "TRANSITION_NOT_ALLOWED",
    )


def test_record_that_was_kept_aside_for_another_reason_is_not_lost_the_next_time(ledger: Ledger) -> None:
    author, _ = author_of(ledger)
    import_records(author, [unmapped_record(REF, "x", "unknown", "no title")])
    before = ledger.head()
    counts = import_records(author, [unmapped_record(REF, "x", "unknown", "a title, but no body")])
    assert (counts.answer()["lost"], len(counts.unmapped_records), counts.added) == (0, 1, 0)
    assert ledger.head() == before


def test_record_that_comes_twice_in_one_run_stands_once(ledger: Ledger) -> None:
    author, _ = author_of(ledger)
    since = ledger.head()[0]
    counts = import_records(author, [*handoffs(3), *handoffs(3)])
    assert (counts.read, counts.mapped, counts.added) == (6, 6, 3)
    assert len(kinds_of(ledger, since)) == 3


def test_import_that_was_cut_off_is_completed_by_the_next(ledger: Ledger) -> None:
    cut, _ = author_of(ledger, fails_at=2)
    with pytest.raises(Unavailable):
        import_records(cut, handoffs(200))
    author, _ = author_of(ledger)
    counts = import_records(author, handoffs(200))
    assert (counts.mapped, counts.added) == (200, 200 - records_in_batch_max)


def test_files_that_somebody_else_imported_are_his_to_import_again(ledger: Ledger) -> None:
    import_records(author_of(ledger)[0], handoffs(3))
    counts = import_records(author_of(ledger, "bob")[0], handoffs(3))
    assert (counts.mapped, len(counts.unmapped_records)) == (0, 3)
    assert "only alice may import it again" in counts.unmapped_records[0].reason
    assert ledger.handoff("h000").importer == "alice"


@pytest.mark.parametrize("records", [handoffs(3), [unmapped_record(REF, "x", "unknown", "no title")]])
def test_author_without_a_role_is_refused_and_nothing_is_counted(ledger: Ledger, records: Sequence[Record]) -> None:
    author, _ = author_of(ledger, NODE)
    before = ledger.head()
    with pytest.raises(Refused) as refused:
        import_records(author, records)
    assert refused.value.code == "NOT_AUTHORIZED"
    assert ledger.head() == before


def test_batches_keep_to_both_limits_and_to_the_order(ledger: Ledger) -> None:
    author, client = author_of(ledger)
    records = [handoff(f"h{number:03}", task="x" * 20_000) for number in range(100)]
    batches = list(_batches(records))
    assert [one for batch in batches for one in batch] == records
    for batch, following in itertools.pairwise(batches):
        size = sum(len(encode_canonical(one.data)) for one in batch)
        assert size <= batch_size_max_bytes < size + len(encode_canonical(following[0].data))
    assert import_records(author, records).mapped == 100
    assert client.sizes == [len(batch) for batch in batches]


def test_record_larger_than_an_entry_is_kept_aside_and_costs_nobody_else(ledger: Ledger) -> None:
    author, _ = author_of(ledger)
    records = [handoff("small"), handoff("large", task="x" * 39_000, context="y" * 39_000), handoff("other")]
    counts = import_records(author, records)
    assert (counts.mapped, [one.source for one in counts.unmapped_records]) == (2, ["large.md"])
    assert counts.unmapped_records[0].reason.startswith("TOO_LARGE: ")


def test_reason_is_cut_to_its_limit_and_the_same_original_has_the_same_stream() -> None:
    long = unmapped_record(REF, "x", "unknown", "r" * 10_000)
    assert len(long.data.reason) == reason_max_chars
    assert long.stream == unmapped_record(REF, "x", "other", "short").stream
    assert long.stream != unmapped_record(REF, "y", "unknown", "short").stream
