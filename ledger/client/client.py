"""The interface of a client: the same calls for a ledger in a folder on this machine and for a server on the bus.

``open_client`` returns a ``LocalClient`` (LMDB, no server needed) or a ``RemoteClient`` (NATS). Both pass one suite
of tests: both refuse the same calls with the same codes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from io import SEEK_END, BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, Self, TypeAlias

import msgspec

from deedbook.ledger import limits
from deedbook.ledger.client.reads import EntryReads, HeadView, LogReads, Page
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.format.codec import UNREADABLE, json_decoder
from deedbook.ledger.format.envelope import Entry, Submission, decode_entry, event_id
from deedbook.ledger.format.forms import ROOT
from deedbook.ledger.format.merkle import inclusion_path
from deedbook.ledger.trust.history import ConsistencyProof, ResetPoint, StreamPage, StreamRequest

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.stream_reader import StreamReader
    from deedbook.ledger.lifecycle.authority import AgentRecord
    from deedbook.ledger.log.blobs import BlobPage, BlobView
    from deedbook.ledger.proof.receipt import Receipt
    from deedbook.ledger.trust.store import TrustStore

# Answers view queries by name and arguments: ``Client.view``, or the ``answer`` of a reader.
Ask: TypeAlias = "Callable[[str, dict[str, Any]], dict[str, Any]]"
# A point in the past: the index of the last entry at that point, or a time in ISO 8601
# (``projections.answers.instants``).
When: TypeAlias = int | str
# Answers view queries as of a point in the past, or with None as of now.
AnswerView: TypeAlias = "Callable[[str, dict[str, Any], When | None], dict[str, Any]]"
Progress: TypeAlias = "Callable[[int, int], None]"
rows_per_page: Final = 500


def every_row(ask: Ask, query: str, arguments: dict[str, Any]) -> Iterator[Any]:
    """Yield the rows that a query lists, read page by page."""
    after: dict[str, Any] = {}
    while True:
        page = ask(query, {**arguments, **after, "limit": rows_per_page})
        yield from page["items"]
        if page["next"] is None:
            return
        after = {"after": page["next"]}


class Client(Protocol):
    """The calls of agents, subscribers and auditors to a ledger. Local and remote client raise the same errors.

    Each call may also raise ``Unavailable``: ``STORE_UNAVAILABLE`` or ``STORE_FULL`` for a folder, ``BUS_UNAVAILABLE``
    or ``BUSY`` for a server. It is safe to send the same submission again.
    """

    @property
    def ledger(self) -> str:
        """The ledger's id."""

    @property
    def trust_store(self) -> TrustStore:
        """The trust store of readers of this ledger: the head that they trust, and its file."""

    @property
    def disagreement(self) -> Corrupted | None:
        """The contradiction between this log and the trust store, for a client that only looks; others raise it."""

    def submit(self, submission: Submission) -> list[Accepted]:
        """Submit signed events and return their indexes, ids and times in the log. They are on the ledger's disk then.

        Raises Refused: the ledger admitted none of them.
        """

    def head(self) -> HeadView:
        """Return the ledger's id, and the size and root of its log now."""

    def consistency(self, old_size: int, new_size: int | None = None) -> ConsistencyProof:
        """Return the log's head, and the proof that the log begins with its first ``old_size`` entries.

        With ``new_size`` the head is that of the first ``new_size`` entries, without a checkpoint.

        A log of fewer entries than ``old_size`` is no error here: compare the size in the answer. Raises Refused:
        ``INVALID_FIELD`` for a negative size.
        """

    def entry(self, index: int) -> bytes:
        """Return the bytes of the entry at ``index``. Raises Refused: ``NOT_FOUND``."""

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event, or None if the stream has none with this id.

        Raises Refused: ``INVALID_FIELD`` when ``event_id`` is not an event id.
        """

    def entries(
        self,
        start: int,
        *,
        limit: int = limits.range_events_max,
        kinds: Collection[str] = (),
        stream: str | None = None,
        wait_s: float = 0.0,
        old_size: int | None = None,
    ) -> Page:
        """Return a page of entries from index ``start`` on. Empty ``kinds`` and no ``stream`` mean all entries.

        If the log ends before ``start``, the call waits for a match up to ``wait_s`` seconds, at most
        ``limits.poll_wait_max_s``. The next page begins at ``next_index``, also after an empty page. With ``old_size``
        the page includes the answer of ``consistency``, from the same snapshot. Raises Refused: ``INVALID_FIELD`` for a
        negative ``start``.
        """

    def stream(self, request: StreamRequest) -> StreamPage:
        """Return a page of entries of a stream and of authority, each with its proof.

        This method does not check the entries; ``streams`` does. Without ``request.size`` the proofs are for the
        ledger's head: the client checks that this head continues the one it trusts, and then trusts the new head. With
        ``only_looks`` it neither checks nor trusts the head. Raises Corrupted: ``HISTORY_CHANGED``;
        ``VERIFICATION_FAILED`` for a head that the ledger's key did not sign.
        """

    @property
    def streams(self) -> StreamReader:
        """The reader of streams for callers that act on them. It checks the signed entries itself."""

    def agents(self) -> list[AgentRecord]:
        """Return the records of all registered agents."""

    def prove(self, index: int) -> Receipt:
        """Return the receipt of an entry: the proof that the log of a signed checkpoint includes it.

        Raises Refused: ``NOT_FOUND``, or a code of a key file when the checkpoint key is not here.
        """

    def checkpoint(self) -> str:
        """Return a signed checkpoint of the whole log, as the text of a note.

        Raises Refused: a code of a key file when the checkpoint key is not here.
        """

    def ends(self, size: int, streams: Collection[str]) -> str:
        """Return the signed note that says how many of the first ``size`` entries each stream has (``StreamHeads``).

        Raises Refused: ``NOT_FOUND`` when the log is shorter; ``TOO_LARGE``; as ``checkpoint``.
        """

    def view(self, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
        """Return the answer of a view query. The views include every entry that was in the log when the call began.

        With ``as_of``, an index or a time, the answer is as of that entry or time. Raises Refused: the codes of the
        query; ``INVALID_FIELD`` when ``as_of`` is neither; ``NOT_FOUND`` when the log does not reach it; ``USAGE`` when
        a local client was opened without views.
        """

    def put_blob(
        self, content: bytes | BinaryIO, intent: Submission, progress: Progress = lambda _done, _total: None
    ) -> str:
        """Store bytes, or a seekable file, and return the ref. ``intent`` is signed: see ``Author.put_blob``.

        An interrupted upload continues where it stopped. ``progress`` is called with the bytes that the ledger has, and
        with the size. Raises Refused: ``TOO_LARGE``, ``SECRET_DETECTED``; the intent is not admitted. Unavailable:
        ``QUOTA_EXCEEDED``.
        """

    def blob_chunk(self, ref: str, number: int) -> tuple[int, bytes]:
        """Return the size of a blob, and chunk ``number`` of it (``limits.blob_chunk_bytes`` each), not checked.

        Raises Refused: ``NOT_FOUND``.
        """

    def stat_blob(self, ref: str) -> BlobView:
        """Return the author, time and size of a blob, and the first entry that references it.

        Raises Refused: ``NOT_FOUND``.
        """

    def blobs(
        self, after: str | None = None, *, limit: int = 50, author: str | None = None, unreferenced: bool = False
    ) -> BlobPage:
        """Return a page of blobs in the order of their ids. An empty page may still name where the next one begins."""

    def blob_chunks(self, ref: str) -> Iterator[bytes]:
        """Yield the content of a blob, chunk by chunk, and check it against its ref: use none of it before the end.

        Raises Refused: ``NOT_FOUND``. Corrupted: ``VERIFICATION_FAILED`` or ``CORRUPTED``, perhaps at the end.
        """

    def get_blob(self, ref: str) -> bytes:
        """Return the content of a blob, checked against its ref.

        Raises Refused: ``NOT_FOUND``. Corrupted: ``VERIFICATION_FAILED`` or ``CORRUPTED``.
        """

    def close(self) -> None:
        """Close the client. Closing again does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_content(content: bytes | BinaryIO) -> tuple[BinaryIO, int]:
    """Return bytes, or a seekable file, as a file, and its size."""
    file = BytesIO(content) if isinstance(content, bytes) else content
    return file, file.seek(0, SEEK_END)


