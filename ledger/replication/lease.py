"""The lease: which node leads, or wants to, as one value that is replaced by compare-and-set on its revision.

No clock is ever compared with another machine's: whoever watches counts, by its own clock, how long the revision has
stood still. A holder renews about once a second; a revision that stands still for as long as the lease lasts is
nobody's any more.
"""

from __future__ import annotations

import msgspec

from deedbook.ledger import limits


class Timing(msgspec.Struct, frozen=True):
    """How long who waits, in milliseconds. Without ``has_lease`` whoever hears no leader leads: to try what that does.

    Who does not ``stand`` only follows.

    ``missed_ms``: without a heartbeat for so long the leader is taken for dead. That costs a term where it is not.
    """

    lease_ms: int = int(limits.lease_s * 1000)
    renew_ms: int = int(limits.lease_renew_s * 1000)
    missed_ms: int = int(limits.heartbeats_missed_s * 1000)
    retry_ms: int = 100
    has_lease: bool = True
    stands: bool = True


class Lease(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who holds it, and for which term; ``term`` is what its holder means to start, and binds nobody."""

    node: str
    term: int


class LeaseObservation(msgspec.Struct, frozen=True):
    """What was last seen of the lease: its revision (0: there is none), and since when that has stood still."""

    lease: Lease | None = None
    revision: int = 0
    since_ms: int = 0

    def after(self, lease: Lease | None, revision: int, now_ms: int) -> LeaseObservation:
        """Return what is known after another look, which may be at a replica that lags: revisions only grow."""
        return LeaseObservation(lease, revision, now_ms) if revision > self.revision else self

    def is_free(self, node: str, now_ms: int, timing: Timing) -> bool:
        """Whether ``node``, which hears no leader, may replace it: it is its own, or nobody renews it.

        A leader renews twice and more in the time after which its heartbeats are missed: it lives if it has.
        """
        return self.lease is None or self.lease.node == node or now_ms - self.since_ms >= timing.missed_ms
