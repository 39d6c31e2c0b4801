"""The history of a handoff: who signed each event with which key, and whether it counts (`handoff show --history`).

It is read from the signed entries and checked with the chain of keys from the root (``ledger.client.stream_reader``),
like every answer that somebody acts on. Entries that no rule admits are shown, too, with the reason why they do not
count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deedbook.consumers.interfaces.cli.app import App
from deedbook.consumers.interfaces.cli.output import short_key, when
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.ledger import entries_now
from deedbook.consumers.sdk.text import quote_text
from deedbook.ledger.events.entries import read_event

if TYPE_CHECKING:
    from deedbook.ledger.events.body import Event


def signed_history(app: App, handoff: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a handoff (an answer of ``handoffs.show``), each with its key and ``is_verified``."""
    client, stream = app.client(), f"handoff/{handoff['id']}"
    texts = {line["event_index"]: line["text"] for line in handoff["log"]}
    if app.bundle is not None:  # every entry was verified when the bundle was opened
        key_types = {row["key"]: row["type"] for row in app.query("agents.keys")["items"]}
        problems = {entry["index"]: entry["message"] for entry in handoff["as_of"]["ignored"]}
        events = [read_event(index, data) for index, data in entries_now(client, stream=stream)]
        return [_signed(event, key_types.get(event.key), problems.get(event.index), texts) for event in events]
    checked, authority = client.streams.read(stream), client.streams.authority
    problems = {entry.index: entry.message for entry in checked.ignored}
    entries = sorted([*checked.entries, *((index, client.entry(index)) for index in problems)])

    history = []
    for index, data in entries:
        event = read_event(index, data)
        record = authority.key(event.key, index)
        key_type = None if record is None else "identity" if record.is_identity else "session"
        history.append(_signed(event, key_type, problems.get(index), texts))
    return history


def print_history(history: list[dict[str, Any]]) -> None:
    """Print each event on one line, and below it its key and its text."""
    echo("\nHistory")
    for event in history:
        echo(f"  {event['index']}  {when(event['accepted_ms'])}  {event['author']}  {event['kind']}")
        echo(f"      {event['key_type'] or 'unknown'} key {short_key(event['key'])}: ", nl=False)
        echo(
            "the signature fits" if event["is_verified"] else f"NOT COUNTED: {quote_text(event['problem'])}",
            fg=None if event["is_verified"] else "red",
        )
        if event["text"]:
            echo(f"      {quote_text(event['text'])}")


def _signed(event: Event, key_type: str | None, problem: str | None, texts: dict[int, str]) -> dict[str, Any]:
    return {
        "index": event.index,
        "at": event.at,
        "accepted_ms": event.accepted_ms,
        "author": event.author,
        "kind": event.kind,
        "text": texts.get(event.index, ""),
        "key": event.key,
        "key_type": key_type,
        "is_verified": problem is None,
        "problem": problem,
    }
