"""Recovers lost entries from the log stream, or continues without them: offline, with the bus folder locked.

The embedded server is started only for this, under the lock of ``serve``, and admits one key that is made for this run.
The stream is not trusted: every entry is replayed by the rules at its own index (``LogFollower``), and the resulting
tree is compared with the trusted heads of readers on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import nkeys
from nacl import utils
from nats.aio.client import Client as NatsClient

from deedbook.ledger.admission.follower import LogFollower
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.admission.rewriter import finish_erasures
from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.connection import bus_errors
from deedbook.ledger.bus.history import LostHistory, abandoned_head, entry_at, lost_history, read_messages, resets
from deedbook.ledger.bus.stream import Generation
from deedbook.ledger.client.author import Draft, draft_and_sign, now
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.events.authority import HistoryReset
from deedbook.ledger.format.codec import UNREADABLE, read_json
from deedbook.ledger.format.identity import Key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home, public_bus_key
from deedbook.ledger.home.location import VIEWS_FILE
from deedbook.ledger.home.trust import server_program
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.limits import batch_events_max, config_size_max_bytes, request_timeout_s
from deedbook.ledger.log.expiry import sweep_files
from deedbook.ledger.log.log import Log
from deedbook.ledger.service.server import EmbeddedServer
from deedbook.ledger.service.server_config import BusUsers
from deedbook.ledger.system.files import TEMPORARY, read_regular
from deedbook.ledger.system.resource import AsyncResource
from deedbook.ledger.trust.history import ResetPoint, TrustedHead, is_continued
from deedbook.ledger.trust.store import SERVER, TrustRecord, TrustStore

Progress = Callable[[int, int], None]

connect_wait_max_s: Final = 10.0
_STREAM: Final = re.compile(r"DEEDBOOK_([0-9a-f]{32})_([1-9][0-9]*)")


class Head(NamedTuple):
    """The size of a log and the root of its tree (hex)."""

    size: int
    tree_head: str


class Recovery(AsyncResource):
    """The log of a folder beside its log stream; use it in an ``async with`` block, while nothing serves the ledger.

    The block opens the log, or makes one if it is lost, and starts the server on the bus folder. ``strangers`` are
    streams of other ledgers in the bus folder. Raises Unavailable: ``STORE_IN_USE`` while the ledger is served,
    ``SERVER_MISSING``, ``BUS_UNAVAILABLE``; ``NO_LEDGER`` if there is neither a log nor a stream.
    """

    def __init__(self, settings: Settings, *, is_dry: bool = False) -> None:
        """Prepare to examine the ledger in ``settings.home``; with ``is_dry`` nothing is written there."""
        super().__init__()
        self._is_dry = is_dry
        self._settings = settings
        self._home = Home(settings.home)
        self._stream: Generation | None = None
        self.strangers: list[str] = []

    async def _start(self) -> None:
        config, folder = self._settings.config, self._home.path
        is_lost = not self._home.is_local()
        if self._home.bus.is_dir():
            # Check this before the log is touched: a served ledger must not be changed.
            self._nats = await self._parts.enter_async_context(_alone_with_the_bus(self._settings, self._home))
            self._stream, self.strangers = await _stream_in_use(self._nats, None if is_lost else self._ledger_of_log())
        if self._stream is None and is_lost:
            message = f"{folder} has neither a log nor a stream in its bus folder. Restore a backup: `deed restore`."
            raise Unavailable("NO_LEDGER", message, folder=str(folder))
        if is_lost and self._is_dry:
            folder = Path(self._parts.enter_context(TemporaryDirectory(prefix=TEMPORARY)))
        log = Log(folder, map_size=config.map_size_bytes, blobs_size_max=config.blobs_size_max_bytes, create=is_lost)
        self.log = self._parts.enter_context(log)

    def _ledger_of_log(self) -> str | None:
        with Log(self._home.path, map_size=self._settings.config.map_size_bytes) as log, log.snapshot() as snapshot:
            return None if snapshot.head is None else snapshot.head.ledger

    @property
    def has_stream(self) -> bool:
        """Whether the bus folder holds a stream of this ledger that is in use."""
        return self._stream is not None

    def head(self) -> Head:
        """Return the head of the log."""
        with self.log.snapshot() as snapshot:
            return Head(snapshot.size, snapshot.root().hex())

    async def lost(self) -> LostHistory | None:
        """Return the entries that are missing from the log, as the stream in use proves."""
        return None if self._stream is None else await lost_history(self._nats, self._stream, self.log)

    async def stream_head(self, history: LostHistory) -> Head:
        """Return the head that the log would have with the entries that only the log stream has.

        It ends before the first damaged message.
        """
        size, root = await abandoned_head(self._nats, history, self.log)
        return Head(size, root.hex())

    async def bring_back(self, history: LostHistory, progress: Progress) -> int:
        """Verify and append the missing entries; return how many there were.

        Raises:
            Corrupted: ``HISTORY_CHANGED`` if log and stream have different entries at the same index;
                ``VERIFICATION_FAILED`` if a message is damaged or this log cannot have accepted it; the entries before
                it were recovered.
        """
        if history.is_fork:
            raise history.error()
        follower, pending = LogFollower(self.log), list[bytes]()
        first = size = history.shared
        for begin in range(first + 1, history.stream_size + 1, batch_events_max):
            end = min(begin + batch_events_max - 1, history.stream_size)
            for seq, message in (await read_messages(self._nats, history.generation, begin, end)).items():
                data = entry_at(seq, message)
                if data is None:
                    taken = follower.append(size, pending)
                    raise _damaged(history, seq, size + taken - first)
                pending.append(data)
            taken = follower.append(size, pending)
            size, pending = size + taken, pending[taken:]
            progress(size - first, history.missing)
        if pending:
            raise _damaged(history, history.stream_size + 1, size - first)
        sweep_files(self.log)
        finish_erasures(self.log)
        return size - first

    def contradicted(self) -> list[TrustRecord]:
        """Return the trusted heads of readers on this machine that the log does not continue, the largest first.

        Another folder may hold a longer copy of the log. It contradicts the log only if they differ in an entry that
        both have. Raises Corrupted: a trust store is damaged.
        """
        with self.log.snapshot() as snapshot:
            if snapshot.head is None:
                return []
            store = TrustStore.of_folder(snapshot.head.ledger, self._home.path)
            begun = resets(snapshot)
            ours = [head for head in (store.load(), *store.others()) if head is not None]
            contradicted = [
                head
                for head in ours
                if (head.location in {store.location, SERVER} or head.trusted.size <= snapshot.size)
                and not is_continued(head.trusted, snapshot.consistency(head.trusted.size))
                and not any(reset.covers(head.trusted) for reset in begun)
            ]
        return sorted(contradicted, key=lambda head: head.trusted.size, reverse=True)

    async def abandoned(self) -> list[Head]:
        """Return the heads that a history reset must name to cover the stream and every reader of this machine."""
        history = await self.lost()
        heads = [] if history is None else [await self.stream_head(history)]
        heads += [Head(head.trusted.size, head.trusted.root) for head in self.contradicted()]
        named: list[Head] = []
        for head in sorted(heads, reverse=True):
            if not any(ResetPoint(0, *other, "").covers(TrustedHead(*head)) for other in named):
                named.append(head)
        return named

    def reset_history(self, abandoned: Head, reason: str, root: Key) -> None:
        """Append the event with which root abandons the missing entries."""
        with self.log.snapshot() as snapshot:
            assert snapshot.head is not None  # noqa: S101 - a log with entries to abandon has a head
            ledger = snapshot.head.ledger
        data = HistoryReset(abandoned_size=abandoned.size, abandoned_root=abandoned.tree_head, reason=reason)
        drafts = [Draft(stream="ledger", data=data)]
        # Views of abandoned entries could not continue from here. If we crash before the reset, they are built again.
        for views in self._home.path.glob(f"{VIEWS_FILE}*"):
            views.unlink(missing_ok=True)
        Gate(self.log).submit(draft_and_sign(drafts, root, ledger=ledger, author=ROOT, at=now()))


@contextlib.asynccontextmanager
async def _alone_with_the_bus(settings: Settings, home: Home) -> AsyncIterator[NatsClient]:
    """Run the embedded server only for us, and yield a connection that may read every stream."""
    server = EmbeddedServer(home.bus, _ledger_of_bus(home), program=server_program(settings))
    seed = _new_seed()
    await asyncio.to_thread(server.start, BusUsers(nodes=(), admin=public_bus_key(seed)))
    client = NatsClient()
    try:
        with bus_errors("connecting to the embedded server"):
            await asyncio.wait_for(client.connect(server.url, nkeys_seed_str=seed), connect_wait_max_s)
        yield client
    finally:
        await client.close()
        await asyncio.to_thread(server.stop)


async def _stream_in_use(client: NatsClient, ledger: str | None) -> tuple[Generation | None, list[str]]:
    """Return the stream in use of this ledger (of any ledger if it is None), and the names of the other streams.

    The record beside the streams is not used: it may be lost or outdated.
    """
    with bus_errors("listing the streams"):
        infos = await client.jetstream(timeout=request_timeout_s).streams_info()
    in_use: list[Generation] = []
    strangers: list[str] = []
    for info in infos:
        name = str(info.config.name)
        match = _STREAM.fullmatch(name)
        if match is None or ledger not in (None, match[1]):
            strangers.append(name)
        elif info.config.subjects == [subjects.event_pattern(match[1])]:
            in_use.append(Generation(match[1], int(match[2]), max(info.state.first_seq, 1)))
    if len({stream.ledger for stream in in_use}) > 1:
        names = ", ".join(stream.name for stream in in_use)
        raise Refused("WRONG_LEDGER", f"the bus folder holds streams of several ledgers: {names}", streams=names)
    return max(in_use, key=lambda stream: stream.number, default=None), strangers


def _ledger_of_bus(home: Home) -> str:
    """Return the id of the ledger to which the bus folder belongs. Only names in the server's configuration have it."""
    try:
        content = read_regular(home.bus / "generation.json", size_max_bytes=config_size_max_bytes)
        return read_json(content or b"", Generation).ledger
    except (DeedbookError, *UNREADABLE):
        return "0" * 32


def _new_seed() -> str:
    seed: bytes = nkeys.encode_seed(utils.random(32), nkeys.PREFIX_BYTE_USER)
    return seed.decode()


def _damaged(history: LostHistory, seq: int, brought_back: int) -> Corrupted:
    message = (
        f"message {seq} of {history.generation.name} is damaged, or its batch is incomplete. {brought_back} of "
        f"{history.missing} entries were recovered; `deed recover --accept-loss` abandons the others."
    )
    return Corrupted("VERIFICATION_FAILED", message, index=seq - 1, brought_back=brought_back, missing=history.missing)
