"""Questions about no handoff, as rows."""
