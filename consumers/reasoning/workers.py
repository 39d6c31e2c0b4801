"""The service agents of reasoning: the compressor writes briefs of each concluded reasoning; the validator checks it.

If we crash between the briefs, or between an event and the position, all briefs are tried again, and existing ones are
recognised by their idempotency keys. The worker uses the graph at the time when it gets to it, which may be newer than
the conclusion that it reacts to.

A brief never waits for a model. The request for its prose is stored in the compressor's store, in the transaction of
the position. ``ProseWorker`` publishes the brief again with the prose. It sends several requests at a time, so a
request that hangs delays no other. It retries failures with growing pauses.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.consumers.reasoning.compressor.envelope import COMPRESSOR_NAME, COMPRESSOR_VERSION
from deedbook.consumers.reasoning.compressor.prose import holds
from deedbook.consumers.reasoning.compressor.prose_writer import write_prose
from deedbook.consumers.reasoning.validator.publication import publish, validate_ref
from deedbook.consumers.reasoning.validator.trees import open_tree
from deedbook.consumers.reasoning.validator.validator import Judge
from deedbook.consumers.sdk.llm.model import LlmClient
from deedbook.consumers.sdk.reactor import Reactor
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.consumers.sdk.text import shorten
from deedbook.ledger.bus.subjects import stream_token
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable, message_of
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.brief import Prose
from deedbook.ledger.events.reasoning import ReasoningBriefed
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.limits import data_size_max_bytes
from deedbook.projections.answers.reader import Reader
from deedbook.projections.briefs.prompt import TransferLevel, to_context_prompt
from deedbook.projections.reasoning.queries import read_graph

log = structlog.get_logger("deedbook.compressor")

KINDS: Final = ("reasoning.concluded", "reasoning.assumption_settled", "reasoning.step_retracted")
LEVELS: Final = (TransferLevel.MINIMAL, TransferLevel.STANDARD)
stop_wait_s: Final = 0.1
prose_missing_max_chars: Final = 500
PROSE_AWAITED: Final = "the model has not written it yet"
prose_poll_s: Final = 0.5
prose_wait_first_s: Final = 30.0
prose_wait_max_s: Final = 3_600.0
prose_wait_asked_max_s: Final = 86_400.0
prose_attempts_max: Final = 50  # two days of attempts; fewer for errors that a retry rarely solves
_fewer_attempts: Final = {"LLM_INVALID": 3, "TOO_LARGE": 1, "INVALID_FIELD": 1, "NOT_FOUND": 1}


class ProseRequest(NamedTuple):
    """A request for prose: the reasoning, the event that caused it, the attempts so far, and when it is due."""

    id: str
    cause: str
    attempts: int = 0
    due_s: float = 0.0


class ProseStore(Subscriptions):
    """The compressor's store: its position, and the pending requests for prose."""

    schema = "CREATE TABLE IF NOT EXISTS prose (id TEXT PRIMARY KEY, cause TEXT, attempts INTEGER, due_s REAL) STRICT;"

    def due(self, now_s: float) -> list[ProseRequest]:
        """Return the requests that are due, the oldest first."""
        rows = self.run("SELECT * FROM prose WHERE due_s <= ? ORDER BY due_s, cause", now_s)
        return [ProseRequest(*row) for row in rows]

    def settle(self, wanted: ProseRequest, again: ProseRequest | None) -> None:
        """Delete a request, or replace it by a later attempt; skip it if a newer conclusion has renewed it."""
        with self.transaction():
            is_same = self.run("DELETE FROM prose WHERE id = ? AND cause = ? RETURNING id", *wanted[:2])
            if is_same and again is not None:
                self.run("INSERT INTO prose VALUES (?, ?, ?, ?)", *again)


class _Worker:
    """Reacts to every concluded reasoning, and to its assumptions that are settled later, as ``author`` (role service).

    ``name`` is the name of its subscription.
    """

    name: str
    is_from_start: bool

    def __init__(self, author: Author, reader: Reader, store: Path) -> None:
        self._author = author
        self._reader = reader
        self._store = store

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """Work until ``stop`` is set, or until everything before index ``until`` was handled. Raises Unavailable."""
        with closing(ProseStore(self._store)) as subscriptions:
            reactor = Reactor(self._author.client, subscriptions, self.name, wait_s=stop_wait_s)
            reactor.on(*KINDS)(self._react_if_concluded)
            if self.is_from_start:
                reactor.start_at(0)
            reactor.run(stop, until=until)

    def _react_if_concluded(self, event: Event, db: sqlite3.Connection) -> None:
        if event.kind != "reasoning.concluded":
            reasoning = self._reader.answer("reasoning.show", {"id": event.name})
            if reasoning["status"] != "concluded" or reasoning["imported"] is not None:
                return
        self._react(event, db)

    def _react(self, event: Event, _: sqlite3.Connection) -> None:
        raise NotImplementedError

    def _brief(self, id_: str, cause: str, level: TransferLevel, written: Prose | str = "", again: str = "") -> None:
        """Publish the brief of a reasoning as it is now, with a model's prose or the reason why it is missing.

        Raises Refused: it was not admitted; ``INVALID_FIELD`` if the prose is about an earlier version.
        """
        full = read_graph(self._reader, id_)
        prose, missing = (written, "") if isinstance(written, Prose) else (None, written)
        if prose is not None and not holds(prose, full.memory):
            raise Refused("INVALID_FIELD", "the reasoning was extended while the model wrote about it")
        domain = self._reader.answer("reasoning.show", {"id": id_})["domain"] or None
        brief = compress(full.memory, level, domain=domain)
        prompt = to_context_prompt(brief)
        briefed = fitting(ReasoningBriefed(brief, prompt.prompt, prompt.tokens, prose=prose, prose_missing=missing))
        stream = f"reasoning/{id_}"
        # The stream is part of the key: two agents may record the same graph.
        idem = f"{COMPRESSOR_NAME}/{COMPRESSOR_VERSION}:{level.value}:{stream_token(stream)}:{full.ref}{again}"
        try:
            self._author.emit(Draft(stream=stream, data=briefed, causes=[cause], idem=idem))
        except Refused as refusal:
            if refusal.code != "IDEMPOTENCY_CONFLICT":
                raise
            # The same compressor published this brief before, with another tokenizer: that brief stays.
            log.warning("brief was published before", stream=stream, idem=idem)


