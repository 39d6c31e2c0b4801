"""The history of a handoff: who signed each event with which key, and whether that holds (`handoff show --history`).

Signatures are verified here, from the entries' own bytes: what a server says about them is not asked. That a key was
its author's comes from the view of agents; the whole chain, from the root key on, is what `baton verify` audits.
"""

from __future__ import annotations

from typing import Any

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.output import short_key, when
from consumers.sdk.ledger import entries_now
from consumers.sdk.text import clean
from ledger.client import Client, is_signed, read_event
from ledger.envelope import decode_entry


def signed_history(app: App, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a handoff (an answer of ``handoffs.show``), each with its key and ``is_verified``."""
    client = app.client()
    keys = {one["key"]: one for one in app.query("agents.keys")["keys"]}
    texts = {line["event_index"]: line["text"] for line in found["log"]}
    entries = entries_now(client, stream=f"handoff/{found['id']}")
    return [_signed(client, index, data, keys, texts) for index, data in entries]


def print_history(history: list[dict[str, Any]]) -> None:
    """Print one event a line, and below it what it says."""
    click.echo("\nHistory")
    for one in history:
        click.echo(f"  {one['index']}  {when(one['accepted_ms'])}  {one['author']}  {one['kind']}")
        click.echo(f"      {one['key_sort'] or 'unknown'} key {short_key(one['key'])}: ", nl=False)
        click.secho(
            "the signature fits" if one["is_verified"] else f"NOT VERIFIED: {one['problem']}",
            fg=None if one["is_verified"] else "red",
        )
        if one["text"]:
            click.echo(f"      {clean(one['text'])}")


def _signed(
    client: Client, index: int, data: bytes, keys: dict[str, dict[str, Any]], texts: dict[int, str]
) -> dict[str, Any]:
    entry, event = decode_entry(data), read_event(index, data)
    key = entry.key.hex()
    held = keys.get(key)
    problem = None
    if held is None or held["agent"] != event.author:
        problem = f"this is no key of {event.author}"
    elif not is_signed(client, index, entry):
        problem = "the signature does not fit"
    return {
        "index": index,
        "at": event.at,
        "accepted_ms": event.accepted_ms,
        "author": event.author,
        "kind": event.kind,
        "text": texts.get(index, ""),
        "key": key,
        "key_sort": None if held is None else held["sort"],
        "is_verified": problem is None,
        "problem": problem,
    }
