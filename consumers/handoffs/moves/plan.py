"""Plans the move of a session: the messages that fit, without secrets, and the text for the agent that continues.

The plan depends only on the transcript and on the records in the ledger, so a second plan of the same session is the
same plan. Its digest names the handoff, so a second move of the session is recognized.

The first request stays, then the newest messages as far as they fit. The text for the next agent is the last message of
the new session: where it comes from, the open work, the records of the session in the ledger, and by name what could
not be moved. The handoff has the same text, and these records as its notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from shlex import quote
from typing import Any, Final, NamedTuple

from deedbook.consumers.handoffs.agent_names import read_agents
from deedbook.consumers.handoffs.files.syntax.note_labels import NOTE_LABELS
from deedbook.consumers.handoffs.moves.session_files import GEMINI_IGNORES
from deedbook.consumers.handoffs.receiver import EVERY_TOPIC, session_notes
from deedbook.consumers.importers.transcripts.messages import (
    FILE,
    HARNESS_TEXT,
    IMAGE,
    OLDER,
    SHORTENED,
    SUB_AGENT,
    THINKING,
    UNKNOWN,
    UNREADABLE,
    WITHDRAWN,
    HarnessName,
    SessionMessage,
    SessionTranscript,
)
from deedbook.consumers.sdk.quotation import Origin, untrusted_block
from deedbook.consumers.sdk.text import counted, cut, sanitize_line, shorten
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.secrets.redaction import redact
from deedbook.projections.briefs.tokens import greatest, most_tokens

tokens_max: Final[Mapping[HarnessName, int]] = {"claude-code": 100_000, "codex": 125_000, "gemini": 400_000}
"""The size of a moved session in tokens: about half the context window of the harness's smallest present model."""
tokens_min: Final = 1_000
record_max_chars: Final = 400
records_max_bytes: Final = 12_000
"""The size of the records that a move carries. With the notes of a session, they must fit into one entry."""
reasonings_max: Final = 8
handoffs_max: Final = 5
_MET: Final = ("checked", "waived")
_message_tokens: Final = 8
_digest_digits: Final = 12
_title_max_chars: Final = 120
_line_max_chars: Final = 160

_WHY: Final = {
    THINKING: "signed or encrypted for the model that thought it",
    IMAGE: "only text is moved",
    FILE: "only text is moved",
    SUB_AGENT: "the answers to the main agent are moved",
    HARNESS_TEXT: "the new harness writes its own",
    WITHDRAWN: "not part of the conversation any more",
    UNREADABLE: "broken, or too long",
    UNKNOWN: "no other harness has it",
    SHORTENED: "the beginning is moved",
    OLDER: "beyond the limit of messages that are read at once",
}


class Records(NamedTuple):
    """The ledger's part: the session, its notes, its task, its reasonings as lines, and the open work.

    ``left_out`` counts the records of topics that were not chosen.
    """

    session: str | None = None
    notes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    reasonings: tuple[str, ...] = ()
    handoffs: tuple[dict[str, Any], ...] = ()
    left_out: Mapping[str, int] = {}


class Parties(NamedTuple):
    """The two harnesses, by name and title, and their agents in the ledger."""

    old: HarnessName
    old_title: str
    sender: str
    new: HarnessName
    new_title: str
    receiver: str


class Changes(NamedTuple):
    """Sentences about the parts of a session that are moved in another form, and about those that are not moved."""

    changed: list[str]
    left_out: list[str]


class MovePlan(NamedTuple):
    """A move: the id, title and body of its handoff, and the messages of the new session; ``brief`` is the last one.

    The body is the brief without the notes, which the handoff has already.
    """

    id: str
    title: str
    body: str
    messages: list[SessionMessage]
    brief: str
    changes: Changes


