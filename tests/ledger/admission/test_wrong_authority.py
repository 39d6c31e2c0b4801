"""A gate refuses each wrong event of authority with its code.

``wrong_authority`` and ``wrong_invitations`` make these events; other tests show that both verifiers find them in a
log. Here a real gate decides them. It refuses the first wrong event, and accepts the events before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from building import Ledger
from forge import begin
from forged_steps import WrongLog
from wrong_authority import WHAT_THE_LEDGER_SAYS, WHICH_KEY_SIGNS, WHO_CHANGES_KEYS, WHO_HOLDS_WHICH_ROLE, WHO_REGISTERS
from wrong_declared import WRONG_DECLARED
from wrong_invitations import WHO_IS_A_NODE, WHO_IS_LET_IN

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.events.fields import EventData
    from deedbook.ledger.format.envelope import Submission

GROUPS = (
    WHO_REGISTERS,
    WHO_HOLDS_WHICH_ROLE,
    WHICH_KEY_SIGNS,
    WHO_CHANGES_KEYS,
    WHO_IS_LET_IN,
    WHO_IS_A_NODE,
    WRONG_DECLARED,
)
CASES = [case for group in (*GROUPS, WHAT_THE_LEDGER_SAYS) for case in group if case.is_begun]


class Begun(Ledger):
    """A ledger that begins with the same events as a forged log."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        begin(self)

    def submit(self, submission: Submission) -> list[Accepted]:
        """Submit, and advance the clock by a millisecond, so that the next event differs even with the same content."""
        before = self.head()
        try:
            accepted = super().submit(submission)
        except Refused:
            assert self.head() == before
            raise
        self.clock.advance(0.001)
        return accepted

    def body(self, author: str, stream: str, data: EventData, **draft: str) -> bytes:
        """Return the body that an author would sign."""
        return self.body_of(author, Draft(stream=stream, data=data, **draft))

    def raw(self, author: str, body: bytes) -> None:
        """Submit an event of exactly these bytes, with a valid signature."""
        self.submit(self.sign_bytes(author, body))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule.replace(" ", "-"))
def test_wrong_event_is_refused(case: WrongLog, home: Path) -> None:
    with Begun(home) as ledger, pytest.raises(Refused) as refused:
        case.make(ledger)  # type: ignore[arg-type]  # it has the calls of a forge
    assert refused.value.code == case.code
