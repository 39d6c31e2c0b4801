"""`/week`: a period of the work of all agents: what they learned, what failed, what is open, and how well they judge.

The period is the last seven days (UTC) unless the address says otherwise. Imported history counts at the time and under
the name that it claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from deedbook.consumers.interfaces.dashboard import rows
from deedbook.consumers.interfaces.dashboard.facets import Facets, read
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.consumers.interfaces.dashboard.pages.lists import PATHS
from deedbook.consumers.sdk.text import counted
from deedbook.ledger.errors import Refused
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.answers.answer import UNDATED_MS
from deedbook.projections.reports.calibration import bias_above

rows_max: Final = 8
rows_of_one_max: Final = 50
hits_max: Final = 200
overlaps_max: Final = 5
reports_read_max: Final = 200
points_max: Final = 50
days: Final = 7
day_ms: Final = 86_400_000


class Section(NamedTuple):
    """A section of the page: its title, and the source of its rows with the ``arguments`` of this section.

    ``kinds`` are the kinds of events whose texts the section shows. ``tag`` is the name of the query's argument for a
    chosen tag. If it is empty, the section has no tags, and is left out when a tag is chosen. In the overview, rows
    with the state ``first`` come before others.
    """

    title: str
    source: rows.Source
    kinds: tuple[str, ...]
    tag: str = ""
    arguments: Mapping[str, Any] = {}
    first: str = ""


_STATEMENTS: Final = rows.Source("sessions.statements", rows.statement)


def _stated(title: str, type_: str, kind: str, **arguments: Any) -> Section:
    return Section(title, _STATEMENTS, (kind,), "topic", {"type": type_, **arguments})


_DECISIONS: Final = rows.Source("decisions.list", rows.decision, agent="author")
_OF_HANDOFFS: Final = ("handoff.created", "handoff.amended", "handoff.completed", "handoff.verified")
_OF_VERDICTS: Final = ("handoff.approved", "handoff.rejected", "handoff.changes_requested", "handoff.verified")
_VERDICTS: Final = rows.Source("catalog.find", rows.verdict, {"types": _OF_VERDICTS, "newest": True, "by_title": True})
SECTIONS: Final = {
    "learned": _stated("Learned", "finding", "finding.logged"),
    "failed": _stated("Dead ends", "dead_end", "dead_end.logged"),
    "open": _stated("Unknowns still open", "unknown", "unknown.logged", corrected=False),
    "closed": _stated("Unknowns closed", "unknown", "unknown.logged", corrected=True),
    "concluded": Section("Conclusions", rows.REASONINGS, ("reasoning.concluded",), "tag", {"status": "concluded"}),
    "done": Section("Handoffs done", rows.HANDOFFS, _OF_HANDOFFS, "tag", {"progress": "done"}),
    "waiting": Section("Handoffs still open", rows.HANDOFFS, _OF_HANDOFFS, "tag", {"progress": "waiting"}, "blocked"),
    "judged": Section("Approvals and verdicts", _VERDICTS, _OF_VERDICTS, "tag"),
    "decided": Section("Recorded decisions", _DECISIONS, ("decision.made",)),
    "reported": Section("Reports", rows.REPORTS, ("report.generated",)),
}

KINDS: Final = sorted({kind for section in SECTIONS.values() for kind in section.kinds})
SEARCHED: Final = sorted({*KINDS, "session.started", "reasoning.started"})
"""The kinds that a search considers: rows also show the title or task of their session or reasoning."""
FIELDS: Final = ("since", "until", "agent", "tag")


class Period(NamedTuple):
    """A range of time (Unix ms), without its end."""

    since: int
    until: int

    def moved(self, times: int) -> Period:
        """Return the period that begins this many lengths later."""
        by = times * (self.until - self.since)
        return Period(self.since + by, self.until + by)

    @property
    def query(self) -> dict[str, str]:
        """The parameters of an address that mean this period; a date as the end means the end of that day."""
        since, until = (clock_text(at_ms) for at_ms in self)
        last = clock_text(self.until - day_ms)
        return {
            "since": since[:10] if self.since % day_ms == 0 else since,
            "until": last[:10] if self.until % day_ms == 0 else until,
        }

    @property
    def days(self) -> tuple[str, str]:
        """The first and the last day (UTC)."""
        return clock_text(self.since)[:10], clock_text(self.until - 1)[:10]

    @property
    def title(self) -> str:
        """The number of its days, or that it is a week."""
        number = (self.until - 1) // day_ms - self.since // day_ms + 1
        return "Week" if number == days else counted(number, "day")


def week(context: PageContext) -> Page:
    """Return what happened in a period.

    ``sections`` are lists of rows with their totals, ``agents`` the agents that reported, with their calibration, and
    ``overlaps`` pairs of reports about the same work. ``?kind=`` names one section, which then has pages, and
    ``?text=`` selects the entries with these words (``found``). If nothing happened in the period, ``newest`` is the
    last week before it in which something happened.
    """
    facets = read(context, "/week", "text", "kind", fields=FIELDS)
    chosen, text = facets.others["kind"], facets.others["text"]
    if chosen and chosen not in SECTIONS:
        raise Refused("INVALID_FIELD", f"there is no kind {chosen[:40]!r}: choose one of {', '.join(SECTIONS)}")
    period = _period(facets, context.now_ms)
    filters = {name: facets.arguments[name] for name in FIELDS} | period._asdict()
    found = _find(context, text, filters) if text else None
    filters |= {"entries": found and found["entries"]}
    names = [name for name, section in SECTIONS.items() if section.tag or not filters["tag"]]
    sections = [_section(context, name, filters, is_alone=name == chosen) for name in names]
    is_empty, is_whole = not any(section["total"] for section in sections), not (chosen or text or filters["tag"])
    data = {
        "facets": facets.form(_counts(context, text, filters, found)),
        "lists": PATHS,
        "text": text,
        "kind": chosen,
        "period": period.query,
        "days": period.days,
        "title": period.title,
        "earlier": period.moved(-1).query,
        "later": period.moved(1).query if period.until <= context.now_ms else None,
        "sections": [section for section in sections if chosen in ("", section["name"])],
        "totals": [{name: section[name] for name in ("name", "title", "total")} for section in sections],
        "found": found and {"holds": found["holds"], "is_cut": found["total"] > hits_max},
        "agents": _agents(context, filters) if is_whole else [],
        "overlaps": _overlaps(context, filters) if is_whole else [],
        "limit": bias_above,
        "newest": _newest(context, filters) if is_empty and found is None else None,
    }
    return Page("week.html", period.title, data)


def _period(facets: Facets, now_ms: int) -> Period:
    since, until = facets.arguments["since"], facets.arguments["until"]
    if until is None:
        until = (now_ms // day_ms + 1) * day_ms if since is None or since <= now_ms else since + days * day_ms
    return Period(until - days * day_ms if since is None else since, until)


def _section(context: PageContext, name: str, filters: Mapping[str, Any], *, is_alone: bool) -> dict[str, Any]:
    section = SECTIONS[name]
    arguments = {**section.arguments, **{field: filters[field] for field in ("since", "until", "agent", "entries")}}
    if section.tag:
        arguments[section.tag] = filters["tag"]
    after, limit = (context.number("before"), rows_of_one_max) if is_alone else (None, rows_max)
    page = section.source.page(context, after=after, limit=limit, **arguments)
    if section.first and not is_alone:
        first = section.source.page(context, after=None, limit=limit, **arguments, status=section.first)["rows"]
        page["rows"] = [*first, *(row for row in page["rows"] if row.state != section.first)][:limit]
    return page | {"name": name, "title": section.title, "next": page["next"] if is_alone else None}


def _find(context: PageContext, text: str, filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``entries`` that contain words of a text, their number in the period, and whether they have all words.

    Entries of any time count, too: an unknown that was closed in the period may be older.
    """
    ask = partial(context.ask, "search.find", text=text, kinds=SEARCHED, limit=hits_max)
    anywhere, within = ask(), ask(since=filters["since"], until=filters["until"])
    answers = [answer for answer in (anywhere, within) if answer["holds"] == anywhere["holds"]]
    entries = sorted({hit["event_index"] for answer in answers for hit in answer["items"]})
    return {"entries": entries, "total": within["total"], "holds": anywhere["holds"]}


