"""The ledger's folder: its location, its files, its settings, and the user's trust in it."""
