"""The types of answers about redactions."""

from __future__ import annotations

from deedbook.projections.answers.answer import Answer, Index, Ms, Untrusted


class ListedRedaction(Answer, frozen=True, kw_only=True):
    """A redaction: the erased entry, its event, kind, stream and author, and who erased it when and why.

    ``is_erased`` is false if this log still has the body: then no gate admitted the redaction.
    """

    event_index: Index
    entry: Index
    event: str
    kind: str
    stream: str
    author: str
    by: str
    at_ms: Ms
    reason: Untrusted
    is_erased: bool


class FormerVersions(Answer, frozen=True, kw_only=True):
    """The refs of the versions of a reasoning that change if an entry is erased, by their numbers."""

    versions: dict[int, str]
