"""Files, closable resources, metrics and spans, which every other package may use."""
