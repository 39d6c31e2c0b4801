"""Between a file and a handoff, both ways: what a file says in the ledger's terms, and the file as the ledger has it.

A text that does not fit a field of the ledger is shortened at a word and ends in "…", or left out, and stands whole in
the *template*: the file as it was when its content was set. Only progress is ever written into a template. A handoff
without one (made by a command) gets a file in the protocol's form.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import asdict

from deedbook.consumers.handoffs.files.syntax.active_table import TableRow
from deedbook.consumers.handoffs.files.syntax.comparison import revise
from deedbook.consumers.handoffs.files.syntax.document import HandoffFile
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.writer import FIELDS, Progress, log_text, render, write
from deedbook.consumers.handoffs.stored_content import content_from
from deedbook.consumers.sdk.text import replace_line_breaks, shorten
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.handoff import HandoffClaims, HandoffContent
from deedbook.ledger.format.codec import converted, encode_canonical
from deedbook.ledger.format.forms import NAME_PATTERN
from deedbook.projections.handoffs.fold import NOT_IN_FILES, HandoffRecord, fold

title_max_chars: Final = 200
line_max_chars: Final = 2000
label_max_chars: Final = 200
# What may stand in an event beside its envelope; larger texts are left to the template.
content_size_max_bytes: Final = 40 * 1024
_DAY: Final = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(?![0-9])")


def content_of_file(file: HandoffFile, *, template: str | None, reviewer: str | None) -> HandoffContent:
    """Return the content that a file describes; ``reviewer`` is who reviews where the file names nobody.

    Raises Refused: ``TOO_LARGE`` when its lists alone do not fit into an event; ``INVALID_FIELD`` for a dependency that
    no handoff can be called.
    """
    sender, to = name_of(file.sender), name_of(file.to)
    named = name_of(file.reviewer)
    if file.entry("Reviewer") is None and reviewer not in (sender, to):
        named = reviewer  # a file that says "—" names nobody, on purpose
    fields: dict[str, Any] = {
        "title": shortened(file.title, title_max_chars),
        "to": to,
        "reviewer": named,
        "created": day_of(file.created),
        "proposal": None if file.proposal is None else shortened(file.proposal, line_max_chars),
        "depends_on": list(file.depends_on),
        "reasoning_refs": list(file.reasoning_refs),
        "task": file.task,
        "tasks": [shortened(box.text, line_max_chars) for box in file.tasks],
        "criteria": [shortened(box.text, line_max_chars) for box in file.criteria],
        "notes": {name: [shortened(text, line_max_chars) for text in of] for name, of in asdict(file.notes).items()},
        "context": file.context,
        "template": template,
    }
    for name in ("context", "task"):
        if len(encode_canonical(fields)) > content_size_max_bytes:
            fields[name] = ""
    if len(encode_canonical(fields)) > content_size_max_bytes:
        raise Refused("TOO_LARGE", f"its tasks and criteria take more than {content_size_max_bytes} bytes")
    return converted(fields, HandoffContent)


def content_of_row(row: TableRow, *, reviewer: str | None) -> HandoffContent:
    """Return the content of the small handoff that a row of a table is; ``reviewer`` reviews unless party to it."""
    sender, to = name_of(row.sender), name_of(row.to)
    return HandoffContent(
        title=shortened(row.task, title_max_chars) or "—",
        to=to,
        reviewer=None if reviewer in (sender, to) else reviewer,
        created=day_of(row.created),
        task=row.task if len(row.task) > title_max_chars else "",
    )


def claims_of_file(file: HandoffFile) -> HandoffClaims:
    """Return what a file says of its own state."""
    written = "" if file.status is None else file.status.written + file.status.rest
    tasks, criteria = ([at for at, box in enumerate(of) if box.is_checked] for of in (file.tasks, file.criteria))
    return HandoffClaims(shortened(written, line_max_chars) if written else None, tasks, criteria)


def name_of(written: str | None) -> str | None:
    """Return the agent's name that is written, as ``kuro`` for ``Kuro``; None where it is none, or several."""
    name = (written or "").strip().strip("`@*").lower()
    return name if re.match(NAME_PATTERN, name) else None


def claimed_author(written: str | None) -> str | None:
    """Return who a file says it is from: an agent's name where it is one, else the words as they stand."""
    return name_of(written) or (shortened(written, line_max_chars) if written else None)


def day_of(written: str | None) -> str | None:
    """Return the day that a date begins with; None where it lacks a year."""
    day = _DAY.match((written or "").strip())
    return day[0] if day else None


def shortened(text: str, chars_max: int) -> str:
    """Return a text on one line, its signs as they are, of at most so many characters."""
    return shorten(" ".join(replace_line_breaks(text).split()), chars_max)


