"""`deed handoff show`: shows all of one handoff."""

from __future__ import annotations

import re
from typing import Any, Final

import click

from deedbook.consumers.handoffs.decisions import line_of, standing, touched_paths
from deedbook.consumers.handoffs.files.syntax.note_labels import NOTE_LABELS
from deedbook.consumers.handoffs.operations import NOTES, next_on
from deedbook.consumers.handoffs.receiver import later
from deedbook.consumers.interfaces.cli import output
from deedbook.consumers.interfaces.cli.reader_app import ReadingApp, ReadingCommand
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import load
from deedbook.consumers.interfaces.cli.web_option import web_option
from deedbook.consumers.sdk.text import quote_text
from deedbook.ledger.errors import Refused
from deedbook.ledger.lifecycle.gate_state import gate_text, read_gate
from deedbook.ledger.trust.history import root_digits_shown
from deedbook.projections.handoffs.claims import claims_over


@click.command(cls=ReadingCommand, looks_back=True, unseals=True)
@click.argument("id_", metavar="ID")
@click.option("--history", is_flag=True, help="List every event with its signer, key and validity.")
@click.option(
    "--version", "part", flag_value="version", help="Print only the version, as `approve --version` takes it."
)
@click.option("--result", "part", flag_value="result", help="Print only the result, as `verify --result` takes it.")
@web_option("handoff", "id_", "handoffs.facts")
def show(app: ReadingApp, id_: str, *, history: bool, part: str | None) -> None:
    """Show one handoff: its state and why, tasks, criteria, history."""
    if part is not None:
        ref = app.query("handoffs.facts", id=id_)[part]
        if not ref:
            raise Refused("NOT_FOUND", f"{id_} has no result: nobody has completed it")
        app.show(part, {part: ref}, ref)
        return

    handoff = read_whole(app, id_)
    # In a bundle, and in a past state, nobody can act.
    is_now = app.bundle is None and app.instant is None
    strangers = _strangers(app, handoff) if is_now else []
    following = next_on(handoff["why"], shown=handoff) if is_now else []
    following = [step for step in following if step.agent not in strangers]
    if history:
        handoff["history"] = load("signed_history:signed_history")(app.whole(), handoff)

    def text() -> None:
        print_handoff(handoff)
        if history:
            load("signed_history:print_history")(handoff["history"])
        echo(f"\n{as_of_line(handoff['as_of'])}")
        if strangers:
            amend = f"deed handoff amend {handoff['id']} --as {handoff['importer']} --to NAME --reviewer NAME"
            names = "`deed handoff import FILE|DIR --names FILE` says which agents they are"
            echo(f"no agent here is named {quote_text(' or '.join(strangers))}: {names}; or name others: `{amend}`")
        output.print_next(following, app.settings().agent)

    app.show("handoffs.show", handoff, text, following=following[0].command if following else None)


def _strangers(app: ReadingApp, handoff: dict[str, Any]) -> list[str]:
    """Return the receiver and reviewer of an imported handoff that waits for them, if no agent here has their name."""
    if handoff["claimed_status"] is None or handoff["status"] != "pending" or claims_over(handoff["claimed_status"]):
        return []
    names = {agent["name"] for agent in app.query("agents.list", all=True)["agents"]}
    return sorted({name for name in (handoff["to"], handoff["reviewer"]) if name} - names)


def read_whole(app: ReadingApp, id_: str) -> dict[str, Any]:
    """Return an answer of ``handoffs.show`` with the cited reasonings, and the ``decisions`` about its files.

    ``only_in_file`` are the lines of its file that no field has.
    """
    handoff = _with_citations(app, app.query("handoffs.show", id=id_))
    only: list[str] | None = []
    if handoff["template"] is not None:
        only = load("..handoffs.files.mapping:lines_only_in_file")(handoff, app.get_blob)
    about = standing(app.query_with, touched_paths(handoff["notes"]))
    return {**handoff, "only_in_file": only, "decisions": about["items"]}


def _with_citations(app: ReadingApp, handoff: dict[str, Any]) -> dict[str, Any]:
    if not (handoff["result_refs"] or handoff["reasoning_refs"]):
        return {**handoff, "result_reasoning": [], "reasoning": []}
    cited: dict[str, Any] = load("cited_reasoning:of_handoff")(app, handoff)
    return cited


