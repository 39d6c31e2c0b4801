"""Validations as rows: the reports on graph versions, and their authors."""
