"""Imports transcripts into the ledger, a few responses at a time, whatever their size; an import can be interrupted.

Every response is mapped, stored as unmapped with the reason, or counted as one without thinking. The importer first
asks the views what exists, so a second run adds nothing, also if another agent runs it, or from a copy. A transcript
may grow while it is read: existing reasoning is then extended, never started again. A copy that ends earlier adds
nothing.

If a response cannot be stored (a secret, or larger than a blob), a note of its ids, size and reason is stored.

If we crash here: each response is one atomic batch, so it is stored completely or not at all; a blob without an event
may remain. Running the import again adds the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from deedbook.consumers.importers.reasoning import continuation_of
from deedbook.consumers.importers.records import Counts, Record, Unmapped, unmapped_record
from deedbook.consumers.importers.transcripts import mapping
from deedbook.consumers.importers.transcripts.conversation import Progress, TranscriptResponse, UnreadItem
from deedbook.consumers.sdk.text import shorten
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.imported import DirtyValue
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.secrets.scanner import scan
from deedbook.projections.reasoning.memory import ReasoningMemory, compute_reasoning_ref, memory_from_dict

Put: TypeAlias = Callable[[bytes], str]
FaultsOf: TypeAlias = Callable[[ReasoningMemory], set[str]]
Append: TypeAlias = Callable[[Sequence[Record]], Counts]

responses_at_once_max: Final = 64
size_at_once_max_bytes: Final = 4 * 1024**2
unmapped_shown_max: Final = 100
UNREAD: Final = "unread"
CREDENTIAL: Final = "SECRET_DETECTED"
TASK_LEFT_OUT: Final = "(the prompt holds what looks like a secret)"


class ExistingMatch(NamedTuple):
    """The reasoning ``name`` to which a response belongs; ``rest`` is still to be added to it (None: nothing).

    ``is_new``: the reasoning does not exist yet. ``owner`` is the agent who imported it.
    """

    name: str
    rest: ReasoningMemory | None
    is_new: bool
    owner: str = ""


class ExistingReasoning:
    """Looks up existing reasonings, and those that a dry run would have added."""

    def __init__(self, answer: Ask, *, is_dry: bool = False) -> None:
        """Query the views with ``answer``."""
        self._answer = answer
        self._is_dry = is_dry
        self._rows: dict[str, dict[str, Any]] = {}
        self._planned: dict[str, ReasoningMemory] = {}

    def plan(self, name: str, memory: ReasoningMemory) -> None:
        """Record what a dry run would add."""
        if self._is_dry:
            self._planned[name] = memory

    def look_up(self, mapped: Sequence[mapping.MappedThinking]) -> None:
        """Query all reasonings to which these responses may belong, at once."""
        names = [name for thinking in mapped for name in thinking.names]
        self._rows = self._answer("reasoning.existing", {"ids": names})["reasonings"] if names else {}

    def of(self, thinking: mapping.MappedThinking) -> ExistingMatch:
        """Return the reasoning to which a response belongs, and the part of it that is missing there."""
        for name in thinking.names:
            row = self._rows.get(name)
            if row is None and name not in self._planned:
                return ExistingMatch(name, thinking.memory, is_new=True)
            if row is not None and row["imported"] is None:
                continue  # an agent's own reasoning that happens to have this id
            owner = "" if row is None else row["author"]
            if row is not None and row["ref"] == compute_reasoning_ref(thinking.memory):
                return ExistingMatch(name, None, is_new=False, owner=owner)
            stored = self._planned.get(name) or self._memory(name)
            if is_beginning(thinking.memory, stored):
                return ExistingMatch(name, None, is_new=False, owner=owner)
            if is_beginning(stored, thinking.memory):
                return ExistingMatch(name, rest_of(thinking.memory, stored), is_new=False, owner=owner)
        return ExistingMatch(thinking.names[-1], thinking.memory, is_new=True)

    def has_record(self, stream: str) -> bool:
        """Return whether something is unmapped on a stream."""
        total: int = self._answer("catalog.find", {"stream": stream, "limit": 1})["total"]
        return total > 0

    def _memory(self, name: str) -> ReasoningMemory:
        memory, _ = memory_from_dict(self._answer("reasoning.full", {"id": name})["memory"])
        return memory


def is_beginning(first: ReasoningMemory, whole: ReasoningMemory) -> bool:
    """Return whether one graph is the beginning of another; tasks are not compared."""
    if whole.steps[: len(first.steps)] != first.steps:
        return False
    # The answer grows, too: the text after a tool call follows the text before it.
    return whole.conclusion.startswith(first.conclusion) or len(first.steps) < len(whole.steps)


def rest_of(whole: ReasoningMemory, stored: ReasoningMemory) -> ReasoningMemory:
    """Return the part of a graph that is still missing: further steps, and the conclusion if it changed."""
    conclusion = "" if whole.conclusion == stored.conclusion else whole.conclusion
    steps = whole.steps[len(stored.steps) :]
    new = {step.step_number for step in steps}
    dependencies = {number: rests_on for number, rests_on in whole.dependencies.items() if number in new}
    return msgspec.structs.replace(whole, steps=steps, dependencies=dependencies, conclusion=conclusion)


@dataclass
class ImportTotals(Counts):
    """The counts of an import so far; it lists the first items that are unmapped."""

    sound: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add_unmapped(self, unmapped: Sequence[Unmapped]) -> None:
        """Count items that are unmapped."""
        every = (*self.unmapped_records, *unmapped)
        self.unmapped_records, self.unnamed = every[:unmapped_shown_max], self.unnamed + len(every[unmapped_shown_max:])

    def answer(self) -> dict[str, Any]:
        """Return the counts as commands print them."""
        return super().answer() | {"sound": self.sound, "unsound_by_issue": dict(self.faults.most_common())}


class TranscriptImport:
    """Takes the items of a reader, and appends them in groups."""

    def __init__(
        self,
        me: str,
        answer: Ask,
        put_blob: Put,
        append: Append,
        progress: Progress,
        *,
        faults_of: FaultsOf = lambda _: set(),
        task: str = "",
        is_dry: bool = False,
    ) -> None:
        """Import as ``me``: query with ``answer``, store originals with ``put_blob``, append records with ``append``.

        ``faults_of`` returns the codes of a graph's faults. ``task`` is used for responses that state none.
        ``is_dry``: nothing is written.
        """
        self.totals = ImportTotals()
        self._me = me
        self._put_blob = put_blob
        self._append = append
        self._progress = progress
        self._faults_of = faults_of
        self._task = task
        self._existing = ExistingReasoning(answer, is_dry=is_dry)
        self._waiting: list[mapping.MappedThinking | UnreadItem] = []
        self._names: set[str] = set()
        self._size = 0

    def take(self, response: TranscriptResponse | UnreadItem) -> None:
        """Take one response or unread item."""
        item = mapping.thinking_in(response, self._task) if isinstance(response, TranscriptResponse) else response
        if item is None:
            assert isinstance(response, TranscriptResponse)  # noqa: S101 - unread items were handled above
            self._progress.skipped += response.lines
            return
        names = set(item.names) if isinstance(item, mapping.MappedThinking) else {mapping.unmapped_stream(item)}
        size = len(response.original or b"")
        is_full = len(self._waiting) >= responses_at_once_max or self._size + size > size_at_once_max_bytes
        if is_full or not names.isdisjoint(self._names):
            self.flush()  # the second copy of a response must find the first one in the views
        self._waiting.append(item)
        self._names |= names
        self._size += size

    def flush(self) -> None:
        """Append the collected items."""
        waiting, self._waiting, self._names, self._size = self._waiting, [], set(), 0
        self._existing.look_up([item for item in waiting if isinstance(item, mapping.MappedThinking)])
        self.totals.read += len(waiting)
        mapped = (
            self._thinking(item) if isinstance(item, mapping.MappedThinking) else self._unmapped(item)
            for item in waiting
        )
        records = [record for record in mapped if record is not None]
        if records:
            counts = self._append(records)
            self.totals.mapped += counts.mapped
            self.totals.added += counts.added
            self.totals.add_unmapped(counts.unmapped_records)

    def _thinking(self, thinking: mapping.MappedThinking) -> Record | None:
        """Return the record of a response; None if all of it exists already."""
        answered = thinking.answered
        secret = scan(answered.response)
        if secret is not None:
            return self._unmapped(UnreadItem.of(answered, f"{CREDENTIAL}: {secret.path} ({secret.kind})"))
        task = None
        if scan(thinking.memory.task) is not None:
            thinking = thinking._replace(memory=msgspec.structs.replace(thinking.memory, task=TASK_LEFT_OUT))
            task = DirtyValue(path="prompt", value="(left out)", why=CREDENTIAL)
        existing = self._existing.of(thinking)
        if existing.rest is None:
            self.totals.mapped += 1
            self._check(thinking)
            return None
        if not existing.is_new and existing.owner not in ("", self._me):
            reason = (
                f"NOT_AUTHORIZED: {existing.owner} imported its beginning, so only {existing.owner} can import the rest"
            )
            return self._unmapped(UnreadItem.of(answered, reason))
        try:
            record = self._record(thinking, existing, task)
        except Refused as refusal:
            return self._unmapped(UnreadItem.of(answered, f"{refusal.code}: {refusal.message}"))
        self._existing.plan(existing.name, thinking.memory)
        self._check(thinking)
        return record

    def _check(self, thinking: mapping.MappedThinking) -> None:
        faults = self._faults_of(thinking.memory)
        self.totals.sound += not faults
        self.totals.faults.update(faults)

    def _record(self, thinking: mapping.MappedThinking, existing: ExistingMatch, task: DirtyValue | None) -> Record:
        original = self._put_blob(thinking.answered.original)
        if existing.is_new:
            prompt = None if thinking.is_task_whole or task is not None else self._prompt(thinking.answered)
            return mapping.record_of(thinking, existing.name, original, prompt, task)
        assert existing.rest is not None  # noqa: S101 - else there is nothing to record
        first, *more = mapping.records_of(thinking, list(continuation_of(existing.rest)), original)
        unmapped = mapping.unmapped_stream(thinking.answered)
        return Record(f"reasoning/{existing.name}", first, more=tuple(more), unmapped_stream=unmapped)

    def _unmapped(self, left: UnreadItem) -> Record | None:
        """Return the record of an item that is stored as unmapped; None, and counted, if that exists already."""
        reason, stream = left.reason, mapping.unmapped_stream(left)
        source = shorten(str(left.source).strip(), mapping.source_max_chars) or "—"
        if self._existing.has_record(stream):
            self.totals.add_unmapped([Unmapped(source, reason)])
            return None
        ref = None
        if left.original is not None and not reason.startswith(CREDENTIAL):
            try:
                ref = self._put_blob(left.original)
            except Refused as refusal:
                reason = f"{refusal.code}: {refusal.message}; {reason}"
        if ref is None:
            ids = {"session": left.session, "message": left.message}
            ref = self._note({"left_out": reason, "bytes": left.size}, {name: id_ for name, id_ in ids.items() if id_})
        return unmapped_record(ref, source, UNREAD, reason)._replace(stream=stream, unmapped_stream=stream)

    def _note(self, note: dict[str, Any], ids: dict[str, str]) -> str:
        try:
            return self._put_blob(encode_canonical(note | ids))
        except Refused:
            return self._put_blob(encode_canonical(note))  # if the ids look like a secret, too

    def _prompt(self, answered: TranscriptResponse) -> str | None:
        """Store the whole prompt if the task is only its beginning; return None if it cannot be stored."""
        if answered.prompt is None or not answered.prompt.original:
            return None
        try:
            return self._put_blob(answered.prompt.original)
        except Refused:
            return None
