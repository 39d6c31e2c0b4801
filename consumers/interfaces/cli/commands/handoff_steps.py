"""`deed handoff` with an operation that leaves the content as it is, such as `claim`: each is a row of a table."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from shlex import join
from types import MappingProxyType
from typing import Any, Final

import click
from msgspec.structs import asdict

from deedbook.consumers.handoffs import content, operations
from deedbook.consumers.handoffs.decisions import line_of
from deedbook.consumers.handoffs.files.syntax.note_labels import NOTE_LABELS
from deedbook.consumers.handoffs.operations import OPERATIONS
from deedbook.consumers.handoffs.receiver import left_out_text, open_tasks, unsaid_at_completion
from deedbook.consumers.handoffs.short_ids import by_whole_id
from deedbook.consumers.handoffs.worktree import uncommitted, uncommitted_text
from deedbook.consumers.interfaces.cli.app import App, Command, with_contents
from deedbook.consumers.interfaces.cli.arguments import parameters, values_of
from deedbook.consumers.interfaces.cli.commands.handoff_show import as_of_line, print_handoff, read_whole
from deedbook.consumers.interfaces.cli.output import print_lines, print_next, warn
from deedbook.consumers.interfaces.cli.reasoning_text import print_citations
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import load
from deedbook.consumers.sdk.files import unknown_files
from deedbook.consumers.sdk.text import shorten
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused, did_you_mean
from deedbook.ledger.events import KIND_OF
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.handoff import HandoffAmended, HandoffApproved, HandoffClaimed, HandoffContent
from deedbook.ledger.format.forms import REF_PATTERN
from deedbook.ledger.lifecycle.gate_state import gate_text, is_closed, read_gate
from deedbook.ledger.lifecycle.rules import needs_identity_key

note_shown_max_chars: Final = 100
files_bound_max: Final = 6


def command_of(verb: operations.Verb) -> click.Command:
    """Return the command of an operation that signs only its options."""
    operation = OPERATIONS[verb]

    def sign(app: App, /, id_: str, **options: Any) -> None:
        has_said_yes, allows_open_tasks = options.pop("yes", False), options.pop("open_tasks", False)
        options = values_of(operation.arguments, options)
        # the content of the artifacts that the result names must be stored somewhere
        named = options.get("artifacts", ())
        if options.pop("keep", False):
            options["artifacts"] = with_contents(app, options.get("artifacts", ()))
        for name in ("version", "result"):
            check_ref(name, options)
        if "by" in options:
            options["by"] = by_whole_id(app.query("handoffs.facts", id=options["by"]), "handoff", options["by"])["id"]
        read = operations.OF_WHAT_WAS_READ.get(verb)
        if read is not None and read not in options:
            handoff = read_first(app, verb, id_, read, asks=not has_said_yes)
            options[read] = handoff[read]
        else:
            handoff = by_whole_id(app.query(content.query_for(verb), id=id_), "handoff", id_)
        with content.of_version(app.client(), handoff["id"], options.get("version")):
            expect = content.place_of(verb, handoff, options.get("version"))
            data = content.events_of_step(verb, handoff, options, app.author())
            warnings: Sequence[str] = ()
            if verb == "complete":
                shown, asks = app.query("handoffs.show", id=handoff["id"]), not has_said_yes
                _check_tasks(app, shown, is_allowed=allows_open_tasks)
                warnings = _of_completion(app, shown, options.get("summary"), named, asks=asks)
            cited = handoff["reasoning_refs"] if verb in ACT_ON_REASONING else ()
            emit(app, handoff["id"], *data, expect=expect, tells_left=verb in TELL_LEFT, cited=cited, warnings=warnings)

    taken = [click.Argument(["id_"], metavar="ID"), *parameters(operation.arguments)]
    if verb in operations.OF_WHAT_WAS_READ:
        taken.append(
            click.Option(["--yes"], is_flag=True, help="On a terminal: show the handoff, and sign without asking.")
        )
    if verb == "complete":
        taken.append(click.Option(["--yes"], is_flag=True, help="On a terminal: do not ask about missing parts."))
        taken.append(click.Option(["--open-tasks"], is_flag=True, help="Complete it although tasks are open."))
    text = f"{operation.words}\n\n{operation.usage}".strip()
    return Command(operations.spelled(verb), params=taken, callback=sign, help=text)


def _check_tasks(app: App, handoff: Mapping[str, Any], *, is_allowed: bool) -> None:
    """Refuse a completion with open tasks, unless a terminal can ask. Raises Refused: ``USAGE``."""
    tasks, can_ask = open_tasks(handoff), app.has_terminal and not app.as_json
    if tasks and not is_allowed and not can_ask and handoff["status"] == "in_progress":
        tick = join(
            ["deed", "handoff", "check", "--task", tasks.replace(", ", ","), "--as", app.acting(), handoff["id"]]
        )
        message = (
            f"{handoff['id']} has open tasks ({tasks}): tick them, or complete it with --open-tasks\n  next: {tick}"
        )
        raise Refused("USAGE", message, tasks=tasks, next=[tick])


def _of_completion(
    app: App, handoff: dict[str, Any], summary: str | None, artifacts: Sequence[str], *, asks: bool
) -> list[str]:
    """Warn of missing parts before anything is signed, and ask on a terminal; return the warnings for JSON."""
    files = uncommitted(app.client(), handoff, artifacts)
    warnings = [
        *unknown_files(artifacts),
        *([f"{uncommitted_text(files)}; {_binding(app, handoff['id'], summary, artifacts, files)}"] if files else []),
        *unsaid_at_completion(handoff, summary),
    ]
    if app.as_json:
        return warnings
    warn(warnings)
    if warnings and asks and app.has_terminal and not click.confirm("Complete it anyway?", default=False, err=True):
        raise click.Abort
    return []


def _binding(app: App, id_: str, summary: str | None, artifacts: Sequence[str], files: Sequence[str]) -> str:
    """Say how the result can contain the content of files instead."""
    if len(files) > files_bound_max:
        return "or name what you made with --artifact, and store its content with --keep"
    fits = summary and summary.isprintable() and len(summary) <= note_shown_max_chars
    text = ["--summary", summary if fits and summary else "TEXT"]
    named = [word for name in dict.fromkeys((*artifacts, *files)) for word in ("--artifact", name)]
    command = join(["deed", "handoff", "complete", "--as", app.acting(), *text, *named, "--keep", id_])
    return f"or store them with the result when you complete it: `{command}`"


def check_ref(name: str, options: dict[str, Any]) -> None:
    """Refuse an option that needs a whole reference and has none. Raises Refused: ``USAGE``."""
    if name in options and not re.match(REF_PATTERN, options[name]):
        message = f"--{name} needs a whole {name}, sha256:…, as `deed handoff show ID` prints it"
        raise Refused("USAGE", message, field=name)


def read_first(app: App, verb: operations.Verb, id_: str, read: str, *, asks: bool) -> dict[str, Any]:
    """Show a handoff on the terminal, ask, and return it, so that exactly the displayed version or result is signed."""
    # An unknown id is refused before the user is asked anything.
    found = by_whole_id(app.query("handoffs.facts", id=id_), "handoff", id_)
    if app.settings().agent is None and (reviewer := found["reviewer"]):
        message = f"no agent is named to sign this: its reviewer is {reviewer}, so add --as {reviewer}"
        raise Refused("USAGE", message, reviewer=reviewer)
    own = app.query("agents.show", id=app.acting())["roles"]
    with operations.saying_way_on(app.query_with, found["id"], acting=app.acting()):
        content.check_roles(verb, found, app.acting(), own)
        if read == "result":
            content.check_judged(verb, found)
    if app.as_json or not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        where = f"`deed handoff show {found['id']}` prints it, with `--json` as `data.{read}`"
        raise Refused(
            "USAGE",
            f"{operations.spelled(verb)} signs the {read} that you have read: give its --{read} ({where})",
            field=read,
        )

    handoff = read_whole(app, id_)
    app.show("handoffs.show", handoff, lambda: print_handoff(handoff))
    echo(f"\n{as_of_line(handoff['as_of'])}")
    if asks and not click.confirm(
        f"\n{operations.spelled(verb)} this {read} as {app.acting()}?", default=False, err=True
    ):
        raise click.Abort
    return handoff


# Their output says whether the cited reasoning is still valid: somebody may have refuted it since.
ACT_ON_REASONING: Final = frozenset[operations.Verb]({"approve", "claim"})
TELL_LEFT: Final = frozenset[operations.Verb]({"claim", "check", "ask_waiver", "waive", "request_changes"})


def emit(
    app: App,
    name: str,
    *data: EventData,
    expect: int | None = None,
    tells_left: bool = False,
    cited: Sequence[str] = (),
    changes: Sequence[dict[str, Any]] = (),
    warnings: Sequence[str] = (),
    of_session: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    decisions: Sequence[dict[str, Any]] = (),
    was: str = "",
) -> None:
    """Sign and append events of one handoff, the first at the version ``expect``, and print the new status.

    ``of_session`` names the notes from the sender's session, and those that were left out. ``decisions`` are those
    about its files. ``was`` is the status before.
    """
    drafts = [
        Draft(stream=f"handoff/{name}", data=event, expect=None if at else expect) for at, event in enumerate(data)
    ]
    kind = KIND_OF[type(data[0])] if data else ""
    with operations.saying_way_on(app.query_with, name, kind, acting=app.acting()):
        try:
            accepted = app.author().emit(*drafts) if drafts else []
        except Refused as refusal:
            if refusal.code in ("REVIEWER_REQUIRED", "SELF_APPROVAL") and isinstance(data[0], HandoffContent):
                load("absent_reviewer:name_reviewers")(app, refusal, data[0])
            raise
    handoff = app.query("handoffs.why", id=name)
    following = operations.next_on(handoff)
    if any(isinstance(event, HandoffClaimed) for event in data):  # the agent who claims a handoff reads all of it next
        command = join(["deed", "handoff", "show", "--as", app.acting(), name])
        following = [operations.NextCommand(app.acting(), command)]
    answer = {
        "id": name,
        "status": handoff["status"],
        "version": handoff["version"],
        "accepted": [asdict(entry) for entry in accepted],
        "next": [command for _, command in following],
    }
    entries = ", ".join(str(entry.index) for entry in accepted)
    at = f"entry {entries}" if entries else "nothing signed: already so"
    if any(isinstance(event, HandoffContent | HandoffApproved) for event in data):
        warnings = [*_absent(app, handoff), *warnings]
        is_own = handoff["status"] == "approved" and isinstance(data[0], HandoffContent)
        approves = "this approves it" if isinstance(data[0], HandoffAmended) else "it needs no approval"
        at += f"; {approves}: {app.acting()} is human" * is_own
        at += "; the approval of its earlier version has ended" * (was == "approved" != handoff["status"])
    if refs := [*cited, *(ref for event in data for ref in getattr(event, "reasoning_refs", ()))]:
        answer["reasoning"] = load("cited_reasoning:of_refs")(app, refs)
    answer |= _gate_of(data, handoff)
    if tells_left:
        answer |= {"left": handoff["left"], "why": handoff["sentence"]}
    more = {"changes": list(changes), "warnings": list(warnings), "decisions": [*decisions], **of_session}
    answer |= {key: value for key, value in more.items() if value}

    def text() -> None:
        echo(f"{name} is {handoff['status']} ({at})")
        for line in (*_gate_lines(answer), *content.told_changes(changes)):
            echo(f"  {line}")
        print_lines(*session_lines(of_session))
        print_lines(*(f"  a decision about its files: {line_of(row)}" for row in decisions))
        if tells_left:
            echo(answer["why"])
        print_citations(answer.get("reasoning", ()), "reasoning")
        warn(warnings)
        print_next(following, app.acting())

    app.show("handoff", answer, text, following=next(iter(answer["next"]), None))


def _gate_of(data: Sequence[EventData], handoff: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the gate if one of the events is a decision, which only an identity key can sign."""
    is_decision = any(needs_identity_key("handoff", KIND_OF[type(event)], event) for event in data)
    return {"gate": handoff["as_of"]["gate"]} if is_decision else {}


def _gate_lines(answer: dict[str, Any]) -> list[str]:
    if "gate" not in answer:
        return []
    gate = read_gate(answer["gate"])
    return [f"{gate_text(gate)}{' (as it should be: nobody decides without a passphrase)' * is_closed(gate)}"]


def session_lines(of_session: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield lines about the notes that were attached from the sender's session, and those that were left out."""
    if notes := of_session.get("of_session"):
        yield "signed with it, from your session (leave it out with --session none):"
        for kind, texts in notes.items():
            yield from (f"  {NOTE_LABELS[kind].lower()}: {shorten(text, note_shown_max_chars)}" for text in texts)
    if left_out := left_out_text(of_session.get("left_out", {})):
        yield left_out


def _absent(app: App, why: dict[str, Any]) -> Iterator[str]:
    """Yield a warning for each dependency that does not exist, with similar ids."""
    for on in [reason["on"] for reason in why["reasons"] if reason["code"] == "DEPENDENCY_MISSING"]:
        try:
            app.query("handoffs.facts", id=on)
        except Refused as refusal:
            alike = did_you_mean([name for name in refusal.details["near"] if name != why["id"]])
            yield f"{why['id']} can never be claimed before there is a handoff {on}{alike}"
