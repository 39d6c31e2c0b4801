"""The interfaces of a search: its command, pages, MCP entry, and files."""
