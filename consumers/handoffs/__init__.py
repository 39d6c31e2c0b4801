"""Handoffs: their acts, their files, the router of chains and the notifier."""
