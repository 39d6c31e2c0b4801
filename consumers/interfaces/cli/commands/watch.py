"""`deed watch`: prints every event of a kind, or runs a command for it.

It starts where this watcher stopped last time.
"""

from __future__ import annotations

import contextlib
import hashlib
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.live_events import print_event, tell_outage
from deedbook.consumers.interfaces.cli.logs import logs
from deedbook.consumers.interfaces.cli.output import print_table
from deedbook.consumers.interfaces.cli.signals import stopped_by_signals
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import ListOption
from deedbook.consumers.sdk.cloud_events import binary, cloud_event
from deedbook.consumers.sdk.command import run_command
from deedbook.consumers.sdk.declared import unknown_kinds
from deedbook.consumers.sdk.events import describe
from deedbook.consumers.sdk.http import request
from deedbook.consumers.sdk.kinds import check_kinds
from deedbook.consumers.sdk.reactor import Reactor
from deedbook.consumers.sdk.subscription_store import DeadLetter, SubscriptionStore
from deedbook.consumers.sdk.subscriptions import Subscriptions, open_subscriptions
from deedbook.consumers.sdk.text import counted, json_text
from deedbook.ledger.errors import Exit, Refused, did_you_mean
from deedbook.ledger.home import trust

if TYPE_CHECKING:
    from deedbook.ledger.events.body import Event

command_timeout_s = 600
post_timeout_s = 10.0


@click.command(cls=Command)
@click.option(
    "--kind",
    "kinds",
    cls=ListOption,
    required=True,
    metavar="KIND",
    help="A kind to react to, such as handoff.completed or question.asked; may be given more than once.",
)
@click.option("--exec", "command", metavar="CMD", help="Run CMD by sh, with the event as JSON on its standard input.")
@click.option("--post", "url", metavar="URL", help="POST each event to this URL as a CloudEvent, in binary mode.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["deedbook", "cloudevents"]),
    default="deedbook",
    show_default=True,
    help="The format of the events that are printed or passed to CMD.",
)
@click.option("--from-start", is_flag=True, help="Start a new watcher at entry 0, not at the end of the log.")
@click.option("--once", is_flag=True, help="Stop after handling the events that are there now.")
@click.option("--store", metavar="URI", help="Store the position in PostgreSQL, so that another machine can take over.")
@click.option("--dead", is_flag=True, help="List this watcher's dead letters instead.")
@click.option("--retry", type=click.IntRange(0), metavar="INDEX", help="Try one dead letter again instead.")
@logs
def watch(
    app: App,
    kinds: tuple[str, ...],
    *,
    command: str | None,
    url: str | None,
    form: str,
    store: str | None,
    retry: int | None,
    from_start: bool,
    once: bool,
    dead: bool,
) -> None:
    """Run a command for each new event of some kinds. The position is stored for this agent, kinds and CMD.

    CMD also gets DEEDBOOK_EVENT_ID and DEEDBOOK_EVENT_INDEX. It runs at least once for each event: after a crash it may
    run again with the same id. If it fails five times, the event becomes a dead letter, and the next event is handled.
    --dead lists the dead letters and --retry tries one again; repeat the same kinds and CMD with them. With --once, the
    exit code is 1 if there is a new dead letter.

    --post sends each event to a URL instead, until the answer is 2xx, with the same id each time. Standard error says
    where the watcher begins, and when the server is gone or back.
    """
    check_kinds(kinds, app.query_with)
    client = app.client()
    for kind, alike in unknown_kinds(app.query_with, kinds).items():
        echo(f"nobody has declared {kind} yet{did_you_mean(alike)}", err=True)
    if command is not None and url is not None:
        raise Refused("USAGE", "choose one of --exec and --post")
    if command is not None or url is not None:
        trust.demand(app.settings().home, client)  # text in a stranger's ledger must not start a program here
    name = watcher_name(app.acting(), kinds, url or command)
    render = cloud_event if form == "cloudevents" else describe
    # Each watcher has its own file: a watcher that waits for its command must not block another.
    subscriptions = open_subscriptions(store or app.settings().home / "subscribers" / f"{name}.db")
    reactor = Reactor(client, subscriptions, name)
    stop = stopped_by_signals()
    busy = _ended_at_once_unless_busy(stop)

    @reactor.on(*kinds)
    def effect(event: Event, _: Any) -> None:
        busy.set()
        try:
            if command is not None:
                _react_by(command, event, json_text(render(event)).encode() + b"\n", stop)
            elif url is not None:
                _post(url, event)
            elif app.as_json or form != "deedbook" or not sys.stdout.isatty():
                app.line(render(event))
            else:
                print_event(event)
        finally:
            busy.clear()

    try:
        if dead:
            _show_dead(app, subscriptions.dead_letters(name))
        elif retry is not None:
            reactor.retry(retry)
            app.show("retried", {"index": retry}, f"entry {retry} was handled")
        else:
            what = f"{', '.join(kinds)} as {app.acting()}"
            _watch(app, reactor, subscriptions, stop, what, name=name, from_start=from_start, once=once)
    finally:
        subscriptions.close()


