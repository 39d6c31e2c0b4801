"""Imports originals of other tools into the ledger: each is stored byte for byte, and none is dropped silently.

A record that the ledger refuses as its kind is stored as unmapped with the reason. Importing the same record again adds
nothing, because its idempotency key is made of its stream and content. If we crash here, blobs without an event may
remain, which nobody sees. Running the import again adds the rest.

Claimed times become RFC 3339 UTC if they can be read (``claimed_time``), otherwise they stay as written. The number of
digits tells Unix times apart: milliseconds, microseconds and nanoseconds have 13, 16 and 19 from 2001 to 2286.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from blake3 import blake3

from deedbook.consumers.sdk.text import shorten
from deedbook.ledger.admission.decide import Accepted
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.imported import UNMAPPED, RecordImported
from deedbook.ledger.format.codec import encode_canonical, encode_sorted
from deedbook.ledger.secrets.scanner import check_text
from deedbook.ledger.system.files import absent
from deedbook.projections.answers.query import page_rows_max
from deedbook.projections.briefs.tokens import greatest

T = TypeVar("T")

records_in_batch_max: Final = 128
batch_size_max_bytes: Final = 512 * 1024
reason_max_chars: Final = 2000
record_size_max_bytes: Final = 42 * 1024  # body and mapped data of a record, so that claims have room in the entry
body_max_chars: Final = 40_000
_MARKUP: Final = re.compile(r"^(?:[-*+>#|]+ )*(?:\[[ xX]\] )?")  # the marks before a line in Markdown
question_size_max_bytes: Final = 48 * 1024
_unix_max_s: Final = 253_402_300_799
_THERE: Final = frozenset({"TRANSITION_NOT_ALLOWED", "IDEMPOTENCY_CONFLICT"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTIONS: Final = {"milliseconds": (10**12, 10**3), "microseconds": (10**15, 10**6), "nanoseconds": (10**18, 10**9)}
_UNIX_TEXT: Final = re.compile(r"[0-9]{10}(?:\.[0-9]{1,9})?|[0-9]{13}|[0-9]{16}|[0-9]{19}")


class Record(NamedTuple):
    """The record of one original, its stream, and ``more`` records of the same original.

    The record and ``more`` are submitted as one atomic batch and counted as one item. ``over`` is the index of the
    record that this one replaces because the original changed: so an original that changes back is imported again.
    ``unmapped_stream`` is the stream for the record if the ledger refuses it as its kind; empty means a stream named
    after its original and source.
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
    """A record that is unmapped, and why; ``original`` tells it from others of the same source."""

    source: str
    reason: str
    original: str = ""

    def answer(self) -> dict[str, str]:
        """Return the fields that commands print."""
        return {"source": self.source, "reason": self.reason}


@dataclass
class Counts:
    """The counts of an import: ``mapped + unmapped = read``; ``added`` events are new; ``lost`` is the difference."""

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
    """The result of submitting a record: where its events are, or why it was refused."""

    record: Record
    accepted: tuple[Accepted, ...]
    refusal: Refused | None

    @property
    def is_mapped(self) -> bool:
        """Whether the record became an event of its kind."""
        return self.record.data.mapped_kind is not None


