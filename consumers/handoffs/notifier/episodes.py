"""The begin and end of waiting episodes, and the text of their notifications. Pure.

The views say who waits for whom now; the log says what happened between two checks. If an event ended a wait, its
episode ended, even if the same wait exists again at the next check. Two interruptions have no event of the subject: a
dependency that was completed, sent back and completed again, and a lease that expired. They are only noticed if a check
falls into them.

A *notification* is a JSON document in the form that Standard Webhooks recommends, a title and a text. It never has a
task, context, reason, comment or brief: agents that may read those ask the ledger. A model may read title and text, so
they contain only our own words. An author's words are in ``words``, marked as theirs (``consumers.sdk.quotation``).
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

Kind: TypeAlias = Literal["handoff", "review", "question"]
Citation: TypeAlias = Mapping[str, Any]  # a reasoning that the waiting subject cites, from ``reasoning.citations``


class EpisodeKey(NamedTuple):
    """The identity of a wait: its subject, the agent that must act, and their action."""

    kind: Kind
    id: str
    agent: str
    action: str


class WaitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A wait that a check of the views found; ``sender`` is the agent that waits, if only one does."""

    key: EpisodeKey
    title: str
    status: str
    sender: str | None = None
    receiver: str | None = None
    since_index: int = 0
    since_ms: int = 0
    reasoning_refs: tuple[str, ...] = ()


class OpenEpisode(NamedTuple):
    """An episode that has not ended: its id, and the size of the log at the check that found it."""

    episode_id: str
    seen_size: int


def interrupted(
    open_before: Mapping[EpisodeKey, OpenEpisode], happened: Iterable[tuple[int, str, str]]
) -> set[EpisodeKey]:
    """Return the open episodes that events ended. Each event is given as its index, its kind and its subject's id."""
    # An event before the check that found an episode does not end it.
    by_subject: dict[tuple[str, str], list[EpisodeKey]] = {}
    for key in open_before:
        by_subject.setdefault((key.kind, key.id), []).append(key)
    return {
        key
        for index, kind, name in happened
        for key in by_subject.get((kind.partition(".")[0], name), ())
        if key.action in ENDS.get(kind, ()) and index >= open_before[key].seen_size
    }


def episodes(
    open_before: Collection[EpisodeKey], waiting_now: Iterable[WaitRecord]
) -> tuple[list[WaitRecord], list[EpisodeKey]]:
    """Return the waits that begin now, and the keys of the episodes that are over.

    >>> wait = WaitRecord(key=EpisodeKey("handoff", "h1", "rita", "approve"), title="Fix login", status="pending")
    >>> episodes((), [wait])[0] == [wait], episodes([wait.key], [wait]), episodes([wait.key], [])[1] == [wait.key]
    (True, ([], []), True)
    """
    waits = {waiting.key: waiting for waiting in waiting_now}
    begun = [waiting for key, waiting in waits.items() if key not in open_before]
    return begun, [key for key in open_before if key not in waits]


WAITING: Final = "deedbook.waiting"
TEST: Final = "deedbook.test"
title_max_chars: Final = 200
status_max_chars: Final = 40
citation_max_chars: Final = 400
citations_max: Final = 3
notification_max_bytes: Final = 16 * 1024

# Verbs that differ from the name of the action.
_VERBS: Final = {"claim": "start", "continue": "go on with", "review": "answer"}


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One notification: the document, and its id, title and text, which are also in the document."""

    id: str
    title: str
    text: str
    document: bytes


def episode_id(ledger: str, key: EpisodeKey, seen_size: int, began_ms: int) -> str:
    """Return the id of the episode found at a check of ``seen_size`` entries: 40 hex digits, different for each."""
    return hashlib.sha256(msgspec.json.encode([ledger, key, seen_size, began_ms])).hexdigest()[:40]


def notification_of(
    ledger: str,
    identity: str,
    waiting: WaitRecord,
    began_ms: int,
    origin: Origin,
    *,
    citations: Sequence[Citation] = (),
) -> Notification:
    """Return the notification of an episode that began at ``began_ms``; ``origin`` marks an author's words."""
    key = waiting.key
    # An id may be a sentence; then it is only in its own field.
    named = f"{key.kind} {key.id}" if is_plain(key.id) else f"a {key.kind}"
    title = f"{key.agent}: {key.action} {named}"
    # The receiver waits for `unblock` and `verify`: they are blocked, or have finished. Else the sender waits.
    waits = waiting.receiver if key.action in {"unblock", "verify"} else waiting.sender
    who = waits if waits not in (None, key.agent) else "somebody"
    verb = _VERBS.get(key.action, key.action)
    text = f"Deedbook: {who} waits for {key.agent} to {verb} {named}"
    text += "".join(f"; its reasoning: {_line(citation['said'], citation_max_chars)}" for citation in citations[:1])
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
    if citations:
        data["reasoning"] = [
            {"reasoning_ref": row["reasoning_ref"], "said": _line(row["said"], citation_max_chars)}
            | {"words": untrusted_text(row["author"], row["at_ms"], {"conclusion": _line(row["conclusion"])})}
            for row in citations[:citations_max]
        ]
    return Notification(id=identity, title=title, text=text, document=_document(WAITING, began_ms, data))


def trial(identity: str, now_ms: int) -> Notification:
    """Return the notification with which an operator tests a channel."""
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
