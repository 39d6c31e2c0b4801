"""What the acts on a handoff sign, from what a caller says: the command line and the MCP tools share it.

People count tasks and criteria from 1, events from 0. Content that no handoff file could hold is refused before it is
signed, because ``render`` and ``watch`` would fail on it ever after.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict, replace

from deedbook.consumers.handoffs.files.mapping import fitting
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.writer import write
from deedbook.consumers.handoffs.operations import ACTS, NOTES, OF_WHAT_WAS_READ, Verb
from deedbook.consumers.handoffs.receiver import notes_of
from deedbook.consumers.handoffs.stored_content import content_from
from deedbook.consumers.sdk.text import cut, default_id
from deedbook.ledger.client.client import Ask, Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.codec import converted
from deedbook.ledger.format.forms import REF_PATTERN
from deedbook.projections.answers.checked import ask
from deedbook.projections.handoffs import versions

if TYPE_CHECKING:
    from deedbook.ledger.client.author import Author
    from deedbook.ledger.home.config import Settings

_words_max: Final = 80


def creation(
    view: Ask, sender: str, settings: Settings, id_: str | None, given: dict[str, Any]
) -> tuple[str, kinds.HandoffCreated]:
    """Return the id and the event of a new handoff, with today's date and the configured reviewer if none is named.

    ``given`` are the arguments of the act ``create``; of ``depends_on`` each may be several ids with commas. Raises
    Refused: ``USAGE`` for a title that makes no id; ``INVALID_FIELD`` or ``TOO_LARGE`` for what no handoff file could
    hold; ``NOT_FOUND`` or ``REF_AMBIGUOUS`` for a reasoning.
    """
    name = id_.removesuffix(".md") if id_ else default_id(given["title"])
    default = settings.config.default_reviewer  # unless it is party to the handoff
    reviewer = given.get("reviewer") or (None if default in (sender, given["to"]) else default)
    changes = changes_of(view, given)
    notes = notes_of(view, sender, changes.pop("notes", {}), given.get("session"))
    data = kinds.HandoffCreated(
        **changes | {"reviewer": reviewer}, notes=notes, created=datetime.now(UTC).strftime("%Y-%m-%d")
    )
    write(data, sender)
    return name, data


def query_for(verb: Verb) -> str:
    """Return which query tells of a handoff what an act on it needs: most need no more than its id and version."""
    return "handoffs.show" if verb in {"amend", "check", "waive", "ask_waiver"} else "handoffs.facts"


@contextmanager
def of_version(client: Client, id_: str, version: str | None) -> Iterator[None]:
    """Say what changed since of a ``VERSION_MISMATCH``: its ``changed`` are the fields, ``changes`` their lines."""
    try:
        yield
    except Refused as refusal:
        if refusal.code != "VERSION_MISMATCH" or version is None:
            raise
        versions = ask(client, "handoffs.versions", {"id": id_})["versions"]
        read = [one["number"] for one in versions if one["version"] == version]
        again = f"read it again (`deed handoff show {quote(id_)}`)"
        if not read:
            message = f"{version} was never a version of {id_}: {again}"
            raise Refused("VERSION_MISMATCH", message, changed=[]) from refusal
        changes = ask(client, "handoffs.versions", {"id": id_, "from": read[-1]})["changes"]
        words = "; ".join(told_changes(changes)) or "handed in anew"
        message = f"{id_} is another version than the one you have read: {words}: {again}"
        changed = [one["field"] for one in changes]
        raise Refused("VERSION_MISMATCH", message, changed=changed, changes=changes) from refusal


def place_of(verb: Verb, handoff: dict[str, Any], version: str | None) -> int | None:
    """Return the version of the stream that an act is of, where nothing else that it signs names what was read.

    An act that does not sign the version it was given signs how many entries there were when it was the present one.
    Raises Refused: ``VERSION_MISMATCH``: the handoff is of another version.
    """
    if version is None or verb in OF_WHAT_WAS_READ:
        return None
    if version != handoff["version"]:
        raise Refused("VERSION_MISMATCH", f"{handoff['id']} is now version {handoff['version']}")
    return int(handoff["as_of"]["entries"])


def changes_between(*contents: kinds.HandoffContent) -> list[dict[str, Any]]:
    """Return what differs between two contents, as ``handoffs.versions`` tells it."""
    before, after = ({**asdict(one), "notes": asdict(one.notes)} for one in contents)
    return versions.changes_of(before, after)


def told_changes(changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each line that differs; the words are cut, and quoted."""
    for field, line in ((one["field"], line) for one in changes for line in one["lines"] if line["mark"] != "kept"):
        was, text = (repr(cut(line[of] or "", _words_max)) for of in ("was", "text"))
        words = {"changed": f"was {was} and is {text}", "added": f"now has {text}", "removed": f"no longer has {text}"}
        yield f"{field} {words[line['mark']]}"


