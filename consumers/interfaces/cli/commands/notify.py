"""`deed notify`: the channels that tell agents what waits for them, and the state of the notifications."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from deedbook.consumers.handoffs.notifier.delivery import attempt
from deedbook.consumers.handoffs.notifier.episodes import trial
from deedbook.consumers.handoffs.notifier.settings import Channel, configured_channels, read_channels
from deedbook.consumers.handoffs.notifier.store import STORE_FILE, Delivery, NotifierStore
from deedbook.consumers.handoffs.notifier.worker import NotifierWorker, unix_ms
from deedbook.consumers.interfaces.cli.app import App, Group
from deedbook.consumers.interfaces.cli.logs import logs
from deedbook.consumers.interfaces.cli.output import print_table, when
from deedbook.consumers.interfaces.cli.signals import stopped_by_signals
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.reasoning.citations import Citations
from deedbook.ledger.errors import Exit, Refused
from deedbook.ledger.home import trust


@click.group(cls=Group, aliases={"ls": "list", "start": "run"})
def notify() -> None:
    """Notify agents and people once when something waits for them, by the channels of config.toml."""


@notify.command("list")
def list_(app: App) -> None:
    """List channels (without secrets), open waits, pending and undelivered notifications."""
    channels = read_channels(app.settings())
    with open_store(app) as store:
        episodes, open_total = store.listed_episodes() if store else ([], 0)
        pending, pending_total = store.listed_deliveries(dead=False) if store else ([], 0)
        dead, dead_total = store.listed_deliveries(dead=True) if store else ([], 0)
    data = {
        "channels": [
            {"number": number, "name": channel.name, "target": channel.target, "is_ready": channel.is_ready}
            | {of: getattr(channel.settings, of) for of in ("agents", "actions", "secret_variable")}
            for number, channel in enumerate(channels, 1)
        ],
        "open": episodes,
        "open_total": open_total,
        "pending": [describe_delivery(delivery) for delivery in pending],
        "pending_total": pending_total,
        "dead": [describe_delivery(delivery) for delivery in dead],
        "dead_total": dead_total,
    }
    app.show("notifications", data, lambda: _print_all(data))


@notify.command()
@click.option("--channel", metavar="N|NAME", help="Only this channel, by its number or name (default: every channel).")
def test(app: App, channel: str | None) -> None:
    """Send one test notification and print the answer; exit code 7 if it was not delivered."""
    results = []
    for number, configured in _chosen_channels(configured_channels(app.settings()), channel):
        outcome = attempt(configured, trial(secrets.token_hex(20), unix_ms()), unix_ms())
        is_delivered = outcome.result == "delivered"
        results.append({"number": number, "name": configured.name, "is_delivered": is_delivered, "said": outcome.text})

    are_delivered = all(result["is_delivered"] for result in results)
    app.show(
        "notification_tests",
        {"channels": results},
        [
            f"{result['name']}: {'delivered' if result['is_delivered'] else 'NOT delivered'}: {result['said']}"
            for result in results
        ],
        exit_code=Exit.OK if are_delivered else Exit.UNAVAILABLE,
    )


@notify.command()
@click.argument("id_", metavar="ID", required=False)
@click.option("--all", "all_", is_flag=True, help="Every dead letter.")
def retry(app: App, id_: str | None, *, all_: bool) -> None:
    """Retry dead letters: notifications that failed every attempt. The running notifier sends them."""
    if (id_ is None) != all_:
        raise Refused("USAGE", "give the ID of a notification, or --all")
    with open_store(app) as store:
        if store is None and id_ is not None:
            raise Refused("NOT_FOUND", f"{id_} is not a dead letter", id=id_)
        count = store.retry(id_, unix_ms()) if store else 0
    app.show("notifications_retried", {"retried": count}, f"{count} due again")


@notify.command()
@click.option(
    "--once", is_flag=True, help="Read the events that are there now, try each due notification once, and stop."
)
@logs
def run(app: App, *, once: bool) -> None:
    """Send notifications until SIGINT or SIGTERM. `deed serve` does this by itself.

    The first start sends nothing for work that already waits. Positions, open waits and the outbox are in notifier.db
    of the ledger's folder. One notifier runs at a time.
    """
    channels = configured_channels(app.settings())
    if not channels:
        raise _no_channels()
    client = app.client()
    trust.demand(app.settings().home, client)
    view, path = app.query_with, app.settings().home / STORE_FILE
    worker = NotifierWorker(client, view, path, channels, behind=lambda refs: Citations(view, 0).of(refs))
    stop = stopped_by_signals()
    names = [channel.name for channel in channels]
    app.show("notifying", {"channels": names}, f"notifying by {', '.join(names)}")
    sys.stdout.flush()
    worker.run(stop, until=client.head().size if once else None)


def _no_channels() -> Refused:
    example = """[[notify]] with agents = ["NAME"] and command = 'notify-send "$DEEDBOOK_TITLE"'"""
    return Refused("USAGE", f"there are no channels: add one to config.toml, for example {example}")


@contextlib.contextmanager
def open_store(app: App) -> Iterator[NotifierStore | None]:
    """Open the notifier's store if it exists; a query never creates one."""
    if not (path := app.settings().home / STORE_FILE).exists():
        yield None
        return
    with contextlib.closing(NotifierStore(path)) as store:
        yield store


def _chosen_channels(channels: Sequence[Channel], wanted: str | None) -> list[tuple[int, Channel]]:
    numbered = list(enumerate(channels, 1))
    if not numbered:
        raise _no_channels()
    chosen = [(number, channel) for number, channel in numbered if wanted in (None, str(number), channel.name)]
    if not chosen:
        raise Refused("NOT_FOUND", f"there is no channel {wanted}: there are 1 to {len(numbered)}", channel=wanted)
    return chosen


def describe_delivery(delivery: Delivery) -> dict[str, Any]:
    """Return the displayed fields of a delivery; ``next_ms`` is None for a dead letter."""
    own = ("channel", "attempts", "next_ms", "error", "created_ms")
    return {"id": delivery.notification.id, "text": delivery.notification.text} | {
        name: getattr(delivery, name) for name in own
    }


def _print_all(data: dict[str, Any]) -> None:
    rows: list[tuple[object, ...]] = [
        (
            channel["number"],
            channel["name"],
            channel["target"],
            ", ".join(channel["agents"]),
            ", ".join(channel["actions"]) or "all",
            "ready" if channel["is_ready"] else f"no {channel['secret_variable']} in the environment",
        )
        for channel in data["channels"]
    ]
    echo("Channels", bold=True)
    print_table(("no.", "name", "target", "agents", "actions", "state"), rows)
    echo(f"\nOpen waits ({data['open_total']})", bold=True)
    waits = [
        (when(wait["began_ms"]), wait["agent"], wait["action"], wait["id"], wait["title"]) for wait in data["open"]
    ]
    print_table(("since", "agent", "action", "id", "title"), waits)
    for heading, name in (("Pending", "pending"), ("Dead letters", "dead")):
        echo(f"\n{heading} ({data[f'{name}_total']})", bold=True)
        deliveries = [
            (
                delivery["id"],
                delivery["channel"],
                delivery["attempts"],
                delivery["text"],
                delivery["error"],
            )
            for delivery in data[name]
        ]
        print_table(("id", "channel", "attempts", "text", "last error"), deliveries)
