"""Converts a file into the content of a handoff, and a handoff of the ledger into its file.

A text that does not fit a field of the ledger is shortened at a word and ends in "…", or left out. The *template* has
it in full: the file as it was when its content was set. Only progress is ever written into a template. A handoff
without a template (made by a command) gets a file in the protocol's form.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import asdict

from deedbook.consumers.handoffs.agent_names import AgentNames, independent
from deedbook.consumers.handoffs.files.syntax.active_table import TableRow
from deedbook.consumers.handoffs.files.syntax.comparison import revise
from deedbook.consumers.handoffs.files.syntax.document import HandoffFile, StatusText
from deedbook.consumers.handoffs.files.syntax.lines import Problem, text_of
from deedbook.consumers.handoffs.files.syntax.marks import subjects_in, with_marks, without_marks
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.sections import cited_names, is_handoff_id
from deedbook.consumers.handoffs.files.syntax.writer import FIELDS, Progress, log_text, render, write
from deedbook.consumers.sdk.sealer import SEALED, erasure_of
from deedbook.consumers.sdk.text import replace_line_breaks, shorten
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, or_none
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.handoff import HandoffClaims, HandoffContent, ReceiverNotes
from deedbook.ledger.format.codec import converted, encode_canonical
from deedbook.projections.briefs.prompt import short_ref
from deedbook.projections.handoffs.fold import NOT_IN_FILES, fold
from deedbook.projections.handoffs.next import criteria_of
from deedbook.projections.handoffs.record import HandoffRecord

title_max_chars: Final = 200
line_max_chars: Final = 2000
label_max_chars: Final = 200
# The limit for an event without its envelope; larger texts are only in the template.
content_size_max_bytes: Final = 40 * 1024
# A line in one of these sections that is no task, criterion or note makes a new handoff's file invalid.
_LISTS: Final = ("Tasks", "Acceptance Criteria", "Receiver Notes")
_BULLET: Final = re.compile(r"^[-*+] (\[[ xX]\] )?")
_CREATED: Final = re.compile(r"created(?: (?:the )?handoff)?(?: to [\w.-]+)?\.?", re.IGNORECASE)
_DAY: Final = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(?![0-9])")


def content_from(handoff: dict[str, Any]) -> HandoffContent:
    """Return the content of the handoff that ``handoffs.show`` answered."""
    fields = {name: handoff[name] for name in HandoffContent.__struct_fields__}
    fields["notes"] = ReceiverNotes(**handoff["notes"])
    texts = {name: [row["text"] for row in handoff[name]] for name in ("tasks", "criteria")}
    depends_on = [row["id"] for row in handoff["depends_on"]]
    return HandoffContent(**fields | texts | {"to": handoff["to"] or None, "depends_on": depends_on})


def content_of_file(file: HandoffFile, *, template: str | None, agents: AgentNames) -> HandoffContent:
    """Return the content that a file describes. ``agents`` finds the agents that its names mean.

    Raises Refused: ``TOO_LARGE`` if its lists do not fit into an event; ``INVALID_FIELD`` for a dependency that is not
    a valid handoff id.
    """
    if wrong := next((id_ for id_ in file.depends_on if not is_handoff_id(id_)), None):
        line = entry.line if (entry := file.entry("Depends-on")) else 1
        advice = "write the name of its file, without a folder"
        message = f"Depends-on on line {line} names {wrong!r}, which is not a valid handoff id: {advice}"
        raise Refused("INVALID_FIELD", message, field="depends_on", line=line)
    fields: dict[str, Any] = {
        "title": shortened(file.title, title_max_chars),
        "to": receiver_of(file.to, file.reviewer, agents),
        "reviewer": reviewer_of(file, agents),
        "created": day_of(file.created),
        "proposal": None if file.proposal is None else shortened(file.proposal, line_max_chars),
        "depends_on": list(file.depends_on),
        "reasoning_refs": list(file.reasoning_refs),
        "task": file.task,
        "tasks": [shortened(box.text, line_max_chars) for box in file.tasks],
        "criteria": [shortened(box.text, line_max_chars) for box in file.criteria],
        "notes": {
            name: [shortened(text, line_max_chars) for text in texts] for name, texts in asdict(file.notes).items()
        },
        "context": file.context,
        "template": template,
    }
    for name in ("context", "task"):
        if len(encode_canonical(fields)) > content_size_max_bytes:
            fields[name] = ""
    if len(encode_canonical(fields)) > content_size_max_bytes:
        raise Refused("TOO_LARGE", f"its tasks and criteria take more than {content_size_max_bytes} bytes")
    return converted(fields, HandoffContent)


def arguments_of_file(file: HandoffFile, agents: AgentNames, sender: str) -> dict[str, Any]:
    """Return the arguments of ``create`` for the file of a new handoff. Parts that the file lacks are left out.

    Raises Refused: as ``content_of_file``; ``INVALID_FIELD`` for a name by which nobody can act, and for a line of a
    list that would not count; ``USAGE`` if its sender is somebody else, or if it says that work was done or approved.
    """
    named, claims = agents.named(file.sender), claims_of_file(file)
    if named not in (None, sender):
        raise Refused("USAGE", f"the file is from {named}: sign it with --as {named}, or correct `From:` in it")
    if claims.tasks or claims.criteria or claims.status not in (None, "pending"):
        message = "the file says what was met or decided already, and nobody has approved a new handoff yet"
        way = "leave out its status and the ticks of criteria, or import it with `deed handoff import`"
        raise Refused("USAGE", f"{message}: {way}")
    lists = [section for name in _LISTS if (section := file.section(name))]
    ignored = (p for p in file.problems if any(section.body < p.line <= section.stop for section in lists))
    if problems := sorted([*ignored, *name_problems(file, agents)]):
        faults = "; ".join(f"line {problem.line}: {problem.text}" for problem in problems)
        raise Refused("INVALID_FIELD", faults, line=problems[0].line)
    content = asdict(content_of_file(file, template=None, agents=agents))
    notes, values = (
        asdict(content.pop("notes")),
        {"body": content["task"], "reasoning": cited_names(file.entry("Reasoning"))},
    )
    names = ("title", "to", "reviewer", "tasks", "criteria", "depends_on", "context", "proposal")
    values |= {name: content[name] for name in names} | notes
    return {name: value for name, value in values.items() if value}


def receiver_of(to: str | None, reviewer: str | None, agents: AgentNames) -> str | None:
    """Return the receiver that a file names, else the receiver given by an import, unless they review the file."""
    return agents.named(to) or independent(agents.naming.to, (agents.named(reviewer),))


def reviewer_of(file: HandoffFile, agents: AgentNames) -> str | None:
    """Return the reviewer that a file names; if it has no such line, the default one unless they are party to it."""
    if file.entry("Reviewer") is None:
        return independent(agents.reviewer, (agents.named(file.sender), receiver_of(file.to, None, agents)))
    return agents.named(file.reviewer)  # a file with "—" has no reviewer on purpose


def content_of_row(row: TableRow, agents: AgentNames) -> HandoffContent:
    """Return the content of the small handoff in a table's row; the default reviewer reviews it."""
    sender, to = agents.named(row.sender), receiver_of(row.to, None, agents)
    return HandoffContent(
        title=shortened(row.task, title_max_chars) or "—",
        to=to,
        reviewer=independent(agents.reviewer, (sender, to)),
        created=day_of(row.created),
        task=row.task if len(row.task) > title_max_chars else "",
    )