def plan_move(
    parties: Parties, transcript: SessionTranscript, records: Records, origin: Origin, tokens: int
) -> MovePlan:
    """Return the plan of a move of at most ``tokens`` tokens."""
    kinds = Counter(transcript.secrets)
    messages = _resumable(transcript.messages, parties.new)
    recorded = [_redacted_text(line, kinds) for line in records.lines]
    notes = [_redacted_text(line, kinds) for line in records.notes]
    work = [_redacted_text(line, kinds) for line in _work_lines(records.handoffs)]
    lines = list(_within([*work, *recorded, *notes], records.session))
    moved = [list(parties), transcript.id, [[*_fields(message)] for message in messages], recorded, notes]
    id_ = f"move-{parties.new}-{sha256(encode_canonical(moved)).hexdigest()[:_digest_digits]}"
    room = max(tokens - most_tokens("\n".join(lines)), tokens_min // 2)
    fitting, dropped, was_cut = fit(messages, room, most_tokens)
    # Joined texts can form a secret that none of them contained alone.
    fitting = [_redacted(message, kinds) for message in fitting]
    left_out = Counter(transcript.left_out) + Counter({SHORTENED: was_cut})
    changes = Changes(
        [*_changed_calls(transcript.calls), *_changed_secrets(kinds)],
        [*_left_lines(left_out), *_dropped(dropped, tokens), *_unchosen(records.left_out)],
    )
    request = next((message.text for message in messages if message.role == "user"), messages[0].text)
    title = f"Go on with: {shorten(sanitize_line(request), _title_max_chars)}"
    opening = list(_opening(id_, parties, records.session))
    brief = "\n".join([*opening, *_closing(lines, origin, changes)])
    own_lines = list(_within([*work, *recorded], records.session))
    body = "\n".join([*opening, *_closing(own_lines, origin, changes)])
    return MovePlan(id_, title, body, [*fitting, SessionMessage("user", brief)], brief, changes)


def fit(
    messages: Sequence[SessionMessage], tokens: int, cost: Callable[[str], int]
) -> tuple[list[SessionMessage], list[SessionMessage], int]:
    """Return the messages that fit, those that do not, and how many were shortened for it.

    The first request may take a quarter. Then come the newest messages, without a gap; the newest is shortened if it
    alone does not fit.
    """
    first = next((position for position, message in enumerate(messages) if message.role == "user"), 0)
    was_cut = 0
    opening, is_cut = _shortened(messages[first], max(tokens // 4, _message_tokens + 1), cost)
    was_cut += is_cut
    left = tokens - cost(opening.text) - _message_tokens
    newest: list[SessionMessage] = []
    start = len(messages)
    while start > first + 1:
        message = messages[start - 1]
        price = cost(message.text) + _message_tokens
        if price > left and newest:
            break
        if price > left:
            message, is_cut = _shortened(message, left, cost)
            was_cut += is_cut
            if not message.text:
                break
            price = left
        newest.insert(0, message)
        left -= price
        start -= 1
    dropped = [*messages[:first], *messages[first + 1 : start]]
    return [opening, *newest], dropped, was_cut


def _shortened(message: SessionMessage, tokens: int, cost: Callable[[str], int]) -> tuple[SessionMessage, bool]:
    text = message.text
    if cost(text) + _message_tokens <= tokens:
        return message, False
    chars = greatest(0, len(text), lambda chars: cost(text[:chars]) + _message_tokens < tokens)
    return SessionMessage(message.role, cut(text, chars) if chars else "", message.at), True


def _resumable(messages: Sequence[SessionMessage], harness: HarnessName) -> list[SessionMessage]:
    """Return the messages that the harness resumes: Gemini leaves out a request that begins like a command."""
    if harness != "gemini":
        return list(messages)
    return [
        SessionMessage("user", f"User: {message.text}", message.at)
        if message.role == "user" and message.text.startswith(GEMINI_IGNORES)
        else message
        for message in messages
    ]


# Secrets


def _redacted(message: SessionMessage, kinds: Counter[str]) -> SessionMessage:
    return SessionMessage(message.role, _redacted_text(message.text, kinds), message.at)


def _redacted_text(text: str, kinds: Counter[str]) -> str:
    redacted = redact(text)
    kinds.update(redacted.kinds)
    return redacted.text


def _fields(message: SessionMessage) -> Iterator[str]:
    yield from (message.role, message.text, message.at)


# The records of the ledger


def records_of(ask: Ask, agent: str, session: str | None, topics: Sequence[str]) -> Records:
    """Return what an agent recorded in a session of the ledger, and its work in progress.

    The result has the notes of ``topics`` (default: all) that a handoff would get. Raises Refused: as
    ``session_notes``.
    """
    handoffs = tuple(
        ask("handoffs.show", {"id": row["id"]})
        for status in ("in_progress", "blocked")
        for row in ask("handoffs.list", {"to": agent, "status": status, "limit": handoffs_max})["items"]
    )
    if session is None:
        return Records(handoffs=handoffs)
    shown = ask("sessions.show", {"id": session})
    added = session_notes(ask, agent, shown["id"], topics or (EVERY_TOPIC,))
    notes = [f"{NOTE_LABELS[kind].lower()}: {text}" for kind, texts in added.notes.items() for text in texts]
    reasonings = ask("reasoning.list", {"session": shown["id"], "limit": reasonings_max})["items"]
    task = [f"task: {cut(sanitize_line(shown['task']), record_max_chars)}"] if shown["task"] else []
    lines = (*task, *(f"reasoning {row['id']}: {_reasoning_text(row)}" for row in reasonings))
    names = tuple(row["id"] for row in reasonings)
    return Records(shown["id"], tuple(notes), lines, names, handoffs, added.left_out)


def _reasoning_text(row: Mapping[str, Any]) -> str:
    text = f"{row['task']}: {row['conclusion'] or 'not concluded'}"
    return cut(sanitize_line(text), record_max_chars)


def check_receiver(ask: Ask, receiver: str) -> None:
    """Refuse a receiver whose name no agent here has."""
    if problem := read_agents(ask, None).problem(receiver):
        raise Refused("NOT_FOUND", f"{problem}, or name the one that works there with --receiver NAME")


# The texts


def _within(lines: Sequence[str], session: str | None) -> Iterator[str]:
    """Yield the lines that fit, and then a line with the number of those that do not fit."""
    left = records_max_bytes
    for number, line in enumerate(lines):
        left -= len(line.encode()) + 1
        if left < 0:
            where = f": deed session show {quote(session)}" if session else ""
            yield f"and {counted(len(lines) - number, 'further line')}{where}"
            return
        yield line


def _opening(id_: str, parties: Parties, session: str | None) -> Iterator[str]:
    receiver = quote(parties.receiver)
    yield f"This session was moved from {parties.old_title} ({parties.sender}) to {parties.new_title}."
    yield f"You are {parties.receiver}: go on from here. The handoff {id_} says so; its reviewer has to approve it."
    yield f"  deed handoff show {id_}"
    yield f"  deed handoff claim {id_} --as {receiver}"
    if session is not None:
        yield f"  deed session start --resumes {quote(session)} --as {receiver}"
    yield "In the messages, [tool NAME] is a call of a tool that the earlier agent made, [result] its result."


def _closing(lines: Sequence[str], origin: Origin, changes: Changes) -> Iterator[str]:
    if lines:
        yield "\nRecorded in the ledger:"
        yield untrusted_block("\n".join(lines), origin)
    for heading, sentences in (("Moved in another form", changes.changed), ("Not moved", changes.left_out)):
        if sentences:
            yield f"\n{heading}:"
            yield from (f"- {sentence}" for sentence in sentences)


def _work_lines(handoffs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for handoff in handoffs:
        yield f"handoff {handoff['id']} ({handoff['status']}): {sanitize_line(handoff['title'])}"
        for name, rows in (("task", handoff["tasks"]), ("criterion", handoff["criteria"])):
            for number, row in enumerate(rows, 1):
                state = "done" if row.get("done") or row.get("mark") in _MET else "open"
                yield f"  {name} {number} ({state}): {shorten(sanitize_line(row['text']), _line_max_chars)}"


def passing_on(handoff: Mapping[str, Any], parties: Parties) -> list[str]:
    """Return the commands that give the old agent's work in progress to the new agent; each party runs its own.

    The reviewer has to approve the new receiver: `show` prints the command with the version that they then read.
    """
    id_, reviewer = quote(handoff["id"]), handoff["reviewer"]
    commands = [
        f"deed handoff release {id_} --as {quote(parties.sender)} --reason 'moved to {parties.new_title}'",
        f"deed handoff amend {id_} --as {quote(handoff['from'])} --to {quote(parties.receiver)}",
    ]
    return [*commands, f"deed handoff show {id_} --as {quote(reviewer)}"] if reviewer else commands


def _changed_calls(calls: Mapping[str, int]) -> Iterator[str]:
    if calls:
        most = ", ".join(f"{tool} {count}" for tool, count in Counter(calls).most_common(6))
        yield f"{counted(sum(calls.values()), 'tool call')} told as text ({most})"


def _changed_secrets(kinds: Mapping[str, int]) -> Iterator[str]:
    if kinds:
        yield f"{counted(sum(kinds.values()), 'secret')} redacted ({', '.join(sorted(kinds))})"


def _left_lines(left_out: Mapping[str, int]) -> Iterator[str]:
    yield from (f"{counted(count, name)}: {why}" for name, why in _WHY.items() if (count := left_out.get(name, 0)))


def _unchosen(left_out: Mapping[str, int]) -> Iterator[str]:
    for topic, count in left_out.items():
        yield f"{counted(count, 'record')} of {f'the topic {topic}' if topic else 'no topic'}: not chosen"


def _dropped(dropped: Sequence[SessionMessage], tokens: int) -> list[str]:
    if not dropped:
        return []
    times = [message.at for message in dropped if message.at]
    when = f", from {times[0]} to {times[-1]}" if times else ""
    return [f"{counted(len(dropped), 'older message')}{when}: they do not fit into {tokens} tokens"]
