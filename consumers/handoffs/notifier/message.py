"""What a receiver is told: a small JSON document, a title and a text, made once when the episode begins. Pure.

A webhook's body has the shape that Standard Webhooks recommends (``type``, ``timestamp``, ``data``); a command gets the
same document on its standard input. It holds the title, the parties and the state, and never a task, context, reason or
comment: whoever may read those asks the ledger for them. Titles are one line without characters that could move a
cursor or turn the reading direction round, and cut at ``title_max_chars``, so that a document stays within
``notification_max_bytes``. Title and text begin with words of ours, never with what an author wrote.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from consumers.sdk.text import cut, one_line

if TYPE_CHECKING:
    from consumers.handoffs.notifier.episodes import Key, Waiting

WAITING: Final = "baton.waiting"
TEST: Final = "baton.test"
title_max_chars: Final = 200
status_max_chars: Final = 40
notification_max_bytes: Final = 16 * 1024

_WORDS: Final = {
    "approve": "approve",
    "claim": "start",
    "continue": "go on with",
    "unblock": "unblock",
    "verify": "verify",
    "review": "answer",
}
# Who has done, or cannot do, his part waits for another: here the receiver, else the sender.
_FOR_RECEIVER: Final = frozenset({"unblock", "verify"})


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One notification: the document, and its id, title and text, which the document repeats."""

    id: str
    title: str
    text: str
    document: bytes


def episode_id(ledger: str, key: Key, seen_size: int, began_ms: int) -> str:
    """Return the id of the episode that a look at ``seen_size`` entries found: 40 hex digits, different for each."""
    said = msgspec.json.encode([ledger, key, seen_size, began_ms])
    return hashlib.sha256(said).hexdigest()[:40]


def notification_of(ledger: str, identity: str, waiting: Waiting, began_ms: int) -> Notification:
    """Return what is told of an episode that began at ``began_ms``."""
    key, subject = waiting.key, _line(waiting.title)
    title = f"{key.agent}: {key.action} {_line(key.id)}"
    waits = waiting.receiver if key.action in _FOR_RECEIVER else waiting.sender
    who = waits if waits not in (None, key.agent) else "somebody"
    what = _WORDS.get(key.action, key.action)
    text = f"Baton: {who} waits for {key.agent} to {what} {key.kind} “{subject}”"
    data = {
        "id": identity,
        "ledger": ledger,
        "kind": key.kind,
        "subject": _line(key.id),
        "agent": key.agent,
        "action": key.action,
        "title": subject,
        "status": _line(waiting.status, status_max_chars),
        "from": waiting.sender,
        "to": waiting.receiver,
        "since_index": waiting.since_index,
        "since_ms": waiting.since_ms,
        "text": text,
    }
    return Notification(id=identity, title=title, text=text, document=_document(WAITING, began_ms, data))


def trial(identity: str, now_ms: int) -> Notification:
    """Return the notification that an operator sends to see whether a channel works."""
    text = "Baton: this is a test; nothing waits"
    document = _document(TEST, now_ms, {"id": identity, "text": text})
    return Notification(id=identity, title="Baton: test", text=text, document=document)


def _line(text: str, chars_max: int = title_max_chars) -> str:
    return cut(one_line(text, mark=" "), chars_max)


def _document(sort: str, at_ms: int, data: dict[str, Any]) -> bytes:
    moment = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    document = msgspec.json.encode({"type": sort, "timestamp": moment, "data": data})
    if len(document) > notification_max_bytes:
        raise AssertionError("unreachable: every part of a notification is bounded")
    return document