def as_of_line(as_of: dict[str, Any]) -> str:
    """Return the entries, the tree head and the keys with which an answer was checked, and the state of the gate."""
    line = f"checked: every signature, as of {as_of['size']} entries with tree head {as_of['root'][:root_digits_shown]}"
    if as_of["ends"] is not None:
        line += ", where the ledger's key signed that nothing of it is left out"
    if as_of.get("witnessed") is not None:
        line += f"; {as_of['witnessed']}"
    if not as_of["is_pinned"]:
        line += " (self-asserted: no root is pinned here, see `deed trust --root`)"
    for entry in as_of["ignored"]:
        line += f"\n  entry {entry['index']} counts for nothing ({entry['code']}): {entry['message']}"
    return f"{line}\n{gate_text(read_gate(as_of['gate']))}"


def print_handoff(handoff: dict[str, Any]) -> None:
    """Print a handoff in the order of its file."""
    echo(quote_text(handoff["title"]), bold=True)
    echo(f"{handoff['id']}  [{handoff['status']} → {handoff['to'] or '?'}]")
    echo(quote_text(_parties(handoff)))
    echo(f"version {handoff['version']}")
    if handoff["status"] in ("completed", "verified"):  # if the work was sent back, its result no longer counts
        echo(f"result {handoff['result']}")
        for artifact in handoff["artifacts"]:
            echo(f"  artifact {_artifact_text(artifact)}")
    echo(quote_text(handoff["why"]["sentence"]))
    if handoff["depends_on"]:
        others = (f"{dependency['id']} ({dependency['status'] or 'missing'})" for dependency in handoff["depends_on"])
        echo(f"depends on {', '.join(others)}: must be {handoff['unlock_at']} first")
    if handoff["proposal"]:
        echo(quote_text(f"proposal {handoff['proposal']}"))
    _print_relations(handoff)
    _print_notes(handoff["notes"] | {"later": later(handoff)})
    _print_decisions(handoff["decisions"])
    if handoff["task"]:
        echo(f"\nTask  {quote_text(handoff['task'], '  ')}")
    _print_lists(handoff)
    _print_questions(handoff["questions"])
    for of, heading in (("result_reasoning", "Reasoning behind the result"), ("reasoning", "Reasoning")):
        if handoff.get(of):
            echo()
            load("reasoning_text:print_citations")(handoff[of], heading, "")
    if handoff["context"]:
        echo(f"\nContext  {quote_text(handoff['context'], '  ')}")
    _print_only_in_file(handoff)
    echo("\nLog")
    for line in handoff["log"]:
        # The time is that of the author's clock, to the minute. For an imported line, only the day is known.
        time = f"{line['day']} {line['at'][11:16]}Z" if line["at"].startswith(line["day"]) else line["day"]
        echo(f"  - {time} [{line['author']}] {quote_text(line['text'])}")


def _parties(handoff: dict[str, Any]) -> str:
    """Return the sender, receiver and reviewer, and how to name them if an imported file does not."""
    if handoff["claimed_status"] is None and handoff["to"]:
        return f"from {handoff['from']} to {handoff['to']}, reviewed by {handoff['reviewer'] or handoff['from']}"
    parties = {"sender": handoff["from"], "receiver": handoff["to"], "reviewer": handoff["reviewer"]}
    missing = [party for party, name in parties.items() if not name]
    words = {"sender": "from", "receiver": "to", "reviewer": "with the reviewer"}
    named = ", ".join(f"{words[party]} {name}" for party, name in parties.items() if name).replace(", to ", " to ")
    # Nobody here has confirmed the import that names them.
    by = handoff["importer"]
    texts = [f"{named}: so says the import by {by} (the file, or names that {by} gave)"] if named else []
    texts += [f"nobody is named as {' or '.join(missing)}"] if missing else []
    lines = ["; ".join(texts)]
    if set(missing) - {"sender"} and handoff["status"] == "pending" and not claims_over(handoff["claimed_status"]):
        amend = f"deed handoff amend {handoff['id']} --as {handoff['importer']} --to NAME --reviewer NAME"
        lines.append(
            f"name them: `{amend}`, or for all of an import `deed handoff import DIR --to NAME --reviewer NAME`"
        )
    return "\n".join(lines)


