"""The events that benchmarks append: of mixed sizes, and signed beforehand, so that only the ledger's work is timed.

The mix is stated in the table's notes: of twenty findings eleven hold 120 characters, six 400, two 1,200 and one 4,000.
All events of a batch are in one stream: the first event starts a session, the others are its findings. The
``eventsourcing`` library saves the same bodies, as JSON values (see ``rivals``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from deedbook.ledger.admission.check import check
from deedbook.ledger.client.author import new_salt, sign
from deedbook.ledger.format.codec import encode_sorted
from tests.building import Ledger, body_fields

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.events.handoff import HandoffCreated
    from deedbook.ledger.format.envelope import Submission

BATCH: Final = 256
MIX: Final = "texts of 120/400/1,200/4,000 characters as 11:6:2:1"
MAP_SIZE: Final = 16 * 1024**3
AUTHOR: Final = "alice"

_SIZES: Final = (120, 400, 120, 120, 1200, 120, 400, 120, 400, 120, 4000, 120, 400, 120, 120, 1200, 400, 120, 400, 120)
_WORDS: Final = "the backup of region seven stalls when its index grows beyond what a disk can hold and nobody is told "
_TEXT: Final = _WORDS * 50


def open_ledger(folder: Path) -> Ledger:
    """Create a ledger with its agents in an empty folder. Its own root key keeps readers from reporting forks."""
    return Ledger(folder, map_size=MAP_SIZE, root=str(folder))


def hand_over_steps(ledger: Ledger, count: int) -> dict[str, HandoffCreated]:
    """Create ``count`` handoffs, and key files beside the log; return the data of each handoff by its id."""
    ledger.write_keys()
    tasks = ["Read what there is", "Write what is missing", "Test both"]
    return {
        (name := f"2026-02-12-step-{number}"): ledger.hand_over(
            name, title=f"The {number}th step of the migration", tasks=tasks
        )
        for number in range(count)
    }


def text_of(number: int) -> str:
    """Return the text of the finding with this number: no two are equal, and their sizes are those of the mix."""
    return f"{number}: {_TEXT[: _SIZES[number % len(_SIZES)]]}"


def session_bodies(ledger: Ledger, name: str, count: int) -> list[bytes]:
    """Return the bodies of a session of ``count`` events: its start, and findings."""
    first = _body(ledger, "session.started", name, {"task": text_of(0)})
    return [first, *(finding(ledger, name, number) for number in range(1, count))]


def finding(ledger: Ledger, name: str, number: int) -> bytes:
    """Return the body of one finding of a session."""
    return _body(ledger, "finding.logged", name, {"evidence": ["src/store.py:120"], "finding": text_of(number)})


def batches(ledger: Ledger, name: str, count: int, *, alone: bool = False) -> list[Submission]:
    """Return signed batches, each on a stream of its own.

    With ``alone``, return as many events to submit one by one in any order. This function starts their streams.
    """
    names = [f"{name}-{n}" for n in range(count)]
    if not alone:
        return [ledger.sign_bytes(AUTHOR, *session_bodies(ledger, each, BATCH)) for each in names]
    return [submission for each in names for submission in singles(ledger, each, BATCH)]


def singles(ledger: Ledger, name: str, count: int) -> list[Submission]:
    """Return signed findings of the session ``name``, one in each submission; this function starts the session."""
    ledger.submit(ledger.sign_bytes(AUTHOR, session_bodies(ledger, name, 1)[0]))
    key = ledger.keys[AUTHOR]
    return [sign([finding(ledger, name, number)], key) for number in range(1, count + 1)]


def fill(ledger: Ledger, events: int, *, alone: bool = False) -> None:
    """Append batches, four in each commit, until the log has at least so many entries."""
    while (size := ledger.head()[0]) < events:
        count = min(4, -(-(events - size) // BATCH))
        ledger.gate.admit([check(one) for one in batches(ledger, f"fill-{size}", count, alone=alone)])


def _body(ledger: Ledger, kind: str, name: str, data: dict[str, Any]) -> bytes:
    # This text is all ASCII and has no floats, so its sorted form is the canonical one.
    return encode_sorted(body_fields(kind, f"session/{name}", data, ledger=ledger.id, author=AUTHOR, salt=new_salt()))
