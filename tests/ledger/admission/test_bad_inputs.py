"""Every bad input is refused with its own code, and the log stays unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bad_inputs import BAD_INPUTS, BadInput, body, start_session

from deedbook.ledger.errors import CODES, Refused
from deedbook.ledger.format.envelope import decode_submission

if TYPE_CHECKING:
    from building import Ledger


@pytest.mark.parametrize("bad", BAD_INPUTS.values(), ids=BAD_INPUTS.keys())
def test_bad_input_is_refused_with_its_code_and_appends_nothing(ledger: Ledger, bad: BadInput) -> None:
    bad.arrange(ledger)
    before = ledger.head()
    with pytest.raises(Refused) as refused:
        ledger.submit(decode_submission(bad.build(ledger)))
    assert refused.value.code == bad.code, refused.value.message
    assert ledger.head() == before


def test_what_the_bad_inputs_are_made_from_is_admitted(ledger: Ledger) -> None:
    start_session(ledger)
    ledger.submit(ledger.sign_bytes("alice", body(ledger)))
    assert ledger.event(-1).kind == "finding.logged"


def test_every_bad_input_names_a_published_code() -> None:
    assert {bad.code for bad in BAD_INPUTS.values()} <= CODES.keys()


def test_events_are_admitted_after_any_number_of_refusals(ledger: Ledger) -> None:
    start_session(ledger)
    for bad in BAD_INPUTS.values():
        if bad.arrange is start_session:
            with pytest.raises(Refused):
                ledger.submit(decode_submission(bad.build(ledger)))
    size = ledger.head()[0]
    ledger.submit(ledger.sign_bytes("alice", body(ledger)))
    assert ledger.head()[0] == size + 1
