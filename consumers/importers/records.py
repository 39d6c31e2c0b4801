"""Bringing originals of other tools into the ledger: each kept byte for byte, none dropped in silence.

A record that the ledger refuses is stored as unmapped with the reason; the same record again adds nothing,
because its idempotency key is its stream and content. What happens if we crash here: blobs without an event, which
nobody sees; running the import again adds the rest.

The times that records claim are RFC 3339 UTC where they can be read (``claimed_time``), else as they stand. Unix times
are told apart by their digits: milliseconds, microseconds and nanoseconds have 13, 16 and 19 from 2001 to 2286.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.imported import UNMAPPED, RecordImported
from deedbook.ledger.format.codec import encode_canonical, encode_sorted
from deedbook.projections.answers.query import page_rows_max

T = TypeVar("T")

records_in_batch_max: Final = 128
batch_size_max_bytes: Final = 512 * 1024
reason_max_chars: Final = 2000
question_size_max_bytes: Final = 48 * 1024
_unix_max_s: Final = 253_402_300_799
_THERE: Final = frozenset({"TRANSITION_NOT_ALLOWED", "IDEMPOTENCY_CONFLICT"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTIONS: Final = {"milliseconds": (10**12, 10**3), "microseconds": (10**15, 10**6), "nanoseconds": (10**18, 10**9)}
_UNIX_TEXT: Final = re.compile(r"[0-9]{10}(?:\.[0-9]{1,9})?|[0-9]{13}|[0-9]{16}|[0-9]{19}")


class Record(NamedTuple):
    """What one original becomes: the stream it belongs to and the record, and ``more`` records of the same original.

    All of them are one atomic batch, and one thing read. ``over`` is the index of the record that this one replaces,
    where the original changed since: so one that changes back is no repeat of what it was before. ``unmapped_stream``
    is where it is stored as unmapped if it is refused; empty: a stream named after its original and source.
    """

    stream: str
    data: RecordImported
    over: int | None = None
    more: tuple[RecordImported, ...] = ()
    unmapped_stream: str = ""

    @property
    def events(self) -> tuple[RecordImported, ...]:
        """The data of its events, in order."""
        return (self.data, *self.more)


class Unmapped(NamedTuple):
    """An original that could not be mapped, and why; ``original`` distinguishes it from others of the same source."""

    source: str
    reason: str
    original: str = ""

    def answer(self) -> dict[str, str]:
        """Return it as commands print it."""
        return {"source": self.source, "reason": self.reason}


@dataclass
class Counts:
    """What an import did: ``mapped + unmapped = read``; ``added`` events are new; ``lost`` is read and neither."""

    read: int = 0
    mapped: int = 0
    added: int = 0
    unmapped_records: Sequence[Unmapped] = ()
    unnamed: int = 0  # unmapped, and not in ``unmapped_records``

    @property
    def unmapped(self) -> int:
        """How many were not mapped."""
        return len(self.unmapped_records) + self.unnamed

    def answer(self) -> dict[str, Any]:
        """Return the counts as commands print them."""
        return {
            "read": self.read,
            "mapped": self.mapped,
            "unmapped": self.unmapped,
            "lost": self.read - self.mapped - self.unmapped,
            "added": self.added,
            "unmapped_records": [record.answer() for record in self.unmapped_records],
        }


class Outcome(NamedTuple):
    """What became of a record: where its events stand, or why it was refused."""

    record: Record
    accepted: tuple[Accepted, ...]
    refusal: Refused | None

    @property
    def is_mapped(self) -> bool:
        """Whether it was to stand for a kind of event."""
        return self.record.data.mapped_kind is not None


def find_files(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the one file, or the files of a folder and its subfolders that end so, in the order of their names.

    Hidden files and folders are passed over, and so are links: what is imported lies where it was looked for.
    """

    def fail(error: OSError) -> None:
        raise Unavailable("STORE_UNAVAILABLE", f"{error.filename} cannot be read: {error.strerror}") from error

    if path.is_file():
        return [path]
    if not path.is_dir():
        raise Refused("NOT_FOUND", f"there is no file or folder {path}", path=str(path))
    found: list[Path] = []
    for folder, names, files in os.walk(path, onerror=fail):
        names[:] = sorted(name for name in names if not name.startswith("."))
        here = path.__class__(folder)
        wanted = (here / name for name in sorted(files) if name.endswith(suffixes) and not name.startswith("."))
        found += [file for file in wanted if not file.is_symlink()]
    return found


