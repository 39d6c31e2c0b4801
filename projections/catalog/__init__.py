"""The catalog: a row for each event, so that any id, digest, kind, stream or author leads to an index."""
