"""The Python interface: the ledger with its nouns."""