def name_in(file: Path, root: Path) -> str:
    """Return what a file is called in the ledger: its place under the folder that was given."""
    return os.fsencode(file.name if file == root else file.relative_to(root)).decode("utf-8", "replace")


def unmapped_record(original: str, source: str, read_as: str, reason: str) -> Record:
    """Return the record of an original that stands for nothing here; the same original and source, the same record."""
    digest = hashlib.sha256(f"{original}\0{source}".encode()).hexdigest()[:32]
    data = RecordImported(original=original, source=source, format=read_as, reason=reason[:reason_max_chars])
    return Record(f"{UNMAPPED}/{digest}", data)


def import_records(
    author: Author,
    records: Sequence[Record],
    step: Callable[[int, int], None] = lambda _done, _total: None,
    *,
    unchanged: int = 0,
) -> Counts:
    """Append records; a refused one is stored as unmapped. ``step(done, total)`` reports progress.

    ``unchanged`` counts what was read and stands in the ledger just so: it is mapped, and nothing is added. Raises
    Refused: the author may not import at all. Unavailable: see ``Client.submit``.
    """
    outcomes: list[Outcome] = []
    for batch in _batches(records):
        try:
            outcomes += _submit(author, batch)
        except Unavailable as error:
            # What was appended stays. A quota heals with time; the same import then adds what is left.
            left = len(records) - len(outcomes)
            message = (
                f"{error.message}; {len(outcomes)} of {len(records)} records were read into the ledger, {left} are"
                " left: run the same import again later, it goes on there"
            )
            raise Unavailable(error.code, message, **error.details, done=len(outcomes), left=left) from error
        step(len(outcomes), len(records))
    refused = ((outcome.record, outcome.refusal) for outcome in outcomes if outcome.is_mapped)
    again = [_refused_record(record, refusal) for record, refusal in refused if refusal is not None]
    for batch in _batches(again):
        outcomes += _submit(author, batch)
    # If even the unmapped record is refused, an earlier run stored it with another reason; any other refusal
    # is about the author.
    for outcome in outcomes:
        if outcome.refusal is not None and not outcome.is_mapped and outcome.refusal.code not in _THERE:
            raise outcome.refusal
    mapped = sum(outcome.refusal is None and outcome.is_mapped for outcome in outcomes)
    added = sum(not event.is_repeat for outcome in outcomes for event in outcome.accepted)
    return Counts(
        len(records) + unchanged, mapped + unchanged, added, _unmapped(outcome.record for outcome in outcomes)
    )


def rehearsed(records: Sequence[Record]) -> Counts:
    """Return what appending records would come to if the ledger refused none of them."""
    unmapped = _unmapped(records)
    return Counts(len(records), len(records) - len(unmapped), sum(len(record.events) for record in records), unmapped)


def _unmapped(records: Iterable[Record]) -> tuple[Unmapped, ...]:
    unmapped = [record.data for record in records if record.data.mapped_kind is None]
    return tuple(Unmapped(data.source, data.reason, data.original) for data in unmapped)


def _refused_record(record: Record, refusal: Refused) -> Record:
    data = record.data
    made = unmapped_record(data.original, data.source, data.format, f"{refusal.code}: {refusal.message}")
    return made._replace(stream=record.unmapped_stream or made.stream)


