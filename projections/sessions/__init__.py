"""Sessions as rows: assessments, findings, unknowns, dead ends and tools of each."""
