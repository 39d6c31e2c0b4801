"""Turns a caller's arguments into the events of those operations on a handoff that leave its content as it is.

``composition`` does the same for the two others, ``create`` and ``amend``, and imports the syntax of files for them.
People count tasks and criteria from 1, events from 0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from deedbook.consumers.handoffs.operations import OF_WHAT_WAS_READ, OPERATIONS, Verb
from deedbook.consumers.sdk.text import cut
from deedbook.ledger.client.client import Ask, Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.forms import REF_PATTERN
from deedbook.ledger.lifecycle.machine import wrong_state
from deedbook.ledger.lifecycle.rules import rules_of
from deedbook.projections.answers.checked import ask

if TYPE_CHECKING:
    from deedbook.ledger.client.author import Author

_text_max_chars: Final = 80


def query_for(verb: Verb) -> str:
    """Return the query that gives an operation the data of its handoff.

    Most operations need only its id and version.
    """
    return (
        "handoffs.show" if verb in {"amend", "check", "waive", "ask_waiver", "answer", "settle"} else "handoffs.facts"
    )


@contextmanager
def of_version(client: Client, id_: str, version: str | None) -> Iterator[None]:
    """Add to a ``VERSION_MISMATCH`` the fields that changed since the version, and ``changes``, their lines."""
    try:
        yield
    except Refused as refusal:
        if refusal.code != "VERSION_MISMATCH" or version is None:
            raise
        versions = ask(client, "handoffs.versions", {"id": id_})["versions"]
        numbers = [row["number"] for row in versions if row["version"] == version]
        again = f"read it again (`deed handoff show {quote(id_)}`)"
        if not numbers:
            message = f"{id_} never had the version {version}: {again}"
            raise Refused("VERSION_MISMATCH", message, changed=[]) from refusal
        changes = ask(client, "handoffs.versions", {"id": id_, "from": numbers[-1]})["changes"]
        text = "; ".join(told_changes(changes))
        message = f"{id_} has changed since the version you read: {text}: {again}"
        changed = [change["field"] for change in changes]
        raise Refused("VERSION_MISMATCH", message, changed=changed, changes=changes) from refusal


def place_of(verb: Verb, handoff: dict[str, Any], version: str | None) -> int | None:
    """Return the stream length that the event must expect; None if its data names the version that was read.

    Raises Refused: ``VERSION_MISMATCH``: the handoff has another version now.
    """
    if version is None or verb in OF_WHAT_WAS_READ:
        return None
    if version != handoff["version"]:
        raise Refused("VERSION_MISMATCH", f"{handoff['id']} is now version {handoff['version']}")
    return int(handoff["as_of"]["entries"])


def told_changes(changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each line that differs; its text is shortened and quoted."""
    for field, line in ((change["field"], line) for change in changes for line in change["lines"]):
        if line["mark"] == "kept":
            continue
        was, text = (repr(cut(line[name] or "", _text_max_chars)) for name in ("was", "text"))
        verbs = {"changed": f"was {was} and is {text}", "added": f"now has {text}", "removed": f"no longer has {text}"}
        yield f"{field} {verbs[line['mark']]}"


def events_of_step(verb: Verb, handoff: dict[str, Any], values: dict[str, Any], author: Author) -> list[EventData]:
    """Return the events that an operation without content signs, as ``composition.events_of`` does for all.

    ``handoff`` is the answer of the query that ``query_for`` names.

    Raises Refused: ``USAGE``, ``INVALID_FIELD`` or ``TOO_LARGE`` for a part that the handoff lacks or cannot hold.
    """
    view = partial(ask, author.client)
    if verb == "complete":
        refs = {"reasoning_refs": find_refs(view, values["reasoning"])} if "reasoning" in values else {}
        return [kinds.HandoffCompleted(**{name: value for name, value in values.items() if name != "reasoning"} | refs)]
    if verb == "approve":
        return [kinds.HandoffApproved(**{"version": handoff["version"]} | values)]
    if verb == "claim":
        minutes = values.get("lease_minutes")
        return [kinds.HandoffClaimed(lease_seconds=None if minutes is None else 60 * minutes)]
    if verb == "check":
        return ticks_of(handoff, **{name: value for name, value in values.items() if name != "version"})
    if verb in ("waive", "ask_waiver"):
        return _waivers(verb, handoff, values)
    if verb in ("ask", "answer", "settle"):
        return _questions(verb, handoff, values)
    if verb in ("request_changes", "verify"):
        return [_judgement(verb, handoff, values)]
    # Every other operation signs its arguments as they are, so a new one needs only its row in the table.
    assert verb not in {"create", "amend"}  # noqa: S101 - ``composition`` signs these two
    (data,) = OPERATIONS[verb].signs
    return [data(**{name: value for name, value in values.items() if name != "version"})]


def _waivers(verb: Verb, handoff: dict[str, Any], values: dict[str, Any]) -> list[EventData]:
    numbers = values["criterion_numbers"]
    numbers = [numbers] if isinstance(numbers, int) else numbers
    positions = [position_of(handoff["criteria"], "criterion", number) for number in numbers]
    if verb == "ask_waiver":
        return [kinds.HandoffWaiverAsked(position=position, reason=values["reason"]) for position in positions]
    rest = {"reason": values["reason"], "granted": not values.get("refuse", False)}
    return [kinds.HandoffCriterionWaived(position=position, **rest) for position in positions]


