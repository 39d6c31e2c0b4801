"""Records of other tools as rows: what was imported, what it was mapped to, and what is unmapped."""
