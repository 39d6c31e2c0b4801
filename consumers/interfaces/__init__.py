"""The programs that people and agents start: the command line, MCP, hooks, the node and the demo."""
