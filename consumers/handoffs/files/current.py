"""The file of a handoff as the ledger has it now: its skeleton with everything that happened since written into it.

A skeleton is the file as it was when its content was set, so only progress is ever written into it. A handoff without
one (made by a command) gets a file in the seed's form.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from consumers.handoffs.files.mapping import content_of_file
from consumers.handoffs.files.syntax.parsing import parse
from consumers.handoffs.files.syntax.rendering import Progress, log_text, render
from consumers.handoffs.files.syntax.revising import Revision, revise
from consumers.handoffs.files.syntax.writing import NewFile, write
from projections.handoffs.log_text import NOT_IN_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from consumers.handoffs.files.syntax.document import HandoffFile
    from ledger.events.handoff import HandoffContent

_OPENS_A_FILE: Final = frozenset({"handoff.created", "record.imported"})


def file_name(id_: str) -> str:
    """Return the name of a handoff's file."""
    return f"{id_}.md"


def file_now(shown: dict[str, Any], skeleton: bytes | None) -> bytes:
    """Return the file's bytes; ``shown`` is the answer of ``handoffs.show``, ``skeleton`` the blob it names.

    Raises:
        Refused: ``INVALID_FIELD`` or ``INVALID_FORMAT`` when the content cannot stand in a markdown file.
    """
    return rendered(shown, None if skeleton is None else fitting(shown, parse(skeleton)))


def fitting(shown: dict[str, Any], skeleton: HandoffFile) -> HandoffFile:
    """Return a skeleton that says what the ledger does: whoever amends a handoff may leave an old one.

    Raises:
        Refused: as ``file_now``.
    """
    said = content_of_file(skeleton, skeleton=None, reviewer=None)
    wanted: dict[str, Any] = {
        name: shown[name] for name in ("title", "to", "reviewer", "proposal", "task", "context")
    } | {
        "to": shown["to"] or None,
        "depends_on": [one["id"] for one in shown["depends_on"]],
        "tasks": [one["text"] for one in shown["tasks"]],
        "criteria": [one["text"] for one in shown["criteria"]],
    }
    if skeleton.entry("Reviewer") is None:
        wanted.pop("reviewer")  # the default, which no file has to name
    changes = {name: value for name, value in wanted.items() if getattr(said, name) != value}
    return parse(revise(skeleton, Revision(**changes))) if changes else skeleton


def rendered(shown: dict[str, Any], skeleton: HandoffFile | None) -> bytes:
    """Return what ``file_now`` does, from a skeleton that was read and fits.

    Raises:
        Refused: as ``file_now``.
    """
    file = parse(write(_new_file(shown))) if skeleton is None else skeleton
    is_claim = shown["claimed_status"] is not None
    progress = Progress(
        status=None if is_claim else shown["status"],
        tasks={one["position"]: one["done"] for one in shown["tasks"]},
        criteria={one["position"]: one["mark"] != "open" for one in shown["criteria"]},
        log=[] if skeleton is None else list(_later_lines(shown, skeleton)),
    )
    return render(file, progress)


def new_file(content: HandoffContent, sender: str) -> bytes:
    """Return the file that content gets when it is handed over without one.

    Raises:
        Refused: as ``file_now``.
    """
    fields = {name: getattr(content, name) for name in NewFile.__struct_fields__ if hasattr(content, name)}
    return write(NewFile(**fields | {"sender": sender, "to": content.to or ""}))


def _new_file(shown: dict[str, Any]) -> NewFile:
    return NewFile(
        title=shown["title"],
        sender=shown["from"],
        to=shown["to"],
        status=shown["status"],
        reviewer=shown["reviewer"],
        created=shown["created"],
        proposal=shown["proposal"],
        depends_on=[one["id"] for one in shown["depends_on"]],
        task=shown["task"],
        tasks=[one["text"] for one in shown["tasks"]],
        criteria=[one["text"] for one in shown["criteria"]],
        context=shown["context"],
        log=[line["line"] for line in shown["log"] if line["kind"] not in NOT_IN_FILES],
    )


def _later_lines(shown: dict[str, Any], skeleton: HandoffFile) -> Iterator[str]:
    """Yield the log lines that the skeleton lacks; an amendment is not in the skeleton that it sets.

    Who amends without making a skeleton anew leaves an old one, which lacks what happened before the amendment, too.
    """
    known = Counter(f"- {line.day} [{line.author or ''}] {line.text}".rstrip() for line in skeleton.log)
    for line in shown["log"]:
        if line["kind"] in NOT_IN_FILES or line["kind"] in _OPENS_A_FILE:
            continue
        text = log_text(line["line"])
        if line["event_index"] < shown["skeleton_index"] and known[text]:
            known[text] -= 1
        else:
            yield text
