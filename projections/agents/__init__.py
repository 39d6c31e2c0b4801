"""Agents and keys as rows: who is registered, with which roles, and which keys may sign since when."""