def find_files(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the file, or the files of a folder and its subfolders with these suffixes, in the order of their names.

    Hidden files and folders are skipped, and so are links: an import reads nothing outside the named folder.
    """

    def fail(error: OSError) -> None:
        raise Unavailable("STORE_UNAVAILABLE", f"{error.filename} cannot be read: {error.strerror}") from error

    if path.is_file():
        return [path]
    if not path.is_dir():
        raise absent(path, f"there is no file or folder {path}")
    matches: list[Path] = []
    for folder, names, files in os.walk(path, onerror=fail):
        names[:] = sorted(name for name in names if not name.startswith("."))
        here = path.__class__(folder)
        wanted = (here / name for name in sorted(files) if name.endswith(suffixes) and not name.startswith("."))
        matches += [file for file in wanted if not file.is_symlink()]
    return matches


def name_in(file: Path, root: Path) -> str:
    """Return the name of a file in the ledger: its path below the imported folder."""
    return os.fsencode(file.name if file == root else file.relative_to(root)).decode("utf-8", "replace")


def unmapped_record(
    original: str, source: str, read_as: str, reason: str, body: str = "", *, only_digest: bool = False
) -> Record:
    """Return the record of an original that maps to no event; the same original and source give the same record.

    ``only_digest``: the original is not stored. ``body`` is its text, for searches.
    """
    digest = hashlib.sha256(f"{original}\0{source}".encode()).hexdigest()[:32]
    short = reason[:reason_max_chars]
    data = RecordImported(
        original=original, source=source, format=read_as, reason=short, only_digest=only_digest, body=body
    )
    return Record(f"{UNMAPPED}/{digest}", data)


def body_of(content: bytes, mapped: Mapping[str, Any] | None = None) -> str:
    """Return the lines of an original that are in no mapped field, as many as fit into the entry with ``mapped``."""
    mapped = mapped or {}
    known = "\n".join(" ".join(text.split()) for text in _texts_in(mapped))
    lines = content.decode("utf-8", "replace").splitlines()
    body = "\n".join(line for line in lines if (text := _MARKUP.sub("", " ".join(line.split()))) and text not in known)
    room = record_size_max_bytes - len(encode_sorted(mapped))
    chars = greatest(0, body_max_chars, lambda chars: len(encode_sorted(shorten(body, chars))) <= room)
    return shorten(body, chars)


def _texts_in(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_in(part)


def import_records(
    author: Author,
    records: Sequence[Record],
    step: Callable[[int, int], None] = lambda _done, _total: None,
    *,
    unchanged: int = 0,
) -> Counts:
    """Append records and store refused ones as unmapped; ``step(done, total)`` reports progress.

    ``unchanged`` is the number of records that the ledger already has: they count as mapped, and nothing is added.
    Raises Refused: the author may not import at all. Unavailable: see ``Client.submit``.
    """
    outcomes: list[Outcome] = []
    for batch in _batches(records):
        try:
            outcomes += _submit(author, batch)
        except Unavailable as error:
            # Appended records stay. A quota recovers with time; the same import then adds the rest.
            left = len(records) - len(outcomes)
            message = (
                f"{error.message}; {len(outcomes)} of {len(records)} records were imported, {left} are left: run the"
                " same import again later, and it continues there"
            )
            raise Unavailable(error.code, message, **error.details, done=len(outcomes), left=left) from error
        step(len(outcomes), len(records))
    refused = ((outcome.record, outcome.refusal) for outcome in outcomes if outcome.is_mapped)
    again = [_refused_record(record, refusal) for record, refusal in refused if refusal is not None]
    for batch in _batches(again):
        outcomes += _submit(author, batch)
    # A record that cannot even be stored as unmapped was stored by an earlier run, with another reason. Any
    # other refusal is about the author.
    for outcome in outcomes:
        if outcome.refusal is not None and not outcome.is_mapped and outcome.refusal.code not in _THERE:
            raise outcome.refusal
    mapped = sum(outcome.refusal is None and outcome.is_mapped for outcome in outcomes)
    added = sum(not event.is_repeat for outcome in outcomes for event in outcome.accepted)
    return Counts(
        len(records) + unchanged, mapped + unchanged, added, _unmapped(outcome.record for outcome in outcomes)
    )


def rehearsed(records: Sequence[Record], *, unchanged: int = 0, repeats: int = 0) -> Counts:
    """Return the counts of an import in which the ledger refuses no record; ``unchanged`` as in ``import_records``.

    ``repeats`` is the number of unmapped records that the ledger has already.
    """
    unmapped = _unmapped(records)
    mapped, added = len(records) - len(unmapped), sum(len(record.events) for record in records) - repeats
    return Counts(len(records) + unchanged, mapped + unchanged, added, unmapped)


def blob_ref(content: bytes) -> str:
    """Return the ref that a blob would have, for imports that store nothing.

    Raises the refusals that storing it would raise.
    """
    check_text(content)
    return "blake3:" + blake3(content).hexdigest()


def _unmapped(records: Iterable[Record]) -> tuple[Unmapped, ...]:
    unmapped = [record.data for record in records if record.data.mapped_kind is None]
    return tuple(Unmapped(data.source, data.reason, data.original) for data in unmapped)


def _refused_record(record: Record, refusal: Refused) -> Record:
    data = record.data
    reason = f"{refusal.code}: {refusal.message}"
    body = "" if refusal.code == "SECRET_DETECTED" else data.body
    made = unmapped_record(data.original, data.source, data.format, reason, body, only_digest=data.only_digest)
    return made._replace(stream=record.unmapped_stream or made.stream)


def batches(items: Iterable[T], measure: Callable[[T], tuple[int, int]], limits: tuple[int, int]) -> Iterator[list[T]]:
    """Yield items in groups whose two sums of ``measure`` are within ``limits``.

    An item above a limit is a group of its own.
    """
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
    """Append a batch.

    If it is refused, append its halves, so that good records pass and each refusal names one record.
    """
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


def existing_records(answer: Ask, originals: Iterable[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield the existing record of each (original, source). If there are several, ``records.existing`` picks one."""
    wanted = ({"original": original, "source": source} for original, source in originals)
    limits = (page_rows_max, question_size_max_bytes)
    for batch in batches(wanted, lambda item: (1, len(encode_sorted(item)) + 1), limits):
        yield from answer("records.existing", {"places": batch})["items"]


class ClaimedTime(NamedTuple):
    """A claimed time: its text, its Unix microseconds (None: it cannot be read), and what the reader assumed."""

    text: str
    at_us: int | None
    assumed: str = ""
    has_zone: bool = True


def claimed_time(value: Any) -> ClaimedTime | None:
    """Return the time that a value claims (ISO 8601, or a Unix time); None if the value is no time at all."""
    if isinstance(value, str) and value.strip():
        text = value.strip()
        if not _UNIX_TEXT.fullmatch(text):
            return _of_text(text)
        claimed = _of_number(float(text) if "." in text else int(text))
        return None if claimed is None else claimed._replace(assumed=claimed.assumed or "read as Unix seconds")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _of_number(value)


def _of_number(value: float) -> ClaimedTime | None:
    if 0 <= value <= _unix_max_s:  # excludes NaN, infinities and integers too large for a float
        return _claimed(_EPOCH + timedelta(microseconds=round(value * 1_000_000)))
    for name, (least, a_second) in _FRACTIONS.items():
        if least <= value < 10 * least:
            time = _EPOCH + timedelta(microseconds=int(value) * 1_000_000 // a_second)
            return _claimed(time)._replace(assumed=f"read as Unix {name}")
    return None


def _of_text(text: str) -> ClaimedTime:
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            return _claimed(time.astimezone(UTC))
        return _claimed(time.replace(tzinfo=UTC))._replace(assumed="it names no time zone: read as UTC", has_zone=False)
    except (ValueError, OverflowError):
        return ClaimedTime(text, None)


def _claimed(time: datetime) -> ClaimedTime:
    precision = "microseconds" if time.microsecond else "seconds"
    text = time.isoformat(timespec=precision).replace("+00:00", "Z")
    return ClaimedTime(text, (time - _EPOCH) // timedelta(microseconds=1))
