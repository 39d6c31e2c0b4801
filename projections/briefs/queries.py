"""Queries about published briefs: the best one for a ref, a level and a budget."""

from __future__ import annotations

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.brief import Level
from deedbook.ledger.events.reasoning import ReasoningBriefed
from deedbook.ledger.format.codec import read_json
from deedbook.projections.answers.query import Arguments, QueryContext
from deedbook.projections.answers.rows import ViewRows
from deedbook.projections.briefs.answers import PublishedBrief
from deedbook.projections.reasoning.queries import find_version


class BriefFilter(Arguments, frozen=True):
    """The brief is of the version ``id`` at one ``level``; with a ``budget`` it has at most that many tokens."""

    id: str
    level: Level
    budget: int | None = None


def best_brief(context: QueryContext, args: BriefFilter) -> PublishedBrief:
    """Return the brief of the highest fidelity that fits; among equals the shortest, then the newest.

    Raises Refused: ``NOT_FOUND`` if no such brief was published (one can be made on the spot).
    """
    ref = find_version(ViewRows(context), args.id).ref
    sql = (
        "SELECT * FROM briefs WHERE reasoning_ref = ? AND level = ? AND tokens <= coalesce(?, tokens) "
        "ORDER BY fidelity DESC, tokens, event_index DESC LIMIT 1"
    )
    for row in context.rows(sql, (ref, args.level, args.budget)):
        data = read_json(row["data"], ReasoningBriefed)
        return PublishedBrief(**row | {"exact": bool(row["exact"]), "data": data})
    raise Refused("NOT_FOUND", f"no {args.level} brief of {ref} was published", ref=ref, level=args.level)