def _questions(verb: Verb, handoff: dict[str, Any], values: dict[str, Any]) -> list[EventData]:
    if verb == "ask":
        return [kinds.HandoffQuestionAsked(to=values["to"], question=values["text"], place=values.get("about"))]
    numbers = dict.fromkeys(values["question_numbers"])
    positions = [position_of(handoff["questions"], "question", number) for number in numbers]
    if verb == "settle":
        comment = values.get("comment", "")
        return [kinds.HandoffQuestionSettled(position=position, comment=comment) for position in positions]
    if len(positions) != 1:
        raise Refused("USAGE", "one text answers one question: answer each by itself", field="question_numbers")
    return [kinds.HandoffQuestionAnswered(position=positions[0], answer=values["text"])]


def check_judged(verb: Verb, handoff: dict[str, Any]) -> None:
    """Refuse to judge a handoff that has no result: nobody completed it, or a reviewer requested changes since."""
    (row,), status = OPERATIONS[verb].rows, handoff["status"]
    state = "imported" if status == "pending" and handoff["result"] else status
    if not handoff["result"] or state not in row.from_states:
        raise wrong_state(rules_of("handoff"), row, state, handoff["id"])


def check_roles(verb: Verb, handoff: Mapping[str, Any], name: str, roles: Collection[str]) -> None:
    """Refuse an agent whose roles never allow an operation, before they are asked to read anything for it.

    Raises Refused: ``NOT_AUTHORIZED``.
    """
    rows = OPERATIONS[verb].rows
    able = [row.roles or rules_of("handoff").roles for row in rows]
    if any(each.intersection(roles) for each in able):
        return
    needed = " or ".join(sorted(frozenset[str]().union(*able)))
    act = rules_of("handoff").act(rows[0].kind)
    reviewer = f": its reviewer is {handoff['reviewer']}" if handoff["reviewer"] else ""
    message = f"to {act} ({handoff['id']}), {name} needs the role {needed}{reviewer}"
    raise Refused("NOT_AUTHORIZED", message, name=name, role=needed)


def _judgement(verb: Verb, handoff: dict[str, Any], values: dict[str, Any]) -> EventData:
    check_judged(verb, handoff)
    if verb == "verify":
        return kinds.HandoffVerified(**values)
    reasons = values["reason"]
    return kinds.HandoffChangesRequested(
        result=values["result"], reasons=[reasons] if isinstance(reasons, str) else reasons
    )


def find_refs(view: Ask, names: Sequence[str]) -> list[str]:
    """Return the refs of reasonings, each named by its id (the present version), a ref, or the beginning of a ref.

    A whole ref that no reasoning here has is accepted: a handoff may cite a graph of another ledger. Views show that.
    """
    refs: dict[str, None] = {}
    for name in names:
        try:
            answer = view("reasoning.show", {"id": name})
        except Refused as refusal:
            if refusal.code != "NOT_FOUND" or not re.match(REF_PATTERN, name):
                raise
            refs[name] = None
        else:
            refs |= {row["ref"]: None for row in answer["versions"] if row["version"] == answer["asked_version"]}
    if len(refs) > (most := kinds.reasoning_refs_max):
        raise Refused("INVALID_FIELD", f"{len(refs)} reasonings: a handoff cites at most {most}", field="reasoning")
    return list(refs)


def ticks_of(
    handoff: dict[str, Any],
    task_numbers: Sequence[int] = (),
    criterion_numbers: Sequence[int] = (),
    *,
    all_open: bool = False,
    undo: bool = False,
    evidence: Sequence[str] = (),
) -> list[EventData]:
    """Return the ticks of the tasks and criteria with these numbers (from 1), or with ``all_open`` of all open ones.

    A single ``evidence`` is for all of them. Several are for one criterion each, or for one task each if there are no
    criteria. A ticked row gets a new event only if its evidence changed, so the list may be empty.
    """
    if not (task_numbers or criterion_numbers or all_open):
        raise Refused("USAGE", "name what to tick: --task N, --criterion N, or --all")
    label_of_each, numbers_of_each = ("criterion", criterion_numbers) if criterion_numbers else ("task", task_numbers)
    if len(evidence) > 1 and (all_open or len(evidence) != len(numbers_of_each)):
        each_too = "" if all_open else f", or once for each {label_of_each}, in their order"
        message = f"evidence is given {len(evidence)} times: give it once for all{each_too}"
        raise Refused("USAGE", message, field="evidence")
    each = dict(zip(numbers_of_each, evidence, strict=True)) if len(evidence) > 1 else {}
    common = "".join(evidence) if len(evidence) == 1 else ""
    drafts: list[EventData] = []
    types = (
        ("tasks", "task", task_numbers, kinds.HandoffTaskChecked),
        ("criteria", "criterion", criterion_numbers, kinds.HandoffCriterionChecked),
    )
    for field, label, numbers, data in types:
        rows = handoff[field]
        wanted = range(1, len(rows) + 1) if all_open else dict.fromkeys(numbers)
        texts = each if label == label_of_each else {}
        drafts += [
            data(position=position, checked=not undo, evidence=texts.get(position + 1, common))
            for position in (position_of(rows, label, number) for number in wanted)
            if _changes(rows[position], texts.get(position + 1, common), all_open=all_open, undo=undo)
        ]
    return drafts


def _changes(row: dict[str, Any], evidence: str, *, all_open: bool, undo: bool) -> bool:
    """Return whether a tick, or its removal, changes a row; other evidence changes a ticked criterion, too."""
    mark = row.get("mark")
    if mark == "checked" and not undo:
        return not all_open and evidence not in ("", row["evidence"])
    is_ticked = bool(row.get("done") or mark == "checked")  # a waiver is not a tick
    return is_ticked == undo and not (all_open and mark == "waived")


def position_of(rows: Sequence[Any], label: str, number: int) -> int:
    """Return the position of a task, criterion or question that a person counts from 1."""
    if not 1 <= number <= len(rows):
        raise Refused("INVALID_FIELD", f"there is no {label} {number} (of {len(rows)})", field=f"{label}_numbers")
    return number - 1
