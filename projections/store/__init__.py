"""Where views are kept: one small protocol (``store``), and SQLite as the default (``sqlite``)."""
