"""Filters by tag and domain: the reasonings that have them, and the handoffs that cite such reasonings."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from deedbook.projections.stores.store import Value

Tag: TypeAlias = Annotated[
    str, msgspec.Meta(min_length=1, max_length=200, description="A tag of a reasoning, such as high_urgency.")
]
Domain: TypeAlias = Annotated[
    str, msgspec.Meta(min_length=1, max_length=200, description="The domain of a reasoning, in any case.")
]
_CITING: Final = (
    "SELECT h.id FROM handoffs h JOIN json_each(h.{column}) c ON TRUE JOIN reasoning_versions v ON v.ref = c.value "
    "WHERE v.reasoning_id IN ({reasonings})"
)

_STREAMS: Final = (
    "(e.stream IN (SELECT 'reasoning/' || id FROM ({}) AS reasoned) "
    "OR e.stream IN (SELECT 'handoff/' || id FROM ({}) AS citing))"
)


class Route(NamedTuple):
    """The filters; a handoff has the tags and domains of the reasonings that it or its result cites."""

    tag: str | None
    domain: str | None

    @property
    def values(self) -> list[Value]:
        """The values that ``reasonings`` binds, in order; none without a filter."""
        return [value for value in self if value is not None]

    def reasonings(self, first: int | None = None) -> str:
        """Return the SELECT of the ids of the reasonings that pass the filters.

        Its parameters are numbered from ``first`` on, or are not numbered.
        """
        conditions = ["EXISTS (SELECT 1 FROM json_each(r.tags) t WHERE t.value = {})"] if self.tag is not None else []
        conditions += ["lower(r.domain) = lower({})"] if self.domain is not None else []
        marks = ["?" if first is None else f"?{first + at}" for at in range(len(conditions))]
        parts = [text.format(mark) for text, mark in zip(conditions, marks, strict=True)]
        return f"SELECT r.id FROM reasonings r WHERE {' AND '.join(parts)}"  # noqa: S608 - fixed texts

    def streams(self) -> str:
        """Return the condition that an event ``e`` belongs to a reasoning or handoff that passes the filters.

        It binds the values three times.
        """
        return _STREAMS.format(self.reasonings(), self.handoffs())

    def handoffs(self, first: int | None = None) -> str:
        """Return the SELECT of the ids of the handoffs that cite such a reasoning.

        Without numbers, it binds the values twice.
        """
        columns = ("reasoning_refs", "result_refs")
        return " UNION ".join(_CITING.format(column=name, reasonings=self.reasonings(first)) for name in columns)
