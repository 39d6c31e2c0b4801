"""Turns a caller's arguments into the events of any operation on a handoff; every interface uses it.

Content that no handoff file can hold is refused before it is signed, because ``render`` and ``watch`` would fail on it
for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import asdict, replace

from deedbook.consumers.handoffs.agent_names import independent, read_agents
from deedbook.consumers.handoffs.content import events_of_step, find_refs
from deedbook.consumers.handoffs.files.mapping import content_from, fitting
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.writer import write
from deedbook.consumers.handoffs.operations import NOTES, Verb
from deedbook.consumers.handoffs.receiver import SessionNotes, session_notes, with_session
from deedbook.consumers.sdk.text import default_id
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.codec import converted
from deedbook.projections.answers.checked import ask
from deedbook.projections.handoffs import versions

if TYPE_CHECKING:
    from deedbook.ledger.client.author import Author
    from deedbook.ledger.home.config import Settings

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


def events_of(verb: Verb, handoff: dict[str, Any], values: dict[str, Any], author: Author) -> list[EventData]:
    """Return the events that an operation signs; ``handoff`` is the answer of the query that ``query_for`` names.

    Raises Refused: ``USAGE``, ``INVALID_FIELD`` or ``TOO_LARGE`` for a part that the handoff lacks or cannot hold.
    """
    if verb != "amend":
        return events_of_step(verb, handoff, values, author)
    _check_read(handoff, values)
    return [amendment_of(handoff, changes_of(partial(ask, author.client), values), values.get("reason", ""), author)]


def approves_import(handoff: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Return whether an amendment with these values approves a handoff whose content an importer can change."""
    return handoff["importer"] is not None and values.get("reviewer", handoff["reviewer"]) is None


def _check_read(handoff: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Check that the amendment names the present version. It must name one if it approves an import.

    The amendment contains the whole content, so it stays right if the handoff changes before the gate accepts it.
    """
    version = values.get("version")
    if version is None and approves_import(handoff, values):
        message = f"this approves {handoff['id']}, which {handoff['importer']} imported: name the version that you read"
        raise Refused("USAGE", message, field="version")
    if version not in (None, handoff["version"]):
        raise Refused("VERSION_MISMATCH", f"{handoff['id']} is now version {handoff['version']}")


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
    cited = changes.get("reasoning_refs")
    if cited and changes.keys() == {"reasoning_refs"} and cited == content.reasoning_refs:
        versions = "these versions" if len(cited) > 1 else "this version"
        raise Refused("NOTHING_CHANGED", f"{handoff['id']} already cites {versions}: amend it after the next step")
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


def amended(content: kinds.HandoffContent, changes: dict[str, Any], reason: str) -> kinds.HandoffAmended:
    """Return the amendment that sets ``changes``. Raises Refused: ``USAGE`` if nothing changes; ``INVALID_FIELD``."""
    fields = asdict(content)
    if all(fields[name] == value for name, value in changes.items()):
        raise Refused("USAGE", "this changes nothing: name a field to amend")
    fields |= changes
    if fields["to"] is None:
        raise Refused("USAGE", "its file names no receiver: name one with --to NAME")
    return converted(fields | {"reason": reason, "notes": asdict(fields["notes"])}, kinds.HandoffAmended)


def changes_between(*contents: kinds.HandoffContent) -> list[dict[str, Any]]:
    """Return the differences of two contents, in the shape of ``handoffs.versions``."""
    before, after = ({**asdict(content), "notes": asdict(content.notes)} for content in contents)
    return [change.to_dict() for change in versions.changes_of(before, after)]