def _counts(
    context: PageContext, text: str, filters: Mapping[str, Any], found: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return for each agent and tag how many entries of the period it has.

    If entries with all words of ``text`` were found, count only these.
    """
    arguments = {name: filters[name] for name in FIELDS}
    if found is not None and found["holds"] == "all":
        return context.ask("search.facets", text=text, kinds=SEARCHED, **arguments)
    return context.ask("catalog.facets", types=KINDS, **arguments)


def _agents(context: PageContext, filters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each agent with a report in the period: its newest report, the next step, its bias over time."""
    arguments = {name: filters[name] for name in ("since", "until", "agent")}
    latest: dict[str, dict[str, Any]] = {}
    for item in context.ask("reports.list", limit=reports_read_max, **arguments)["reports"]:
        latest.setdefault(item["ai_id"], item)
    span = filters["until"] - filters["since"]
    agents = []
    for record in context.ask("reports.calibration", limit=points_max, **arguments)["items"]:
        item = latest.get(record["ai_id"])
        if item is None:
            continue
        points = [point for point in record["points"] if point["bias"] is not None]
        agents.append(
            {
                "row": rows.report(item),
                "ai_id": record["ai_id"],
                "next": next(iter(item["recommended_next_steps"]), ""),
                "unknowns": len(item["remaining_unknowns"]),
                "total": record["total"],
                "meaning": record["meaning"],
                "counts": record["counts"],
                "points": [
                    {
                        "at": point["timestamp"],
                        "x": (rows.ms_of(point["timestamp"]) - filters["since"]) / span,
                        "bias": point["bias"],
                        "status": point["status"],
                        "is_claim": point["imported"] is not None,
                    }
                    for point in points
                ],
            }
        )
    return sorted(agents, key=lambda agent: -agent["row"].at_ms)


def _overlaps(context: PageContext, filters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return pairs of reports about the same work. If an agent is chosen, one report of each pair is by that agent."""
    answer = context.ask("reports.overlap", since=filters["since"], until=filters["until"], limit=overlaps_max)
    pairs = [
        {
            "score": pair["score"],
            "shared": pair["shared"],
            "rows": [rows.compared_session(session) for session in pair["sessions"]],
        }
        for pair in answer["items"]
    ]
    agent = filters["agent"]
    return [pair for pair in pairs if agent is None or agent in {row.agent for row in pair["rows"]}]


def _newest(context: PageContext, filters: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the query for the seven days up to the last day before the period on which something happened."""
    earlier = {"until": filters["since"], "agent": filters["agent"], "limit": 1}
    answers = [context.ask("sessions.list", **earlier), context.ask("handoffs.list", history="shown", **earlier)]
    times = [item.get("changed_ms", item["happened_ms"]) for answer in answers for item in answer["items"]]
    last = max(times, default=UNDATED_MS)
    if last == UNDATED_MS:
        return None
    until = (last // day_ms + 1) * day_ms
    return Period(until - days * day_ms, until).query
