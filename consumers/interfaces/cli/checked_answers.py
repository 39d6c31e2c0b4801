"""Answers from signed entries, for verbs that sign nothing: they load no keys, gate or spool."""

from __future__ import annotations

from typing import Any

from deedbook.consumers.sdk.erased_entries import unhandled_erasures
from deedbook.ledger.client.client import When
from deedbook.ledger.client.local_reader import LocalReader
from deedbook.ledger.client.local_streams import streams_of
from deedbook.projections.answers.checked import ask


class CheckedAnswers:
    """Answers of queries that usually precede a write, about a ledger in a folder (``projections.answers.checked``)."""

    def __init__(self, reader: LocalReader) -> None:
        self._reader = reader
        self.streams = streams_of(reader)
        self.head, self.view = reader.head, reader.view

    def ask(self, query: str, arguments: dict[str, Any], as_of: When | None) -> dict[str, Any]:
        """Return the answer of a query, from signed entries that are verified here."""
        return ask(self, query, arguments, as_of)

    def has_new_erasures(self) -> bool:
        """Return whether the copies of this folder may still hold texts that somebody redacted."""
        return bool(unhandled_erasures(self._reader, self._reader.settings.home).streams)
