"""A search at the interfaces: its command, pages, entry of MCP, and files."""
