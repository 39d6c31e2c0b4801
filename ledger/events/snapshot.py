"""A snapshot: the knowledge of an agent at one time, small enough to send.

``briefs`` are the compressed reasoning at each of its levels, without context and embedding, which the snapshot holds
once. The fields ``conclusion`` to ``level`` equal those of the brief at ``level`` (``ledger.lifecycle.snapshot``).
``evidence_refs`` may hold fewer than the graph's ``evidence_count``: those that name secrets come first.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from deedbook.ledger.events.brief import Brief, Level, PackedEmbedding, Sizes
from deedbook.ledger.events.fields import Count, EventData, Label, OptionalId, OptionalText, Ref, Unit
from deedbook.ledger.events.session import Vectors

ContextSource: TypeAlias = Literal["author", "derived", "none"]


class SnapshotTaken(EventData, frozen=True):
    """The author's present knowledge. ``context_source``: the author wrote the context, or it was derived."""

    vectors: Vectors
    context_source: ContextSource
    session_id: OptionalId = ""
    context_summary: OptionalText = ""
    domain: OptionalText = ""
    conclusion: OptionalText = ""
    reasoning_brief: OptionalText = ""
    reasoning_tags: Annotated[list[Label], msgspec.Meta(max_length=8)] = []
    top_assumptions: Annotated[list[OptionalText], msgspec.Meta(max_length=20)] = []
    reasoning_embedding: PackedEmbedding | None = None
    reasoning_ref: Ref | None = None
    reasoning_fidelity: Unit | None = None
    reasoning_size: Sizes | None = None
    evidence_refs: Annotated[list[OptionalText], msgspec.Meta(max_length=1000)] = []
    evidence_count: Count = 0
    top_evidence_refs: Annotated[list[OptionalText], msgspec.Meta(max_length=20)] = []
    level: Level | None = None
    briefs: Annotated[list[Brief], msgspec.Meta(max_length=3)] = []
