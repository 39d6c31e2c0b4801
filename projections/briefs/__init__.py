"""Briefs."""
