"""The service agents of reasoning: when one is concluded, the compressor briefs it and the validator checks it.

What happens if we crash here: between the briefs, or between an event and the position, all of them are tried again,
and those that are there are recognised by their idempotency keys. The graph is the one that stands when the worker gets
to it, which may be newer than the conclusion it reacts to.

A brief never waits for a model. That its prose is wanted is kept in the compressor's store, in the transaction of the
position. ``ProseWorker`` publishes the brief once more with it: several are asked for at a time, so one that hangs
holds up no other, and what failed is asked for again with a growing pause.
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

log = structlog.get_logger("deedbook.compressor")

KINDS: Final = ("reasoning.concluded",)
LEVELS: Final = (TransferLevel.MINIMAL, TransferLevel.STANDARD)
stop_wait_s: Final = 0.1
prose_missing_max_chars: Final = 500
PROSE_AWAITED: Final = "the model has not written it yet"
prose_poll_s: Final = 0.5
prose_wait_first_s: Final = 30.0
prose_wait_max_s: Final = 3_600.0
prose_wait_asked_max_s: Final = 86_400.0
prose_attempts_max: Final = 50  # two days; fewer where each costs as much and seldom helps, or never can
_fewer_attempts: Final = {"LLM_INVALID": 3, "TOO_LARGE": 1, "INVALID_FIELD": 1, "NOT_FOUND": 1}


class Wanted(NamedTuple):
    """Prose that is wanted: of which reasoning, because of which event, after how many attempts, from when on."""

    id: str
    cause: str
    attempts: int = 0
    due_s: float = 0.0


class ProseStore(Subscriptions):
    """The compressor's store: its position, and which prose is still to be written."""

    schema = "CREATE TABLE IF NOT EXISTS prose (id TEXT PRIMARY KEY, cause TEXT, attempts INTEGER, due_s REAL) STRICT;"

    def due(self, now_s: float) -> list[Wanted]:
        """Return what is to be asked for now, the oldest wish first."""
        rows = self.run("SELECT * FROM prose WHERE due_s <= ? ORDER BY due_s, cause", now_s)
        return [Wanted(*row) for row in rows]

    def settle(self, wanted: Wanted, again: Wanted | None) -> None:
        """Forget a wish, or put it off; not one that a newer conclusion has renewed meanwhile."""
        with self.transaction():
            is_same = self.run("DELETE FROM prose WHERE id = ? AND cause = ? RETURNING id", *wanted[:2])
            if is_same and again is not None:
                self.run("INSERT INTO prose VALUES (?, ?, ?, ?)", *again)


class _Worker:
    """Reacts to every concluded reasoning, under a name of its own, as ``author`` (role service)."""

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
            reactor.on(*KINDS)(self._react)
            if self.is_from_start:
                reactor.start_at(0)
            reactor.run(stop, until=until)

    def _react(self, event: Event, _: sqlite3.Connection) -> None:
        raise NotImplementedError

    def _brief(self, id_: str, cause: str, level: TransferLevel, said: Prose | str = "", again: str = "") -> None:
        """Publish the brief of a reasoning as it is now, with what a model said or why it did not.

        Raises Refused: it was not admitted; ``INVALID_FIELD`` when the prose is of an earlier version.
        """
        full = self._reader.full_reasoning(id_)
        prose, missing = (said, "") if isinstance(said, Prose) else (None, said)
        if prose is not None and not holds(prose, full.memory):
            raise Refused("INVALID_FIELD", "the reasoning was extended while the model wrote about it")
        domain = self._reader.answer("reasoning.show", {"id": id_})["domain"] or None
        brief = compress(full.memory, level, domain=domain)
        prompt = to_context_prompt(brief)
        briefed = fitting(ReasoningBriefed(brief, prompt.prompt, prompt.tokens, prose=prose, prose_missing=missing))
        stream = f"reasoning/{id_}"
        # The stream is part of the key: two agents may come to the very same graph.
        idem = f"{COMPRESSOR_NAME}/{COMPRESSOR_VERSION}:{level.value}:{stream_token(stream)}:{full.ref}{again}"
        try:
            self._author.emit(Draft(stream=stream, data=briefed, causes=[cause], idem=idem))
        except Refused as refusal:
            if refusal.code != "IDEMPOTENCY_CONFLICT":
                raise
            # The same compressor made this brief before, with another tokenizer at hand: that one stands.
            log.warning("brief was published before", stream=stream, idem=idem)


