"""The ledger's folder: where it is found, what it holds, and its settings."""
