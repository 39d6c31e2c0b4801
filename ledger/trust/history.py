"""Decides whether a log continues the one that the reader trusted before. No file, no clock and no network.

The reader accepts a log that begins with the trusted head (RFC 6962 §2.1.2). It refuses any other log with
``HISTORY_CHANGED``, unless the log contains a history reset that is new to the reader and abandons the trusted head.
Other modules store the heads: ``ledger.trust.store`` in a file, a subscription beside its position (``HeadHistory``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from deedbook.ledger.errors import Corrupted
from deedbook.ledger.format.merkle import verify_consistency

root_digits_shown: Final = 16
recent_heads_min: Final = 64
head_stretch_entries: Final = 1024


class ConsistencyProof(msgspec.Struct, frozen=True):
    """The head of a log, and the consistency path that proves that this log begins with a smaller one.

    ``root`` is hex. ``resets`` are the ids of the log's ``ledger.history_reset`` events, in order. ``path`` is empty if
    the log is no larger than the smaller one. Over the bus, ``checkpoint`` is the signed note of the same head.
    """

    size: int
    root: str
    path: list[bytes] = []
    resets: list[str] = []
    checkpoint: str = ""

    @property
    def head(self) -> TrustedHead:
        """The head that a reader stores when it trusts this log."""
        return TrustedHead(self.size, self.root, self.resets)


Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class ProvenEntry(msgspec.Struct, frozen=True):
    """An entry with its path in the tree of a page's head; with its path in the batch, if it was signed in one."""

    index: int
    data: bytes
    path: list[bytes]
    batch_path: list[bytes] = []


class StreamRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for the entries of one stream from ``start``, and for those of authority from ``authority_start``.

    The answer is under the head that the log had at ``size`` (default: its present head), with consistency paths to
    that head from ``old_size`` and from ``known_size``.
    """

    stream: str
    start: Size = 0
    authority_start: Size = 0
    size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    old_size: Size = 0
    known_size: Size = 0


class StreamPage(msgspec.Struct, frozen=True):
    """One page of the answer to a ``StreamRequest``: entries in log order, all under one head.

    ``consistency_proof`` leads to that head from ``old_size``, ``known_path`` from ``known_size``. ``last`` is the last
    entry of the log; its authority version tells how many entries of authority there are. The next page begins at
    ``next_index``, None on the last page. Over the bus, ``ends`` is the signed note that says how many entries the
    stream has under that head (``ledger.proof.checkpoint``).
    """

    consistency_proof: ConsistencyProof
    known_path: list[bytes]
    entries: list[ProvenEntry]
    last: ProvenEntry
    next_index: int | None = None
    ends: str = ""


class TrustedHead(msgspec.Struct, frozen=True):
    """A head that a reader trusted: size, root (hex), and the ids of the history resets in its log."""

    size: int
    root: str
    resets: list[str] = []


class ResetPoint(msgspec.Struct, frozen=True):
    """A ``ledger.history_reset`` entry: its index, the head that it abandons (root in hex), and the reason."""

    index: int
    abandoned_size: int
    abandoned_root: str
    reason: str

    def covers(self, trusted: TrustedHead) -> bool:
        """Whether the reset abandons ``trusted``: exactly that head, or any smaller one."""
        if trusted.size == self.abandoned_size:
            return trusted.root == self.abandoned_root
        return trusted.size < self.abandoned_size

    def __str__(self) -> str:
        head = head_text(self.abandoned_size, self.abandoned_root)
        return (
            f"the ledger continues without entries that it had accepted: entry {self.index} abandons {head}: "
            f"{self.reason!r}"
        )


# Takes a size. Returns the log's head, with the consistency path from the log of that size.
ReadConsistency = Callable[[int], ConsistencyProof]
# Takes the id of a history reset. Returns the reset after checking its signature as far as the reader requires.
ReadReset = Callable[[str], ResetPoint]


def head_text(size: int, root: str) -> str:
    """Return a head as messages print it."""
    return f"{size} entries with tree head {root[:root_digits_shown]}"


def is_continued(trusted: TrustedHead, consistency_proof: ConsistencyProof) -> bool:
    """Whether the log begins with the trusted head. Never raises, whatever the server sent."""
    try:
        old, new = bytes.fromhex(trusted.root), bytes.fromhex(consistency_proof.root)
    except ValueError:
        return False
    return verify_consistency(trusted.size, old, consistency_proof.size, new, consistency_proof.path)


def trust(
    trusted: TrustedHead | None, consistency_proof: ConsistencyProof, read_reset: ReadReset, source: str
) -> tuple[TrustedHead, list[ResetPoint]]:
    """Return the head to trust from now on, and the resets that are new to the reader; the caller reports them once.

    Raises Corrupted: ``HISTORY_CHANGED``. ``source`` names, in that error, the store of the trusted head.
    """
    if trusted is None:
        return consistency_proof.head, []
    new_resets = [read_reset(id_) for id_ in consistency_proof.resets if id_ not in trusted.resets]
    if not is_continued(trusted, consistency_proof) and not any(reset.covers(trusted) for reset in new_resets):
        raise history_changed(trusted, consistency_proof, source)
    return consistency_proof.head, new_resets


def history_changed(trusted: TrustedHead, consistency_proof: ConsistencyProof, source: str) -> Corrupted:
    """Return the error for a log that does not begin with the trusted head: it is shorter, or another history."""
    if consistency_proof.size < trusted.size:
        problem = f"this log has only {consistency_proof.size} entries"
    else:
        problem = f"this log has another history: {head_text(consistency_proof.size, consistency_proof.root)}"
    message = f"""{problem}, but {source} trusts {head_text(trusted.size, trusted.root)}. Reading stopped here. If \
