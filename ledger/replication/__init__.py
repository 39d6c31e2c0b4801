"""Several nodes of one ledger: the choice of the leader. Pure decisions.

The terms are those of Raft (Ongaro and Ousterhout 2014) where it has them:

- *node*: a process with its own folder, log and keys. Only the *leader* admits; *followers* apply the entries of the
  log stream. JetStream provides consensus (its streams are Raft groups); none of it is implemented here.
- *term*: the time of one leader. It begins with the entry ``ledger.term_started``, published by compare-and-set at the
  stream's end: its publisher has applied everything before it, and no other node's publish fits any more (*fenced*).
- *lease*: the node that wants to lead, in one key that is replaced by compare-and-set on its revision. It prevents
  two nodes from taking turns forever. Only the stream, with or without a lease, prevents lost and duplicate entries.

A publish whose answer was lost may arrive late, even after its sender has read the stream and continued. So the message
at our position may be ours, an earlier one of ours, or one of the former leader. It is then the log's next entry, and
the node applies it like a follower. Only a message that is not an entry of this ledger at this index is damage.

A leader publishes before it appends, so its log is never ahead of the stream, and no tail is ever removed: a log that
is ahead proves that the stream has lost entries.

``consumers.interfaces.node`` drives it with real servers; ``tests/simulation`` drives the same functions with a seed.

    >>> from deedbook.ledger.replication.role import Follower, OwnLog, step
    >>> from deedbook.ledger.replication.signals import Tick
    >>> state, actions = step(Follower(heard_ms=0), Tick(), OwnLog("node", size=7), now_ms=10_000)
    >>> type(state).__name__, actions
    ('Candidate', (PutLease(revision=0, lease=Lease(node='node', term=1)),))
"""
