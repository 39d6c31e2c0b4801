"""Several nodes of one ledger: who leads, and when that changes. Pure decisions.

The words, which are those of Raft (Ongaro and Ousterhout 2014) where it has them:

- *node*: a process with its own folder, log and keys. The *leader* alone admits, *followers* apply what the log stream
  holds. Consensus is JetStream's (its streams are Raft groups); nothing of it is made here.
- *term*: the time of one leader. It begins with the entry ``ledger.term_started``, published by compare-and-set at the
  stream's end: who publishes it has applied all before it, and nobody else's publish fits any more (*fenced*).
- *lease*: who wants to lead, in one key that is replaced by compare-and-set on its revision. It is there so that two
  nodes do not take turns for ever. That no entry is lost or doubled hangs on the stream alone, with or without lease.

A publish whose answer was lost may arrive late, even after its sender has read the stream and gone on. So what stands
where ours belongs may be ours, or another one of ours, or of the leader before, and is then simply the log's next
entry: it is taken as a follower takes it. Only what is no entry of this ledger at this index is damage.

A leader publishes before it appends, so its log is never ahead of the stream, and no tail is ever taken back: a log
that is ahead proves that the stream has lost something.

The driver with real servers is ``consumers.interfaces.node``; ``tests/simulation`` drives the same functions with a
seed.

    >>> from deedbook.ledger.replication.role import Follower, Own, step
    >>> from deedbook.ledger.replication.signals import Tick
    >>> state, actions = step(Follower(heard_ms=0), Tick(), Own("node", size=7), now_ms=10_000)
    >>> type(state).__name__, actions
    ('Candidate', (PutLease(revision=0, lease=Lease(node='node', term=1)),))
"""
