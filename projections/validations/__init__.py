"""Validations as rows: what was found about which version of a graph, by whom."""
