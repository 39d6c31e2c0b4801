"""`/accept`: several imported handoffs, read on one page and accepted as history with one passphrase.

A person must see everything that they sign. So the page shows each handoff in full, and leaves out those that are too
long for it. Each acceptance is an event of its own, which signs the exact result that the page showed, with the token
of that handoff alone. If one of them fails, the others are signed, and the answer says which were not, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from deedbook.consumers.interfaces.dashboard import decision as decisions
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.consumers.interfaces.dashboard.pages.decisions import (
    author_of,
    check_may_sign,
    handoff_form,
    problem_of,
    sign,
)
from deedbook.consumers.interfaces.dashboard.pages.handoffs import compared, whole
from deedbook.consumers.interfaces.web.server import status_of
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.projections.handoffs.claims import claims_over

accepted_max: Final = 20
"""The handoffs on one page: a person reads all of them before signing."""

content_max_chars: Final = 4000
"""The characters of one handoff on this page. A longer one is accepted on its own page."""

PATH: Final = "/accept"
_PICK: Final = "pick-"
_ITEM: Final = "item-"
_VERB: Final = "verify"
_CLAIMS: Final = ("id", "title", "from", "to", "claimed_status", "claimed_author", "claimed_at", "source", "version")


def acceptance(context: PageContext, problem: dict[str, Any] | None = None, status: int = 200, note: str = "") -> Page:
    """Return ``{"items", "left_out", "total", "next", "query", "is_picked", "problem", "outcome_of", …}``.

    ``items`` are the handoffs to read: their claims, ``sections``, and the hidden field ``packed``. ``left_out`` are
    those that this page does not offer, with the reason. The address names the handoffs (``pick-…``: ``is_picked``),
    the imported ones of the queue that pass its filters (``imported=1``), or those that claim to be over (``over=1``).
    ``select=none`` selects none of them at first, for a person who accepts few. ``note`` is that of a refused form.
    """
    names, total, following = _selected(context)
    items: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    for name in names:
        item, why = _item(context, name)
        (left_out if why else items).append(item | {"why": why})
    query = {name: value for name, value in context.query.items() if name != "after"}
    data = {
        "items": items,
        "left_out": left_out,
        "total": total,
        "next": following,
        "query": query,
        "is_picked": any(name.startswith(_PICK) for name in query),
        "problem": problem,
        "note": note,
        "outcome_of": None,
        "needs_passphrase": not context.session.signer.left_s,
    }
    return Page("acceptance.html", "Accept as history", data, status, PATH if problem else "")


def _selected(context: PageContext) -> tuple[list[str], int, object]:
    """Return the ids on this page, the number of all, and the cursor of the next page."""
    query, human = context.query, context.human
    if picked := [value for name, value in query.items() if name.startswith(_PICK)]:
        return picked[:accepted_max], len(picked), None
    if human is None:
        return [], 0, None
    if query.get("over"):
        claiming = {"status": "pending", "history": "only", "reviewer": human}
        answer = context.ask("handoffs.list", **claiming, after=context.number("after"), limit=accepted_max)
    else:
        filters = {name: query.get(name) or None for name in ("from", "text", "after")}
        answer = context.ask("handoffs.next", agent=human, imported=True, **filters, limit=accepted_max)
    return [row["id"] for row in answer["items"]], answer["total"], answer["next"]


def _item(context: PageContext, name: str) -> tuple[dict[str, Any], str]:
    """Return a handoff as the page shows it, and why it cannot be accepted there (empty: it can)."""
    row = whole(context, name)
    item: dict[str, Any] = {"id": row["id"], "title": row["title"]}
    if row["claimed_status"] is None or row["status"] != "pending":
        return item, f"it is {row['status']}, and nothing imported waits for a confirmation"
    form = handoff_form(context, row, compared(context, name), "")
    value = next((choice["value"] for choice in form["choices"] if choice["word"] == _VERB), "") if form else ""
    if form is None or not value:
        return item, f"its reviewer is {row['reviewer'] or row['from']}: only they can accept it"
    if form["only_in_file"] is None:
        return item, "its file cannot be shown"
    shown = [form["sections"], form["only_in_file"], *(row[field] for field in _CLAIMS)]
    if len(msgspec.json.encode(shown).decode()) > content_max_chars:
        return (
            item,
            f"it is longer than {content_max_chars:,} characters, too long for a list: accept it on its own page",
        )
    packed = urlencode({**form["fields"], "id": row["id"], "decision": value})
    claims = {field: row[field] for field in _CLAIMS} | {"is_over": claims_over(row["claimed_status"])}
    content = {field: form[field] for field in ("sections", "only_in_file", "questions")}
    return item | claims | content | {"result": row["result"], "packed": packed}, ""


def accepted(context: PageContext, form: Mapping[str, str]) -> Page:
    """Sign each selected acceptance; say which were signed, and which were not and why.

    A form that another session was shown comes again with its note. Raises Refused: ``USAGE`` if none or too many are
    selected; ``INVALID_FORMAT`` for a form that no page of ours has.
    """
    check_may_sign(context)
    packed = [dict(parse_qsl(value, keep_blank_values=True)) for name, value in form.items() if name.startswith(_ITEM)]
    if not 0 < len(packed) <= accepted_max:
        raise Refused("USAGE", f"select 1 to {accepted_max} handoffs, not {len(packed)}")
    note = form.get("note", "")
    chosen = [_decision(fields | {"note": note}) for fields in packed]
    try:
        for decision in chosen:
            context.session.demand({"csrf": decision.token}, *decision.displayed.token_parts(decision.word))
        author = author_of(context, form)
    except DeedbookError as error:
        ids = {f"{_PICK}{at}": fields["id"] for at, fields in enumerate(packed)}
        problem = {"code": error.code, "message": error.message, "changes": [], "events": []}
        return acceptance(msgspec.structs.replace(context, query=ids), problem, status_of(error), note)
    signed: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for fields, decision in zip(packed, chosen, strict=True):
        try:
            index = sign(context, author, decision, decisions.arguments_of(decision, context.now_ms))
            signed.append({"id": fields["id"], "event_index": index})
        except DeedbookError as error:
            failed.append({"id": fields["id"], **problem_of(context, error, decision)})
    page = acceptance(msgspec.structs.replace(context, query=dict(parse_qsl(form.get("query", "")))))
    data = page.data | {"items": [], "left_out": [], "outcome_of": {"signed": signed, "failed": failed}}
    return page._replace(data=data, status=409 if failed else 200, path=PATH)


def _decision(fields: Mapping[str, str]) -> decisions.Decision:
    """Return the acceptance that hidden fields describe."""
    decision = decisions.decision_in(fields, f"handoff/{fields.get('id', '')}")
    if decision.verb != _VERB:
        raise Refused("INVALID_FORMAT", "this page only accepts results: reload it")
    return decision
