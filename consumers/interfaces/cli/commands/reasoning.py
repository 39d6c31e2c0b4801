"""`deed reasoning`: record reasoning step by step, brief it, fetch it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from shlex import quote
from textwrap import shorten
from typing import Any, Final

import click
import msgspec
from msgspec.structs import asdict, replace

from deedbook.consumers.importers.reasoning import ReadGraph, extensions_of, read_reasoning_file, submissions_of
from deedbook.consumers.interfaces.cli.app import App, Group, read_argument
from deedbook.consumers.interfaces.cli.arguments import id_and, parameters, values_of
from deedbook.consumers.interfaces.cli.output import (
    list_page,
    page_options,
    period_options,
    print_fields,
    route_options,
    warn,
)
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.reasoning_text import (
    print_diff,
    print_reasoning,
    print_retractions,
    print_tree,
    print_verdict,
    print_versions,
)
from deedbook.consumers.interfaces.cli.terminal import echo, echo_exact
from deedbook.consumers.interfaces.cli.verbs import Lazy, Options
from deedbook.consumers.interfaces.cli.web_option import web_option
from deedbook.consumers.reasoning.compressor.transfer import GraphCache, find_base
from deedbook.consumers.reasoning.compressor.transfer import fetch as fetch_graph
from deedbook.consumers.reasoning.links import check_drafts
from deedbook.consumers.reasoning.operations import (
    OPERATIONS,
    NewConclusion,
    NewStep,
    Verb,
    check_assumption,
    following_number,
    numbers_of,
    replaced_statement,
    retraction_warnings,
)
from deedbook.consumers.sdk.text import counted, default_id, sanitize_line
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import reasoning as kinds
from deedbook.ledger.events.body import read_as
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.envelope import decode_entry
from deedbook.projections.briefs.tokens import count_tokens, tokenizer
from deedbook.projections.reasoning.delta import describe_change
from deedbook.projections.reasoning.memory import compute_reasoning_ref

ID: Final = click.Argument(["id_"], metavar="ID")
task_columns = 100
open_named_max: Final = 5


def _open_reasonings(options: Options, word: str) -> str | None:
    """Return the ids of the acting agent's open reasonings (of all if nobody acts), or None if ``word`` is an id."""
    with closing(App(options)) as app:
        if " " not in word and app.query("reasoning.existing", ids=[word])["reasonings"]:
            return None
        agent = app.settings().agent
        answer = app.query("reasoning.list", author=agent, status="open", limit=open_named_max)
    ids = [quote(row["id"]) for row in answer["items"]]
    if not ids:
        return "no reasoning is open: `deed reasoning start --task TEXT` starts one"
    more = f" and {answer['total'] - len(ids)} more" if answer["total"] > len(ids) else ""
    return f"{'open' if agent is None else 'yours that are open'}: {', '.join(ids)}{more}"


def _with_text(verb: Verb) -> dict[str, Any]:
    operation = OPERATIONS[verb]
    params = [ID, *parameters(operation.arguments)]
    return {"params": params, "help": operation.words, "open_ids": _open_reasonings}


@click.group(
    cls=Group,
    aliases={"new": "start", "close": "conclude", "get": "fetch"},
    lazy={
        "brief": Lazy("briefs:brief", "Print a reasoning as a short prompt with measured fidelity."),
        "explain": Lazy("briefs:explain", "Show what a brief keeps, and what it drops and why."),
        "validate": Lazy("briefs:validate", "Check evidence, assumptions and structure."),
        "validations": Lazy("briefs:validations", "List what validators found, newest first."),
    },
)
def reasoning() -> None:
    """Record reasoning as signed steps; share briefs with measured fidelity, or the whole graph."""


@reasoning.command(
    params=parameters(OPERATIONS["start"].arguments),
    help=f"{OPERATIONS['start'].words} Without ID it gets day and task.",
)
@click.argument("id_", metavar="[ID]", required=False)
def start(app: App, /, id_: str | None, **options: Any) -> None:
    """Start a reasoning."""
    data = kinds.ReasoningStarted(**values_of(OPERATIONS["start"].arguments, options))
    name = id_ or default_id(data.task)
    try:
        emit(app, name, [data])
    except Refused as refusal:
        if refusal.code != "TRANSITION_NOT_ALLOWED":
            raise
        extend = f"`deed reasoning step {quote(name)} TEXT` extends it"
        message = f"{refusal.message}, as in `deed reasoning start {quote(f'{name}-2')} --task TEXT`; {extend}"
        raise Refused(refusal.code, message, **refusal.details) from refusal


@reasoning.command(**_with_text("step"))
def step(app: App, /, id_: str, **options: Any) -> None:
    """Record one step."""
    _extend(app, id_, NewStep(**values_of(OPERATIONS["step"].arguments, options)))


