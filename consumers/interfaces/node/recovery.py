"""Bringing lost entries back from the log stream, or going on without them: offline, alone with the bus folder.

The embedded server is started for this alone, under the lock that ``serve`` takes, and lets in one key made for this
run. What the stream holds is not trusted: every entry is replayed by the rules at its own index (``Follower``), and the
tree it gives is compared with the checkpoints that readers of this machine remember.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec
import nkeys
from nacl import utils
from nats.aio.client import Client as NatsClient

from deedbook.ledger.admission.follower import Follower
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.connection import bus_errors
from deedbook.ledger.bus.history import LostHistory, abandoned_head, entry_at, lost_history, read_messages, resets
from deedbook.ledger.bus.stream import Generation
from deedbook.ledger.client.author import Draft, draft_and_sign, now
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.events.authority import HistoryReset
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.format.identity import Key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home, public_bus_key
from deedbook.ledger.home.location import VIEWS_FILE
from deedbook.ledger.home.trust import server_program
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.limits import batch_events_max, config_size_max_bytes, request_timeout_s
from deedbook.ledger.log.environment import FILE
from deedbook.ledger.log.log import Log
from deedbook.ledger.service.server import EmbeddedServer
from deedbook.ledger.service.server_config import BusUsers
from deedbook.ledger.system.files import TEMPORARY, read_regular
from deedbook.ledger.system.resource import AsyncResource
from deedbook.ledger.trust.history import ResetPoint, Trusted, is_continued
from deedbook.ledger.trust.store import SERVER, Remembered, TrustStore

Progress = Callable[[int, int], None]

connect_wait_max_s: Final = 10.0
_STREAM: Final = re.compile(r"DEEDBOOK_([0-9a-f]{32})_([1-9][0-9]*)")


class Head(NamedTuple):
    """The size of a log and the root of its tree (hex)."""

    size: int
    tree_head: str


class Recovery(AsyncResource):
    """The log of a folder beside its log stream; use it in an ``async with`` block, while nothing serves the ledger.

    That opens the log, made anew if it is lost, and starts the server on the bus folder. ``strangers`` are streams in
    the bus folder that are not of this ledger. Raises Unavailable: ``STORE_IN_USE`` while the ledger is served,
    ``SERVER_MISSING``, ``BUS_UNAVAILABLE``; ``NO_LEDGER`` when there is neither a log nor a stream.
    """

    def __init__(self, settings: Settings, *, is_dry: bool = False) -> None:
        """Prepare to look at the ledger in ``settings.home``; with ``is_dry`` nothing is made there."""
        super().__init__()
        self._is_dry = is_dry
        self._settings = settings
        self._home = Home(settings.home)
        self._stream: Generation | None = None
        self.strangers: list[str] = []

    async def _start(self) -> None:
        config, folder = self._settings.config, self._home.path
        is_lost = not (folder / "log" / FILE).exists()
        if self._home.bus.is_dir():
            # Before the log is touched: a served ledger must be left alone.
            self._nats = await self._parts.enter_async_context(_alone_with_the_bus(self._settings, self._home))
            self._stream, self.strangers = await _stream_in_use(self._nats, None if is_lost else self._ledger_of_log())
        if self._stream is None and is_lost:
            message = f"there is no log in {folder}, and no stream of one in its bus folder: `deed restore` a copy"
            raise Unavailable("NO_LEDGER", message, folder=str(folder))
        if is_lost and self._is_dry:
            folder = Path(self._parts.enter_context(TemporaryDirectory(prefix=TEMPORARY)))
        log = Log(folder, map_size=config.map_size_bytes, blobs_map_size=config.blobs_map_size_bytes, create=is_lost)
        self.log = self._parts.enter_context(log)

    def _ledger_of_log(self) -> str | None:
        with Log(self._home.path, map_size=self._settings.config.map_size_bytes) as log, log.snapshot() as snapshot:
            return None if snapshot.head is None else snapshot.head.ledger

    @property
    def has_stream(self) -> bool:
        """Whether the bus folder holds a stream of this ledger that is in use."""
        return self._stream is not None

    def head(self) -> Head:
        """Return where the log ends now."""
        with self.log.snapshot() as snapshot:
            return Head(snapshot.size, snapshot.root().hex())

    async def lost(self) -> LostHistory | None:
        """Return what the stream in use proves to be missing from the log."""
        return None if self._stream is None else await lost_history(self._nats, self._stream, self.log)

    async def stream_head(self, history: LostHistory) -> Head:
        """Return where the log would end with what is missing, as far as its messages are sound."""
        size, root = await abandoned_head(self._nats, history, self.log)
        return Head(size, root.hex())

    async def bring_back(self, history: LostHistory, progress: Progress) -> int:
        """Append what is missing, each entry verified; return how many entries it was.

        Raises:
            Corrupted: ``HISTORY_CHANGED`` when the log has entries of its own where the stream has others;
                ``VERIFICATION_FAILED`` where a message is damaged or cannot be what this log took: what stands before
                it was brought back.
        """
        if history.is_fork:
            raise history.error()
        follower, pending = Follower(self.log), list[bytes]()
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
        return size - first

    def contradicted(self) -> list[Remembered]:
        """Return what readers on this machine remember of this ledger and the log does not continue, the largest first.

        Another folder may hold a copy that is further on: that one contradicts the log only where both have entries.
        Raises Corrupted: a memory is no memory.
        """
        with self.log.snapshot() as snapshot:
            if snapshot.head is None:
                return []
            memory = TrustStore.of_folder(snapshot.head.ledger, self._home.path)
            begun = resets(snapshot)
            ours = [one for one in (memory.load(), *memory.others()) if one is not None]
            left = [
                one
                for one in ours
                if (one.place in {memory.place, SERVER} or one.trusted.size <= snapshot.size)
                and not is_continued(one.trusted, snapshot.consistency(one.trusted.size))
                and not any(reset.covers(one.trusted) for reset in begun)
            ]
        return sorted(left, key=lambda one: one.trusted.size, reverse=True)

    async def abandoned(self) -> list[Head]:
        """Return the heads that a history reset must name to cover the stream and every reader of this machine."""
        history = await self.lost()
        heads = [] if history is None else [await self.stream_head(history)]
        heads += [Head(one.trusted.size, one.trusted.root) for one in self.contradicted()]
        named: list[Head] = []
        for head in sorted(heads, reverse=True):
            if not any(ResetPoint(0, *one, "").covers(Trusted(*head)) for one in named):
                named.append(head)
        return named

    def reset_history(self, abandoned: Head, reason: str, root: Key) -> None:
        """Append the event by which root gives up what is missing."""
        with self.log.snapshot() as snapshot:
            assert snapshot.head is not None  # noqa: S101 - what is abandoned was abandoned by a log
            ledger = snapshot.head.ledger
        data = HistoryReset(abandoned_size=abandoned.size, abandoned_root=abandoned.tree_head, reason=reason)
        drafts = [Draft(stream="ledger", data=data)]
        # Views of what is given up could not go on from here. If we crash before the reset, they are made again.
        for views in self._home.path.glob(f"{VIEWS_FILE}*"):
            views.unlink(missing_ok=True)
        Gate(self.log).submit(draft_and_sign(drafts, root, ledger=ledger, author=ROOT, at=now()))


@contextlib.asynccontextmanager
async def _alone_with_the_bus(settings: Settings, home: Home) -> AsyncIterator[NatsClient]:
    """Run the embedded server for us alone, and yield a connection to it that may read every stream."""
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
    """Return the stream that is not retired, of this ledger or of any when it is unknown, and the names of others.

    The record beside the streams is not asked: it may be lost, or of another time.
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
    if len({one.ledger for one in in_use}) > 1:
        names = ", ".join(one.name for one in in_use)
        raise Refused("WRONG_LEDGER", f"the bus folder holds streams of several ledgers: {names}", streams=names)
    return max(in_use, key=lambda one: one.number, default=None), strangers


def _ledger_of_bus(home: Home) -> str:
    """Return the ledger that the bus folder was made for; only names in a configuration depend on it here."""
    try:
        content = read_regular(home.bus / "generation.json", size_max_bytes=config_size_max_bytes)
        return msgspec.json.decode(content or b"", type=Generation).ledger
    except (DeedbookError, *UNREADABLE):
        return "0" * 32


def _new_seed() -> str:
    seed: bytes = nkeys.encode_seed(utils.random(32), nkeys.PREFIX_BYTE_USER)
    return seed.decode()


def _damaged(history: LostHistory, seq: int, brought_back: int) -> Corrupted:
    message = (
        f"message {seq} of {history.generation.name} is damaged or its batch is not whole: {brought_back} of "
        f"{history.missing} entries were brought back; `deed recover --accept-loss` gives the others up"
    )
    return Corrupted("VERIFICATION_FAILED", message, index=seq - 1, brought_back=brought_back, missing=history.missing)
