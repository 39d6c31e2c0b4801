"""The answer of the tool that records."""

from __future__ import annotations

from deedbook.consumers.interfaces.mcp.fence import Own
from deedbook.projections.answers.answer import Answer, Untrusted
from deedbook.projections.search.answers import RelatedDeadEnd


class Recorded(Answer, frozen=True, kw_only=True):
    """The recorded events, the ids for the next call, and the results of an entry that is the only one of its call.

    ``report_id`` is the report that a POSTFLIGHT made; ``dead_ends`` failed in sessions with a similar task;
    ``is_repeat``: an earlier call with this key recorded this, and nothing was added.
    """

    dead_ends: list[RelatedDeadEnd]
    warnings: list[Own]
    problems: list[Untrusted]
