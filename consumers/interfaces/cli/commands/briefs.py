"""`deed reasoning brief`, `explain`, `validate`: a prompt with measured fidelity, what it drops, and a check.

If a reasoning does not pass the check, the exit code is 6, the report is in the details of the error, and the report is
published all the same.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import replace

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.output import page_options, show_page, when
from deedbook.consumers.interfaces.cli.reasoning_text import import_note, print_verdict
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.reasoning.compressor.prose_writer import write_prose
from deedbook.consumers.reasoning.compressor.transfer import (
    ReceivedBrief,
    described,
    evidence_missing_text,
    receive_brief,
)
from deedbook.consumers.reasoning.explanation import explain_brief
from deedbook.consumers.reasoning.validator.assumptions import outcome_words
from deedbook.consumers.reasoning.validator.evidence import NOT_THERE
from deedbook.consumers.reasoning.validator.judge import ModelJudge
from deedbook.consumers.reasoning.validator.publication import offer, validate_ref
from deedbook.consumers.reasoning.validator.trees import tree_of, work_tree
from deedbook.consumers.sdk.llm.model import named_client
from deedbook.consumers.sdk.text import counted, quote_text
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.events.reasoning import ReasoningValidated
from deedbook.ledger.format.codec import convert
from deedbook.ledger.home.trust import actions_of
from deedbook.projections.briefs.prompt import TransferLevel, fidelity_text
from deedbook.projections.briefs.sentences import REFUTED, refuted_line
from deedbook.projections.validations.queries import evidence_summary

if TYPE_CHECKING:
    from deedbook.consumers.reasoning.validator.publication import ValidatedReasoning
    from deedbook.consumers.sdk.llm.model import LlmClient
    from deedbook.projections.briefs.rejection import RejectedBrief

LEVELS = [level.value for level in TransferLevel]
issues_shown_max: Final = 500
commit_digits: Final = 12
HOLDS: Final[dict[str, Any]] = {"holds": True, "problems": []}
"""The certificate of every brief that is printed: ``receive_brief`` replaces a brief that fails its check."""


@click.command(cls=Command, looks_back=True)
@click.argument("ref", metavar="ID|REF")
@click.option("--level", type=click.Choice(LEVELS), default="standard", show_default=True, help="The level of detail.")
@click.option(
    "--budget",
    type=click.IntRange(1, 100_000),
    help="The maximum number of tokens of the prompt (default: the level's).",
)
@click.option("--plain", is_flag=True, help="Write out the shorthand, for people.")
@click.option(
    "--llm", is_flag=True, help="Let the model of config.toml add prose to the brief. The prose is not signed."
)
def brief(app: App, ref: str, level: str, budget: int | None, *, plain: bool, llm: bool) -> None:
    """Print the brief of a reasoning as a prompt. If none is published, one is made now.

    A published brief is first compared with its graph. If it does not match, another one is made here, and the output
    names the signer of the published one. If the full sentences exceed the budget, the prompt is in shorthand and
    explains it; --plain writes it out.
    """
    client = configured_model(app) if llm else None  # before the brief is made, which may take long
    received = receive_brief(app.query_with, ref, TransferLevel(level), budget=budget)
    if client is not None:
        received = with_prose(received, client)
    data = described(received).to_dict() | {"certificate": HOLDS}

    def text() -> None:
        echo(data["expanded" if plain else "prompt"])
        count = f"{data['tokens']} tokens" if data["exact"] else f"about {data['tokens']} tokens"
        echo(f"-- {count} of {data['budget']}, fidelity {fidelity_text(data['fidelity'])}", err=True)
        if not data["is_concluded"]:
            echo("-- it has no conclusion yet: its author has not concluded it", err=True, bold=True)
        if missing := data["evidence_missing"]:
            echo(f"-- {evidence_missing_text(missing)}: `deed reasoning show` names them", err=True, bold=True)
        if data["prose"]:
            echo(f"-- {data['prose']['model']} wrote beside it, lexical lower bound of its fidelity:", err=True)
            echo(" ".join(sentence["text"] for sentence in data["prose"]["sentences"]), err=True)
        if data["prose_missing"]:
            echo(f"-- no prose: {data['prose_missing']}", err=True)
        print_verdict(data["verdict"], err=True)
        print_rejected(received.rejected)
        if data["imported"]:
            echo(f"-- {import_note(data['imported'])}", err=True)
        if data["rule_fired"]:
            why = data["rule_fired"]["reason"]
            to_do = "validate" if received.brief.whole_graph else "fetch"
            if data["verdict"]["outcome"] == "failed":
                to_do = "ask a human about"  # the gate of a snapshot requires a human here, too
            echo(f"-- {to_do} the whole graph before acting: {why}", err=True)
        echo(f"-- the whole graph: `deed reasoning fetch {data['reasoning_ref']}`", err=True)

    app.show("brief", data, text)


def configured_model(app: App) -> LlmClient:
    """Return the model that ``config.toml`` names, if this folder is trusted."""
    return named_client(actions_of(app.settings()))


def with_prose(received: ReceivedBrief, client: LlmClient) -> ReceivedBrief:
    """Return the received brief with prose that a model writes now, or the reason why there is none."""
    try:
        return replace(received, prose=write_prose(received.memory, client), prose_missing="")
    except (Unavailable, Refused) as error:
        return replace(received, prose=None, prose_missing=f"{error.code}: {error.message}")


@click.command(cls=Command, looks_back=True)
@click.argument("ref", metavar="ID|REF")
@click.option("--level", type=click.Choice(LEVELS), default="standard", show_default=True, help="Which brief.")
@click.option("--budget", type=click.IntRange(1, 100_000), help="The maximum number of tokens of the prompt.")
def explain(app: App, ref: str, level: str, budget: int | None) -> None:
    """Show, step by step, what a brief keeps of a reasoning, what it drops, and why.

    A published brief is first compared with its graph. If it does not match, this explains another one, which is made
    here, as `deed brief` does. The fidelity is measured again here.
    """
    received = receive_brief(app.query_with, ref, TransferLevel(level), budget=budget)
    data = explain_brief(received) | {"certificate": HOLDS}
    app.show("explanation", data, lambda: _print_explanation(data, received))


def print_rejected(rejected: RejectedBrief | None) -> None:
    """Print on standard error who signed the brief or snapshot that failed its check, if there is one."""
    if rejected is not None:
        fields = ", ".join(dict.fromkeys(problem.field for problem in rejected.problems))
        signed = f"{rejected.author} signed another in event {rejected.event_id}, which does not hold: {fields}"
        echo(f"-- MADE AGAIN HERE: {signed}", err=True, bold=True)


def _print_explanation(data: dict[str, Any], received: ReceivedBrief) -> None:
    size, fidelity = f"{data['tokens']} of {data['budget']} tokens", data["fidelity"]["value"]
    echo(
        f"{data['level']}: {size}, fidelity {fidelity_text(fidelity)}\ncertificate: every fact is the step's own words"
    )
    print_rejected(received.rejected)
    if received.brief.refuted:
        echo(f"{REFUTED}: {quote_text(refuted_line(received.brief.refuted))}", bold=True)
    for step in data["steps"]:
        mark = "+" if step["kept"] else "-"
        after = f"  ← {', '.join(map(str, step['rests_on']))}" if step["rests_on"] else ""
        state = f" ({step['state']})" if step["state"] else ""
        echo(f"{mark} {step['step']}. {step['type']}{state}{after}: {quote_text(step['content'])}")
        for evidence in step["evidence"]:
            echo(f"      {quote_text(evidence)}")
        if not step["kept"]:
            echo(f"      dropped: {step['why']}")
    if data["dropped_sections"]:
        echo("sections without room: " + ", ".join(data["dropped_sections"]))
    if data["budget_needed_for_0.90"]:
        echo(f"a fidelity of 0.90 needs {data['budget_needed_for_0.90']} tokens")


@click.command(cls=Command)
@click.argument("ref", metavar="ID|REF")
@click.option(
    "--tree",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder that the evidence is in (default: the git work tree that you are in).",
)
@click.option("--commit", help="Check the files of this commit of the folder's repository, not the present files.")
@click.option("--publish/--no-publish", default=None, help="Publish the report (default: if the agent of --as may).")
@click.option("--judge", is_flag=True, help="Also ask the model of config.toml whether each inference follows.")
def validate(app: App, ref: str, *, tree: Path | None, commit: str | None, publish: bool | None, judge: bool) -> None:
    """Check evidence, assumptions and structure of a reasoning."""
    tree = tree or work_tree(Path.cwd())
    if commit is not None and tree is None:
        message = "--commit needs a git repository: name its folder with --tree DIR"
        raise Refused("USAGE", message)
    with tree_of(tree, commit) as opened:
        done = validate_ref(
            app.query_with,
            ref,
            tree=opened,
            judge=ModelJudge(configured_model(app)) if judge else None,
            validator=app.settings().agent or "",
        )
    data = done.report.to_dict() | {"reasoning_id": done.reasoning_id, "published": None}
    if publish or (publish is None and app.settings().agent is not None):
        data |= offer(app.author(), app.query_with, done, must=publish is True)
    conclude(app, done, data)


def conclude(app: App, done: ValidatedReasoning, data: dict[str, Any]) -> None:
    """Print a report. Raises Corrupted (exit code 6) if the reasoning does not pass."""
    counts = data["counts"]
    summary = evidence_summary(done.report.counts(), done.report.evidence, "references stand")
    notes = [
        evidence
        for evidence in done.report.evidence
        if evidence.status in {"file_changed_line_same", "moved", "not_checked"} or evidence.note == NOT_THERE
    ]
    if not app.as_json:
        for note in notes[:issues_shown_max]:
            echo(f"note, step {note.step}: {note.reference}: {note.note}", err=True)
        if "not_published" in data:
            echo(f"not published: {data['not_published']}", err=True)
    if not done.report.passed:
        if not app.as_json:
            for issue in done.report.issues[:issues_shown_max]:
                echo(_issue_line(issue.step, issue.code, issue.message), err=True)
        many = f"{counts['issues']} issue{'s' * (counts['issues'] > 1)}"
        message = f"{done.reasoning_id} does not pass: {many}; {summary}{_missing_conclusion(done)}"
        raise Corrupted("VERIFICATION_FAILED", message, report=data)

    sound = counted(counts["inferences_sound"], "inference")
    text = [f"{done.reasoning_id} passes: {summary}, {sound} sound (structure)"]
    for inference in done.report.inferences:
        if inference.status == "unlinked" and inference.is_ground:
            at = "conclusion" if inference.step is None else f"step {inference.step}"
            text.append(f"inference, {at}: unlinked: {inference.reason}")
    text += [
        f"inference, step {inference.step}: judged: {inference.opinion}: {inference.reason}"
        for inference in done.report.inferences
        if inference.opinion is not None
    ]
    for check in done.report.assumptions:
        how = f" (check: {check.method})" if check.method else ""
        text.append(f"assumption, step {check.step}: {outcome_words(check)}: {check.text}{how}")
    app.show("validation", data, text)


def _missing_conclusion(done: ValidatedReasoning) -> str:
    """Return the end of a message: the command that adds a missing conclusion; empty if there is a conclusion."""
    if done.fetched.memory.conclusion.strip():
        return ""
    call = f"`deed reasoning conclude {quote(done.reasoning_id)} TEXT --rests-on N --as {done.owner}`"
    return f"; it is not concluded yet: {call}"


def _issue_line(step: int | None, code: str, message: str) -> str:
    return f"{'the graph' if step is None else f'step {step}'}: {code}: {message}"


@click.command(cls=Command, looks_back=True)
@click.argument("ref", metavar="ID|REF")
@click.option("--author", help="Only reports of this validator.")
@page_options()
def validations(app: App, ref: str, author: str | None, limit: int, after: int | None) -> None:
    """List validation reports on a reasoning (with a ref: on that version), newest first, with every problem."""
    answer = app.query("validations.list", id=ref, author=author, limit=limit, after=after)

    def text() -> None:
        if not answer["total"]:
            echo("no report: `deed reasoning validate ID --as REVIEWER` makes one")
        for row in answer["items"]:
            report = convert(row["data"], ReasoningValidated)
            counts, tree = row["data"]["counts"], row["commit_id"][:commit_digits] or row["tree"]
            line = f"{row['event_index']}  {when(row['accepted_ms'])}  {'passed' if row['passed'] else 'FAILED'}"
            line += f"  {evidence_summary(report.counts, report.evidence)}  by {row['author']}"
            echo(f"{line}  tree: {tree}  {row['reasoning_ref'][:19]}…")
            for issue in row["data"]["issues"]:
                echo("    " + _issue_line(issue.get("step"), issue["code"], issue["message"]))
            if (more := counts["issues"] - len(row["data"]["issues"])) > 0:
                echo(f"    and {more} more" + (f" (blob {whole})" if (whole := row["data"].get("whole")) else ""))

    show_page(app, "validations.list", answer, text)
