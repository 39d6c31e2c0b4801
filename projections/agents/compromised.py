"""Marks of compromised signatures: events signed with a key since the entry from which it is reported compromised.

A signature is marked, too, if the role that its author needed was granted with a compromised one. The marks are
computed when something is read. No fold computes them, so a report changes only the row of its key. An answer as of a
past entry carries today's marks, because its reader acts today on text that a thief may have written then. The rule is
that of ``ledger.lifecycle.authority.report_on_signature``, the first part of it in SQL. Every answer of a view goes
through ``marked``: a row of an event is marked by the event's key, any other row by the events of its stream. A mark is
``"compromised": N``, the index of the entry that reports the key; other rows have no mark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import asdict, force_setattr

from deedbook.ledger.families import Family, find
from deedbook.projections.answers.answer import Answer, Index, Marked, Page, Redacted
from deedbook.projections.answers.query import Arguments, Plain, QueryContext, json_list

names_listed_max: Final = 10

# For each group of queries whose rows have no stream: the family of the stream, and the column with its name.
_STREAMS: Final = {
    "handoffs": ("handoff", "id"),
    "sessions": ("session", "id"),
    "reasoning": ("reasoning", "id"),
    "decisions": ("decision", "id"),
    "questions": ("question", "id"),
    "reviews": ("review", "id"),
    "snapshots": ("snapshot", "id"),
    "agents": ("agent", "name"),
    "kinds": ("kind", "name"),
    "reports": ("session", "session_id"),
    "briefs": ("reasoning", "reasoning_id"),
    "validations": ("reasoning", "reasoning_id"),
    "search": ("reasoning", "id"),
}
# ``main.`` names the present table: in an answer about the past, another table hides it (``projections.answers.past``).
KEYS_NOW: Final = "main.agent_keys"
_ANY: Final = (
    f"SELECT (SELECT 1 FROM {KEYS_NOW} WHERE compromised_since IS NOT NULL LIMIT 1) AS is_reported, "  # noqa: S608 - fixed texts
    "(SELECT 1 FROM main.redactions LIMIT 1) AS is_redacted"
)

# The entry that reports the signature of the event ``e`` as compromised, or NULL.
_OF_EVENT: Final = f"""(
    SELECT CASE WHEN e.event_index >= sk.compromised_since THEN sk.compromised_index
        WHEN sk.since_index >= si.compromised_since THEN si.compromised_index END
    FROM {KEYS_NOW} sk LEFT JOIN {KEYS_NOW} si ON si.key = sk.delegated_by WHERE sk.key = e.key)"""  # noqa: S608 - fixed texts
_EVENTS: Final = (
    f"SELECT e.event_index AS target, {_OF_EVENT} AS compromised FROM events e "  # noqa: S608 - fixed texts
    "WHERE e.event_index IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
)
_OF_STREAMS: Final = (
    f"SELECT e.stream AS target, min({_OF_EVENT}) AS compromised FROM events e "  # noqa: S608 - fixed texts
    "WHERE e.stream IN (SELECT value FROM json_each(?)) GROUP BY e.stream"
)


Reports: TypeAlias = Callable[[Collection[int], Collection[str]], Mapping[Any, int]]
"""Returns the entries that report the signatures of some entries, by index, and of some streams, by name."""

Redactions: TypeAlias = Callable[[Collection[int], Collection[str]], Mapping[Any, Redacted]]
"""Returns the redactions of some entries, by index, and of some streams, by name."""


def marked(context: QueryContext, query: str, answer: Answer) -> Plain:
    """Return the answer as plain values, with the marks of compromised signatures and of erased bodies."""
    (known,) = context.cached(_ANY)
    if known["is_reported"] is None and known["is_redacted"] is None:
        return _plain(answer)
    # Loaded only if there is a redaction, like the records of authority below.
    marks = import_module("deedbook.projections.redactions.marks") if known["is_redacted"] else None
    redactions: Redactions = partial(marks.redactions_of, context) if marks else _none
    return mark(query, answer, partial(_reports, context) if known["is_reported"] else _none, redactions)


def mark(query: str, answer: Answer, reports: Reports, redactions: Redactions) -> Plain:
    """Return the answer as plain values, with marks on the rows that ``reports`` and ``redactions`` name."""
    rows = [(row, target) for row in _rows(answer) if (target := _target_of(query, row)) is not None]
    targets = {target for _, target in rows}
    indexes = {target for target in targets if isinstance(target, int)}
    streams = {target for target in targets if isinstance(target, str)}
    for name, found in (("compromised", reports(indexes, streams)), ("redacted", redactions(indexes, streams))):
        for row, target in rows if found else ():
            if target in found:
                force_setattr(row, name, found[target])  # the query has just made this row, and nothing else uses it
    return _plain(answer)


def _none(_indexes: Collection[int], _streams: Collection[str]) -> dict[Any, Any]:
    return {}


def _plain(answer: Answer) -> Plain:
    plain: Plain = msgspec.to_builtins(answer, str_keys=True)
    return plain


def _reports(context: QueryContext, indexes: Collection[int], streams: Collection[str]) -> dict[Any, int]:
    reports: dict[Any, int] = {}
    for sql, targets in ((_EVENTS, sorted(indexes)), (_OF_STREAMS, sorted(streams))):
        for match in context.rows(sql, (json_list(targets),)):
            if match["compromised"] is not None:
                reports[match["target"]] = match["compromised"]
    # Loaded only if a key is reported: a list that starts fast does not need the records of authority.
    of_roles: dict[Any, int] = import_module("deedbook.projections.agents.doubtful_roles").reports_on_roles(
        context, indexes, streams
    )
    return of_roles | reports


class CompromisedKey(Answer, frozen=True, kw_only=True):
    """A key (hex) whose signatures from ``since`` on are compromised, as the entry ``compromised`` reports."""

    key: str
    since: Index
    compromised: Index


def list_compromised(context: QueryContext, _args: Arguments) -> Page[CompromisedKey]:
    """Return all compromised keys, for callers that read log entries instead of views."""
    sql = (
        f"SELECT key, compromised_since AS since, compromised_index AS compromised FROM {KEYS_NOW} "  # noqa: S608 - fixed texts
        "WHERE compromised_since IS NOT NULL "
        f"UNION SELECT k.key, k.since_index, i.compromised_index FROM {KEYS_NOW} k JOIN {KEYS_NOW} i "
        "ON i.key = k.delegated_by AND k.since_index >= i.compromised_since ORDER BY key, since"
    )
    keys = [CompromisedKey(**row) for row in context.rows(sql)]
    return Page(items=keys, total=len(keys))


def compromised_sentences(answer: Any, also: Mapping[str, int] | None = None) -> list[str]:
    """Return a sentence for each entry that reports a key of rows in the answer, or of names in ``also``."""
    names_by_report: dict[int, list[str]] = {}
    for name, report in (compromised_names(answer) | dict(also or {})).items():
        names_by_report.setdefault(report, []).append(name)
    return [
        f"COMPROMISED SIGNATURE: {', '.join(names[:names_listed_max])}"
        + (f" and {len(names) - names_listed_max} more" if len(names) > names_listed_max else "")
        + f" may be forged: entry {report} reports a key behind it as compromised"
        for report, names in sorted(names_by_report.items())
    ]


def compromised_names(answer: Any) -> dict[str, int]:
    """Return the names of the marked rows in an answer, each with the index of the entry that reports the key."""
    reports: dict[str, int] = {}
    for row in _dicts(answer):
        if isinstance(row.get("compromised"), int):
            index = row.get("event_index", row.get("index"))
            names = (row.get(name) for name in ("id", "session_id", "reasoning_id", "task_id", "stream", "name"))
            name = f"entry {index}" if index is not None else next(filter(None, names), "this")
            reports[str(name)] = row["compromised"]
    return reports


def _rows(answer: Answer) -> Iterator[Marked]:
    """Yield the parts of an answer that may have marks, according to its type."""
    pending: list[Any] = [answer]
    while pending:
        part = pending.pop()
        if isinstance(part, Marked):
            yield part
        if isinstance(part, Answer):
            pending.extend(getattr(part, name) for name in part.__struct_fields__)
        elif isinstance(part, dict):
            pending.extend(part.values())
        elif isinstance(part, list | tuple):
            pending.extend(part)


def _stream_of_family(query: str) -> tuple[str, str]:
    family = find(query.partition(".")[0])
    return (family.name, family.ids.get(query, "id")) if isinstance(family, Family) else ("", "")


def _target_of(query: str, part: Marked) -> int | str | None:
    """Return the event index or the stream that a row is about; None for a part of another row."""
    row = asdict(part)
    index = row.get("event_index")
    if isinstance(index, int):
        return index
    stream = row.get("stream")
    if isinstance(stream, str):
        return stream
    group = query.partition(".")[0]
    family, column = _STREAMS.get(group) or _stream_of_family(query)
    if query == "handoffs.next":
        family = str(row.get("kind", family))
    name = row.get(column) or row.get(f"{family}_id")
    return f"{family}/{name}" if isinstance(name, str) and family else None


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            yield part
            pending.extend(reversed(part.values()))  # reversed, so that they are yielded in their own order
        elif isinstance(part, list | tuple):
            pending.extend(reversed(part))
