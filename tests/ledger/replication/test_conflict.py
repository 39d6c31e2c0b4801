"""What a refused publish means."""

from __future__ import annotations

import pytest

from ledger.replication.conflict import Stored, Term, Verdict, classify
from ledger.replication.lease import Lease, SeenLease, Timing

OURS = [b"1", b"2"]
MINE = Term(4, "b")


def stored(*leaves: bytes, term: Term | None = None) -> list[Stored | None]:
    """Return entries as the stream holds them; the last one starts a term."""
    return [*(Stored(leaf) for leaf in leaves[:-1]), Stored(leaves[-1], term)]


@pytest.mark.parametrize(
    ("held", "verdict"),
    [
        ([], Verdict.ABSENT),
        (stored(b"1", b"2"), Verdict.SAME),
        (stored(b"1", b"2", b"t", term=Term(5, "c")), Verdict.SAME),  # published, and then somebody else's turn
        (stored(b"1"), Verdict.AHEAD),  # in part only
        (stored(b"1", b"x"), Verdict.AHEAD),
        (stored(b"x", b"1", b"2"), Verdict.AHEAD),
        (stored(b"t", term=Term(5, "c")), Verdict.FENCED),
        (stored(b"x", b"t", term=Term(5, "c")), Verdict.FENCED),  # an old answer's entries came first
        (stored(b"t", term=Term(4, "b")), Verdict.AHEAD),  # our own term: its answer was lost
        (stored(b"t", term=Term(3, "c")), Verdict.AHEAD),
        ([None], Verdict.FOREIGN),
        ([*stored(b"1"), None], Verdict.FOREIGN),
    ],
)
def test_what_stands_where_ours_belongs_says_what_became_of_it(held: list[Stored | None], verdict: Verdict) -> None:
    assert classify(OURS, held, MINE) is verdict


def test_a_lease_is_nobodys_when_its_revision_stands_still() -> None:
    timing, seen = Timing(), SeenLease().after(Lease("a", 1), 5, 100)
    assert not seen.is_free("b", 2_599, timing)
    assert seen.is_free("b", 2_600, timing)
    assert seen.is_free("a", 101, timing)
    assert not seen.after(Lease("a", 1), 6, 2_000).is_free("b", 2_600, timing)
    assert seen.after(Lease("c", 1), 4, 2_000) is seen  # a replica that lags
