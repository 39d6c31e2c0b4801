"""Reviews as rows: open requests to humans, and their answers."""
