"""The service agents of reasoning: when one is concluded, the compressor briefs it and the validator checks it.

Their effects are events in the same log, outside their own stores, so each carries an idempotency key. What happens if
we crash here: between the briefs, or between an event and the position, all of them are tried again, and those that are
there are recognised by their keys.

The graph is the one that stands when the worker gets to it, which may be newer than the conclusion it reacts to. The
validator is never the author of a reasoning, so its report is the independent one that acting on a full graph needs.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import structlog
from msgspec.structs import replace

from consumers.reasoning.compressor.compress import compress
from consumers.reasoning.compressor.envelope import COMPRESSOR_NAME, COMPRESSOR_VERSION
from consumers.reasoning.compressor.prose import write_prose
from consumers.reasoning.validator.publication import publish, validate_ref
from consumers.reasoning.validator.trees import open_tree
from consumers.reasoning.validator.validator import Judge, Verdict
from consumers.sdk.llm.judge import LlmJudge, instructions_digest
from consumers.sdk.llm.model import LlmClient
from consumers.sdk.reactor import Reactor
from consumers.sdk.subscriptions import Subscriptions
from ledger.author import Author, Draft
from ledger.bus.subjects import stream_token
from ledger.codec import encode_canonical
from ledger.errors import Refused, Unavailable
from ledger.events.body import Event
from ledger.events.reasoning import Opinion, ReasoningBriefed
from ledger.limits import data_size_max_bytes
from projections.briefs.prompt import TransferLevel, to_context_prompt
from projections.reader import Reader
from projections.reasoning.memory import ReasoningMemory, ReasoningStep

log = structlog.get_logger("baton.compressor")

KINDS: Final = ("reasoning.concluded",)
LEVELS: Final = (TransferLevel.MINIMAL, TransferLevel.STANDARD)
stop_wait_s: Final = 0.1
prose_missing_max_chars: Final = 500

# A model that could not be asked says nothing: that is unsure, and the reason tells why.
_OPINIONS: Final[dict[str, Opinion]] = {"supported": "follows", "unsupported": "does_not_follow"}


class _Worker:
    """Reacts to every concluded reasoning, under a name of its own, as ``author`` (role service)."""

    name: str
    is_from_start: bool

    def __init__(self, author: Author, reader: Reader, store: Path) -> None:
        self._author = author
        self._reader = reader
        self._store = store

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """Work until ``stop`` is set, or until everything before index ``until`` was handled.

        Raises:
            Unavailable: the ledger or the store cannot be used.
        """
        with closing(Subscriptions(self._store)) as subscriptions:
            reactor = Reactor(self._author.client, subscriptions, self.name, wait_s=stop_wait_s)
            reactor.on(*KINDS)(self._react)
            if self.is_from_start:
                reactor.start_at(0)
            reactor.run(stop, until=until)

    def _react(self, event: Event, _: sqlite3.Connection) -> None:
        raise NotImplementedError


class CompressorWorker(_Worker):
    """Publishes the briefs of every concluded reasoning, from the start of the log on."""

    name = "compressor"
    is_from_start = True

    def __init__(self, author: Author, reader: Reader, store: Path, llm: LlmClient | None = None) -> None:
        """Keep the position in ``store``; with ``llm`` a model writes prose beside the standard brief."""
        super().__init__(author, reader, store)
        self._llm = llm

    def _react(self, event: Event, _: sqlite3.Connection) -> None:
        full = self._reader.full_reasoning(event.name)
        domain = self._reader.answer("reasoning.show", {"id": event.name})["domain"] or None
        maker = f"{COMPRESSOR_NAME}/{COMPRESSOR_VERSION}"
        for level in LEVELS:
            brief = compress(full.memory, level, domain=domain)
            prompt = to_context_prompt(brief)
            briefed = ReasoningBriefed(brief=brief, prompt=prompt.prompt, tokens=prompt.tokens)
            if level is TransferLevel.STANDARD:
                briefed = self._with_prose(briefed, full.memory)
            briefed = fitting(briefed)
            # The stream is part of the key: two agents may come to the very same graph.
            idem = f"{maker}:{level.value}:{stream_token(event.stream)}:{full.ref}"
            self._publish(Draft(stream=event.stream, data=briefed, causes=[event.id], idem=idem))

    def _with_prose(self, briefed: ReasoningBriefed, memory: ReasoningMemory) -> ReasoningBriefed:
        if self._llm is None:
            return briefed
        try:
            return replace(briefed, prose=write_prose(memory, self._llm))
        except (Unavailable, Refused) as error:
            log.warning("no prose", code=error.code, error=error.message)
            return replace(briefed, prose_missing=f"{error.code}: {error.message}"[:prose_missing_max_chars])

    def _publish(self, draft: Draft) -> None:
        try:
            self._author.emit(draft)
        except Refused as refusal:
            if refusal.code != "IDEMPOTENCY_CONFLICT":
                raise
            # The same compressor made this brief before, with another tokenizer at hand: that one stands.
            log.warning("brief was published before", stream=draft.stream, idem=draft.idem)


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
        publish(self._author, validated)


class ModelJudge:
    """Asks a model about each inference; ``prompt_hash`` is of the instructions that are the same for all."""

    def __init__(self, client: LlmClient) -> None:
        self._judge = LlmJudge(client)
        self.model = client.model
        self.prompt_hash = f"sha256:{instructions_digest()}"

    def judge(self, step: ReasoningStep, deps: Sequence[ReasoningStep]) -> Verdict:
        """Return whether the step follows from those it rests on; raises nothing."""
        answer = self._judge.judge(step, deps)
        return Verdict(_OPINIONS.get(answer.verdict, "unsure"), answer.reason)
