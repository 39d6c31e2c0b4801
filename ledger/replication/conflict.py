"""What it means that a publish was refused or its answer lost: something else stands in the stream where ours belongs.

A publish whose answer was lost may arrive late, even after its sender has read the stream and gone on. So what stands
there may be ours, or another one of ours, or of the leader before, and is then simply the log's next entry: it is taken
as a follower takes it. Only what is no entry of this ledger at this index is foreign.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec


class Verdict(Enum):
    """What stands where ours belongs."""

    ABSENT = "nothing: publish again"
    SAME = "ours: it was published"
    AHEAD = "entries that this log lacks: follow, and decide anew"
    FENCED = "a later term of another node: follow it from now on"
    FOREIGN = "what is no entry of this ledger: the stream is damaged"


class Term(msgspec.Struct, frozen=True):
    """The time of one leader: its number, from 1, and whose it is. 0 and nobody's before the first."""

    number: int = 0
    node: str = ""


class Stored(msgspec.Struct, frozen=True):
    """An entry that the stream holds: its leaf hash, and the term that it starts, if it starts one.

    Its signature was verified and it names its own index; that the rules take it, only a replay tells.
    """

    leaf: bytes
    term: Term | None = None


def classify(ours: Sequence[bytes], stored: Sequence[Stored | None], term: Term) -> Verdict:
    """Judge what the stream holds from the first index of ``ours`` (leaf hashes) on, read in ``term``, which is ours.

    None stands for a message that is missing or no entry: what lies behind it counts for nothing. A group may have been
    published in part only: then it is AHEAD, and those entries are followed though nobody was told of them.
    """
    for position, one in enumerate(stored):
        if one is None:
            return Verdict.FOREIGN
        if one.term is not None and one.term.number > term.number and one.term.node != term.node:
            return Verdict.FENCED
        if position == len(ours) - 1 and [other.leaf for other in stored[: position + 1] if other] == list(ours):
            return Verdict.SAME
    return Verdict.AHEAD if stored else Verdict.ABSENT