def read_batch_path(reads: EntryReads, index: int, entry: Entry) -> list[bytes]:
    """Read the whole batch of the entry at ``index``, and return the entry's inclusion path in it.

    The path is empty for an event without a batch, and when the rest of the batch is missing. In the latter case the
    signature does not verify. It also does not verify if a server answers with events of another batch.
    """
    if entry.batch_size == 1:
        return []
    start, commitments = index - entry.batch_index, list[bytes]()
    while len(commitments) < entry.batch_size:
        page = reads.entries(start + len(commitments), limit=entry.batch_size - len(commitments))
        if not page.entries:
            return []
        commitments += [decode_entry(data).commitment for _, data in page.entries]
    return inclusion_path(commitments, entry.batch_index)


class _ResetData(msgspec.Struct):
    abandoned_size: int
    abandoned_root: str
    reason: str = ""


class _ResetBody(msgspec.Struct):
    """The fields of a ``ledger.history_reset`` that are read here, without loading the types of all events."""

    kind: str
    author: str
    data: _ResetData


_reset_body = json_decoder(_ResetBody)


def read_reset(client: LogReads, event: str) -> ResetPoint:
    """Return the history reset that the event with this id signed.

    Raises Corrupted: ``HISTORY_CHANGED`` if the log has no ``ledger.history_reset`` event by root with this id.
    """
    index = client.index_of("ledger", event)
    if index is not None:
        entry = decode_entry(client.entry(index))
        with suppress(*UNREADABLE):
            reset = _reset_body.decode(entry.body)
            is_root = (reset.kind, reset.author) == ("ledger.history_reset", ROOT)
            if is_root and event_id(entry.commitment) == event:
                return ResetPoint(index, reset.data.abandoned_size, reset.data.abandoned_root, reset.data.reason)
    message = f"the log names the history reset {event}, but has no such entry by root"
    raise Corrupted("HISTORY_CHANGED", message)
