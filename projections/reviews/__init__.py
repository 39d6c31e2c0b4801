"""Reviews as rows: what waits for a human, and what humans have answered."""
