"""A real gate decides each case of ``proto/cases`` on a log on disk; a refusal leaves the log unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from building import Ledger
from rule_cases import SignedRunner, cases_of, cast, families, play

from deedbook.ledger.errors import Refused
from deedbook.ledger.log.keys import stream_key

if TYPE_CHECKING:
    from pathlib import Path

    from rule_cases import Written


class GateRunner(SignedRunner):
    """A ledger on disk."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.ledger = ledger

    def emit(self, written: Written) -> str:
        """Submit an event."""
        before = self.ledger.head()
        try:
            event_id = super().emit(written)
        except Refused:
            assert self.ledger.head() == before
            raise
        self.advance(0.001)  # so that the next event differs, even with the same content
        return event_id

    def size(self) -> int:
        """Return the number of entries."""
        return self.ledger.head()[0]

    def remnant(self, index: int) -> str:
        """Return the digest of the remnant of an entry when it is erased."""
        return self.ledger.redaction(index).remnant

    def state(self, stream: str) -> str:
        """Return the state that the rules see now."""
        with self.ledger.log.snapshot() as snapshot:
            record = snapshot.record(stream_key(stream))
        return self.state_of(stream, None if record is None else record.state)


@pytest.mark.parametrize("family", families())
def test_gate_reaches_the_outcome_of_each_case(family: str, tmp_path: Path) -> None:
    wrong = {}
    with Ledger(tmp_path / "shared", agents=cast()["agents"]) as shared:
        of_shared = GateRunner(shared)
        for number, case in enumerate(cases_of(family)):
            if case.changes_authority:
                with Ledger(tmp_path / str(number), agents=cast()["agents"]) as own:
                    outcome = play(case, GateRunner(own))
            else:
                outcome = play(case, of_shared, prefix=f"c{number}-")
            if not case.is_met_by(outcome):
                wrong[case.name] = (case.then, outcome)
    assert wrong == {}
