"""Trees of Thoughts as rows: tasks, nodes, and the messages between their agents."""
