"""The reader's trust: the heads of a ledger that a reader has verified, and the comparison of a log with them."""