def events_of(verb: Verb, handoff: dict[str, Any], given: dict[str, Any], author: Author) -> list[EventData]:
    """Return the events that an act on a handoff signs, by its arguments; ``handoff`` is what ``query_for`` answers.

    Raises Refused: ``USAGE``, ``INVALID_FIELD`` or ``TOO_LARGE`` for what the handoff does not have or cannot hold.
    """
    view = partial(ask, author.client)
    if verb == "amend":
        return [amendment_of(handoff, changes_of(view, given), given.get("reason", ""), author)]
    if verb == "complete":
        return [kinds.HandoffCompleted(**changes_of(view, given))]
    if verb == "approve":
        return [kinds.HandoffApproved(**{"version": handoff["version"]} | given)]
    if verb == "claim":
        minutes = given.get("lease_minutes")
        return [kinds.HandoffClaimed(lease_seconds=None if minutes is None else 60 * minutes)]
    if verb == "check":
        return ticks_of(handoff, **{name: value for name, value in given.items() if name != "version"})
    if verb in ("waive", "ask_waiver"):
        numbers = given["criterion_numbers"]
        numbers = [numbers] if isinstance(numbers, int) else numbers
        at = [position_of(handoff["criteria"], "criterion", number) for number in numbers]
        if verb == "ask_waiver":
            return [kinds.HandoffWaiverAsked(position=one, reason=given["reason"]) for one in at]
        granted = not given.get("refuse", False)
        return [kinds.HandoffCriterionWaived(position=one, reason=given["reason"], granted=granted) for one in at]
    if verb == "request_changes":
        reasons = given["reason"]
        reasons = [reasons] if isinstance(reasons, str) else reasons
        return [kinds.HandoffChangesRequested(completion=handoff["completion"], reasons=reasons)]
    if verb == "verify":
        return [kinds.HandoffVerified(**{"version": handoff["version"], "completion": handoff["completion"]} | given)]
    # Every other act signs its arguments as they are, so a new one needs its row in the table and nothing here.
    assert verb != "create"  # noqa: S101 - what is created has no state yet: that is ``creation``
    (data,) = ACTS[verb].signs
    return [data(**{name: value for name, value in given.items() if name != "version"})]


