"""What a reader trusts: ledger folders that the user allowed, and the heads that were verified before."""
