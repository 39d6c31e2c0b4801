"""Finds credentials in text before they enter the log, from which nothing can be deleted."""
