"""placeholder front door; rewritten below."""
