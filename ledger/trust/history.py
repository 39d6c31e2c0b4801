"""Whether the log that a reader meets is the one it read before: decisions only, no file and no network.

A log that begins with what was trusted (RFC 6962 §2.1.2) is followed. Any other is ``HISTORY_CHANGED``, unless it holds
a history reset, new to the reader, that abandons what the reader trusted. Where what was trusted is kept is for others:
``ledger.trust.store`` in a file of its own, a subscription beside its position (``Past``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from deedbook.ledger.errors import Corrupted
from deedbook.ledger.format.merkle import verify_consistency

root_digits_shown: Final = 16
heads_kept: Final = 64
heads_stretch: Final = 1024


class ConsistencyProof(msgspec.Struct, frozen=True):
    """Where a log ends, and what proves that it begins with a smaller one: a consistency path.

    ``root`` is hex. ``resets`` are the ids of its ``ledger.history_reset``, in order. The path is empty when the log
    is no larger than the one that was asked about. Over the bus ``checkpoint`` is the signed note of the same head.
    """

    size: int
    root: str
    path: list[bytes] = []
    resets: list[str] = []
    checkpoint: str = ""

    @property
    def head(self) -> Trusted:
        """What whoever trusts this log remembers of it."""
        return Trusted(self.size, self.root, self.resets)


Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Proven(msgspec.Struct, frozen=True):
    """An entry with its path in the tree of a page's head; one of a signed batch with its path in that batch, too."""

    index: int
    data: bytes
    path: list[bytes]
    batch_path: list[bytes] = []


class StreamRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked of one stream: its entries from ``start`` on, and those of authority from ``authority_start`` on.

    Under the head that the log had at ``size``, or has; with the paths to it from ``old_size`` and ``known_size``.
    """

    stream: str
    start: Size = 0
    authority_start: Size = 0
    size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    old_size: Size = 0
    known_size: Size = 0


class StreamPage(msgspec.Struct, frozen=True):
    """A stretch of what was asked, in the order of the log and under one head.

    ``consistency_proof`` leads to that head from ``old_size``, ``known_path`` from ``known_size``. ``last`` is the last
    entry of the log, whose count says how much authority there is. ``next_index`` is where to go on, None at the end.
    Over the bus ``ends`` is the signed note on how many entries of the stream there are under that head
    (``ledger.proof.checkpoint``).
    """

    consistency_proof: ConsistencyProof
    known_path: list[bytes]
    entries: list[Proven]
    last: Proven
    next_index: int | None = None
    ends: str = ""


class Trusted(msgspec.Struct, frozen=True):
    """A head that a reader trusted: size, root (hex), and the resets that its history held."""

    size: int
    root: str
    resets: list[str] = []


class ResetPoint(msgspec.Struct, frozen=True):
    """An entry ``ledger.history_reset``: its index, the head it abandons (root in hex), and why."""

    index: int
    abandoned_size: int
    abandoned_root: str
    reason: str

    def covers(self, trusted: Trusted) -> bool:
        """Whether it gives up what ``trusted`` remembers: that very head, or a smaller one."""
        if trusted.size == self.abandoned_size:
            return trusted.root == self.abandoned_root
        return trusted.size < self.abandoned_size

    def __str__(self) -> str:
        head = shown(self.abandoned_size, self.abandoned_root)
        return (
            f"the ledger goes on without entries it had accepted: entry {self.index} abandons {head}: {self.reason!r}"
        )


ReadConsistency = Callable[
    [int], ConsistencyProof
]  # Returns where the log ends, with the path from the log of so many entries.
# Returns a history reset of the log by the id of its event, once its signature was checked as far as the reader must.
ReadReset = Callable[[str], ResetPoint]


def shown(size: int, root: str) -> str:
    """Return a head as messages name it."""
    return f"{size} entries with tree head {root[:root_digits_shown]}"


def is_continued(trusted: Trusted, consistency_proof: ConsistencyProof) -> bool:
    """Whether the log begins with what was trusted; never raises, whatever the server sent."""
    try:
        old, new = bytes.fromhex(trusted.root), bytes.fromhex(consistency_proof.root)
    except ValueError:
        return False
    return verify_consistency(trusted.size, old, consistency_proof.size, new, consistency_proof.path)


def trust(
    trusted: Trusted | None, consistency_proof: ConsistencyProof, read_reset: ReadReset, where: str
) -> tuple[Trusted, list[ResetPoint]]:
    """Return the head to trust from now on, and the resets that began since, which are to be told once.

    Raises Corrupted: ``HISTORY_CHANGED``; ``where`` says, as a clause, where the reader keeps what it remembers.
    """
    if trusted is None:
        return consistency_proof.head, []
    begun = [read_reset(id_) for id_ in consistency_proof.resets if id_ not in trusted.resets]
    if not is_continued(trusted, consistency_proof) and not any(reset.covers(trusted) for reset in begun):
        raise changed(trusted, consistency_proof, where)
    return consistency_proof.head, begun


def changed(trusted: Trusted, consistency_proof: ConsistencyProof, where: str) -> Corrupted:
    """Return the error for a log that is not the one which was read before: shorter, or of another past."""
    if consistency_proof.size < trusted.size:
        what = f"this log is shorter than it was: {consistency_proof.size} entries"
    else:
        what = f"this log has another past: {shown(consistency_proof.size, consistency_proof.root)}"
    message = f"""{what}, and {where} {shown(trusted.size, trusted.root)}. Nothing was read on. If entries were lost \
