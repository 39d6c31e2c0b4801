"""Clients of a ledger: one interface for a folder on this machine and for a server on the bus."""
