"""Each case of ``proto/cases``, decided by a real gate on a log on disk: what it refuses leaves no trace."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from building import Ledger
from rule_cases import Case, SignedRunner, all_cases, cast, id_of, log_cases, play

from deedbook.ledger.errors import Refused
from deedbook.ledger.log.keys import stream_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rule_cases import Written

_numbers = itertools.count()


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
        self.advance(0.001)  # the next event is another one, even if it says the same
        return event_id

    def size(self) -> int:
        """Return the number of entries."""
        return self.ledger.head()[0]

    def remnant(self, index: int) -> str:
        """Return the digest of what is left of an entry when it is erased."""
        return self.ledger.redaction(index).remnant

    def state(self, stream: str) -> str:
        """Return the state that the rules see now."""
        with self.ledger.log.snapshot() as snapshot:
            record = snapshot.record(stream_key(stream))
        return self.state_of(stream, None if record is None else record.state)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateRunner]:
    """One ledger for all cases that change no keys and roles."""
    with Ledger(tmp_path_factory.mktemp("cases"), agents=cast()["agents"]) as ledger:
        yield GateRunner(ledger)


@pytest.mark.parametrize("case", [case for case in all_cases() if not case.changes_authority], ids=id_of)
def test_gate_reaches_the_outcome(case: Case, shared: GateRunner) -> None:
    outcome = play(case, shared, prefix=f"c{next(_numbers)}-")
    assert case.is_met_by(outcome), (case.then, outcome)


@pytest.mark.parametrize("case", [case for case in log_cases() if case.changes_authority], ids=id_of)
def test_gate_reaches_the_outcome_after_changes_of_authority(case: Case, home: Path) -> None:
    with Ledger(home, agents=cast()["agents"]) as ledger:
        outcome = play(case, GateRunner(ledger))
    assert case.is_met_by(outcome), (case.then, outcome)