class CompressorWorker(_Worker):
    """Publishes the briefs of every concluded reasoning, from the start of the log on."""

    name = "compressor"
    is_from_start = True

    def __init__(self, author: Author, reader: Reader, store: Path, *, wants_prose: bool = False) -> None:
        """Keep the position in ``store``, and there what a ``ProseWorker`` is to write, if there is one."""
        super().__init__(author, reader, store)
        self._wants_prose = wants_prose

    def _react(self, event: Event, db: sqlite3.Connection) -> None:
        for level in LEVELS:
            is_awaited = self._wants_prose and level is TransferLevel.STANDARD
            self._brief(event.name, event.id, level, PROSE_AWAITED if is_awaited else "")
        if self._wants_prose:
            db.execute("INSERT OR REPLACE INTO prose VALUES (?, ?, ?, ?)", Wanted(event.name, event.id))


class ProseWorker(_Worker):
    """Has a model write the prose of standard briefs, ``parallel_max`` of them at a time."""

    def __init__(
        self, author: Author, reader: Reader, store: Path, llm: LlmClient, *, now: Callable[[], float] = time.time
    ) -> None:
        """Work off what the compressor's ``store`` says is wanted."""
        super().__init__(author, reader, store)
        self._llm = llm
        self._now = now
        self._written: SimpleQueue[tuple[Wanted, Prose | DeedbookError]] = SimpleQueue()

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """Work until ``stop`` is set, or, with ``until``, until nothing is due. Raises Unavailable."""
        asked: set[str] = set()
        with closing(ProseStore(self._store)) as store:
            while not stop.is_set():
                free = self._llm.endpoint.settings.parallel_max - len(asked)
                for wanted in [one for one in store.due(self._now()) if one.id not in asked][: max(0, free)]:
                    asked.add(wanted.id)
                    # A call that hangs ends at its own limit: nobody waits for it when the node stops.
                    threading.Thread(target=self._ask, args=(wanted,), daemon=True).start()
                if until is not None and not asked:
                    return
                with contextlib.suppress(Empty):
                    wanted, prose = self._written.get(timeout=prose_poll_s)
                    asked.discard(wanted.id)
                    store.settle(wanted, self._publish(wanted, prose))

    def _ask(self, wanted: Wanted) -> None:
        try:
            prose: Prose | DeedbookError = write_prose(self._reader.full_reasoning(wanted.id).memory, self._llm)
        except DeedbookError as error:
            prose = error
        except Exception as error:  # without an answer it would count as asked for ever
            log.exception("asking failed", reasoning=wanted.id)
            prose = Unavailable("LLM_INVALID", f"asking failed: {message_of(error)}")
        self._written.put((wanted, prose))

    def _publish(self, wanted: Wanted, said: Prose | DeedbookError) -> Wanted | None:
        """Publish the brief with its prose, or why it has none; return when it is asked for again."""
        number = f":prose:{wanted.cause[:16]}:{wanted.attempts}"
        publish = partial(self._brief, wanted.id, wanted.cause, TransferLevel.STANDARD, again=number)
        if not isinstance(said, DeedbookError):
            try:
                return publish(said)
            except Refused as refusal:
                said = refusal
        again = _again(wanted, said, self._now())
        log.warning("no prose", reasoning=wanted.id, code=said.code, error=said.message, again=again is not None)
        if wanted.attempts == 0 or again is None:  # of an outage, its first and its last failure are worth an event
            with contextlib.suppress(Refused):
                publish(shorten(f"{said.code}: {said.message}", prose_missing_max_chars))
        return again


def _again(wanted: Wanted, error: DeedbookError, now_s: float) -> Wanted | None:
    attempts = wanted.attempts + 1
    if attempts >= _fewer_attempts.get(error.code, prose_attempts_max):
        return None
    wait_s = min(prose_wait_first_s * 2 ** min(wanted.attempts, 10), prose_wait_max_s)
    asked_s = min(error.details.get("retry_after_s", 0.0), prose_wait_asked_max_s)
    return wanted._replace(attempts=attempts, due_s=now_s + max(wait_s, asked_s))


def fitting(briefed: ReasoningBriefed) -> ReasoningBriefed:
    """Return a brief without its embedding where both together would not fit an entry: the facts come first."""
    if len(encode_canonical(briefed)) <= data_size_max_bytes:
        return briefed
    return replace(briefed, brief=replace(briefed.brief, embedding=None))


class ValidatorWorker(_Worker):
    """Publishes a report on every concluded reasoning from now on."""

    name = "validator"
    is_from_start = False

    def __init__(self, author: Author, reader: Reader, store: Path, tree: Path, judge: Judge | None = None) -> None:
        """Keep the position in ``store``; look for evidence in ``tree``."""
        super().__init__(author, reader, store)
        self._tree = tree
        self._judge = judge

    def _react(self, event: Event, _: sqlite3.Connection) -> None:
        with open_tree(self._tree) as tree:
            validated = validate_ref(self._reader.answer, event.name, tree=tree, judge=self._judge)
        publish(self._author, self._reader.answer, validated)
