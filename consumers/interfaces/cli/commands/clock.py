"""`deed clock`: compares the ledger's clock with this machine's, and sets it, which only root may do."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import click

from deedbook.consumers.interfaces.cli.app import App, Group
from deedbook.consumers.interfaces.cli.verbs import Options
from deedbook.ledger.client.author import Draft, now
from deedbook.ledger.client.client import Client
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import ClockSet
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.lifecycle.clock import clock_text, next_ms
from deedbook.ledger.limits import clock_max_ms


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def clock(context: click.Context) -> None:
    """Compare the ledger's clock with this machine's. `clock set` corrects the ledger's."""
    if context.invoked_subcommand is not None:
        return
    with contextlib.closing(App(context.find_object(Options))) as app:
        comparison = compare_clocks(app.client())
        lines = [
            f"last entry    {comparison['last']}  (entry {comparison['index']})",
            f"this machine  {comparison['system']}  ({comparison['difference_s']:+.0f} s)",
            "in order: the next entry is accepted" if comparison["ok"] else f"CLOCK_JUMPED: {comparison['fix']}",
        ]
        app.show("clock", comparison, lines)


@clock.command("set")
@click.option("--reason", required=True, help="The reason, in one line. It is stored in the ledger.")
def set_(app: App, reason: str) -> None:
    """Set the ledger's clock to this machine's time, forwards or backwards. Root signs.

    Use this in two cases: nothing was recorded for 30 days, or entries were accepted while the clock was wrong. A lease
    or session key that was granted at a later time than the new one is not valid before that time. A lease or session
    key that expired only because the clock was wrong is valid again.
    """
    before = compare_clocks(app.client())
    accepted = app.author(app.agent or ROOT).emit(Draft(stream="ledger", data=ClockSet(time=now(), reason=reason)))[0]
    data = {"index": accepted.index, "before": before["last"], "after": clock_text(accepted.accepted_ms)}
    text = f"the ledger's clock went from {data['before']} to {data['after']} (entry {data['index']})"
    app.show("clock", data, text)


def age_text(difference_s: float) -> str:
    """Return how long ago the last entry was accepted, by this machine's clock.

    >>> age_text(110.2), age_text(-3.0)
    ('accepted 110 s ago', '3 s after the time of this machine')
    """
    return (
        f"accepted {difference_s:.0f} s ago"
        if difference_s >= 0
        else f"{-difference_s:.0f} s after the time of this machine"
    )


def compare_clocks(client: Client) -> dict[str, Any]:
    """Return the time of the last entry and of this machine, and what to do if they differ too much."""
    index = client.head().size - 1
    last_ms, system_ms = decode_entry(client.entry(index)).accepted_ms, time.time_ns() // 1_000_000
    fix = ""
    try:
        next_ms(last_ms, system_ms)
    except Refused as refusal:
        fix = refusal.message
    system = clock_text(system_ms) if 0 <= system_ms <= clock_max_ms else f"{system_ms} ms of Unix time"
    return {
        "index": index,
        "last_ms": last_ms,
        "last": clock_text(last_ms),
        "system_ms": system_ms,
        "system": system,
        "difference_s": (system_ms - last_ms) / 1000,
        "ok": not fix,
        "fix": fix,
    }