def _print_relations(handoff: dict[str, Any]) -> None:
    if handoff["importer"]:
        claimed = handoff["claimed_status"] or "no status"
        claim = f", which says {claimed!r}" if handoff["claimed_status"] is not None else ""
        echo(f"imported by {handoff['importer']} from {handoff['source']}{claim}")
    for word, others in (
        ("answers", [handoff["answers"]]),
        ("answered by", [answer["id"] for answer in handoff["answered_by"]]),
    ):
        if any(others):
            echo(f"{word} {', '.join(others)}")
    if handoff["superseded_by"]:
        echo(f"superseded by {handoff['superseded_by']}")


def _print_decisions(decisions: list[dict[str, Any]]) -> None:
    """Print the decisions in force for its files."""
    if decisions:
        echo("\nDecisions about its files: `deed decisions ID` shows one")
    for decision in decisions:
        echo(f"  {line_of(decision)}")


def _print_only_in_file(handoff: dict[str, Any]) -> None:
    """Print the parts of the file that no field has, because an approval of the version includes them."""
    if handoff["only_in_file"] is None:
        command = f"`deed blob get {handoff['template']}`"
        echo(f"\nIts version includes a file that cannot be shown here: read it first ({command})", bold=True)
    elif handoff["only_in_file"]:
        text = quote_text("\n".join(handoff["only_in_file"]), "  ", is_barred=True)
        echo(f"\nOnly in its file, which its version includes{text}")


# The sender wrote this text and could hide a command in it, so the commands that we print contain only its reference.
_KEPT: Final = re.compile(r"(.*?) ?\(?kept: ((?:blake3|sha256):[0-9a-f]{64})\)?\Z")


def _artifact_text(text: str) -> str:
    """Return an artifact with the command that reads its stored content, if it has any."""
    parts = _KEPT.match(text)
    return f"{quote_text(parts[1] or 'content')}: `deed blob get {parts[2]}`" if parts else quote_text(text)


def _print_notes(notes: dict[str, list[str]]) -> None:
    """Print the notes first: a receiver needs them before opening a file."""
    if any(notes.values()):
        echo("\nWhat its sender knows", bold=True)
    for kind in (*NOTES, "later"):
        heading = NOTE_LABELS.get(kind, kind).lower().replace("-", " ")
        for text in notes[kind]:
            echo(f"  {heading}: {_artifact_text(text) if kind == 'artifacts' else quote_text(text)}")


_MARK_NOTES: Final = {
    "claimed": "  (ticked in the imported file)",
    "reopened": "  (open again since changes were requested)",
    "asked": "  (its reviewer is asked to waive it: {})",
    "waived": "  (waived: {})",
}


_CRITERIA: Final = "Acceptance criteria"


def _print_lists(handoff: dict[str, Any]) -> None:
    for heading, rows in (("Tasks", handoff["tasks"]), (_CRITERIA, handoff["criteria"])):
        if rows:
            echo(f"\n{heading}")
        for number, item in enumerate(rows, 1):
            mark = "x" if item.get("done") or item.get("mark") in ("checked", "claimed") else " "
            note = _MARK_NOTES.get(item.get("mark"), "").format(quote_text(item.get("waiver_reason", "")))
            if heading == _CRITERIA and item["mark"] == "checked" and not item["evidence"]:
                note = "  (no evidence)"
            echo(f"  {number}. [{mark}] {quote_text(item['text'])}{note}")
            if item.get("evidence"):
                echo(quote_text(f"       {item['evidence']}"))


_QUESTION_NOTES: Final = {"open": "not answered", "answered": "{by} has not settled it", "settled": "settled"}


def _print_questions(questions: list[dict[str, Any]]) -> None:
    if questions:
        echo("\nQuestions")
    for number, asked in enumerate(questions, 1):
        place = quote_text(f" about {asked['place']}") if asked["place"] else ""
        echo(f"  {number}. {asked['by']} asks {asked['to']}{place}: {quote_text(asked['text'], '     ')}")
        answer = f"{quote_text(asked['answer'], '     ')}  " if asked["answer"] else ""
        comment = quote_text(f": {asked['comment']}") if asked["comment"] else ""
        echo(f"     {answer}({_QUESTION_NOTES[asked['mark']].format(by=asked['by'])}{comment})")
