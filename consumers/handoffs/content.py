"""Turns a caller's arguments into the events of an operation on a handoff; every interface uses it.

People count tasks and criteria from 1, events from 0. Content that no handoff file can hold is refused before it is
signed, because ``render`` and ``watch`` would fail on it for ever.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import asdict, replace

from deedbook.consumers.handoffs.agent_names import independent, read_agents
from deedbook.consumers.handoffs.files.mapping import content_from, fitting
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.writer import write
from deedbook.consumers.handoffs.operations import NOTES, OF_WHAT_WAS_READ, OPERATIONS, Verb
from deedbook.consumers.handoffs.receiver import SessionNotes, session_notes, with_session
from deedbook.consumers.sdk.text import cut, default_id
from deedbook.ledger.client.client import Ask, Client
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.codec import converted
from deedbook.ledger.format.forms import REF_PATTERN
from deedbook.ledger.lifecycle.machine import wrong_state
from deedbook.ledger.lifecycle.rules import rules_of
from deedbook.projections.answers.checked import ask
from deedbook.projections.handoffs import versions

if TYPE_CHECKING:
    from deedbook.ledger.client.author import Author
    from deedbook.ledger.home.config import Settings

_text_max_chars: Final = 80
_NOT_CONTENT: Final = ("reason", "version", "session", "topics")


class Creation(NamedTuple):
    """A new handoff: its id, its event, and what the sender's session adds to it."""

    id: str
    data: kinds.HandoffCreated
    session: SessionNotes


def creation(view: Ask, sender: str, settings: Settings, id_: str | None, values: dict[str, Any]) -> Creation:
    """Return a new handoff, with today's date and the default reviewer if none is named.

    ``values`` holds the arguments of the operation ``create``. An item of ``depends_on`` may be several ids, separated
    by commas. Raises Refused: ``USAGE`` if no id can be made of the title; ``INVALID_FIELD`` or ``TOO_LARGE`` if no
    handoff file could hold the content; ``NOT_FOUND`` or ``REF_AMBIGUOUS`` if a named reasoning does not exist or is
    ambiguous; as ``session_notes``.
    """
    name = id_.removesuffix(".md") if id_ else default_id(values["title"])
    reviewer = values.get("reviewer")
    if not reviewer:
        default = read_agents(view, settings.config.default_reviewer).reviewer
        reviewer = independent(default, (sender, values["to"]))
    changes = changes_of(view, values)
    own, cited = changes.pop("notes", {}), values.get("reasoning", ())
    added = session_notes(view, sender, values.get("session"), values.get("topics", ()), [name, *cited])
    notes, today = with_session(own, added), datetime.now(UTC).strftime("%Y-%m-%d")
    data = kinds.HandoffCreated(**changes | {"reviewer": reviewer}, notes=notes, created=today)
    write(data, sender)
    return Creation(name, data, added)


def query_for(verb: Verb) -> str:
    """Return the query that gives an operation the data of its handoff.

    Most operations need only its id and version.
    """
    return (
        "handoffs.show" if verb in {"amend", "check", "waive", "ask_waiver", "answer", "settle"} else "handoffs.facts"
    )


@contextmanager
def of_version(client: Client, id_: str, version: str | None) -> Iterator[None]:
    """Add to a ``VERSION_MISMATCH`` what changed since: ``changed`` are the fields, ``changes`` their lines."""
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
    """Return the stream length to expect when signing, if the data itself does not name the version that was read.

    Raises Refused: ``VERSION_MISMATCH``: the handoff has another version now.
    """
    if version is None or verb in OF_WHAT_WAS_READ:
        return None
    if version != handoff["version"]:
        raise Refused("VERSION_MISMATCH", f"{handoff['id']} is now version {handoff['version']}")
    return int(handoff["as_of"]["entries"])


def changes_between(*contents: kinds.HandoffContent) -> list[dict[str, Any]]:
    """Return the differences of two contents, in the shape of ``handoffs.versions``."""
    before, after = ({**asdict(content), "notes": asdict(content.notes)} for content in contents)
    return [change.to_dict() for change in versions.changes_of(before, after)]


