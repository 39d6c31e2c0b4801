"""Where views are stored: SQLite, or PostgreSQL."""