def name_problems(file: HandoffFile, agents: AgentNames) -> Iterator[Problem]:
    """Yield the names in a file that mean no agent, and a reviewer who is party to the handoff."""
    reviewer = agents.named(file.reviewer)
    for key, written in (("To", file.to), ("Reviewer", file.reviewer)):
        line = entry.line if (entry := file.entry(key)) else 1
        if written and (problem := agents.problem(written)):
            yield Problem(line, f"{key}: {problem}")
    for key, written in (("From", file.sender), ("To", file.to)):
        if reviewer is not None and agents.named(written) == reviewer and (entry := file.entry("Reviewer")):
            message = f"{key} and Reviewer are both {reviewer}, and nobody reviews their own work"
            yield Problem(entry.line, f"{message}: name another reviewer, or remove the line for the default one")


def claims_of_file(file: HandoffFile) -> HandoffClaims:
    """Return the claims of a file about its own state."""
    written = "" if file.status is None else _written(file.status)
    lists = (file.tasks, file.criteria)
    tasks, criteria = ([at for at, box in enumerate(boxes) if box.is_checked] for boxes in lists)
    return HandoffClaims(shortened(written, line_max_chars) if written else None, tasks, criteria)


def _written(status: StatusText) -> str:
    return status.written + status.rest


def claimed_author(written: str | None, agents: AgentNames) -> str | None:
    """Return the sender that a file claims: an agent's name if it is valid, else the text as written."""
    return agents.named(written) or (shortened(written, line_max_chars) if written else None)


