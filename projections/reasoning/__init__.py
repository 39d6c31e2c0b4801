"""Reasoning graphs: the graph itself, and (by other modules) its versions, deltas and views (DESIGN §9)."""
