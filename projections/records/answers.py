"""The types of answers about imported records."""

from __future__ import annotations

from deedbook.projections.answers.answer import Index, Marked, Ms, Untrusted


class ImportedRecord(Marked, frozen=True, kw_only=True):
    """A record of another tool. ``mapped_kind`` null: it is unmapped, for this ``reason``.

    ``original`` is the ref of its bytes, ``source`` the place where they were found. ``claimed_*`` is what the record
    says of itself. ``dirty`` counts its values that could not be read.
    """

    event_index: Index
    stream: str
    original: str
    source: Untrusted
    format: Untrusted
    mapped_kind: str | None
    reason: Untrusted
    claimed_author: Untrusted | None
    claimed_at: Untrusted | None
    importer: str
    accepted_ms: Ms
    dirty: int
