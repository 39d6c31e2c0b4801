"""Batches as they stand in the log: whole, contiguous, one key, one signature, one time (DESIGN §2).

Damage must be named at the entry that has it, not at the batch: a member whose key, signature or time differs from
the others' is the one to blame if the signature fits the batch without them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ledger.envelope import batch_pae
from ledger.identity import verify
from ledger.limits import batch_size_max_bytes

if TYPE_CHECKING:
    from consumers.auditor.report import Findings
    from ledger.envelope import Entry


class Member(NamedTuple):
    """One entry of a batch; ``entry`` is None when it could not be decoded."""

    at: int
    entry: Entry | None
    signed: bytes


class Batches:
    """Gathers the members of one batch at a time and checks it when it is whole."""

    def __init__(self, findings: Findings) -> None:
        """Report into ``findings``."""
        self._findings = findings
        self._members: list[Member] = []
        self._size = 0
        self._lost: list[int] = []
        self.verified = 0

    def add(self, index: int, entry: Entry, signed: bytes) -> None:
        """Add the next entry of the log that belongs to a batch."""
        if self._members and not self._fits(index, entry):
            self.end()
        if not self._members:
            self._begin(index, entry)
        self._members.append(Member(index, entry, signed))
        self._check_whole()

    def lose(self, index: int) -> None:
        """Keep the place of an entry that could not be read or decoded."""
        if self._members:
            self._members.append(Member(index, None, b""))
            self._check_whole()
        else:
            self._lost = [*[one for one in self._lost if one > index - 256], index]

    def end(self) -> None:
        """A single event, another batch or the end of the log follows: an open batch is not whole."""
        if not self._members:
            return
        first = self._members[0].at
        self._findings.problem(
            first,
            "VERIFICATION_FAILED",
            f"the batch that begins at entry {first} has {len(self._members)} of its {self._size} events",
            end=first + len(self._members),
        )
        self._members = []

    def _begin(self, index: int, entry: Entry) -> None:
        self._size = entry.batch_size
        start = index - entry.batch_index
        self._members = [Member(one, None, b"") for one in range(start, index)]
        if any(one not in self._lost for one in range(start, index)):
            self._findings.problem(
                index,
                "VERIFICATION_FAILED",
                f"entry {index} is number {entry.batch_index} of a batch that does not stand before it",
            )

    def _fits(self, index: int, entry: Entry) -> bool:
        if entry.batch_size == self._size and entry.batch_index == len(self._members):
            return True
        known = next((one.entry for one in self._members if one.entry is not None), None)
        if known is None or (entry.key, entry.sig) != (known.key, known.sig):
            return False
        # It carries this batch's signature, which no other batch has: only its numbers are wrong.
        self._findings.problem(
            index,
            "VERIFICATION_FAILED",
            f"entry {index} is number {len(self._members)} of a batch of {self._size} and says otherwise",
        )
        return True

    def _check_whole(self) -> None:
        if len(self._members) < self._size:
            return
        members, self._members = self._members, []
        first, end = members[0].at, members[-1].at + 1
        known = [(one.at, one.entry) for one in members if one.entry is not None]
        if len(known) < len(members):
            self._findings.note(
                first, "VERIFICATION_FAILED", f"the signature of entries {first} to {end - 1} cannot be checked"
            )
            return
        if sum(len(entry.body) for _, entry in known) > batch_size_max_bytes:
            self._findings.problem(first, "TOO_LARGE", f"the batch exceeds {batch_size_max_bytes} bytes", end=end)
        self._check_times(known)
        self._check_signature(known, batch_pae([one.signed for one in members]))

    def _check_times(self, known: list[tuple[int, Entry]]) -> None:
        usual, _ = Counter(entry.accepted_ms for _, entry in known).most_common(1)[0]
        for index, entry in known:
            if entry.accepted_ms != usual:
                self._findings.problem(
                    index, "VERIFICATION_FAILED", f"entry {index} has another time than the batch it belongs to"
                )

    def _check_signature(self, known: list[tuple[int, Entry]], signed: bytes) -> None:
        first, count = known[0][0], len(known)
        pairs = Counter((entry.key, entry.sig) for _, entry in known)
        for key, sig in pairs:
            if not verify(key, signed, sig):
                continue
            self.verified += pairs[key, sig]
            for index, entry in known:
                if (entry.key, entry.sig) != (key, sig):
                    self._findings.problem(
                        index, "SIGNATURE_INVALID", f"entry {index} has another key or signature than its batch"
                    )
            return
        self._findings.problem(
            first,
            "SIGNATURE_INVALID",
            f"the signature of the batch does not fit entries {first} to {first + count - 1}",
            end=first + count,
        )
