"""The log: one LMDB environment that holds every entry, its tree and what admission must remember.

LMDB *is* the store; there is no storage interface under this package, and tests use a real one. What it holds and why
only that, and what a crash leaves, is said in ``ledger/README.md``.
"""
