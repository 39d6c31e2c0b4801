"""The one client: the same calls whether the ledger is a folder on this machine or a server on the bus.

``open_client`` returns a ``LocalClient`` (LMDB, no server needed) or a ``RemoteClient`` (NATS). Both pass one suite
of tests: what one refuses, the other refuses with the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

import msgspec

from deedbook.ledger import limits
from deedbook.ledger.client.reads import EntryReads, HeadView, LogReads, Page
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.format.envelope import Entry, Submission, decode_entry, event_id, pae
from deedbook.ledger.format.forms import ROOT
from deedbook.ledger.format.merkle import inclusion_path, leaf_hash
from deedbook.ledger.trust.history import ConsistencyProof, ResetPoint, StreamPage, StreamRequest

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.stream_reader import StreamReader
    from deedbook.ledger.lifecycle.authority import AgentRecord
    from deedbook.ledger.log.blobs import BlobPage, BlobView
    from deedbook.ledger.proof.receipt import Receipt
    from deedbook.ledger.trust.store import TrustStore

# What answers view queries by name and arguments: ``Client.view``, or a reader's ``answer``.
Ask: TypeAlias = "Callable[[str, dict[str, Any]], dict[str, Any]]"
# A moment of the past: the index of an entry, the last one then, or a time in ISO 8601
# (``projections.answers.instants``).
When: TypeAlias = int | str
# The same of one moment, or, with None, of now.
AnswerView: TypeAlias = "Callable[[str, dict[str, Any], When | None], dict[str, Any]]"
Progress: TypeAlias = "Callable[[int, int], None]"
rows_per_page: Final = 500


def every_row(ask: Ask, query: str, of: str, arguments: dict[str, Any]) -> Iterator[Any]:
    """Yield the rows that a query lists under the name ``of``, page by page."""
    after: dict[str, Any] = {}
    while True:
        page = ask(query, {**arguments, **after, "limit": rows_per_page})
        yield from page[of]
        if page["next"] is None:
            return
        after = {"after": page["next"]}


class Client(Protocol):
    """What agents, subscribers and auditors ask of a ledger; both clients raise what stands here.

    Each call may also raise ``Unavailable``: ``STORE_UNAVAILABLE`` or ``STORE_FULL`` of a folder, ``BUS_UNAVAILABLE``
    or ``BUSY`` of a server; sending a submission again later is harmless.
    """

    @property
    def ledger(self) -> str:
        """The ledger's id."""

    @property
    def trust_store(self) -> TrustStore:
        """What readers remember of the ledger where this client reads it."""

    def submit(self, submission: Submission) -> list[Accepted]:
        """Admit a submission; when this returns, it is on the ledger's disk.

        Raises Refused: it was not admitted, and nothing of it is in the log.
        """

    def head(self) -> HeadView:
        """Return where the log ends."""

    def consistency(self, old_size: int, new_size: int | None = None) -> ConsistencyProof:
        """Return where the log ends, and the proof that it begins with its first ``old_size`` entries.

        With ``new_size`` it is the log as it was then, and no checkpoint comes along.

        A log that has fewer is no error here: the size says it (see ``ledger.trust.store``). Raises Refused:
        ``INVALID_FIELD`` for a negative size.
        """

    def entry(self, index: int) -> bytes:
        """Return the bytes of one entry. Raises Refused: ``NOT_FOUND``."""

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event of a stream. Raises Refused: ``INVALID_FIELD`` when ``event_id`` is none."""

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
        """Return entries from ``start`` on, only of ``kinds`` and ``stream``; wait for one up to ``wait_s``.

        A page may be empty and still say where to go on. With ``old_size`` it holds what ``consistency`` answers, of
        the same moment. Raises Refused: ``INVALID_FIELD`` for a negative ``start``.
        """

    def stream(self, asked: StreamRequest) -> StreamPage:
        """Return entries of a stream and of authority, each proven; ``streams`` reads what they say.

        Unless a ``size`` is asked for, they stand under the ledger's head, which goes on from the one that this client
        trusts, and is trusted from now on. Raises Corrupted: ``HISTORY_CHANGED``; ``VERIFICATION_FAILED`` for a head
        that the ledger's key did not sign.
        """

    @property
    def streams(self) -> StreamReader:
        """What reads streams to act on them: from signed entries, checked here (``ledger.client.stream_reader``)."""

    def agents(self) -> list[AgentRecord]:
        """Return the registered agents."""

    def prove(self, index: int) -> Receipt:
        """Return the receipt of an entry: its inclusion under a signed checkpoint.

        Raises Refused: ``NOT_FOUND``, or the codes of a key file when the checkpoint key is not here.
        """

    def checkpoint(self) -> str:
        """Return a signed checkpoint of the log as it is now.

        Raises Refused: the codes of a key file when the checkpoint key is not here.
        """

    def ends(self, size: int, streams: Collection[str]) -> str:
        """Return the signed note on how many entries streams have in the log of ``size`` (``StreamHeads``).

        Raises Refused: ``NOT_FOUND`` beyond the end; ``TOO_LARGE``; the codes of a key file as ``checkpoint``.
        """

    def view(self, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
        """Return the answer of a view query, from views that hold everything that was in the log when it was asked.

        With ``as_of``, an index or a time, from the views as they were after that entry, or at that time. Raises
        Refused: the query's; ``INVALID_FIELD`` or ``NOT_FOUND`` for a moment that is none, or that the log does not
        reach; ``USAGE`` when a local client was opened without views.
        """

    def put_blob(self, content: bytes, intent: Submission, progress: Progress = lambda _done, _total: None) -> str:
        """Store a blob and return its ref; ``intent`` is its signed ``blob.stored`` (``Author.put_blob`` makes both).

        An upload that was cut goes on where it was. ``progress`` is called with the bytes that are there, and all.
        Raises Refused: ``TOO_LARGE``, ``SECRET_DETECTED``; the intent is not admitted. Unavailable: ``QUOTA_EXCEEDED``.
        """

    def blob_chunk(self, ref: str, number: int) -> tuple[int, bytes]:
        """Return the size of a blob, and one chunk of it (``limits.blob_chunk_bytes``), which nobody has checked yet.

        Raises Refused: ``NOT_FOUND``.
        """

    def stat_blob(self, ref: str) -> BlobView:
        """Return what is known of a blob: by whom and when, how large, which entry refers to it first.

        Raises Refused: ``NOT_FOUND``.
        """

    def blobs(
        self, after: str | None = None, *, limit: int = 50, author: str | None = None, unreferenced: bool = False
    ) -> BlobPage:
        """Return blobs in the order of their ids; a page may be empty and still say where to go on."""

    def get_blob(self, ref: str) -> bytes:
        """Return a blob's content, checked against its ref.

        Raises Refused: ``NOT_FOUND``. Corrupted: ``VERIFICATION_FAILED`` or ``CORRUPTED``.
        """

    def close(self) -> None:
        """Close the client."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def read_batch_path(reads: EntryReads, index: int, entry: Entry) -> list[bytes]:
    """Return the path of the entry at ``index`` within its signed batch, of which every event is read.

    It is empty for an event of no batch, and where the rest of the batch is not to be had: then no signature fits. A
    server that answers with one event and signs another one's batch gives a path that does not lead to its root.
    """
    if entry.batch_size == 1:
        return []
    start, bodies = index - entry.batch_index, list[bytes]()
    while len(bodies) < entry.batch_size:
        page = reads.entries(start + len(bodies), limit=entry.batch_size - len(bodies))
        if not page.entries:
            return []
        bodies += [decode_entry(data).body for _, data in page.entries]
    return inclusion_path([leaf_hash(pae(body)) for body in bodies], entry.batch_index)


class _ResetData(msgspec.Struct):
    abandoned_size: int
    abandoned_root: str
    reason: str = ""


class _ResetBody(msgspec.Struct):
    """What is read of a ``ledger.history_reset``, without loading the types of all events."""

    kind: str
    author: str
    data: _ResetData


_reset_body = msgspec.json.Decoder(_ResetBody)


def read_reset(client: LogReads, event: str) -> ResetPoint:
    """Return what the ``ledger.history_reset`` with this id says.

    Raises Corrupted: the log holds no such event by root.
    """
    index = client.index_of("ledger", event)
    if index is not None:
        entry = decode_entry(client.entry(index))
        with suppress(*UNREADABLE):
            reset = _reset_body.decode(entry.body)
            is_root = (reset.kind, reset.author) == ("ledger.history_reset", ROOT)
            if is_root and event_id(pae(entry.body)) == event:
                return ResetPoint(index, reset.data.abandoned_size, reset.data.abandoned_root, reset.data.reason)
    message = f"the log says that a history reset began with {event}, and has no such entry by root"
    raise Corrupted("HISTORY_CHANGED", message)
