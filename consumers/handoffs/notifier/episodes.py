"""When somebody is told, once per waiting episode, and in which words. Pure.

Who waits for whom is read from the views, which show only the present; what happened between two looks from the log: an
event that ended a wait ended the episode, also when the same wait is there again at the next look. Two interruptions
are seen only if a look falls between them and their end, because no event of the subject tells of them: a dependency
that was completed, sent back and completed again, and a lease that ran out. The wait that was told of is the same then.

A *notification* is a JSON document of the shape that Standard Webhooks recommends, a title and a text. It never holds a
task, context, reason, comment or brief: whoever may read those asks the ledger. Title and text are words of ours alone,
because a model may read them; an author's stand in ``words``, marked as his (``consumers.sdk.quotation``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from deedbook.consumers.handoffs.operations import ENDS
from deedbook.consumers.sdk.quotation import Origin, is_plain, untrusted_text
from deedbook.consumers.sdk.text import cut, json_text, sanitize_line
from deedbook.ledger.lifecycle.clock import clock_text

Kind: TypeAlias = Literal["handoff", "review"]
Ground: TypeAlias = Mapping[str, Any]  # a reasoning that stands behind what waits, as ``reasoning.citations`` tells it


class Key(NamedTuple):
    """What makes two looks see the same wait: the subject, who is waited for, and what for."""

    kind: Kind
    id: str
    agent: str
    action: str


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One wait as a look found it; ``sender`` is who waits, as far as one agent does."""

    key: Key
    title: str
    status: str
    sender: str | None = None
    receiver: str | None = None
    since_index: int = 0
    since_ms: int = 0
    reasoning_refs: tuple[str, ...] = ()


class Open(NamedTuple):
    """An episode that is on: its id, and how much of the log the look that found it had seen."""

    episode_id: str
    seen_size: int


def interrupted(open_before: Mapping[Key, Open], happened: Iterable[tuple[int, str, str]]) -> set[Key]:
    """Return the open episodes that events ended; an event is its index, kind and subject's id."""
    # What the look that found an episode had seen already does not end it: it came before.
    by_subject: dict[tuple[str, str], list[Key]] = {}
    for key in open_before:
        by_subject.setdefault((key.kind, key.id), []).append(key)
    return {
        key
        for index, kind, name in happened
        for key in by_subject.get((kind.partition(".")[0], name), ())
        if key.action in ENDS.get(kind, ()) and index >= open_before[key].seen_size
    }


def episodes(open_before: Collection[Key], waiting_now: Iterable[Waiting]) -> tuple[list[Waiting], list[Key]]:
    """Return what begins and what is over, given what was open and what waits now.

    >>> wait = Waiting(key=Key("handoff", "h1", "rita", "approve"), title="Fix login", status="pending")
    >>> episodes((), [wait])[0] == [wait], episodes([wait.key], [wait]), episodes([wait.key], [])[1] == [wait.key]
    (True, ([], []), True)
    """
    found = {waiting.key: waiting for waiting in waiting_now}
    begun = [waiting for key, waiting in found.items() if key not in open_before]
    return begun, [key for key in open_before if key not in found]


WAITING: Final = "deedbook.waiting"
TEST: Final = "deedbook.test"
title_max_chars: Final = 200
status_max_chars: Final = 40
said_max_chars: Final = 400
behind_max: Final = 3
notification_max_bytes: Final = 16 * 1024

# Where the word is another than the action's own.
_WORDS: Final = {"claim": "start", "continue": "go on with", "review": "answer"}


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One notification: the document, and its id, title and text, which the document repeats."""

    id: str
    title: str
    text: str
    document: bytes


def episode_id(ledger: str, key: Key, seen_size: int, began_ms: int) -> str:
    """Return the id of the episode that a look at ``seen_size`` entries found: 40 hex digits, different for each."""
    return hashlib.sha256(msgspec.json.encode([ledger, key, seen_size, began_ms])).hexdigest()[:40]


def notification_of(
    ledger: str, identity: str, waiting: Waiting, began_ms: int, origin: Origin, *, behind: Sequence[Ground] = ()
) -> Notification:
    """Return what is told of an episode that began at ``began_ms``, in a ledger whose words come from ``origin``."""
    key = waiting.key
    # An id may be a sentence: then it stands in its field alone.
    named = f"{key.kind} {key.id}" if is_plain(key.id) else f"a {key.kind}"
    title = f"{key.agent}: {key.action} {named}"
    # Who has done, or cannot do, his part waits for another: here the receiver, else the sender.
    waits = waiting.receiver if key.action in {"unblock", "verify"} else waiting.sender
    who = waits if waits not in (None, key.agent) else "somebody"
    what = _WORDS.get(key.action, key.action)
    text = f"Deedbook: {who} waits for {key.agent} to {what} {named}"
    text += "".join(f"; its reasoning: {_line(one['said'], said_max_chars)}" for one in behind[:1])
    data: dict[str, Any] = {
        "id": identity,
        "ledger": ledger,
        "kind": key.kind,
        "subject": _line(key.id),
        "agent": key.agent,
        "action": key.action,
        "status": _line(waiting.status, status_max_chars),
        "from": waiting.sender,
        "to": waiting.receiver,
        "since_index": waiting.since_index,
        "since_ms": waiting.since_ms,
        "text": text,
        "others": origin.label(),
        "words": untrusted_text(waiting.sender or "", waiting.since_ms, {"title": _line(waiting.title)}),
    }
    if behind:
        data["reasoning"] = [
            {"reasoning_ref": one["reasoning_ref"], "said": _line(one["said"], said_max_chars)}
            | {"words": untrusted_text(one["author"], one["at_ms"], {"conclusion": _line(one["conclusion"])})}
            for one in behind[:behind_max]
        ]
    return Notification(id=identity, title=title, text=text, document=_document(WAITING, began_ms, data))


def trial(identity: str, now_ms: int) -> Notification:
    """Return the notification that an operator sends to see whether a channel works."""
    text = "Deedbook: this is a test; nothing waits"
    document = _document(TEST, now_ms, {"id": identity, "text": text})
    return Notification(id=identity, title="Deedbook: test", text=text, document=document)


def _line(text: str, chars_max: int = title_max_chars) -> str:
    return cut(sanitize_line(text, replacement=" "), chars_max)


def _document(kind: str, at_ms: int, data: dict[str, Any]) -> bytes:
    document = json_text({"type": kind, "timestamp": clock_text(at_ms), "data": data}).encode()
    if len(document) > notification_max_bytes:
        raise AssertionError("unreachable: every part of a notification is bounded")
    return document
