"""The lease: the node that leads or wants to lead, as one value that is replaced by compare-and-set on its revision.

Clocks of two machines are never compared: each node measures with its own clock how long the revision has not
changed. A holder renews about once a second. A revision that has not changed for the length of the lease is free.
"""

from __future__ import annotations

import msgspec

from deedbook.ledger import limits


class Timing(msgspec.Struct, frozen=True):
    """The waiting times in milliseconds. Without ``has_lease``, a node that hears no leader leads (for experiments).

    A node without ``may_lead`` only follows.

    ``missed_ms``: a leader without a heartbeat for this time counts as dead. If it is alive, that costs a term.
    """

    lease_ms: int = int(limits.lease_s * 1000)
    renew_ms: int = int(limits.lease_renew_s * 1000)
    missed_ms: int = int(limits.heartbeats_missed_s * 1000)
    retry_ms: int = 100
    has_lease: bool = True
    may_lead: bool = True


class Lease(msgspec.Struct, frozen=True, omit_defaults=True):
    """The holder of the lease, and the term that it intends to start, which binds nobody."""

    node: str
    term: int


class LeaseObservation(msgspec.Struct, frozen=True):
    """The last observation of the lease: its revision (0: there is none), and since when it has not changed."""

    lease: Lease | None = None
    revision: int = 0
    since_ms: int = 0

    def after(self, lease: Lease | None, revision: int, now_ms: int) -> LeaseObservation:
        """Return the observation after another read, which may be from a lagging replica: revisions only grow."""
        return LeaseObservation(lease, revision, now_ms) if revision > self.revision else self

    def is_free(self, node: str, now_ms: int, timing: Timing) -> bool:
        """Return whether ``node``, which hears no leader, may replace the lease: it is its own, or nobody renews it.

        A leader renews at least twice in ``missed_ms``, so a renewed lease means that it is alive.
        """
        return self.lease is None or self.lease.node == node or now_ms - self.since_ms >= timing.missed_ms
