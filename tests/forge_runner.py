"""Plays cases of ``proto/cases`` in a log that accepts every event, for tests of the log's verifiers."""

from __future__ import annotations

from forge import Forge
from rule_cases import Case, Outcome, SignedRunner, cast, play
from wrong_redactions import remnant_at

from deedbook.ledger.events.remnant import digest_of


class ForgeRunner(SignedRunner):
    """A log that accepts every event."""

    def __init__(self) -> None:
        self.forge = Forge(is_begun=False, agents=cast()["agents"])
        self.forge.submit(self.forge.sign("root", *self.forge.first_drafts()))
        super().__init__(self.forge)

    def size(self) -> int:
        """Return the number of entries."""
        return len(self.forge.entries)

    def remnant(self, index: int) -> str:
        """Return the digest of the remnant of an entry when it is erased."""
        return digest_of(remnant_at(self.forge, index))

    def state(self, stream: str) -> None:
        """Return nothing: a forged log has no state."""

    def tell(self, case: Case, prefix: str = "") -> int:
        """Play a case; return the index of the event that the case decides."""
        assert play(case, self, prefix) == Outcome("")
        return self.size() - 1
