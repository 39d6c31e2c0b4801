"""The encoding, signing and identification of events: canonical JSON, envelopes, keys."""