def _ended_at_once_unless_busy(stop: threading.Event) -> threading.Event:
    """Let SIGINT end the wait for new events.

    While the returned event is set, SIGINT only sets ``stop``, so that a running command is not left behind.
    """
    busy = threading.Event()

    def interrupt(*_: object) -> None:
        stop.set()
        if not busy.is_set():
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    return busy


def _watch(
    app: App,
    reactor: Reactor,
    subscriptions: SubscriptionStore,
    stop: threading.Event,
    what: str,
    *,
    name: str,
    **flags: bool,
) -> None:
    """React to events. Report where the watcher begins, and when a server is gone or back."""
    size, is_known, buried = (
        app.client().head().size,
        subscriptions.position(name) is not None,
        {*subscriptions.dead_letters(name)},
    )
    how = ", where it stopped last time" if is_known else ""
    if flags["from_start"] and is_known:
        again = f"remove {subscriptions.path}" if isinstance(subscriptions, Subscriptions) else "name another --store"
        how += f"; --from-start is for a new watcher: to begin again, {again}"
    start = reactor.start_at(0 if flags["from_start"] else size)
    if not app.as_json:
        echo(f"watching {what} from entry {start} on{how}", err=True)
    with contextlib.suppress(KeyboardInterrupt):
        reactor.run_across_outages(stop, until=size if flags["once"] else None, tell=tell_outage)
    if flags["once"] and (failed := {*subscriptions.dead_letters(name)} - buried):
        echo(f"{counted(len(failed), 'event')} given up: the same call with --dead shows why", err=True)
        raise click.exceptions.Exit(Exit.UNEXPECTED)


def _show_dead(app: App, letters: list[DeadLetter]) -> None:
    data = [{"index": letter.event_index, "id": letter.event_id, "error": letter.error} for letter in letters]
    rows = [(letter.event_index, letter.event_id, letter.error) for letter in letters]
    app.show("dead_letters", {"dead_letters": data}, lambda: print_table(("index", "id", "error"), rows))


def watcher_name(agent: str, kinds: tuple[str, ...], command: str | None) -> str:
    """Return the name under which this watcher's position is stored."""
    identity = "\0".join([agent, *sorted(set(kinds)), command or ""])
    return f"watch-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def _post(url: str, event: Event) -> None:
    headers, body = binary(event)
    status = request("POST", url, body, headers, limit_s=post_timeout_s).status
    if not 200 <= status < 300:
        raise RuntimeError(f"the receiver answered {status}")


def _react_by(command: str, event: Event, document: bytes, stop: threading.Event) -> None:
    environment = {"DEEDBOOK_EVENT_ID": event.id, "DEEDBOOK_EVENT_INDEX": str(event.index)}
    ended = run_command(command, document, environment, limit_s=command_timeout_s, stop=stop)
    if ended.problem is not None:
        raise RuntimeError(ended.problem)
