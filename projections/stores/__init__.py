"""The stores of views: SQLite, or PostgreSQL."""