@reasoning.command(**_with_text("assume"))
def assume(app: App, /, id_: str, **options: Any) -> None:
    """Record an assumption."""
    _extend(app, id_, NewStep(type="assumption", **values_of(OPERATIONS["assume"].arguments, options)))


def _extend(app: App, ref: str, new_step: NewStep) -> None:
    graph = app.query("reasoning.show", id=ref)
    number = new_step.step_number or following_number(graph)
    if number in numbers_of(graph):
        retract = f"`deed reasoning retract {quote(graph['id'])} --step {number} --reason TEXT`"
        message = f"step {number} already exists: leave --number out, or {retract} and record it again"
        raise Refused("STEP_CONFLICT", message, step=number)
    _check_retracted(app, graph, new_step.rests_on)
    _emit_cited(app, graph, [new_step.extension(number)], reopened(graph))


def _check_retracted(app: App, graph: dict[str, Any], numbers: Sequence[int]) -> None:
    """Refuse steps that were retracted; the error names the entry that retracted the step."""
    absent = [number for number in numbers if number not in numbers_of(graph)]
    for retraction in reversed(_retractions(app, graph) if absent else []):
        if retraction["step"] in absent:
            message = f"step {retraction['step']} was retracted (entry {retraction['entry']})"
            see = f"`deed reasoning show {quote(graph['id'])}` shows the steps that are left"
            raise Refused("STEP_CONFLICT", f"{message}: {see}", step=retraction["step"])