or a copy was put back, run `deed recover --from-stream`, or `deed recover --accept-loss` to go on without them"""
    was = {"trusted_size": trusted.size, "trusted_tree_head": trusted.root}
    return Corrupted("HISTORY_CHANGED", message, **was, size=consistency_proof.size, tree_head=consistency_proof.root)


# What is asked of a log while a past is compared: the consistency proof from so many entries, or the reset of this id.
Question = int | str


class Past:
    """The heads that one subscription trusted, by size: after a history reset they tell how far its past still holds.

    ``led_back_to`` is the position that a history reset led back to last, else None.
    """

    def __init__(self, heads: Iterable[Trusted] = (), where: str = "what this subscription has seen is") -> None:
        self.heads = list(heads)
        self.led_back_to: int | None = None
        self._where = where

    @property
    def size(self) -> int:
        """The size of the log when it was last trusted; 0 at the beginning."""
        return self.heads[-1].size if self.heads else 0

    def meet(self, consistency_proof: ConsistencyProof | None, position: int) -> Generator[Question, Any, int]:
        """Trust what a page said of its log, and return the position to go on at, which only a history reset moves.

        Then it is the size of the largest log that this subscription and the present one share, as far as it remembers
        (else the reset's own index): entries of the new branch are not passed over, and some may come a second time.
        Raises Corrupted: ``HISTORY_CHANGED``; ``VERIFICATION_FAILED`` for a page that says nothing.
        """
        if consistency_proof is None:
            raise Corrupted("VERIFICATION_FAILED", "the ledger's answer does not say how its log has grown")
        last = self.heads[-1] if self.heads else None
        if consistency_proof.head == last:
            return position
        resets: dict[str, ResetPoint] = {}
        for id_ in [] if last is None else consistency_proof.resets:
            if last is not None and id_ not in last.resets:
                resets[id_] = yield id_
        trusted, begun = trust(last, consistency_proof, resets.__getitem__, self._where)
        for reset in begun:
            tell(str(reset))
        if last is not None and not is_continued(last, consistency_proof):
            kept = yield from self._still_held()
            self.led_back_to = position = min(position, kept or begun[0].index)
            tell(f"what was read from index {position} on is given up: reading goes on there, events may come again")
        self.heads.append(trusted)
        if len(self.heads) > 2 * heads_kept:  # keep the newest, and of the older ones the first in each stretch
            older = {head.size // heads_stretch: head for head in reversed(self.heads[:-heads_kept])}
            self.heads[:-heads_kept] = sorted(older.values(), key=lambda head: head.size)
        return position

    def _still_held(self) -> Generator[Question, Any, int]:
        """Drop the heads that the log does not begin with; return the size of the last one left, else 0."""
        low, high = 0, len(self.heads)
        while low < high:
            middle = (low + high) // 2
            if is_continued(self.heads[middle], (yield self.heads[middle].size)):
                low = middle + 1
            else:
                high = middle
        del self.heads[low:]
        return self.size


def answered(questions: Generator[Question, Any, int], read_consistency: ReadConsistency, read_reset: ReadReset) -> int:
    """Return what comes of the questions when they are answered by these two."""
    answer: ConsistencyProof | ResetPoint | None = None
    while True:
        try:
            question = questions.send(answer)
        except StopIteration as end:
            return int(end.value)
        answer = read_consistency(question) if isinstance(question, int) else read_reset(question)


def tell(notice: str) -> None:
    """Say, once, what a reader has to know: on standard error, unless the program logs elsewhere."""
    logging.getLogger("deedbook.memory").warning("%s", notice)
