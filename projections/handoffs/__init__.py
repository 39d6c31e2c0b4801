"""Handoffs as rows: who waits for whom, the progress of the work, and the reasons why a handoff is not ready."""
