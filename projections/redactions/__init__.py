"""Redactions: which entries lost their bodies, by whom, when and why."""