class CompressorWorker(_Worker):
    """Publishes the briefs of every concluded reasoning, from the start of the log on."""

    name = "compressor"
    is_from_start = True

    def __init__(self, author: Author, reader: Reader, store: Path, *, wants_prose: bool = False) -> None:
        """Store the position in ``store``, and with ``wants_prose`` the requests for a ``ProseWorker``."""
        super().__init__(author, reader, store)
        self._wants_prose = wants_prose

    def _react(self, event: Event, db: sqlite3.Connection) -> None:
        for level in LEVELS:
            is_awaited = self._wants_prose and level is TransferLevel.STANDARD
            self._brief(event.name, event.id, level, PROSE_AWAITED if is_awaited else "")
        if self._wants_prose:
            db.execute("INSERT OR REPLACE INTO prose VALUES (?, ?, ?, ?)", ProseRequest(event.name, event.id))


class ProseWorker(_Worker):
    """Lets a model write the prose of standard briefs, ``parallel_max`` of them at a time."""

    def __init__(
        self, author: Author, reader: Reader, store: Path, llm: LlmClient, *, now: Callable[[], float] = time.time
    ) -> None:
        """Work through the requests in the compressor's ``store``."""
        super().__init__(author, reader, store)
        self._llm = llm
        self._now = now
        self._written: SimpleQueue[tuple[ProseRequest, Prose | DeedbookError]] = SimpleQueue()

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """Work until ``stop`` is set, or, with ``until``, until nothing is due. Raises Unavailable."""
        running: set[str] = set()
        with closing(ProseStore(self._store)) as store:
            while not stop.is_set():
                free = self._llm.endpoint.settings.parallel_max - len(running)
                for wanted in [due for due in store.due(self._now()) if due.id not in running][: max(0, free)]:
                    running.add(wanted.id)
                    # A hanging call ends at its own time limit; a stopping node does not wait for it.
                    threading.Thread(target=self._ask, args=(wanted,), daemon=True).start()
                if until is not None and not running:
                    return
                with contextlib.suppress(Empty):
                    wanted, prose = self._written.get(timeout=prose_poll_s)
                    running.discard(wanted.id)
                    store.settle(wanted, self._publish(wanted, prose))

    def _ask(self, wanted: ProseRequest) -> None:
        try:
            prose: Prose | DeedbookError = write_prose(read_graph(self._reader, wanted.id).memory, self._llm)
        except DeedbookError as error:
            prose = error
        except Exception as error:  # without an answer, the request would count as running for ever
            log.exception("asking failed", reasoning=wanted.id)
            prose = Unavailable("LLM_INVALID", f"asking failed: {message_of(error)}")
        self._written.put((wanted, prose))

    def _publish(self, wanted: ProseRequest, prose: Prose | DeedbookError) -> ProseRequest | None:
        """Publish the brief with its prose, or the reason why it has none; return the next attempt, if any."""
        number = f":prose:{wanted.cause[:16]}:{wanted.attempts}"
        publish = partial(self._brief, wanted.id, wanted.cause, TransferLevel.STANDARD, again=number)
        if not isinstance(prose, DeedbookError):
            try:
                return publish(prose)
            except Refused as refusal:
                prose = refusal
        again = _again(wanted, prose, self._now())
        log.warning("no prose", reasoning=wanted.id, code=prose.code, error=prose.message, again=again is not None)
        if wanted.attempts == 0 or again is None:  # only the first and the last failure of an outage get an event
            with contextlib.suppress(Refused):
                publish(shorten(f"{prose.code}: {prose.message}", prose_missing_max_chars))
        return again


def _again(wanted: ProseRequest, error: DeedbookError, now_s: float) -> ProseRequest | None:
    attempts = wanted.attempts + 1
    if attempts >= _fewer_attempts.get(error.code, prose_attempts_max):
        return None
    wait_s = min(prose_wait_first_s * 2 ** min(wanted.attempts, 10), prose_wait_max_s)
    retry_after_s = min(error.details.get("retry_after_s", 0.0), prose_wait_asked_max_s)
    return wanted._replace(attempts=attempts, due_s=now_s + max(wait_s, retry_after_s))


def fitting(briefed: ReasoningBriefed) -> ReasoningBriefed:
    """Return the brief. Leave out its embedding if the entry would be too large with it: the facts are worth more."""
    if len(encode_canonical(briefed)) <= data_size_max_bytes:
        return briefed
    return replace(briefed, brief=replace(briefed.brief, embedding=None))


class ValidatorWorker(_Worker):
    """Publishes a report on every reasoning that is concluded from now on."""

    name = "validator"
    is_from_start = False

    def __init__(self, author: Author, reader: Reader, store: Path, tree: Path, judge: Judge | None = None) -> None:
        """Store the position in ``store``; look up evidence in ``tree``."""
        super().__init__(author, reader, store)
        self._tree = tree
        self._judge = judge

    def _react(self, event: Event, _: sqlite3.Connection) -> None:
        with open_tree(self._tree) as tree:
            validated = validate_ref(
                self._reader.answer, event.name, tree=tree, judge=self._judge, validator=self._author.name
            )
        publish(self._author, self._reader.answer, validated)
