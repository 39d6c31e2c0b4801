"""Reasoning memory: the compressor, the validator and snapshots."""
