"""Moves a session from one harness to another: its messages, what its agent recorded, and a handoff that says so."""