def day_of(written: str | None) -> str | None:
    """Return the ``YYYY-MM-DD`` at the beginning of the text, or None."""
    day = _DAY.match((written or "").strip())
    return day[0] if day else None


def shortened(text: str, chars_max: int) -> str:
    """Return a text on one line, shortened to at most ``chars_max`` characters."""
    return shorten(" ".join(replace_line_breaks(text).split()), chars_max)


def file_name(id_: str) -> str:
    """Return the name of a handoff's file."""
    return f"{id_}.md"


def template_of(handoff: Mapping[str, Any], read_blob: Callable[[str], bytes]) -> bytes | None:
    """Return the blob of a handoff's template; None if it has none, or if it was erased with a redaction.

    ``handoff`` is an answer of ``handoffs.show``. Raises Refused: ``NOT_FOUND``.
    """
    if handoff["template"] is None:
        return None
    return or_none(read_blob, handoff["template"]) if "redacted" in handoff else read_blob(handoff["template"])


def file_now(handoff: dict[str, Any], template: bytes | None) -> bytes:
    """Return the file's bytes for an answer of ``handoffs.show`` and the blob of its template. Raises as ``revise``."""
    file = None if template is None else parse(without_marks(template))
    return rendered(handoff, None if file is None else fitting(content_from(handoff), file))


def refuted_reasonings(ask: Ask, handoff: Mapping[str, Any]) -> dict[str, str]:
    """Return the cited refs whose conclusion rests on a refuted assumption, each with a text that says so."""
    refuted: dict[str, str] = {}
    for ref in handoff["reasoning_refs"]:
        verdict = or_none(ask, "validations.latest", {"id": ref})
        grounds = [row for row in ([] if verdict is None else verdict["refuted"]) if row["is_ground"]]
        for row in grounds[:1]:
            by = f"{row['by']} refuted (entry {row['event_index']})"
            refuted[ref] = f"{short_ref(ref)} rests on an assumption (step {row['step']}) that {by}"
    return refuted


def marked(ask: Ask, handoff: Mapping[str, Any], content: bytes) -> bytes:
    """Return a file with the marks of refuted reasonings and erased subjects.

    Raises Refused: ``TOO_LARGE``, ``INVALID_FORMAT``, with ``line``.
    """
    subjects = subjects_in(content.decode("utf-8", "replace")) if SEALED in content else ()
    erased = {name: str(erasure) for name in subjects if (erasure := erasure_of(ask, name)) is not None}
    return with_marks(content, refuted_reasonings(ask, handoff), erased)


def fitting(wanted: HandoffContent, template: HandoffFile) -> HandoffFile:
    """Return the template with the ledger's content, because an amendment does not change the template.

    Raises as ``revise``.
    """
    names = tuple(name for name in (wanted.to, wanted.reviewer) if name)
    written = content_of_file(template, template=None, agents=AgentNames(names))
    changes = {name: getattr(wanted, name) for name in FIELDS if getattr(wanted, name) != getattr(written, name)}
    if template.entry("Reviewer") is None:
        changes.pop("reviewer", None)  # the default, which no file has to name
    return parse(revise(template, changes)) if changes else template


def lines_only_in_file(handoff: dict[str, Any], read_blob: Callable[[str], bytes]) -> list[str] | None:
    """Return the lines of a handoff's file that its fields lack; None if the file is missing or cannot be parsed.

    ``handoff`` is an answer of ``handoffs.show``. Approving a version approves the whole file, and the receiver may
    read the file. So an approver must see these lines, too.
    """
    if handoff["template"] is None:
        return []
    try:
        file = parse(read_blob(handoff["template"]))
    except Refused:
        return None
    with suppress(Refused):  # the file cannot hold every amendment: then it is compared as it is
        file = fitting(content_from(handoff), file)
    known: Counter[str] = Counter()
    with suppress(Refused):  # only this file can hold the content: then no line counts as known
        known.update(map(_plain_line, parse(rendered(handoff, None)).lines))
    status, claimed = file.status, handoff["claimed_status"]
    if status is not None and (not status.rest.strip() or claimed == claims_of_file(file).status == _written(status)):
        # the fields have the claimed status, although the present status may be another one
        known[_plain_line(file.lines[status.line - 1])] += 1
    for entry in file.log:
        if entry.author == handoff["from"] and _CREATED.fullmatch(entry.text):
            known[_plain_line(file.lines[entry.line - 1])] += 1  # every file begins its log with this line
    headings = (_plain_line(file.lines[section.start]) for section in file.sections if section.name)
    known.update(heading for heading in headings if heading not in known)  # another name for the same section
    only: list[str] = []
    for line in map(text_of, file.lines):
        plain = _plain_line(line)
        if known[plain]:
            known[plain] -= 1
        elif plain:
            only.append(line)
    return only


