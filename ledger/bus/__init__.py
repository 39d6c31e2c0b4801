"""The bus: how the log reaches other processes over NATS JetStream.

JetStream is transport, fan-out and fence, never the only copy: the log in LMDB decides, and the bus
can be rebuilt from it. The words used here:

- *log stream*: the JetStream stream that holds the published log; its sequence is the index + 1;
- *incarnation*: the number of a log stream; a damaged one is retired, and the next one built from the log;
- *node*: a process that serves the ledger (account LEDGER); everybody else is an *agent* (account AGENTS);
- *unit*: what is published whole: one event, or all events of one signed batch.

The modules, from the wire up: ``subjects`` and ``server_config`` (pure); ``server`` (the embedded nats-server);
``stream`` (the log stream) and ``publisher`` (the log as messages on it); ``service`` (what a node answers, with
``uploads``); ``connection`` (which translates nats-py's errors for all) and ``remote`` (an agent's side). Importing
this package loads none of them.
"""