def file_name(id_: str) -> str:
    """Return the name of a handoff's file."""
    return f"{id_}.md"


def file_now(handoff: dict[str, Any], template: bytes | None) -> bytes:
    """Return the file's bytes, of an answer of ``handoffs.show`` and the blob that it names. Raises as ``revise``."""
    return rendered(handoff, None if template is None else fitting(content_from(handoff), parse(template)))


def fitting(wanted: HandoffContent, template: HandoffFile) -> HandoffFile:
    """Return a template that says what the ledger does: an amendment leaves the one before. Raises as ``revise``."""
    written = content_of_file(template, template=None, reviewer=None)
    changes = {name: getattr(wanted, name) for name in FIELDS if getattr(wanted, name) != getattr(written, name)}
    if template.entry("Reviewer") is None:
        changes.pop("reviewer", None)  # the default, which no file has to name
    return parse(revise(template, changes)) if changes else template


def rendered(handoff: dict[str, Any], template: HandoffFile | None) -> bytes:
    """Return what ``file_now`` does, from a template that was read and fits."""
    file = template
    if file is None:
        log = [line["line"] for line in handoff["log"] if line["kind"] not in NOT_IN_FILES]
        file = parse(write(content_from(handoff), handoff["from"], status=handoff["status"], log=log))
    is_claim = handoff["claimed_status"] is not None
    progress = Progress(
        status=None if is_claim else handoff["status"],
        tasks={one["position"]: one["done"] for one in handoff["tasks"]},
        criteria={one["position"]: one["mark"] not in ("open", "asked") for one in handoff["criteria"]},
        log=[] if template is None else list(_later_lines(handoff, template)),
    )
    return render(file, progress)


def _later_lines(handoff: dict[str, Any], template: HandoffFile) -> Iterator[str]:
    """Yield the log lines that the template lacks; an amendment is not in the template that it sets."""
    # Who amends without making a template anew leaves an old one, which lacks what happened before the amendment, too.
    known = Counter(f"- {line.day} [{line.author or ''}] {line.text}".rstrip() for line in template.log)
    for line in handoff["log"]:
        if line["kind"] in NOT_IN_FILES or line["kind"] in {"handoff.created", "record.imported"}:
            continue
        text = log_text(line["line"])
        if line["event_index"] < handoff["template_index"] and known[text]:
            known[text] -= 1
        else:
            yield text


versions_max: Final = 500


def last_rendered(
    handoff: dict[str, Any], content: bytes, read_entry: Callable[[int], bytes], read_blob: Callable[[str], bytes]
) -> int | None:
    """Return the index of the last event after which the file was ``content``; None when it never was.

    An old file may come back from version control, or be of another's watcher that knew one event more: nobody's edit.
    ``handoff`` is the answer of ``handoffs.show``; of longer lives only the last ``versions_max`` events are looked at.
    """
    templates: dict[int, HandoffFile] = {}
    last = None
    for count, (index, record) in enumerate(_records(handoff, read_entry), 1):
        if len(handoff["log"]) - count >= versions_max:
            continue
        then = _answered(record) | {"log": handoff["log"][:count]}
        at = then["template_index"]
        try:
            if then["template"] is not None and at not in templates:
                templates[at] = fitting(content_from(then), parse(read_blob(then["template"])))
            is_same = rendered(then, templates.get(at)) == content
        except Refused:
            is_same = False  # what could not be written as a file never was one
        if is_same:
            last = index
    return last


def _records(handoff: dict[str, Any], read_entry: Callable[[int], bytes]) -> Iterator[tuple[int, HandoffRecord]]:
    record = HandoffRecord(id=handoff["id"])
    for line in handoff["log"]:
        index = line["event_index"]
        record = fold(record, read_event(index, read_entry(index)))
        yield index, record


def _answered(record: HandoffRecord) -> dict[str, Any]:
    """Return a record in the words of ``handoffs.show``, as far as they stand in a file."""
    life, content = record.life, record.content
    assert life is not None  # noqa: S101 - a fold of at least one event
    assert content is not None  # noqa: S101 - as above
    tasks, criteria = zip(content.tasks, life.tasks, strict=True), zip(content.criteria, life.criteria, strict=True)
    return asdict(content) | {
        "from": life.sender,
        "to": life.receiver,
        "status": life.status,
        "reviewer": content.reviewer or (life.reviewer if life.reviewer != life.sender else None),
        "created": record.created,
        "depends_on": [{"id": id_} for id_ in content.depends_on],
        "tasks": [{"position": at, "text": text, "done": done} for at, (text, done) in enumerate(tasks)],
        "criteria": [{"position": at, "text": text, "mark": mark} for at, (text, mark) in enumerate(criteria)],
        "notes": asdict(content.notes),
        "template_index": record.content_index,
        "claimed_status": life.claimed_status,
    }
