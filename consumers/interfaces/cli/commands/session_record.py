r"""`deed session record`: records many entries of one file at once, each spelled like its verb.

An entry is a line ``KIND: TEXT``. An indented line below it is an option, ``NAME: VALUE``, or continues the text::

    dead-end: A cache of tokens
      why: it hides the fault
    reasoning: expire-tokens
      task: Why do tokens never expire?
    step: check() reads no time
      evidence: src/auth.py:12-15

A line ``topic: NAME`` gives the topic of the entries below it, until the next such line; an entry may have its own.

The file is text, not JSON: entries quote code, whose quotes and line ends JSON would have to escape, and an error can
name its line. ``step``, ``assume``, ``settle`` and ``conclude`` belong to the ``reasoning`` above them, which is
started if it has a ``task``, otherwise extended.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec
from msgspec import to_builtins
from msgspec.structs import asdict, replace

from deedbook.consumers.interfaces.cli.app import App, Command, read_text, store_artifact
from deedbook.consumers.interfaces.cli.commands.reasoning import reopened
from deedbook.consumers.interfaces.cli.output import warn
from deedbook.consumers.interfaces.cli.session_choice import session_and
from deedbook.consumers.reasoning import operations as of_reasoning
from deedbook.consumers.reasoning.links import check_drafts
from deedbook.consumers.reasoning.operations import NewConclusion, NewStep, following_number
from deedbook.consumers.sdk.operations import Operation
from deedbook.consumers.sdk.text import counted, quote_text
from deedbook.consumers.sessions import operations as of_session
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import session as kinds
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.codec import convert, schema_error
from deedbook.ledger.limits import batch_events_max

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted

# The operation of each kind of entry, and the argument that the entry's own line sets.
KINDS: Final[dict[str, tuple[Operation, str]]] = {
    **{
        verb.replace("_", "-"): (of_session.OPERATIONS[verb], of_session.OPERATIONS[verb].arguments[0].name)
        for verb in of_session.RECORDED
    },
    "artifact": (of_session.OPERATIONS["artifact"], "tool"),
    "reasoning": (of_reasoning.OPERATIONS["start"], "id"),
    "step": (of_reasoning.OPERATIONS["step"], "content"),
    "assume": (of_reasoning.OPERATIONS["assume"], "content"),
    "settle": (of_reasoning.OPERATIONS["settle"], "how"),
    "conclude": (of_reasoning.OPERATIONS["conclude"], "conclusion"),
}
_NOUNS: Final = {"assume": "assumption", "settle": "settled assumption", "conclude": "conclusion"}
# The options of each kind, as on the command line, and the fields that they set.
_FIELDS: Final = {
    kind: {
        argument.option.partition("/")[0].lstrip("-"): argument
        for argument in operation.arguments
        if argument.name not in {main, "step_number"}
    }
    for kind, (operation, main) in KINDS.items()
}
_OPTIONS: Final = frozenset(option for fields in _FIELDS.values() for option in fields)
_TOPIC: Final = "topic"
_SPELLINGS: Final = {"tried": ("basis", {"yes": "tried", "no": "argued"})}  # people write these words about dead ends
_as_near: Final = 0.8
"""The similarity from which a word counts as a misspelled option. It must not become text, which is signed for ever."""
_LINE: Final = re.compile(r"\s*(?:[-*]\s+)?([A-Za-z][A-Za-z_-]*):(?:\s+(.*)|$)")


class Entry(NamedTuple):
    """One entry of the file: its line, its kind, and the data to sign.

    ``of`` is the id of the reasoning that a ``reasoning`` entry names or a step belongs to. ``data`` is None for a
    reasoning that is extended, not started.
    """

    line: int
    kind: str
    data: msgspec.Struct | None
    of: str = ""


class _Planned(NamedTuple):
    """An event to sign, its stream, and the line of its entry."""

    stream: str
    data: EventData
    line: int


@click.command(cls=Command)
@click.argument("arguments", nargs=-1, metavar="[ID] FILE|-")
@click.option("--dry-run", "is_dry", is_flag=True, help="Print each entry as it was read; sign nothing.")
def record(app: App, arguments: tuple[str, ...], *, is_dry: bool) -> None:
    """Record all entries of FILE in one batch. If one is wrong, none is recorded and its line is named.

    An entry is a line `KIND: TEXT`. Its options follow on indented lines, as `NAME: VALUE`:

    \b
    dead-end: A cache of tokens
      why: it hides the fault
      basis: argued

    These are the kinds, each with its text and its most used options:

    \b
    KIND       TEXT                      OPTIONS
    finding    what you learned          evidence
    unknown    what you do not know yet
    dead-end   the approach              why, basis (tried or argued)
    tool       at most 200 characters    purpose
    artifact   a file                    purpose
    reasoning  the reasoning's id        task
    step       the step                  type, evidence, rests-on
    assume     the assumption            check
    settle     how it was checked        step, holds (yes or no)
    conclude   the conclusion            rests-on

    The content of an artifact's file is stored. `reasoning` with a task starts a reasoning; without a task it extends
    an existing one. The steps, assumptions and conclusion below belong to it. A line `topic: NAME` sets the topic of
    the entries below it: a handoff attaches only the records of its own topics. Recording the same file again adds
    nothing.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with backslash b
    session_id, file = session_and(app, arguments, "FILE")
    text = read_text(file if file == "-" else f"@{file}", "the file of entries")
    notices: list[str] = []
    entries = read_entries(text, notices)
    if len(entries) > batch_events_max:
        message = f"{len(entries)} entries: one batch holds {batch_events_max}, so split before line"
        raise Refused("TOO_LARGE", f"nothing was recorded: {message} {entries[batch_events_max].line}")
    session = str(app.query("sessions.show", id=session_id)["id"])
    signed = [entry for entry in entries if entry.data is not None]
    planned = _drafts(app, signed, session, notices, stores=not is_dry)
    cited, warnings = check_drafts([(draft.stream, draft.data) for draft in planned], app.query_with)
    warnings = [*notices, *warnings]
    if is_dry:
        rows = [{"line": entry.line, "kind": entry.kind, "fields": to_builtins(entry.data)} for entry in signed]
        app.show("record_plan", {"id": session, "entries": rows, "warnings": warnings}, _plan_lines(rows))
        warn(() if app.as_json else warnings)
        return
    # The same content gives the same events, so a caller who repeats a call after a lost answer gets the first events.
    digest = hashlib.sha256(f"{session}\n{text}".encode()).hexdigest()[:32]
    drafts = [
        Draft(stream=draft.stream, data=data, idem=f"record:{digest}:{at}")
        for at, (draft, data) in enumerate(zip(planned, cited, strict=True))
    ]
    try:
        accepted = app.author().emit(*drafts)
    except Refused as refusal:
        positions = [event["position"] for event in refusal.details.get("events", ())] or [0] * (len(planned) == 1)
        lines = "".join(f"line {line}: " for line in dict.fromkeys(planned[position].line for position in positions))
        raise Refused(refusal.code, f"nothing was recorded: {lines}{refusal.message}", **refusal.details) from refusal
    _show_recorded(app, session, entries, accepted, warnings)


