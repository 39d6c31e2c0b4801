"""The ledger for programs: one object that opens, publishes, queries and reacts.

A ledger opens with the settings of the command line: ``home`` (or ``DEEDBOOK_HOME``, or ``.deedbook`` of the nearest
parent folder), ``server`` (or ``DEEDBOOK_SERVER``) and ``agent`` (or ``DEEDBOOK_AGENT``), whose key signs.
``AsyncLedger`` has the same names for programs with an event loop. ``deedbook.Ledger`` adds the nouns, for example
``ledger.handoff("id").claim()``.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar, overload

import msgspec

from deedbook.consumers.sdk.batch import collected, drafts_of, present_batch
from deedbook.consumers.sdk.clients import clients
from deedbook.consumers.sdk.declared import as_types, check_subscribed, own_types
from deedbook.consumers.sdk.kinds import kinds_of
from deedbook.consumers.sdk.receipts import take
from deedbook.consumers.sdk.rotation import settle
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask, Client, When
from deedbook.ledger.client.event_stream import follow
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import present_folder
from deedbook.ledger.home.settings import read_settings
from deedbook.ledger.system.resource import Resource
from deedbook.projections.answers.checked import ask

if TYPE_CHECKING:
    from deedbook.consumers.sdk.batch import Batch
    from deedbook.consumers.sdk.kind_names import KindName
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.local_reader import OpenViews
    from deedbook.ledger.events.body import Event
    from deedbook.ledger.events.fields import EventData
    from deedbook.ledger.format.identity import Key
    from deedbook.ledger.proof.policy import Policy
    from deedbook.ledger.proof.receipt import Receipt

T = TypeVar("T")
if TYPE_CHECKING:
    D = TypeVar("D", bound=EventData)

Passphrase = str | Callable[[str], "Key | str | None"] | None
"""The passphrase of a sealed key, or a function that returns the passphrase or opened key of a named agent."""

_index_digits_max: Final = 12


class LedgerBase:
    """The base of both ledgers: their settings."""

    def __init__(
        self,
        agent: str | None = None,
        *,
        home: Path | str | None = None,
        server: str | None = None,
        spool: bool = False,
        passphrase: Passphrase = None,
        settings: Settings | None = None,
        views: OpenViews | None = None,
    ) -> None:
        """Read the settings of a ledger. A ``Ledger`` is open now; open an ``AsyncLedger`` by ``async with``.

        ``home`` is the ledger's folder itself. ``server`` is the URL of a node, for example ``nats://127.0.0.1:4222``,
        or of several, separated by commas. With ``spool``, a report that no server answers is stored here and sent
        later; the call then raises ``SPOOLED`` (``ledger.client.spool``). ``views`` opens the views of a folder
        (``Clients.open``). Raises Unavailable: ``NO_LEDGER``; when it opens ``STORE_UNAVAILABLE`` or
        ``BUS_UNAVAILABLE``. Refused: a setting is wrong; when it opens ``USAGE`` for a server without an agent,
        ``KEY_FILE_MISSING`` or ``BUS_DENIED``.
        """
        if settings is None:
            folder = None if home is None else Path(home)
            settings = read_settings(home=folder, server=server, agent=agent, spool=spool)
        if not settings.home.is_absolute():
            # A program may change its working folder later; a relative path would then lead elsewhere.
            settings = msgspec.structs.replace(settings, home=present_folder() / settings.home)
        self.settings = settings
        self._process = os.getpid()
        self._passphrase = passphrase
        self._open_views = views
        self._prepare()

    def _prepare(self) -> None:
        raise NotImplementedError

    @cached_property
    def home(self) -> Home:
        """The ledger's folder, with its keys."""
        return Home(self.settings.home)

    @property
    def agent(self) -> str | None:
        """The acting agent; with None the ledger can be read, but nothing can be signed."""
        return self.settings.agent

    def _check_process(self) -> None:
        """Refuse to work in a fork: its reads would use the reader slots that LMDB gave to the parent process."""
        if self._process != os.getpid():
            message = "this ledger was opened before the process was forked: open it in the process that uses it"
            raise Refused("USAGE", message)


