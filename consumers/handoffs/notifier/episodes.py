"""When somebody is told: once per waiting episode. Pure.

A *waiting episode* is a subject (a handoff or review), an agent and an action that hold without interruption. Who waits
for whom is read from the views, which show only the present; what happened between two looks is read from the log:
an event that ended a wait ended the episode, also when the same wait is there again by the time of the next look. So a
handoff that was released and is to be claimed again is told again, and one that was amended while it waits for its
approval is not.

Two interruptions are seen only if a look falls between them and their end, because no event of the subject itself tells
of them: a dependency that was completed, sent back and completed again, and a lease that ran out. Nothing is lost by
that: the wait that was told of is the same one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from consumers.handoffs.acts import ENDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

Kind: TypeAlias = Literal["handoff", "review"]


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


class Open(NamedTuple):
    """An episode that is on: its id, and how much of the log the look that found it had seen."""

    episode_id: str
    seen_size: int


def interrupted(open_before: Mapping[Key, Open], happened: Iterable[tuple[int, str, str]]) -> set[Key]:
    """Return the open episodes that events ended; an event is its index, kind and subject's id.

    An event that the look which found an episode had seen already does not end it: it came before.
    """
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
