"""How events are encoded, signed and identified: canonical JSON, envelopes, keys."""
