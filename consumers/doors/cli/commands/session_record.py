"""`baton session record`: findings, unknowns, dead ends, tools, artifacts and reasoning steps of one file, at once."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from consumers.doors.cli.app import App, kept, read_argument
from consumers.doors.cli.commands.reasoning import print_warnings, reopened
from consumers.doors.cli.output import fields_of
from consumers.doors.cli.program import Command
from consumers.doors.cli.session_choice import chosen_session, find_session
from consumers.reasoning.validator.evidence import cite
from consumers.sessions.entries import Entry, read_entries
from ledger.author import Draft
from ledger.errors import Refused
from ledger.events.reasoning import ReasoningExtended, Step
from ledger.events.session import ToolUsed
from ledger.limits import batch_events_max

if TYPE_CHECKING:
    from ledger.events import EventData


@click.command(cls=Command)
@click.argument("file", metavar="FILE|-")
@click.option("--session", "given", metavar="ID", help="The session (default: BATON_SESSION, or your only open one).")
def record(app: App, file: str, given: str | None) -> None:
    """Record all that FILE says, in one batch: nothing of it stands if one entry is wrong, and its line is named.

    A line `KIND: TEXT` each, options indented below it as in the verbs: finding, unknown, dead-end (why), tool
    (purpose), artifact (a file whose content is kept), reasoning (task: starts it), step (type, evidence, rests-on),
    assume (check), conclude. The same file again adds nothing.
    """
    text = read_argument(file if file == "-" else f"@{file}", "the entries").decode("utf-8", "replace")
    entries = read_entries(text)
    if len(entries) > batch_events_max:
        message = f"{len(entries)} entries: one batch holds {batch_events_max}, so split before line"
        raise Refused("TOO_LARGE", f"nothing was recorded: {message} {entries[batch_events_max].line}")
    session = str(find_session(app, chosen_session(app, given))["id"])
    notices: list[str] = []
    planned = _drafts(app, entries, session, notices)
    cited, warnings = cite([data for _, data in planned], app.query_with)
    warnings = [*notices, *warnings]
    # The same content is the same events: who repeats a call whose answer was lost gets the first ones.
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    drafts = [
        Draft(stream=stream, data=data, idem=f"record:{session}:{digest}:{at}"[:200])
        for at, ((stream, _), data) in enumerate(zip(planned, cited, strict=True))
    ]
    try:
        accepted = app.author().emit(*drafts)
    except Refused as refusal:
        signed = _signed(entries)
        positions = [one["position"] for one in refusal.details.get("events", ())] or [0] * (len(signed) == 1)
        lines = "".join(f"line {signed[one].line}: " for one in positions)
        raise Refused(refusal.code, f"nothing was recorded: {lines}{refusal.message}", **refusal.details) from refusal
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.kind] = counts.get(entry.kind, 0) + 1
    repeated = all(one.is_repeat for one in accepted)
    answer = {"id": session, "counts": counts, "is_repeat": repeated, "warnings": warnings,
              "accepted": [fields_of(one) for one in accepted]}  # fmt: skip

    def said() -> None:
        what = ", ".join(f"{number} {kind}" for kind, number in counts.items())
        click.echo(f"{session}: {what} {'stood already' if repeated else 'recorded'} (entries {accepted[0].index} to "
                   f"{accepted[-1].index})")  # fmt: skip
        print_warnings(warnings)

    app.show("session", answer, said)


def _signed(entries: list[Entry]) -> list[Entry]:
    return [one for one in entries if one.data is not None]


def _drafts(app: App, entries: list[Entry], session: str, notices: list[str]) -> list[tuple[str, EventData]]:
    """Return what each entry signs, with the stream: steps numbered on, artifacts as what was kept of them."""
    numbers: dict[str, int] = {}
    drafts: list[tuple[str, Any]] = []
    for entry in _signed(entries):
        data: Any = entry.data
        stream = f"reasoning/{entry.of}"
        if entry.kind == "reasoning":
            numbers[entry.of] = 1
            data = replace(data, session=session)
        elif isinstance(data, Step):
            number = numbers[entry.of] = numbers.get(entry.of) or _following(app, entry.of, data, notices)
            rests_on = {number: list(entry.rests_on)} if entry.rests_on else {}
            data = ReasoningExtended(steps=[replace(data, step_number=number)], dependencies=rests_on)
            numbers[entry.of] += 1
        elif entry.kind != "conclude":
            stream = f"session/{session}"
            if entry.kind == "artifact" and isinstance(data, ToolUsed):
                data = replace(data, purpose=" ".join(filter(None, (data.purpose, kept(app, data.tool)))))
        drafts.append((stream, data))
    return drafts


def _following(app: App, reasoning: str, first: Step, notices: list[str]) -> int:
    """Return the number that the first step of a file has: where it stands already, the one that it has there."""
    found = app.query("reasoning.show", id=reasoning)
    steps = found["memory"]["steps"]
    same = [one["step_number"] for one in steps if one["content"] == first.content]
    notices += [] if same else reopened(found)
    return same[0] if same else max((one["step_number"] for one in steps), default=0) + 1
