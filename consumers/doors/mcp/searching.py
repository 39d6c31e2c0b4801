"""The tool that searches all text of the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from consumers.doors.mcp.answering import Answer
from consumers.doors.mcp.reporting import After, Id, PageSize
from consumers.doors.mcp.sizing import fitting, shorten

if TYPE_CHECKING:
    from consumers.doors.mcp.desk import Desk

Sort = Literal["session", "reasoning", "handoff", "tot", "review", "ledger", "agent", "blob"]
_excerpt_tokens = 200


class Hit(Answer):
    """One event whose text matches."""

    event_index: int
    event_id: str
    kind: str
    stream: str
    author: str
    accepted_ms: int
    excerpt: str
    shortened: list[str] | None = None


class Hits(Answer):
    """What a search found, best first."""

    hits: list[Hit]
    total: int
    next: Annotated[int | None, Field(description="The cursor of the next page; null on the last.")]


class Searching:
    """The search tool at one desk."""

    def __init__(self, desk: Desk) -> None:
        """Work at ``desk``."""
        self._desk = desk

    def search(
        self,
        text: Annotated[str, Field(min_length=1, max_length=1_000, description="Words to look for.")],
        sort: Annotated[list[Sort] | None, Field(max_length=8, description="Only streams of these sorts.")] = None,
        author: Annotated[Id | None, Field(description="Only what this agent signed.")] = None,
        limit: PageSize = 10,
        cursor: After = None,
    ) -> Hits:
        """Find events by their text: findings, steps, handoffs, reports."""

        def page(rows: int) -> dict[str, Any]:
            return self._desk.ask("search.find", text=text, sort=sort, author=author, limit=rows, after=cursor)

        found = page(limit)
        hits = [shorten(one, ("excerpt",), _excerpt_tokens) for one in found["hits"]]
        kept = fitting(hits, found | {"hits": []})
        if kept < len(hits):
            found = page(kept)
        return Hits.model_validate(found | {"hits": hits[:kept]})
