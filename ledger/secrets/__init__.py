"""Finding credentials in text before it enters a log that cannot forget."""