def told_changes(changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each line that differs; its text is shortened and quoted."""
    for field, line in ((change["field"], line) for change in changes for line in change["lines"]):
        if line["mark"] == "kept":
            continue
        was, text = (repr(cut(line[name] or "", _text_max_chars)) for name in ("was", "text"))
        verbs = {"changed": f"was {was} and is {text}", "added": f"now has {text}", "removed": f"no longer has {text}"}
        yield f"{field} {verbs[line['mark']]}"


def events_of(verb: Verb, handoff: dict[str, Any], values: dict[str, Any], author: Author) -> list[EventData]:
    """Return the events that an operation signs; ``handoff`` is the answer of the query that ``query_for`` names.

    Raises Refused: ``USAGE``, ``INVALID_FIELD`` or ``TOO_LARGE`` for a part that the handoff lacks or cannot hold.
    """
    view = partial(ask, author.client)
    if verb == "amend":
        _check_read(handoff, values)
        return [amendment_of(handoff, changes_of(view, values), values.get("reason", ""), author)]
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
    assert verb != "create"  # noqa: S101 - there is no state yet: that is ``creation``
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


def approves_import(handoff: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Return whether an amendment with these values approves a handoff whose content an importer can change."""
    return handoff["importer"] is not None and values.get("reviewer", handoff["reviewer"]) is None


def _check_read(handoff: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Check that an amendment is of the version that was read, which it must name if it approves an import.

    The amendment contains the whole content, so it stays right if the handoff changes before the gate accepts it.
    """
    version = values.get("version")
    if version is None and approves_import(handoff, values):
        message = f"this approves {handoff['id']}, which {handoff['importer']} imported: name the version that you read"
        raise Refused("USAGE", message, field="version")
    if version not in (None, handoff["version"]):
        raise Refused("VERSION_MISMATCH", f"{handoff['id']} is now version {handoff['version']}")


def _judgement(verb: Verb, handoff: dict[str, Any], values: dict[str, Any]) -> EventData:
    check_judged(verb, handoff)
    if verb == "verify":
        return kinds.HandoffVerified(**values)
    reasons = values["reason"]
    return kinds.HandoffChangesRequested(
        result=values["result"], reasons=[reasons] if isinstance(reasons, str) else reasons
    )


def changes_of(view: Ask, values: dict[str, Any]) -> dict[str, Any]:
    """Return the event fields that the arguments set, with their new values."""
    changes = {name: value for name, value in values.items() if name not in {*_NOT_CONTENT, *NOTES}}
    if notes := {name: list(values[name]) for name in NOTES if values.get(name)}:
        changes["notes"] = notes
    if "body" in changes:
        changes["task"] = changes.pop("body")
    if "depends_on" in changes:
        changes["depends_on"] = [id_ for text in changes["depends_on"] for id_ in split_ids(text)]
    if "answers" in changes:
        changes["answers"] = changes["answers"].removesuffix(".md")
    if "reasoning" in changes:
        changes["reasoning_refs"] = find_refs(view, changes.pop("reasoning"))
    return changes


def split_ids(text: str) -> list[str]:
    """Return the ids in ``a.md, b``; ``(none)`` is no dependency."""
    ids = [part.strip().removesuffix(".md") for part in text.split(",")]
    return [id_ for id_ in ids if id_ and id_ != "(none)"]


def find_refs(view: Ask, names: Sequence[str]) -> list[str]:
    """Return the refs of reasonings, each named by its id (the present version), a ref, or the beginning of a ref.

    A whole ref that no reasoning here has is accepted: a handoff may cite a graph of another ledger. Views say so.
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


def amendment_of(handoff: dict[str, Any], changes: dict[str, Any], reason: str, author: Author) -> EventData:
    """Return the amendment that sets ``changes`` in a handoff (an answer of ``handoffs.show``)."""
    # The date and the file's template are derived, so no argument sets them.
    known = set(kinds.HandoffContent.__struct_fields__) - {"created", "template"}
    if unknown := changes.keys() - known:
        alike = near(name := min(unknown), known)
        message = f"an amendment cannot change {name!r}{did_you_mean(alike)}"
        raise Refused("UNKNOWN_FIELD", message, field=name, near=alike)

    content = content_from(handoff)
    if "notes" in changes:
        changes = changes | {"notes": _more_notes(content.notes, changes["notes"])}
    senders = (handoff["from"], handoff["importer"])
    if changes.keys() == {"reviewer"} and author.name not in (*senders, handoff["to"]):
        # The current reviewer passes the review on. The file stays as it is; the next rendering writes the new name
        # into it.
        return replace(amended(content, changes, reason), hands_over=True)
    data = amended(content, changes, reason)
    # Content that the file cannot hold is refused now; the next rendering writes the file.
    if content.template is None:
        write(data, handoff["from"])
    else:
        fitting(data, parse(author.client.get_blob(content.template)))
    return data


def _more_notes(notes: kinds.ReceiverNotes, added: dict[str, list[str]]) -> kinds.ReceiverNotes:
    """Return notes with some added; the text ``none`` removes those of its kind."""
    present = {kind: [] if "none" in texts else getattr(notes, kind) for kind, texts in added.items()}
    more = {kind: list(dict.fromkeys([*present[kind], *texts])) for kind, texts in added.items()}
    return replace(notes, **{kind: [text for text in texts if text != "none"] for kind, texts in more.items()})


def ticks_of(
    handoff: dict[str, Any],
    task_numbers: Sequence[int] = (),
    criterion_numbers: Sequence[int] = (),
    *,
    all_open: bool = False,
    undo: bool = False,
    evidence: Sequence[str] = (),
) -> list[EventData]:
    """Return the ticks of tasks and criteria counted from 1, or with ``all_open`` of all that are open.

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


def amended(content: kinds.HandoffContent, changes: dict[str, Any], reason: str) -> kinds.HandoffAmended:
    """Return the amendment that sets ``changes``. Raises Refused: ``USAGE`` if nothing changes; ``INVALID_FIELD``."""
    fields = asdict(content)
    if all(fields[name] == value for name, value in changes.items()):
        raise Refused("USAGE", "this changes nothing: name a field to amend")
    fields |= changes
    if fields["to"] is None:
        raise Refused("USAGE", "its file names no receiver: name one with --to NAME")
    return converted(fields | {"reason": reason, "notes": asdict(fields["notes"])}, kinds.HandoffAmended)