entries were lost or an old copy was put back, run `deed recover --from-stream`. To continue without the lost entries, \
run `deed recover --accept-loss`"""
    before = {"trusted_size": trusted.size, "trusted_tree_head": trusted.root}
    now = {"size": consistency_proof.size, "tree_head": consistency_proof.root}
    return Corrupted("HISTORY_CHANGED", message, **before, **now)


# A question to the log: a size asks for the consistency proof from it, an id for the history reset of that id.
Question = int | str


class HeadHistory:
    """The heads that one subscription trusted, by size. After a history reset, they show where the two logs part.

    ``reset_position`` is the position that the last history reset moved the subscription to, None if there was none.
    """

    def __init__(self, heads: Iterable[TrustedHead] = (), source: str = "this subscription") -> None:
        self.heads = list(heads)
        self.reset_position: int | None = None
        self._source = source

    @property
    def size(self) -> int:
        """The size of the last trusted log; 0 at the beginning."""
        return self.heads[-1].size if self.heads else 0

    def extend(self, consistency_proof: ConsistencyProof | None, position: int) -> Generator[Question, Any, int]:
        """Trust the head of a page, and return the position to continue at. Only a history reset changes it.

        After a reset, the position is at most the size of the largest head in this history that the log still begins
        with, or the index of the reset if there is no such head. So the subscriber misses no entry of the new branch,
        and may get some events a second time.
        Raises Corrupted: ``HISTORY_CHANGED``; ``VERIFICATION_FAILED`` for a page without a consistency proof.
        """
        if consistency_proof is None:
            raise Corrupted("VERIFICATION_FAILED", "the ledger's answer has no consistency proof: it is not trusted")
        last = self.heads[-1] if self.heads else None
        if consistency_proof.head == last:
            return position
        resets: dict[str, ResetPoint] = {}
        for id_ in [] if last is None else consistency_proof.resets:
            if last is not None and id_ not in last.resets:
                resets[id_] = yield id_
        trusted, new_resets = trust(last, consistency_proof, resets.__getitem__, self._source)
        for reset in new_resets:
            log_notice(str(reset))
        if last is not None and not is_continued(last, consistency_proof):
            shared_size = yield from self._drop_abandoned()
            self.reset_position = position = min(position, shared_size or new_resets[0].index)
            log_notice(f"the log changed from index {position} on: reading continues there, and events may come again")
        self.heads.append(trusted)
        if len(self.heads) > 2 * recent_heads_min:
            # Keep the newest heads, and of the older heads the first in each stretch.
            older = {head.size // head_stretch_entries: head for head in reversed(self.heads[:-recent_heads_min])}
            self.heads[:-recent_heads_min] = sorted(older.values(), key=lambda head: head.size)
        return position

    def _drop_abandoned(self) -> Generator[Question, Any, int]:
        """Drop the heads that the log does not begin with. Return the size of the largest head left, else 0."""
        low, high = 0, len(self.heads)
        while low < high:
            middle = (low + high) // 2
            if is_continued(self.heads[middle], (yield self.heads[middle].size)):
                low = middle + 1
            else:
                high = middle
        del self.heads[low:]
        return self.size


def answer_questions(
    questions: Generator[Question, Any, int], read_consistency: ReadConsistency, read_reset: ReadReset
) -> int:
    """Run ``HeadHistory.extend``, answer its questions with the two functions, and return its position."""
    answer: ConsistencyProof | ResetPoint | None = None
    while True:
        try:
            question = questions.send(answer)
        except StopIteration as end:
            return int(end.value)
        answer = read_consistency(question) if isinstance(question, int) else read_reset(question)


def log_notice(notice: str) -> None:
    """Log a warning for the reader: on standard error, unless the program configures logging."""
    logging.getLogger("deedbook.memory").warning("%s", notice)