class OpenLedger(LedgerBase, Resource):
    """An open ledger, in a folder on this machine or behind a server; threads may share it."""

    def _prepare(self) -> None:
        self._client: Client | None = clients.open(asking(self.settings), self._open_views)
        self._stop = threading.Event()

    def close(self) -> None:
        """Stop ``run`` and ``follow``, and close the ledger; closing it again does nothing."""
        self._stop.set()
        client, self._client = self._client, None
        if client is not None and self._process == os.getpid():
            clients.close(client)

    @property
    def client(self) -> Client:
        """The ledger's client. Raises Refused: ``USAGE`` after the ledger was closed, or in a fork."""
        self._check_process()
        if self._client is None:
            raise Refused("USAGE", "this ledger was closed: open it again")
        return self._client

    def _author(self, client: Client, name: str | None, *, allow_secret: bool = False) -> Author:
        who = name or self.agent
        if who is None:
            raise Refused("USAGE", "no agent is named that could sign this: pass agent=NAME, or set DEEDBOOK_AGENT")
        trust.demand(self.settings.home, ledger=client.ledger)
        key_for = partial(self._key, who, is_identity=allow_secret)
        return Author(client, who, key_for, allow_secret=allow_secret)

    def _key(self, name: str, signed: list[tuple[str, str, Any]], *, is_identity: bool = False) -> Key:
        if self.home.is_rotating(name):
            settle(self.client, self.home, name)
        return self.home.signing_key(name, signed, self._ask_passphrase, is_identity=is_identity)

    def _ask_passphrase(self, name: str) -> Key | str | None:
        return self._passphrase(name) if callable(self._passphrase) else self._passphrase

    def author(self, name: str | None = None, *, allow_secret: bool = False) -> Author:
        """Return the author that signs as ``name`` or as the acting agent.

        With ``allow_secret``, a human's identity key signs the permission that text which looks like a secret stays in
        the log for ever. Raises Refused: ``USAGE`` without an agent.
        """
        return self._author(self.client, name, allow_secret=allow_secret)

    def publish(
        self,
        stream: str,
        *data: EventData | dict[str, Any],
        kind: str = "",
        causes: Sequence[str] = (),
        corr: str | None = None,
        expect: int | None = None,
        idem: str | None = None,
    ) -> list[Accepted]:
        """Sign and append events of one stream, all or none; return their positions once they are on disk.

        ``data`` are events of ``ledger.events`` or of your own (``OwnEvent``), or plain values with their ``kind``. On
        a stream ``x.TYPE/ID`` the kind may be left out if only one declared kind is on such streams. ``causes`` are the
        ids of the events that these follow from. ``corr`` is a label that the events of one task share. ``expect`` is
        the version that you expect of the stream. ``idem`` is a key: a repeated call with the same key returns the
        first answer. Inside ``batch()`` the answer is empty; after the block the batch's ``accepted`` has it. Raises
        Refused: the ledger did not admit it; ``KEY_LOCKED`` if the agent's key cannot be opened. Unavailable: see
        ``Client.submit``.
        """
        client = self.client
        view = partial(ask, client)
        drafts = drafts_of(stream, data, kind=kind, causes=causes, corr=corr, expect=expect, idem=idem, ask=view)
        batch = present_batch(self)
        if batch is None:
            return self._author(client, None).emit(*drafts)
        batch.add(drafts)
        return []

    @contextlib.contextmanager
    def batch(self) -> Iterator[Batch]:
        """Collect the events published in the block, and append them under one signature: all of them or none.

        A batch has at most 256 events and 900 KiB. If the block raises, nothing is published. Do not ``yield`` from
        your own generator inside the block: events that its caller publishes meanwhile would join the batch. Raises
        Refused: as ``publish``; ``details`` name each refused event.
        """
        with collected(self) as batch:
            yield batch
        if drafts := batch.close():
            batch.accepted = self.author().emit(*drafts)

    @overload
    def events(self, *kinds: KindName, stream: str | None = None, after: int = -1) -> Iterator[Event[Any]]: ...

    @overload
    def events(
        self, kind: type[D], /, *more: type[D], stream: str | None = None, after: int = -1
    ) -> Iterator[Event[D]]: ...

    def events(self, *kinds: Any, stream: str | None = None, after: int = -1) -> Iterator[Event[Any]]:
        """Yield the events of ``kinds`` (default: all) that are in the log now, after the index ``after``.

        A kind is named by its name (``"handoff.completed"``) or by the class of its data (``HandoffCompleted``, or an
        ``OwnEvent``).
        """
        types = own_types(kinds)
        for index, data in entries_now(self.client, after + 1, kinds=kinds_of(kinds), stream=stream):
            yield as_types(read_event(index, data), types)

    @overload
    def follow(self, *kinds: KindName, stream: str | None = None, after: int | None = None) -> Iterator[Event[Any]]: ...

    @overload
    def follow(
        self, kind: type[D], /, *more: type[D], stream: str | None = None, after: int | None = None
    ) -> Iterator[Event[D]]: ...

    def follow(self, *kinds: Any, stream: str | None = None, after: int | None = None) -> Iterator[Event[Any]]:
        """Yield events after the index ``after`` (default: only new ones) as they are appended, until ``stop``.

        Kinds are named as for ``events``, and checked as for ``run``.
        """
        names, types = kinds_of(kinds), own_types(kinds)
        check_subscribed(partial(ask, self.client), kinds)
        start = self.client.head().size if after is None else after + 1
        try:
            for item in follow(self.client, start, kinds=names, stream=stream, stop=self._stop):
                if not isinstance(item, int):
                    yield as_types(item, types)
        except (Refused, Unavailable):
            # Without a client, another thread closed the ledger during the read: that ends the loop as ``stop`` does.
            if self._client is not None:
                raise

    def stop(self) -> None:
        """End ``run`` and ``follow`` within about a second; call it in any thread or signal handler."""
        self._stop.set()

    def index_of(self, ref: int | str) -> int:
        """Return an event's index; ``ref`` is the index, the id, the body's SHA-256, or 12 first digits of one."""
        return index_of(partial(ask, self.client), ref)

    def get(self, ref: int | str) -> Event:
        """Return one event; ``ref`` is as for ``index_of``. Raises Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``."""
        index = self.index_of(ref)
        return read_event(index, self.client.entry(index))

    def receipt(self, ref: int | str, *, policy: Policy | None = None) -> Receipt:
        """Return the receipt of an event: the proof that it is in the log, which anybody can check offline.

        The receipt is checked first. If a ``policy`` requires witnesses, the call waits for their signatures. Raises
        Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``. Corrupted: as ``receipts.take``.
        """
        return take(self.client, self.index_of(ref), policy=policy)

    def compute(self, work: Callable[[Client], T]) -> T:
        """Return the result of ``work`` on the ledger's client. An ``AsyncLedger`` calls it in a thread."""
        return work(self.client)

    def publish_from(self, stream: str, make: Callable[[Author], Sequence[EventData]]) -> list[Accepted]:
        """Publish the events that ``make`` returns for the acting agent's author, which can query the ledger."""
        return self.publish(stream, *make(self.author()))

    def publish_drafts(self, make: Callable[[Author], Sequence[Draft]]) -> list[Accepted]:
        """Publish the events of several streams that ``make`` returns for the acting agent's author, all or none."""
        author = self.author()
        drafts, batch = make(author), present_batch(self)
        if batch is None:
            return author.emit(*drafts)
        batch.add(drafts)
        return []

    def put_blob(self, content: bytes | BinaryIO) -> str:
        """Store large content, or a seekable file, as a blob, as the acting agent; return the ref for events.

        A blob that no event references within a day is deleted. It has at most 1 GiB, and text is searched for
        secrets. Raises Refused: ``TOO_LARGE``, ``SECRET_DETECTED``. Unavailable: ``QUOTA_EXCEEDED``.
        """
        return self.author().put_blob(content)

    def get_blob(self, ref: str) -> bytes:
        """Return a blob. Raises Refused: ``NOT_FOUND``, ``INVALID_FIELD``. Corrupted: it does not match its ref."""
        return self.client.get_blob(ref)