def changes_of(view: Ask, given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an event that arguments name, with the values they are to have."""
    changes = {name: value for name, value in given.items() if name not in ("reason", "version", "session", *NOTES)}
    if notes := {name: list(given[name]) for name in NOTES if given.get(name)}:
        changes["notes"] = notes
    if "body" in changes:
        changes["task"] = changes.pop("body")
    if "depends_on" in changes:
        changes["depends_on"] = [one for text in changes["depends_on"] for one in split_ids(text)]
    if "answers" in changes:
        changes["answers"] = changes["answers"].removesuffix(".md")
    if "reasoning" in changes:
        changes["reasoning_refs"] = find_refs(view, changes.pop("reasoning"))
    return changes


def split_ids(text: str) -> list[str]:
    """Return the ids in ``a.md, b``; ``(none)`` is no dependency."""
    found = [one.strip().removesuffix(".md") for one in text.split(",")]
    return [one for one in found if one and one != "(none)"]


def find_refs(view: Ask, names: Sequence[str]) -> list[str]:
    """Return the refs of reasonings that are named by their id (as it is now), a ref, or the beginning of one.

    A whole ref that no reasoning here has is taken as it is: a handoff may rest on a graph of another ledger. Whoever
    shows it says so.
    """
    refs: dict[str, None] = {}
    for name in names:
        try:
            shown = view("reasoning.show", {"id": name})
        except Refused as refusal:
            if refusal.code != "NOT_FOUND" or not re.match(REF_PATTERN, name):
                raise
            refs[name] = None
        else:
            refs |= {one["ref"]: None for one in shown["versions"] if one["version"] == shown["asked_version"]}
    if len(refs) > (most := kinds.reasoning_refs_max):
        raise Refused("INVALID_FIELD", f"{len(refs)} reasonings: a handoff rests on at most {most}", field="reasoning")
    return list(refs)


def amendment_of(handoff: dict[str, Any], changes: dict[str, Any], reason: str, author: Author) -> EventData:
    """Return the amendment that sets ``changes`` in a handoff (an answer of ``handoffs.show``), its file with it."""
    # The date and the file's template follow from what was said, and are nobody's to choose.
    known = set(kinds.HandoffContent.__struct_fields__) - {"created", "template"}
    if unknown := changes.keys() - known:
        raise Refused("UNKNOWN_FIELD", f"an amendment cannot set {min(unknown)!r}", field=min(unknown))

    content = content_from(handoff)
    if "notes" in changes:
        changes = changes | {"notes": _more_notes(content.notes, changes["notes"])}
    senders = (handoff["from"], handoff["importer"])
    if changes.keys() == {"reviewer"} and author.name == handoff["reviewer"] and author.name not in senders:
        # He hands it over, and the file stays as it is: whoever renders it puts the other name into it.
        return replace(amended(content, changes, reason), hands_over=True)
    data = amended(content, changes, reason)
    # What its file cannot hold is refused now; the file is written by whoever renders it.
    if content.template is None:
        write(data, handoff["from"])
    else:
        fitting(data, parse(author.client.get_blob(content.template)))
    return data


def _more_notes(notes: kinds.ReceiverNotes, added: dict[str, list[str]]) -> kinds.ReceiverNotes:
    """Return notes with some added; ``none`` takes those of its kind away."""
    kept = {kind: [] if "none" in texts else getattr(notes, kind) for kind, texts in added.items()}
    more = {kind: list(dict.fromkeys([*kept[kind], *texts])) for kind, texts in added.items()}
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
    """Return the ticks of tasks and criteria counted from 1, or with ``all_open`` of every one that is open.

    One ``evidence`` shows all of them, several show one each. What is ticked already gets no second event but for other
    evidence, so there may be nothing to sign.
    """
    if not (task_numbers or criterion_numbers or all_open):
        raise Refused("USAGE", "nothing to tick: give --task N, --criterion N, or --all")
    only = [*task_numbers, *criterion_numbers] if not (task_numbers and criterion_numbers) else []
    if len(evidence) > 1 and (all_open or len(evidence) != len(only)):
        message = f"{len(evidence)} times evidence: give it once for all, or once for each number, in their order"
        raise Refused("USAGE", message, field="evidence")
    shows = dict(zip(only, evidence, strict=True)) if len(evidence) > 1 else {}
    common = "".join(evidence[:1])
    drafts: list[EventData] = []
    of = (
        ("tasks", "task", task_numbers, kinds.HandoffTaskChecked),
        ("criteria", "criterion", criterion_numbers, kinds.HandoffCriterionChecked),
    )
    for rows_of, what, numbers, data in of:
        rows = handoff[rows_of]
        wanted = range(1, len(rows) + 1) if all_open else dict.fromkeys(numbers)
        drafts += [
            data(position=at, checked=not undo, evidence=shows.get(at + 1, common))
            for at in (position_of(rows, what, number) for number in wanted)
            if _says_more(rows[at], shows.get(at + 1, common), all_open=all_open, undo=undo)
        ]
    return drafts


def _says_more(row: dict[str, Any], evidence: str, *, all_open: bool, undo: bool) -> bool:
    """Return whether a tick, or taking it back, changes a row; a ticked criterion takes other evidence, too."""
    mark = row.get("mark")
    if mark == "checked" and not undo:
        return not all_open and evidence not in ("", row["evidence"])
    is_ticked = bool(row.get("done") or mark == "checked")  # a waiver is no tick
    return is_ticked == undo and not (all_open and mark == "waived")


def position_of(rows: list[dict[str, Any]], what: str, number: int) -> int:
    """Return the position of a task or criterion that a person counts from 1."""
    if not 1 <= number <= len(rows):
        raise Refused("INVALID_FIELD", f"there is no {what} {number} (of {len(rows)})", field=f"{what}_numbers")
    return number - 1


def amended(content: kinds.HandoffContent, changes: dict[str, Any], reason: str) -> kinds.HandoffAmended:
    """Return the amendment that sets ``changes``. Raises Refused: ``USAGE`` when nothing changes; ``INVALID_FIELD``."""
    fields = asdict(content)
    if all(fields[name] == value for name, value in changes.items()):
        raise Refused("USAGE", "nothing changes: say what to amend")
    fields |= changes
    if fields["to"] is None:
        raise Refused("USAGE", "its file names no receiver: say who receives the work with --to NAME")
    return converted(fields | {"reason": reason, "notes": asdict(fields["notes"])}, kinds.HandoffAmended)