def _show_recorded(
    app: App, session: str, entries: list[Entry], accepted: Sequence[Accepted], warnings: list[str]
) -> None:
    counts = Counter(entry.kind for entry in entries)
    repeated = all(entry.is_repeat for entry in accepted)
    answer = {
        "id": session,
        "counts": counts,
        "is_repeat": repeated,
        "warnings": warnings,
        "accepted": [asdict(entry) for entry in accepted],
    }

    what = ", ".join(counted(number, _NOUNS.get(kind, kind).replace("-", " ")) for kind, number in counts.items())
    first, last = accepted[0].index, accepted[-1].index
    at_entries = f"entry {first}" if first == last else f"entries {first} to {last}"
    without_basis = any(isinstance(entry.data, kinds.DeadEndLogged) and entry.data.basis is None for entry in entries)
    remark = "; dead ends as tried: `basis: argued` if nobody tried it" if without_basis and not repeated else ""
    app.show(
        "session", answer, f"{session}: {what} {'stood already' if repeated else 'recorded'} ({at_entries}){remark}"
    )
    warn(() if app.as_json else warnings)


def _plan_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield each entry with its options, as it was read."""
    for row in rows:
        _, main = KINDS[row["kind"]]
        fields = {name: value for name, value in row["fields"].items() if name != main and value not in ("", [], None)}
        yield f"line {row['line']}: {row['kind']}: {quote_text(str(row['fields'].get(main, '')))}"
        yield from (f"  {name}: {quote_text(_shown(value))}" for name, value in fields.items())
    yield "Nothing was signed."


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _drafts(app: App, signed: list[Entry], session: str, notices: list[str], *, stores: bool = True) -> list[_Planned]:
    """Return the events of each entry; steps get the next numbers, and artifacts are stored as blobs."""
    numbers: dict[str, int] = {}
    drafts: list[_Planned] = []
    for entry in signed:
        data: Any = entry.data
        stream, events = f"reasoning/{entry.of}", [data]
        if entry.kind == "reasoning":
            numbers[entry.of] = 1
            events = [replace(data, session=session)]
        elif isinstance(data, NewStep):
            number = numbers.get(entry.of) or _following(
                app, entry, data.content, notices, concludes=data.type == "conclusion"
            )
            events = [data.extension(number)]
            numbers[entry.of] = number + 1
        elif isinstance(data, NewConclusion):
            number = 0  # a conclusion is a step only if it names steps that it rests on
            if data.rests_on:
                number = numbers.get(entry.of) or _following(app, entry, data.conclusion, [], concludes=True)
                numbers[entry.of] = number + 1
            events = data.events(number)
        elif entry.kind != "settle":
            stream = f"session/{session}"
            if stores and entry.kind == "artifact" and isinstance(data, kinds.ToolUsed):
                purpose = " ".join(filter(None, (data.purpose, store_artifact(app, data.tool))))
                events = [replace(data, purpose=purpose)]
        drafts += [_Planned(stream, event, entry.line) for event in events]
    return drafts


def _following(app: App, entry: Entry, first: str, notices: list[str], *, concludes: bool = False) -> int:
    """Return the number of the first step: the number of a recorded step with the same text, else the next number.

    A conclusion matches only a step that concludes.
    """
    try:
        reasoning = app.query("reasoning.show", id=entry.of)
    except Refused as refusal:
        message = f"nothing was recorded: line {entry.line}: {refusal.message}; to start it, add the line `task: TEXT`"
        raise Refused(refusal.code, message, **refusal.details) from refusal
    same = [
        step["step_number"]
        for step in reasoning["memory"]["steps"]
        if step["content"] == first and (step["type"] == "conclusion") is concludes
    ]
    notices += [] if same else reopened(reasoning)
    return same[0] if same else following_number(reasoning)


def read_entries(text: str, notices: list[str]) -> list[Entry]:
    """Return the entries of a file in order, after checking all of them; add a notice for each doubtful line.

    Raises Refused: ``INVALID_FORMAT``; ``details["faults"]`` lists each line with a fault, and the fault.
    """
    faults: list[dict[str, Any]] = []
    entries: list[Entry] = []
    reasoning = ""
    for line, kind, fields in _blocks(text, faults, notices):
        if kind == "reasoning":
            reasoning = fields["id"][0]
        try:
            entries.append(_entry(line, kind, fields, reasoning))
        except msgspec.ValidationError as error:
            faults.append({"line": line, "message": f"{kind}: {_fault(kind, error)}"})
        except ValueError as error:
            faults.append({"line": line, "message": f"{kind}: {error}"})
    if not faults and all(entry.data is None for entry in entries):
        faults.append({"line": 1, "message": f"there is no entry: begin a line with one of {', '.join(KINDS)}"})
    if faults:
        lines = "; ".join([*(f"line {fault['line']}: {fault['message']}" for fault in faults), *notices])
        raise Refused("INVALID_FORMAT", f"nothing was recorded: {lines}", faults=faults)
    return entries


def _fault(kind: str, error: msgspec.ValidationError) -> str:
    """Return the fault of an entry in the terms of the file: its option, or its text."""
    problem, _, field = schema_error(error).message.rpartition(" at $")
    arguments = {argument.name: (option, argument) for option, argument in _FIELDS[kind].items()}
    named = next((name for name in arguments if f"`{name}`" in problem or field.partition("[")[0] == f".{name}"), None)
    if named is None:
        of = "its text"
    else:
        option, argument = arguments[named]
        if "required field" in problem:
            return f"add a line below it, indented: {option}: TEXT"
        of = f"its {option}"
        if argument.choices:
            return f"{of} is one of {', '.join(argument.choices)}"
    return f"{of} is empty" if "the text is empty" in problem else f"{of}: {problem}"


class _Block:
    """The lines of one entry: its first line, its kind, and its fields, each as a list of texts."""

    def __init__(self, line: int, kind: str, text: str, topic: str) -> None:
        self.line = line
        self.kind = kind
        self._last = [text]
        self.fields = {KINDS[kind][1]: self._last}
        self._topic = {_TOPIC: [topic]} if topic and _TOPIC in _FIELDS[kind] else {}

    def finished(self) -> tuple[int, str, dict[str, list[str]]]:
        """Return the line, the kind and the fields. An entry without a topic gets the topic above it."""
        return self.line, self.kind, self._topic | self.fields

    def add(self, line: str) -> tuple[str, str]:
        """Add an indented line, which is an option or more text. Return an error and a notice; either may be empty."""
        parts = _LINE.match(line)
        name, value = _spelled(self.kind, _name_in(parts), (parts[2] or "") if parts else "")
        argument = _FIELDS[self.kind].get(name)
        if parts and argument:
            self._last = self.fields.setdefault(argument.name, [])
            self._last.append(value)
            return "", ""
        if near := get_close_matches(name, _OPTIONS, 1, _as_near):
            return f"a {self.kind} takes no {name}{'' if near == [name] else f': did you mean {near[0]}?'}", ""
        self._last[-1] = f"{self._last[-1]}\n{line.strip()}".strip()
        options = ", ".join(_FIELDS[self.kind])
        return "", f"a {self.kind} has no option {name!r}, so this is text ({options})" if name and value else ""


def _blocks(
    text: str, faults: list[dict[str, Any]], notices: list[str]
) -> Iterator[tuple[int, str, dict[str, list[str]]]]:
    """Yield the line, the kind and the fields of each entry, every field as the texts that were given for it."""
    block: _Block | None = None
    topic = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace():
            wrong, doubtful = block.add(line) if block else ("", "")
            faults += [{"line": number, "message": wrong}] if wrong else []
            notices += [f"line {number}: {doubtful}"] if doubtful else []
            continue
        if block is not None:
            yield block.finished()
        block = None
        parts = _LINE.match(line)
        if (name := _name_in(parts)) == _TOPIC and parts:
            topic = (parts[2] or "").strip()
        elif name in KINDS and parts:
            block = _Block(number, name, parts[2] or "", topic)
        else:
            what = f"{line.strip()[:40]!r} begins no entry: write KIND: TEXT with one of {', '.join(KINDS)}"
            faults.append({"line": number, "message": what})
    if block is not None:
        yield block.finished()


def _name_in(parts: re.Match[str] | None) -> str:
    return parts[1].lower().replace("_", "-") if parts else ""


def _spelled(kind: str, name: str, value: str) -> tuple[str, str]:
    """Return an option and its value as the table of operations spells them."""
    option, values = _SPELLINGS.get(name, (name, {}))
    meant = values.get(value.strip().lower())
    return (option, meant) if kind == "dead-end" and meant else (name, value)


def _entry(line: int, kind: str, fields: dict[str, list[str]], reasoning: str) -> Entry:
    if kind in ("step", "assume", "settle", "conclude") and not reasoning:
        raise ValueError("it belongs to a reasoning: write `reasoning: ID` above it")
    if kind == "reasoning":
        fields.pop("id")
        if not fields:
            return Entry(line, kind, None, reasoning)
    operation, _ = KINDS[kind]
    values: dict[str, Any] = {"type": "assumption"} if kind == "assume" else {}
    for argument in operation.arguments:
        texts = fields.get(argument.name)
        if texts is not None and argument.form == "numbers":
            values[argument.name] = numbers = [part for text in texts for part in re.split(r"[,\s]+", text.strip())]
            if not all(number.isdecimal() for number in numbers):
                raise ValueError("rests-on takes the numbers of steps, as 1,2")
        elif texts is not None:
            values[argument.name] = texts if argument.is_list else "\n".join(texts)
    assert operation.form is not None  # noqa: S101 - each row of these tables has a form
    return Entry(line, kind, convert(values, operation.form, strict=False), reasoning)
