"""Trees of thoughts as rows: tasks, nodes, and who said what to whom."""
