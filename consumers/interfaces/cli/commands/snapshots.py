"""`deed snapshot`: takes knowledge along, and receives it with a decision.

`deed review`: shows what waits for a human.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click
import msgspec
from msgspec.structs import asdict

from deedbook.consumers.handoffs.short_ids import by_whole_id
from deedbook.consumers.interfaces.cli.app import App, Group, read_text
from deedbook.consumers.interfaces.cli.commands.assessment import parse_vectors
from deedbook.consumers.interfaces.cli.commands.briefs import LEVELS, print_rejected
from deedbook.consumers.interfaces.cli.output import list_page, page_options, period_options, when
from deedbook.consumers.interfaces.cli.reasoning_text import print_steps, print_verdict
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.reasoning.compressor.transfer import read_verdict
from deedbook.consumers.reasoning.snapshots.act import act_on, describe
from deedbook.consumers.reasoning.snapshots.take import receive_snapshot, take_snapshot
from deedbook.consumers.reasoning.validator.trees import tree_of
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused, or_none
from deedbook.ledger.events.review import ReviewAnswered, Verdict
from deedbook.projections.briefs.prompt import TransferLevel, fidelity_text
from deedbook.projections.briefs.rejection import RejectedBrief
from deedbook.projections.snapshots.snapshot import EnhancedEpistemicSnapshot, render_snapshot
from deedbook.projections.snapshots.vectors import read_vectors


@click.group(cls=Group, aliases={"new": "take", "get": "receive"})
def snapshot() -> None:
    """Take snapshots of what an agent knows; receive them within a token budget, with a decision."""


@snapshot.command()
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--session", metavar="ID", help="The session to sum up.")
@click.option("--reasoning", metavar="ID|REF", help="The reasoning to include, compressed.")
@click.option("--domain", help="The domain, such as security, medical or legal (default: the reasoning's).")
@click.option("--context", metavar="TEXT|@FILE", help="The context in your own words (default: from the session).")
@click.option(
    "--vector",
    "vectors",
    multiple=True,
    metavar="NAME=VALUE",
    help="A self-assessment from 0 to 1, such as know=0.7. Repeatable.",
)
def take(app: App, /, id_: str | None, context: str | None, vectors: tuple[str, ...], **options: Any) -> None:
    """Sign a snapshot of a session, a reasoning, or both. Without ID it gets 12 random hex digits."""
    author = app.author()
    text_given = None if context is None else read_text(context, "--context")
    assessed = parse_vectors(vectors)
    taken = take_snapshot(author, app.query_with, snapshot_id=id_, context=text_given, vectors=assessed, **options)
    answer = plain(app, taken)

    text = [f"snapshot {taken.snapshot_id}: {answer['tokens']} tokens, context {taken.context_source}"]
    if taken.reasoning_ref is not None and taken.reasoning_fidelity is not None:
        text.append(f"  reasoning {taken.reasoning_ref[:19]}…, fidelity {fidelity_text(taken.reasoning_fidelity)}")
    app.show("snapshot", answer, text, following=f"deed snapshot receive {quote(taken.snapshot_id)}")


@snapshot.command(looks_back=True)
@click.argument("id_", metavar="ID")
def show(app: App, id_: str) -> None:
    """Show a whole snapshot, within 900 tokens."""
    snapshot = receive_snapshot(app.query_with, f"snapshot/{id_.removeprefix('snapshot/')}")
    answer = plain(app, snapshot)

    def text() -> None:
        echo(answer["prompt"])
        print_verdict(answer["verdict"])
        assessed = ", ".join(f"{name} {value:.2f}" for name, value in snapshot.vectors.items()) or "none assessed"
        echo(f"-- {snapshot.snapshot_id} by {snapshot.author}, context {snapshot.context_source}; vectors: {assessed}")
        print_rejected(snapshot.rejected)

    app.show("snapshot", answer, text)


@snapshot.command("list", looks_back=True)
@click.option("--author", help="Only snapshots of this agent.")
@click.option("--session", help="Only snapshots of this session.")
@page_options()
def list_(app: App, **filters: Any) -> None:
    """List snapshots, newest first."""
    list_page(
        app,
        "snapshots.list",
        filters,
        lambda row: {
            "id": row["id"],
            "taken": when(row["accepted_ms"]),
            "by": row["author"],
            "session": row["session_id"] or "-",
            "domain": row["domain"] or "-",
            "fidelity": "-" if row["reasoning_fidelity"] is None else fidelity_text(row["reasoning_fidelity"]),
        },
    )


@snapshot.command()
@click.argument("ref", metavar="ID|REF")
@click.option("--level", type=click.Choice(LEVELS), help="Send this level (default: the lowest that passes its gate).")
@click.option("--task", help="What you are about to do. Reasoning about it, by the words, is fetched whole.")
@click.option("--vector", "vectors", multiple=True, metavar="NAME=VALUE", help="Replace the snapshot's vectors.")
@click.option("--tree", type=click.Path(path_type=Path), help="Also validate the graph against this folder.")
def receive(
    app: App, ref: str, *, level: str | None, task: str | None, vectors: tuple[str, ...], tree: Path | None
) -> None:
    """Print the prompt of a snapshot or reasoning, whether you may act on it, and by which rule.

    If the rule requires a human's decision, --as NAME signs a request for it (`deed review list`).
    """
    author = None if app.settings().agent is None else app.author()
    assessed = msgspec.to_builtins(read_vectors(parse_vectors(vectors))) or None
    wanted = None if level is None else TransferLevel(level)
    with tree_of(tree) as opened:
        decision = act_on(app.query_with, ref, author=author, level=wanted, task=task, vectors=assessed, tree=opened)
    data = describe(decision)

    app.show("decision", data, lambda: _print_decision(data, decision.snapshot.rejected))


def plain(app: App, snapshot: EnhancedEpistemicSnapshot) -> dict[str, Any]:
    """Return a snapshot as plain values with its published names, its prompt, and the verdict on its reasoning."""
    ref = snapshot.reasoning_ref
    verdict = None if ref is None else or_none(read_verdict, app.query_with, ref)
    rendered = render_snapshot(snapshot)
    counted = ("prompt", "expanded", "tokens", "exact", "tokenizer", "dropped", "shortened")
    vector = snapshot.reasoning_embedding
    named = (
        "snapshot_id session_id author event_id context_summary context_source conclusion domain reasoning_brief "
        "reasoning_tags top_assumptions reasoning_ref reasoning_fidelity reasoning_size evidence_refs evidence_count "
        "top_evidence_refs"
    )
    return {name: getattr(snapshot, name) for name in named.split()} | {
        "vectors": dict(snapshot.vectors),
        "level": None if snapshot.level is None else snapshot.level.value,
        "fidelities": {level.value: value for level, value in snapshot.fidelities.items()},
        "reasoning_embedding": None if vector is None else list(vector),
        "embedder": None if vector is None else vector.embedder._asdict(),
        **{name: getattr(rendered, name) for name in counted},
        "rejected": msgspec.to_builtins(snapshot.rejected),
        "verdict": msgspec.to_builtins(verdict),
    }


def _print_decision(data: dict[str, Any], rejected: RejectedBrief | None) -> None:
    echo(data["prompt"])
    fidelity = "no reasoning" if data["fidelity"] is None else f"fidelity {fidelity_text(data['fidelity'])}"
    gate = f"gate: {data['gate']['gate']}"
    if data["gate"]["gate"] == "failed":
        passing = f" {data['gate']['level_that_passes']} would pass." if data["gate"]["level_that_passes"] else ""
        gate += f" ({data['gate']['reason']}{passing})"
    echo(f"-- {data['tokens']} tokens of {data['budget']}, level {data['level']}, {fidelity}, {gate}")
    print_verdict(data["verdict"], err=True)
    if data["reasoning_ref"] is not None:
        echo(f"-- the whole graph: `deed reasoning fetch {data['reasoning_ref']}`")
    echo(f"-- {decided(data)}", bold=True)
    for reason in data["reasons"]:
        echo(f"   {reason}")
    if data["not_assessed"]:
        echo(f"   not assessed: {', '.join(data['not_assessed'])}")
    if data["not_compared"]:
        echo(f"   not compared: {data['not_compared']}")
    if data["graph"] is not None:
        echo("-- here it is:")
        print_steps(data["graph"])
    is_for_human, request = data["action"] == "human_review_required", data["review"]
    if is_for_human and request is None:
        echo("   nobody was asked: add --as NAME to sign the request")
    elif is_for_human and request["verdict"] is None:
        echo(f"   a human answers with: deed review answer {request['id']} --approve|--reject --as NAME")
    print_rejected(rejected)


def decided(data: dict[str, Any]) -> str:
    """Return in one line what the receiver may do, as the gate or the human decided."""
    rule, answered = data["rule_fired"], data["review"]
    word = f"{data['action']}: {'no rule fired' if rule is None else rule['name']}"
    if answered is None or answered["verdict"] is None:
        return word
    may = "may act" if data["may_act"] else "may not act"
    return f"{may}: {answered['answered_by']}, a human, {answered['verdict']} it ({word})"


@click.group(cls=Group, aliases={"next": "list", "close": "answer"})
def review() -> None:
    """List requests that need a human's decision, and answer them as a human."""