def _retractions(app: App, graph: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the retracted steps of a reasoning: the number, the entry, the agent and its reason; the oldest first."""
    retractions = []
    for version in graph["versions"]:
        if version["kind"] == "reasoning.step_retracted":
            index = version["event_index"]
            event = read_event(index, app.client().entry(index))
            data = read_as(event).data
            retractions.append({"step": data.step, "entry": index, "by": event.author, "reason": data.reason})
    return retractions


def _emit_cited(app: App, graph: dict[str, Any], events: Sequence[EventData], notices: Sequence[str] = ()) -> None:
    """Sign events of a reasoning, with warnings about what they cite and what they rest on."""
    name = graph["id"]
    cited, warnings = check_drafts([(f"reasoning/{name}", data) for data in events], app.query_with)
    emit(app, name, cited, [*notices, *warnings])


@reasoning.command(params=[ID, *parameters(OPERATIONS["settle"].arguments)], help=OPERATIONS["settle"].words)
def settle(app: App, /, id_: str, **options: Any) -> None:
    """Settle an assumption."""
    settled = kinds.AssumptionSettled(**values_of(OPERATIONS["settle"].arguments, options))
    graph = app.query("reasoning.show", id=id_)
    _check_retracted(app, graph, [settled.step])
    check_assumption(graph, settled.step)
    _emit_cited(app, graph, [settled], replaced_statement(graph, settled.step, app.acting()))


@reasoning.command(params=[ID, *parameters(OPERATIONS["retract"].arguments)], help=OPERATIONS["retract"].words)
def retract(app: App, /, id_: str, **options: Any) -> None:
    """Retract a step."""
    retracted = kinds.StepRetracted(**values_of(OPERATIONS["retract"].arguments, options))
    graph = app.query("reasoning.show", id=id_)
    _check_retracted(app, graph, [retracted.step])
    emit(app, graph["id"], [retracted], retraction_warnings(graph, retracted.step))


@reasoning.command(**_with_text("conclude"))
def conclude(app: App, /, id_: str, **options: Any) -> None:
    """Record the conclusion."""
    concluded = NewConclusion(**values_of(OPERATIONS["conclude"].arguments, options))
    graph = app.query("reasoning.show", id=id_)
    _check_retracted(app, graph, concluded.rests_on)
    _emit_cited(app, graph, concluded.events(following_number(graph)))


@reasoning.command("list", looks_back=True)
@click.option("--author", help="Only reasonings of this agent.")
@click.option("--status", type=click.Choice(["open", "concluded"]), help="Only this state.")
@click.option("--conclusion", metavar="TEXT", help="Only reasonings whose conclusion has these words.")
@route_options
@period_options("Only reasonings that changed at or after this time")
@page_options()
def list_(app: App, **filters: Any) -> None:
    """List reasonings, newest first."""
    list_page(
        app,
        "reasoning.list",
        filters,
        lambda row: {
            "id": row["id"],
            "status": row["status"] + (", refuted" if row["is_refuted"] else ""),
            "author": row["author"] + (" (imported)" if row["imported"] else ""),
            "steps": row["steps"],
            "task": shorten(row["task"], task_columns, placeholder="…"),
            "tags": sanitize_line(" ".join(row["tags"])),
        },
    )


@reasoning.command(looks_back=True)
@click.argument("ref", metavar="ID|REF")
@click.option("--tree", is_flag=True, help="Print the steps as a tree, from the conclusion down.")
@click.option("--versions", is_flag=True, help="List its versions, each with its ref and the entry that made it.")
@click.option("--provenance", is_flag=True, help="Print the signer and the event of the version that REF names.")
@web_option("reasoning", "ref", "reasoning.show")
def show(app: App, ref: str, *, tree: bool, versions: bool, provenance: bool) -> None:
    """Show a reasoning: its steps, what they rest on, and which steps were retracted."""
    if provenance:
        record = _provenance_of(app, ref)
        app.show("provenance", record, lambda: print_fields(record))
        return
    answer = app.query("reasoning.show", id=ref)
    answer["verdict"] = app.query("validations.latest", id=ref)
    answer["retracted"] = _retractions(app, answer)

    def text() -> None:
        if versions:
            print_versions(answer)
            return
        (print_tree if tree else print_reasoning)(answer)
        print_retractions(answer["retracted"])

    app.show("reasoning.show", answer, text)


@reasoning.command(looks_back=True)
@click.argument("ref", metavar="ID|REF")
@click.option(
    "--have",
    metavar="ID|REF",
    help="A version that you have. The ledger sends only the changes since then, if they are smaller.",
)
@click.option(
    "--base",
    "base_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file of the version that you have, as `fetch` printed it (default: the graph in cache/graphs).",
)
def fetch(app: App, ref: str, have: str | None, base_file: Path | None) -> None:
    """Fetch a whole graph, check its hash, and print the hashed bytes.

    If the version of --have is neither in --base nor in the cache, it is fetched whole first, and the output says so.
    """
    cache = GraphCache(app.settings().home)
    base = find_base(app.query_with, cache, have, base_file)
    graph = fetch_graph(app.query_with, ref, have=base.memory)
    is_cached = cache.keep(graph)
    verdict = app.query("validations.latest", id=graph.ref)
    data = {
        "ref": graph.ref,
        "verified": True,
        "verdict": verdict,
        "canonical": graph.canonical,
        "memory": msgspec.to_builtins(graph.memory.to_dict(), str_keys=True),
        "tokenizer": tokenizer().name,
        "exact": tokenizer().exact,
        "base_from": base.origin,
        "base_transferred": msgspec.to_builtins(base.transferred),
        "cached": is_cached,
        **msgspec.to_builtins(graph.sent),
    }

    def text() -> None:
        echo_exact(graph.canonical)
        about = "" if tokenizer().exact else "about "
        if base.transferred is not None:
            echo(f"-- {have} was not here: fetched whole, {about}{base.transferred.tokens} tokens", err=True)
        line = f"-- {about}{count_tokens(graph.canonical)} tokens, "
        line += f"sent as {graph.sent.sent_as}: {about}{graph.sent.transferred.tokens} tokens"
        echo(f"{line} (whole: {graph.sent.full.tokens}), hash recomputed: {graph.ref}", err=True)
        print_verdict(verdict, err=True)

    app.show("reasoning_graph", data, text)


@reasoning.command(looks_back=True)
@click.argument("base", metavar="A")
@click.argument("target", metavar="B")
def diff(app: App, base: str, target: str) -> None:
    """Show the changes from version A to B: new steps, settled assumptions, conclusion.

    A and B are refs of versions, which `deed reasoning show ID --versions` lists. An id means its newest version.
    """
    before = fetch_graph(app.query_with, base)
    changes = describe_change(before.memory, fetch_graph(app.query_with, target, have=before.memory).memory)
    app.show("reasoning_diff", changes, lambda: print_diff(changes))


def emit(app: App, name: str, events: Sequence[EventData], warnings: Sequence[str] = ()) -> None:
    """Sign and append events of a reasoning together, and print its new state and the warnings."""
    accepted = app.author().emit(*(Draft(stream=f"reasoning/{name}", data=data) for data in events))[-1]
    graph = app.query("reasoning.show", id=name)
    answer = {"id": name, "ref": graph["ref"], "steps": graph["steps"], "accepted": asdict(accepted)}
    answer |= {"warnings": list(warnings)}
    # Print the id alone: every verb takes it, and a hash would change with the next step.
    line = f"{name}: {counted(graph['steps'], 'step')}, {graph['status']} (entry {accepted.index})"
    app.show("reasoning", answer, line)
    warn(() if app.as_json else warnings)


def _provenance_of(app: App, ref: str) -> dict[str, Any]:
    version = app.query("reasoning.full", id=ref)
    index: int = version["event_index"]
    raw = app.client().entry(index)
    entry, event = decode_entry(raw), read_event(index, raw)
    return {
        "reasoning_ref": version["ref"],
        "signature": f"ed25519:{entry.sig.hex()}",
        "ai_id": version["memory"]["ai_id"],
        "timestamp": event.at,
        "author": event.author,
        "key": f"ed25519:{event.key}",
        "event": {"index": index, "id": event.id, "kind": event.kind},
        "imported": version["imported"],
    }


def reopened(graph: dict[str, Any]) -> list[str]:
    """Return advice about a step after the conclusion, which covers only the earlier steps; empty if there is none."""
    if graph["status"] != "concluded":
        return []
    name, anew = graph["id"], "`deed handoff amend ID --reasoning"
    again = f"`deed reasoning conclude {quote(name)} TEXT`"
    message = f"{name} was concluded, and this reopens it: {again} concludes it"
    return [f"{message} anew; a handoff keeps the version that it named ({anew} {name}` names this one)"]


@reasoning.command()
@click.argument("arguments", nargs=-1, metavar="[ID] FILE|-")
@click.option("--domain", help="The domain. Graphs of security, medical and legal are always fetched in full.")
@click.option("--session", help="The session it belongs to.")
def record(app: App, arguments: tuple[str, ...], domain: str | None, session: str | None) -> None:
    """Record the reasoning graphs of FILE: one JSON object, an array of objects, or one object on each line.

    Without ID a reasoning gets the id in the file, otherwise day and task. The whole file is checked before anything is
    signed. The command warns about evidence that cannot be checked. Recording the same file again under the same ids
    adds nothing.
    """
    id_, file = id_and(arguments, "FILE")
    content = read_argument(file if file == "-" else f"@{file}", "the reasoning file")
    try:
        graphs = read_reasoning_file(content)
    except Refused as refusal:
        name = "standard input" if file == "-" else file
        raise Refused(refusal.code, f"{name}: {refusal.message}", **refusal.details) from refusal
    if id_ is not None and len(graphs) > 1:
        raise Refused("USAGE", f"{id_} names one reasoning, and the file holds {len(graphs)}")
    overrides = {name: value for name, value in (("id", id_), ("domain", domain), ("session", session)) if value}
    # Options of the command line override hints of the file.
    planned = [_planned(graph._replace(hints=replace(graph.hints, **overrides))) for graph in graphs]
    drafts = [draft for _, _, groups in planned for group in groups for draft in group]
    _, warnings = check_drafts([(draft.stream, draft.data) for draft in drafts], app.query_with, is_own=False)
    author = app.author()
    recorded = []
    with progress("recording", is_shown=not app.as_json) as step:
        for number, (graph, name, groups) in enumerate(planned, 1):
            recorded.append(_answer(graph, name, _emit(author, name, groups)))
            step(number, len(planned))

    def text() -> None:
        for row in recorded:
            entries = f"(entries {row['first']} to {row['last']})"
            echo(f"{row['id']}: {counted(row['steps'], 'step')}, {row['ref'][:19]}… {entries}")
            for path in row["unmapped"]:
                echo(f"  unmapped: {path}", err=True)
        warn(warnings)

    app.show("recorded", {"recorded": recorded, "total": len(recorded), "warnings": warnings}, text)


def _planned(graph: ReadGraph) -> tuple[ReadGraph, str, list[list[Draft]]]:
    """Return a graph with its id and the submissions that record it: refused before anything is signed."""
    name = graph.hints.id or default_id(graph.memory.task)
    events = extensions_of(graph.memory, domain=graph.hints.domain, session=graph.hints.session)
    ref = compute_reasoning_ref(graph.memory)
    numbers = count()
    groups = [
        # The same graph under the same id gives the same events: recording it again returns the first answers.
        [Draft(stream=f"reasoning/{name}", data=data, idem=f"record:{name}:{ref}:{next(numbers)}") for data in group]
        for group in submissions_of(events)
    ]
    return graph, name, groups


def _emit(author: Author, name: str, groups: list[list[Draft]]) -> list[int]:
    indexes: list[int] = []
    for drafts in groups:
        try:
            indexes += [entry.index for entry in author.emit(*drafts)]
        except Refused as refusal:
            raise refusal.with_details(reasoning_id=name, recorded=indexes) from refusal
    return indexes


def _answer(graph: ReadGraph, name: str, indexes: list[int]) -> dict[str, Any]:
    return {
        "id": name,
        "ref": compute_reasoning_ref(graph.memory),
        "steps": len(graph.memory.steps),
        "first": indexes[0],
        "last": indexes[-1],
        "unmapped": graph.unmapped,
    }