class Ledger(OpenLedger):
    """An open ledger whose answers are plain values, for interfaces that pass them on as JSON or text."""

    def ask(self, query: str, *, as_of: When | None = None, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a query, for example ``ask("handoffs.show", id="event-bus")``.

        Arguments that are None are left out. Raises as ``projections.answers.checked.ask``.
        """
        return ask(self.client, query, {name: value for name, value in arguments.items() if value is not None}, as_of)

    def query_with(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the same answer as ``ask``, with the signature ``ledger.client.client.Ask``."""
        return ask(self.client, query, arguments)


def entries_now(
    client: Client, start: int = 0, *, kinds: Sequence[str] = (), stream: str | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield index and bytes of the entries that are in the log now, from ``start`` on."""
    size = client.head().size
    while start < size:
        page = client.entries(start, kinds=kinds, stream=stream)
        yield from ((index, data) for index, data in page.entries if index < size)
        start = page.next_index


def asking(settings: Settings) -> Settings:
    """Return the settings for a server; without an agent, the owner of the ledger's folder connects as root."""
    if settings.server is None or settings.agent is not None:
        return settings

    # Only for reading: signing still needs a named agent.
    is_here = Home(settings.home).nkey_file("root").exists()
    return msgspec.structs.replace(settings, agent="root") if is_here else settings


def index_of(view: Ask, ref: int | str) -> int:
    """Return an event's index from a number, its digits, or a hash (12 or more digits are the beginning of one)."""
    if isinstance(ref, int) or (ref.isdecimal() and len(ref) < _index_digits_max):
        return int(ref)
    return int(view("resolve", {"id": ref})["event_index"])