@review.command("list", looks_back=True)
@click.option(
    "--status",
    type=click.Choice(["open", "answered", "all"]),
    default="open",
    show_default=True,
    help="Only requests in this state.",
)
@click.option("--author", help="Only requests of this agent.")
@period_options("Only requests made at or after this time")
@page_options()
def list_reviews(app: App, status: str, **filters: Any) -> None:
    """List requests for a human's decision, oldest first."""
    filters["status"] = None if status == "all" else status
    list_page(
        app,
        "reviews.list",
        filters,
        lambda row: {
            "id": row["id"],
            "status": row["verdict"] or ("superseded" if row["superseded_by"] else row["status"]),
            "asked": when(row["requested_ms"]),
            "by": row["author"],
            "rule": row["rule"],
            "question": row["question"],
        },
    )


@review.command("show", looks_back=True)
@click.argument("id_", metavar="ID")
def show_review(app: App, id_: str) -> None:
    """Show one request: the question, its citations, and the answer."""
    request = app.query("reviews.show", id=id_)
    app.show("reviews.show", request, lambda: _print_review(request))


@review.command()
@click.argument("id_", metavar="ID")
@click.option("--approve", "verdict", flag_value="approved", help="Allow the agent to act.")
@click.option("--reject", "verdict", flag_value="rejected", help="Forbid the agent to act.")
@click.option("--comment", metavar="TEXT|@FILE", help="Why.")
def answer(app: App, id_: str, verdict: Verdict | None, comment: str | None) -> None:
    """Answer a request. A human's identity key signs; no session key can."""
    if verdict is None:
        raise Refused("USAGE", "say --approve or --reject")
    name = by_whole_id(app.query("reviews.show", id=id_), "review", id_)["id"]
    data = ReviewAnswered(verdict=verdict, comment=read_text(comment, "--comment"))
    accepted = app.author().emit(Draft(stream=f"review/{name}", data=data))[0]
    answered = {"id": name, "status": "answered", "verdict": verdict, "accepted": asdict(accepted)}
    app.show("review", answered, f"{name} is {verdict} (entry {accepted.index})")


def _print_review(request: dict[str, Any]) -> None:
    echo(request["question"], bold=True)
    echo(f"{request['id']}  [{request['status']}]  asked by {request['author']} {when(request['requested_ms'])}")
    lines = [f"task: {request['task']}"] if request["task"] else []
    lines += [f"rule: {request['rule']}", *(f"- {reason}" for reason in request["reasons"])]
    lines += [f"reasoning: {request['reasoning_ref']}"] if request["reasoning_ref"] else []
    lines += [f"snapshot: {request['snapshot_id']}"] if request["snapshot_id"] else []
    for line in lines:
        echo(f"  {line}")
    if request["verdict"]:
        comment = f": {request['comment']}" if request["comment"] else ""
        echo(f"{request['verdict']} by {request['answered_by']}{comment}")
