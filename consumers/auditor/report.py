"""What an audit says: problems by index, notes, and whether the verdict rests on anything but the ledger itself."""

from __future__ import annotations

from typing import Final

import msgspec

problems_listed_max: Final = 1000
notes_listed_max: Final = 200


class Problem(msgspec.Struct, frozen=True):
    """One thing that is not as it must be.

    ``index`` is the entry it was found at (None when it is of no entry); ``end`` the index after the last one of a
    range, where only a range can be said; ``code`` one of ``ledger.errors.CODES``.
    """

    index: int | None
    code: str
    message: str
    end: int | None = None


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit.

    ``root`` is the Merkle root (hex) computed from the entries, None when an entry could not be read; ``signatures``
    the number of events whose signature was verified; ``problems`` holds at most ``problems_listed_max``, in the
    order of indexes, of ``problems_total``; ``rules_replayed`` is false for a bundle of one stream.
    """

    source: str
    ledger: str | None = None
    origin: str | None = None
    root_key: str | None = None
    root_fingerprint: str | None = None
    size: int = 0
    root: str | None = None
    checkpoint_size: int | None = None
    signatures: int = 0
    kinds: dict[str, int] = {}
    problems: list[Problem] = []
    problems_total: int = 0
    notes: list[Problem] = []
    notes_total: int = 0
    anchored: bool = False
    rules_replayed: bool = True

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return self.problems_total == 0

    @property
    def trust(self) -> str:
        """What the verdict rests on: ``anchored`` or ``self-asserted`` (DESIGN §6)."""
        return "anchored" if self.anchored else "self-asserted"

    @property
    def verdict(self) -> str:
        """The report in one line."""
        if not self.ok:
            where = [problem for problem in self.problems if problem.index is not None]
            first = f", the first at index {where[0].index}" if where else ""
            return f"FAILED: {self.problems_total} problem(s){first}, in {self.size} entries ({self.trust})"
        rules = "rules replayed" if self.rules_replayed else "rules not replayed"
        return f"ok: {self.size} entries, {self.signatures} signatures, {rules} ({self.trust})"


class Findings:
    """Collects problems and notes, each up to its limit, and counts the rest."""

    def __init__(self) -> None:
        """Start with nothing found."""
        self.problems: list[Problem] = []
        self.problems_total = 0
        self.notes: list[Problem] = []
        self.notes_total = 0

    def problem(self, index: int | None, code: str, message: str, *, end: int | None = None) -> None:
        """Record a problem."""
        self.problems_total += 1
        if len(self.problems) < problems_listed_max:
            self.problems.append(Problem(index, code, message, end))

    def note(self, index: int | None, code: str, message: str) -> None:
        """Record a note."""
        self.notes_total += 1
        if len(self.notes) < notes_listed_max:
            self.notes.append(Problem(index, code, message))

    def sorted_problems(self) -> list[Problem]:
        """Return the listed problems by index; those of no entry come last."""
        return sorted(self.problems, key=lambda one: (one.index is None, one.index or 0))
