"""The bus: how the log reaches other processes over NATS JetStream.

JetStream is transport, fan-out and fence, never the only copy. The log in LMDB decides, and the bus can be rebuilt from
it. The words used here:

- *log stream*: the JetStream stream that holds the published log; the sequence of a message is the entry's index + 1;
- *generation*: the number of a log stream; a damaged stream is retired, and the next one is built from the log;
- *node*: a process that serves the ledger (account LEDGER); everybody else is an *agent*, with an account of its own;
- *unit*: the smallest part that is published whole: one event, or all events of one signed batch.

Importing this package loads none of its modules; ``connection`` translates nats-py's errors for all of them.
"""
