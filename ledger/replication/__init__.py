"""Several nodes of one ledger: decides what each of them may do now. Pure.

- *node*: a process with its own folder, log and keys. Every node takes submissions.
- *log stream*: the JetStream stream that all nodes share. Its servers provide consensus (a stream is a Raft group);
  none of it is implemented here. A node decides on its own log at index N, and publishes with the condition that the
  stream ends at N. So two nodes never write at one index. The slower one applies the other's entry, and decides again.
- *generation*: a damaged stream is retired, and the next one is filled from a log. The first node that makes it states
  the head of its log in the stream's metadata. No node decides on a log that is shorter than this head.

A publish without an answer is sent again: it can be stored at its position only once. The message at this position may
be ours or another node's. In both cases it is the log's next entry, and the node applies it before it decides again.

A node publishes before it appends, so its log is never ahead of the stream: a log that is ahead proves that the stream
lost entries.

``consumers.interfaces.node`` drives it with real servers; ``tests/simulation`` drives the same functions with a seed.

    >>> from deedbook.ledger.replication.state import NodeState, OwnLog, StreamDamaged, Timing, step
    >>> own = OwnLog("node", size=7)
    >>> state = step(NodeState(interrupted_ms=0), StreamDamaged("it is gone"), own, now_ms=10_000)
    >>> state.may_rebuild(own, 10_000, Timing())
    True
"""
