"""Files, closable resources and metrics, which every other package may use."""