def _plain_line(line: str) -> str:
    """Return a line without its tick, and with uniform spaces and bullet: lines may differ in these."""
    return _BULLET.sub(lambda bullet: "- [ ] " if bullet[1] else "- ", " ".join(line.split()))


def rendered(handoff: dict[str, Any], template: HandoffFile | None) -> bytes:
    """Return the same as ``file_now``; ``template`` is parsed and already has the ledger's content."""
    file = template
    if file is None:
        log = [line["line"] for line in handoff["log"] if line["kind"] not in NOT_IN_FILES]
        file = parse(write(content_from(handoff), handoff["from"], status=handoff["status"], log=log))
    is_claim = handoff["claimed_status"] is not None
    progress = Progress(
        status=None if is_claim else handoff["status"],
        tasks={row["position"]: row["done"] for row in handoff["tasks"]},
        criteria={row["position"]: row["mark"] not in ("open", "asked") for row in handoff["criteria"]},
        evidence=_evidence_of(handoff),
        log=[] if template is None else list(_later_lines(handoff, template)),
    )
    return render(file, progress)


_EVIDENCE: Final = {
    "checked": ("met", "evidence", "handoff.criterion_checked"),
    "waived": ("waived", "waiver_reason", "handoff.criterion_waived"),
}


def _evidence_of(handoff: dict[str, Any]) -> dict[int, str]:
    """Return the line of evidence of each criterion; an imported file keeps the lines that it claims."""
    evidence: dict[int, str] = {}
    for row in handoff["criteria"]:
        at, text = row["position"], ""
        if row["mark"] in _EVIDENCE:
            word, field, kind = _EVIDENCE[row["mark"]]
            signed = [line for line in handoff["log"] if (line["kind"], line["position"]) == (kind, at)]
            if row[field] and signed:
                text = f"{signed[-1]['day']} [{signed[-1]['author']}] {word}: {row[field]}"
        if text or handoff["importer"] is None:
            evidence[at] = text
    return evidence


def _later_lines(handoff: dict[str, Any], template: HandoffFile) -> Iterator[str]:
    """Yield the log lines that the template lacks; an amendment is not in the template that it sets."""
    # An amendment may keep an old template. That template also lacks the events before the amendment.
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
    """Return the index of the last event after which the file was ``content``; None if it never was.

    An old file may come back from version control or from another agent's watcher; it is not an edit. ``handoff`` is
    the answer of ``handoffs.show``; only its last ``versions_max`` events are checked.
    """
    templates: dict[int, HandoffFile] = {}
    last = None
    for count, (index, record) in enumerate(_records(handoff, read_entry), 1):
        if len(handoff["log"]) - count >= versions_max:
            continue
        then = _row_of(record) | {"log": handoff["log"][:count]}
        at = then["template_index"]
        try:
            if then["template"] is not None and at not in templates:
                templates[at] = fitting(content_from(then), parse(read_blob(then["template"])))
            is_same = rendered(then, templates.get(at)) == content
        except Refused:
            is_same = False  # no file can hold this content, so the file never was this version
        if is_same:
            last = index
    return last


def _records(handoff: dict[str, Any], read_entry: Callable[[int], bytes]) -> Iterator[tuple[int, HandoffRecord]]:
    record = HandoffRecord(id=handoff["id"])
    for line in handoff["log"]:
        index = line["event_index"]
        record = fold(record, read_event(index, read_entry(index)))
        yield index, record


def _row_of(record: HandoffRecord) -> dict[str, Any]:
    """Return the fields of a record that a file has, as in an answer of ``handoffs.show``."""
    state, content = record.lifecycle, record.content
    assert state is not None  # noqa: S101 - a fold of at least one event
    assert content is not None  # noqa: S101 - as above
    tasks = zip(content.tasks, state.tasks, strict=True)
    return asdict(content) | {
        "from": state.sender,
        "to": state.receiver,
        "status": state.status,
        "reviewer": content.reviewer or (state.reviewer if state.reviewer != state.sender else None),
        "created": record.created,
        "depends_on": [{"id": id_} for id_ in content.depends_on],
        "tasks": [{"position": at, "text": text, "done": mark == "done"} for at, (text, mark) in enumerate(tasks)],
        "criteria": [asdict(row) for row in criteria_of(record)],
        "importer": state.importer or None,
        "notes": asdict(content.notes),
        "template_index": record.content_index,
        "claimed_status": state.claimed_status,
    }
