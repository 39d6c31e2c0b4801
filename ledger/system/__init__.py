"""Files, closable resources and metrics: what every other package may use."""
