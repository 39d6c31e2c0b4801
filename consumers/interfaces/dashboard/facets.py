"""The filters that pages with lists share: a range of time, an agent, a kind and a tag, with the number of events.

They are a plain form (``facets.html``), whose fields have the same names in the address of every page. A page function
calls ``read`` first: it refuses an address with a mistake, because a page must never ignore a filter. Then the page
function passes ``arguments`` to its query, and ``form(counts)`` to its template. Agents and times of imported records
are those that they claim.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from deedbook.consumers.interfaces.dashboard.page import PageContext
from deedbook.consumers.sdk.times import parse_since, parse_until
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events import KINDS

FIELDS: Final = ("since", "until", "agent", "kind", "tag")
CURSORS: Final = ("after", "before")
"""Parameters for pages of a list. The form leaves them out, because new filters begin at the first page."""
_values_max_chars: Final = 2_000


class WrongFilter(Refused):
    """An address has a filter that its page cannot use; ``form`` is the form for its correction."""

    def __init__(self, refused: Refused, form: dict[str, Any]) -> None:
        super().__init__(refused.code, refused.message, **refused.details)
        self.form = form


class Facets(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of a request: as written (``choices``), and as ``arguments`` of queries.

    ``path`` is that of the page, ``others`` are its other parameters, which the form keeps, and ``registered`` are the
    names of this ledger's agents: other names are claimed by imported records.
    """

    path: str
    choices: dict[str, str]
    others: dict[str, str]
    registered: list[str]
    arguments: dict[str, Any] = {}

    def form(self, counts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the form for ``facets.html``; ``counts`` are the ``Facets`` of a query."""
        values: dict[str, list[dict[str, Any]]] = {}
        for field, name in (("agent", "agents"), ("kind", "types"), ("tag", "tags")):
            values[name] = list((counts or {}).get(name, ()))
            chosen = self.choices.get(field)
            if chosen and all(value["value"] != chosen for value in values[name]):
                values[name].append({"value": chosen, "number": 0 if counts else None})
        for value in values["agents"]:
            value["is_claimed"] = value["value"] not in self.registered
        return {
            "path": self.path,
            "choices": self.choices,
            "others": self.others,
            "query": self.choices | self.others,
            "is_narrowed": any(self.choices.values()),
            "is_complete": (counts or {}).get("is_complete", True),
            **values,
        }


def read(
    context: PageContext, path: str, *others: str, kinds: Collection[str] = KINDS, fields: Collection[str] = FIELDS
) -> Facets:
    """Return the filters in the address of a page, whose other parameters are ``others``.

    Raises WrongFilter: a parameter that the page does not take, a text that is no time, or a kind, agent or tag that
    this ledger does not have.
    """
    choices = {name: context.query.get(name, "").strip() for name in fields}
    other_choices = {name: context.query.get(name, "").strip() for name in others}
    registered = [row["name"] for row in context.ask("agents.list", all=True)["agents"]]
    facets = Facets(path=path, choices=choices, others=other_choices, registered=registered)
    try:
        _check_names(context, (*fields, *others))
        _check_values(context, choices, kinds, registered)
        return msgspec.structs.replace(facets, arguments=_arguments(choices))
    except Refused as refused:
        raise WrongFilter(refused, facets.form()) from refused


def _check_names(context: PageContext, names: Collection[str]) -> None:
    listed = ", ".join(names)
    for name in context.query:
        if name not in {*names, *CURSORS}:
            alike = near(name, names)
            message = f"this page has no filter {name[:40]!r}{did_you_mean(alike) or f'. It has: {listed}'}"
            raise Refused("UNKNOWN_FIELD", message)


def _arguments(choices: Mapping[str, str]) -> dict[str, Any]:
    now = datetime.now(UTC)
    since = parse_since(choices["since"], now) if choices.get("since") else None
    until = parse_until(choices["until"], now) if choices.get("until") else None
    if since is not None and until is not None and since >= until:
        raise Refused("INVALID_FIELD", f"{choices['since']!r} is not before {choices['until']!r}: exchange them")
    agent, type_, tag = (choices.get(name) or None for name in ("agent", "kind", "tag"))
    return {"since": since, "until": until, "agent": agent, "type": type_, "tag": tag}


def _check_values(
    context: PageContext, choices: Mapping[str, str], kinds: Collection[str], registered: Collection[str]
) -> None:
    if (kind := choices.get("kind")) and kind not in kinds:
        raise _unknown("kind", kind, kinds)
    for name, known in (("agent", registered), ("tag", ())):
        value = choices.get(name)
        if not value or value in known:
            continue
        if len(value) > _values_max_chars or not context.ask("catalog.find", limit=1, **{name: value})["total"]:
            counts = context.ask("catalog.facets")[f"{name}s"]
            raise _unknown(name, value, [*known, *(row["value"] for row in counts)])


def _unknown(field: str, value: str, known: Collection[str]) -> Refused:
    alike = near(value, known)
    listed = "" if alike else f". Choose one of the list: {', '.join(sorted(known)[:12])}"
    return Refused("INVALID_FIELD", f"there is no {field} {value[:80]!r} here{did_you_mean(alike)}{listed}")
