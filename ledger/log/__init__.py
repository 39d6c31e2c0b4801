"""The log: one LMDB environment with every entry, the tree over them, and the state that admission needs.

LMDB *is* the store: there is no storage interface under this package, and tests use a real LMDB. ``ledger/README.md``
lists the tables with their reasons, and what each crash leaves.
"""
