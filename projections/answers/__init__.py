"""Answering queries: from views, from the past, or from entries that the reader verified."""
