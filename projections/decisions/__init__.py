"""Decisions as rows: what was decided about which files, and what replaced it."""