def batches(items: Iterable[T], measure: Callable[[T], tuple[int, int]], limits: tuple[int, int]) -> Iterator[list[T]]:
    """Yield items in groups within two limits, of the two numbers that ``measure`` gives each; one above is alone."""
    group: list[T] = []
    count = size = 0
    for item in items:
        more, bytes_ = measure(item)
        count, size = count + more, size + bytes_
        if group and (count > limits[0] or size > limits[1]):
            yield group
            group, count, size = [], more, bytes_
        group.append(item)
    if group:
        yield group


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    def measure(record: Record) -> tuple[int, int]:
        return len(record.events), sum(len(encode_canonical(data)) for data in record.events)

    return batches(records, measure, (records_in_batch_max, batch_size_max_bytes))


def _submit(author: Author, batch: Sequence[Record]) -> list[Outcome]:
    """Append a batch; when it is refused, its halves: so what is good goes in, and each refusal is of one record."""
    try:
        accepted = iter(author.emit(*(draft for record in batch for draft in _drafts(record))))
    except Refused as refusal:
        if len(batch) == 1:
            return [Outcome(batch[0], (), refusal)]
        middle = len(batch) // 2
        return _submit(author, batch[:middle]) + _submit(author, batch[middle:])
    return [Outcome(record, tuple(islice(accepted, len(record.events))), None) for record in batch]


def _drafts(record: Record) -> Iterator[Draft]:
    over = "" if record.over is None else f":{record.over}"
    for data in record.events:
        digest = hashlib.sha256(record.stream.encode() + b"\0" + encode_canonical(data)).hexdigest()
        yield Draft(stream=record.stream, data=data, idem=f"import:{digest}{over}")


def existing_records(answer: Ask, places: Iterable[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield the record of each original and source that stands already, of several as ``records.existing`` says."""
    wanted = ({"original": original, "source": source} for original, source in places)
    limits = (page_rows_max, question_size_max_bytes)
    for asked in batches(wanted, lambda place: (1, len(encode_sorted(place)) + 1), limits):
        yield from answer("records.existing", {"places": asked})["records"]


class Claimed(NamedTuple):
    """A claimed time: its text, its Unix microseconds (None: it cannot be read), and what had to be assumed."""

    text: str
    at_us: int | None
    assumed: str = ""
    has_zone: bool = True


def claimed_time(value: Any) -> Claimed | None:
    """Return the time that a value claims: ISO 8601, or a Unix time; None for a value that is no time at all."""
    if isinstance(value, str) and value.strip():
        text = value.strip()
        if not _UNIX_TEXT.fullmatch(text):
            return _of_text(text)
        claimed = _of_number(float(text) if "." in text else int(text))
        return None if claimed is None else claimed._replace(assumed=claimed.assumed or "read as Unix seconds")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _of_number(value)


def _of_number(value: float) -> Claimed | None:
    if 0 <= value <= _unix_max_s:  # so NaN, infinities and integers that no float holds are none, too
        return _claimed(_EPOCH + timedelta(microseconds=round(value * 1_000_000)))
    for name, (least, a_second) in _FRACTIONS.items():
        if least <= value < 10 * least:
            moment = _EPOCH + timedelta(microseconds=int(value) * 1_000_000 // a_second)
            return _claimed(moment)._replace(assumed=f"read as Unix {name}")
    return None


def _of_text(text: str) -> Claimed:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return _claimed(moment.astimezone(UTC))
        return _claimed(moment.replace(tzinfo=UTC))._replace(assumed="it names no zone: read as UTC", has_zone=False)
    except (ValueError, OverflowError):
        return Claimed(text, None)


def _claimed(moment: datetime) -> Claimed:
    places = "microseconds" if moment.microsecond else "seconds"
    text = moment.isoformat(timespec=places).replace("+00:00", "Z")
    return Claimed(text, (moment - _EPOCH) // timedelta(microseconds=1))
