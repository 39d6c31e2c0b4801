"""Reasoning graphs: the graph itself, its versions, the deltas between them, and their views."""
