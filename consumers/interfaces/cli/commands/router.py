"""`deed router`: checks the chains of handoffs, tries them on the log, runs them, and shows the results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import structlog

from deedbook.consumers.handoffs.agent_names import read_agents
from deedbook.consumers.handoffs.operations import KINDS_OF_HANDOFFS
from deedbook.consumers.handoffs.router.chains import advise
from deedbook.consumers.handoffs.router.chains_file import ChainsFile
from deedbook.consumers.handoffs.router.plans import rehearse
from deedbook.consumers.handoffs.router.worker import NAME, SERVICE, LedgerSource, RouterWorker
from deedbook.consumers.interfaces.cli.app import App, Group
from deedbook.consumers.interfaces.cli.logs import configure_logging, logs
from deedbook.consumers.interfaces.cli.output import limit_option, next_page, print_table, warn
from deedbook.consumers.interfaces.cli.signals import stopped_by_signals
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.ledger import entries_now
from deedbook.consumers.sdk.service import service_author
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.consumers.sdk.text import counted
from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.home import trust
from deedbook.ledger.home.location import CHAINS_FILE
from deedbook.ledger.system.files import absent

log = structlog.get_logger("deedbook.router")

retry_wait_s: Final = 1.0


@click.group(cls=Group, aliases={"validate": "check", "test": "dry-run", "start": "run", "show": "status"})
def router() -> None:
    """Create handoffs by rules: chains.toml says which event of a handoff creates which next one."""


@router.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
def check(app: App, file: Path | None) -> None:
    """Check a file of chains (default: chains.toml of the ledger's folder).

    Warns of agents that this ledger does not know or that may not review.
    """
    source = chains_file(app, file)
    chains = source.read()
    try:
        agents = {agent.name: agent.roles for agent in app.client().agents()}
    except Unavailable as error:
        if error.code != "NO_LEDGER":
            raise
        agents = None
    reviewer = source.default_reviewer
    if agents is not None:
        reviewer = read_agents(app.query_with, reviewer).reviewer
    warnings = advise(chains, agents, reviewer)
    names, path = [chain.name for chain in chains], str(source.path)
    data = {"file": path, "chains": names, "warnings": warnings, "agents_checked": agents is not None}
    app.show("chains", data, f"{path}: {', '.join(names) or 'no chains'}")
    if not app.as_json:
        warn(warnings)
        if agents is None:
            echo("there is no ledger here: names were not checked", err=True)


@router.command("dry-run")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--after", type=click.IntRange(-1), default=-1, help="Only events after this index.")
@click.option("--event", "index", type=click.IntRange(0), metavar="INDEX", help="Only this event, and every chain.")
@limit_option(what="Events of a page.")
def dry_run(app: App, file: Path | None, *, after: int, index: int | None, limit: int) -> None:
    """Show which handoffs the chains would create, from which events, and why others create none.

    Signs nothing. Reads the events that chains match; with --event, that event and every chain.
    """
    source = chains_file(app, file)
    chains = source.read()
    client = app.client()
    reading = LedgerSource(client, app.query_with, app.settings().agent or NAME)
    kinds = frozenset[str]().union(*(chain.kinds for chain in chains))
    reviewer = reading.default_reviewer(source.default_reviewer)
    rehearsals: list[dict[str, Any]] = []
    more: str | None = None
    for event in [read_event(index, client.entry(index))] if index is not None else _events_after(app, after, kinds):
        if len(rehearsals) == limit:
            more = next_page(rehearsals[-1]["index"], "after")
            break
        rehearsals.append(rehearse(chains, event, reading, reviewer, every_chain=index is not None))
    data = {"file": str(source.path), "events": rehearsals}
    app.show("dry_run", data, lambda: _print_dry_run(data, more), following=more)


@router.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--once", is_flag=True, help="Stop after handling what is there now.")
@logs
def run(app: App, file: Path | None, *, once: bool) -> None:
    """Run the chains and announce ready handoffs until SIGINT or SIGTERM.

    In the ledger's own folder, the router signs as the service agent `router`. With --server, it signs as the agent of
    --as, which must have the role service. `deed serve` also runs a router; two routers create nothing twice. The
    router reads the file again when it changes. If the new file is invalid, the router reports that and continues with
    the earlier chains.
    """
    source = chains_file(app, file, acts=True)
    chains = source.read()
    author = _acting_router(app)
    worker = RouterWorker(author, app.query_with, store(app, author.name), source)
    stop = stopped_by_signals()
    data = {"agent": author.name, "file": str(source.path), "chains": [chain.name for chain in chains]}
    app.show("routing", data, f"{author.name} routes {counted(len(chains), 'chain')} of {source.path}")
    sys.stdout.flush()
    if once:
        worker.run(stop, until=author.client.head().size)
        return
    while not stop.is_set():
        try:
            worker.run(stop)
        except Unavailable as error:
            log.warning("router waits", code=error.code, error=error.message)
            stop.wait(retry_wait_s)


@router.command()
@click.option("--retry", type=click.IntRange(0), metavar="INDEX", help="Route one dead letter again first.")
def status(app: App, retry: int | None) -> None:
    """Show the router's position, chains, and dead letters with reasons."""
    name = app.settings().agent or NAME
    source, path = chains_file(app, None, acts=True), store(app, name)
    if retry is not None:
        configure_logging()  # logs go to standard error: standard output is for the answer
        author = _acting_router(app)
        RouterWorker(author, app.query_with, store(app, author.name), source).retry(retry)
    head = app.client().head().size
    data: dict[str, Any] = {"agent": name, "file": str(source.path), "chains": [], "problem": None}
    try:
        data["chains"] = [chain.name for chain in source.read()]
    except DeedbookError as error:
        data["problem"] = {"code": error.code, "message": error.message}
    position, letters = read_state(path)
    data |= {"position": position, "head": head, "behind": None if position is None else max(head - position, 0)}
    data["dead_letters"] = [
        {"index": letter.event_index, "id": letter.event_id, "error": letter.error} for letter in letters
    ]
    app.show("router", data, lambda: _print_status(data))


def chains_file(app: App, file: Path | None, *, acts: bool = False) -> ChainsFile:
    """Return the file of chains: the named one, which must exist, or the ledger's own.

    A verb that ``acts`` on the ledger's own file requires that the user trusts it. Reading it needs no trust.
    """
    if file is not None and not file.exists():
        raise absent(file)
    try:
        settings = app.settings()
    except Unavailable as error:
        if file is None or error.code != "NO_LEDGER":
            raise
        return ChainsFile(file)
    if file is not None:
        return ChainsFile(file, settings.config.default_reviewer)
    permit = partial(trust.check_chains, settings.home) if acts else lambda _: None
    return ChainsFile(settings.home / CHAINS_FILE, settings.config.default_reviewer, permit=permit)


def _acting_router(app: App) -> Author:
    settings = app.settings()
    if settings.server is None and settings.agent is None:
        return service_author(app.local_client(), NAME)
    author = app.author()
    if not any(agent.name == author.name and SERVICE in agent.roles for agent in author.client.agents()):
        raise Refused("NOT_AUTHORIZED", f"a router needs the role {SERVICE}; {author.name} lacks it", role=SERVICE)
    return author


def store(app: App, name: str) -> Path:
    """Return the store with the position of a router; the one of `deed serve` is in router.db."""
    return app.settings().home / ("router.db" if name == NAME else f"router-{name}.db")


def read_state(path: Path) -> tuple[int | None, list[Any]]:
    """Return the position and the dead letters in a router's store; a missing store is not created."""
    if not path.exists():
        return None, []
    with closing(Subscriptions(path)) as subscriptions:
        return subscriptions.position(NAME), list(subscriptions.dead_letters(NAME))


def _events_after(app: App, after: int, kinds: frozenset[str]) -> Iterator[Event]:
    entries = entries_now(app.client(), after + 1, kinds=sorted(kinds & KINDS_OF_HANDOFFS)) if kinds else ()
    events = (read_event(index, data) for index, data in entries)
    return (event for event in events if event.stream.startswith("handoff/"))


def _print_dry_run(data: dict[str, Any], more: str | None) -> None:
    rows = [
        (event["index"], event["kind"], event["handoff"], chain["chain"], outcome)
        for event in data["events"]
        for chain in event["chains"]
        for outcome in ([chain["why_not"]] if chain["why_not"] else [_step_text(step) for step in chain["steps"]])
    ]
    print_table(("index", "kind", "handoff", "chain", "outcome"), rows)
    if more is not None:
        echo(f"continue with: {more}")


def _step_text(step: dict[str, Any]) -> str:
    if "refused" in step:
        return f"refused: {step['refused']['message']}"
    verb = "is there" if step["is_there"] else "would create"
    return f"{verb}: {step['id']} [→ {step['to']}] {step['title']} (hop {step['hop']})"


def _print_status(data: dict[str, Any]) -> None:
    at = "has not begun" if data["position"] is None else f"at entry {data['position']} of {data['head']}"
    echo(f"{data['agent']} {at}")
    echo(f"chains of {data['file']}: {', '.join(data['chains']) or '(none)'}")
    if problem := data["problem"]:
        echo(f"the file is not used: {problem['code']}: {problem['message']}")
    if data["dead_letters"]:
        echo("not routed (try one again with --retry INDEX)")
        print_table(("index", "id", "error"), [tuple(letter.values()) for letter in data["dead_letters"]])
