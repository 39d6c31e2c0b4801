"""The catalog: one row an event, so that any id, digest, kind, stream or author leads to an index."""
