"""The log: one LMDB environment that holds every entry, its tree and what admission must remember.

LMDB *is* the store; there is no storage interface under this package, and tests use a real one. Many processes
may open the same folder: on one machine the file is the bus. Rules kept here:

- one large sparse map, reserved once; default durability (synced), never ``writemap``;
- the write transaction holds only what admission needs: entries by index, ids by (stream, id), state, tiles,
  head. Everything else is a view (``projections.catalog``) that can be rebuilt;
- a read transaction is short: a long one would make the file grow by every page written meanwhile;
- nobody is told "committed" before the commit returned. If the process dies inside a write transaction, LMDB
  drops it: the next start sees the last committed head, and nothing needs repair.
"""
