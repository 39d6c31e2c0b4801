"""Handoffs as rows: who waits for whom, how far the work is, and why something is not ready."""
