"""The types of answers about declared kinds."""

from __future__ import annotations

from typing import Any

from deedbook.projections.answers.answer import Index, Marked, Ms, Untrusted


class DeclaredKind(Marked, frozen=True, kw_only=True):
    """A declared kind: who declared it, who may publish its events and on which streams, and their number so far.

    ``phrase`` says in words what happened. The type of the streams is ``x.deploy`` for ``x.deploy/ID``.
    """

    name: str
    phrase: Untrusted
    title: Untrusted
    description: Untrusted
    stream_type: str
    roles: list[str]
    author: str
    declared_index: Index
    declared_ms: Ms
    events: int
    last_index: Index | None


class ShownKind(DeclaredKind, frozen=True, kw_only=True):
    """A declared kind with the JSON Schema of its events' data, whose texts its author wrote."""

    schema: dict[str, Any]
