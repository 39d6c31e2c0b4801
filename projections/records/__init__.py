"""Imported records of other tools as rows: what was imported, and the event kind that each record is mapped to."""
