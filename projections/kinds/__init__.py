"""Declared kinds, and their events in the words of their schemas."""
