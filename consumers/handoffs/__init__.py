"""Handoffs: their operations, their files, the router of chains and the notifier."""
