"""Maps a response to imported reasoning: its id, its graph, and the claims about it.

The id is made of the message's id, so it is the same wherever the response was found, even if a resumed session repeats
it. If the message's id is so short that another message may have it, the session's id is added. Without ids it is made
of the prompt and the text of the response.

The claims name what was guessed and what could not be read. Task and conclusion are cut at a word; the originals have
their whole text. The conclusion is the answer after the last thinking. Without an answer it is the last step that
concludes. In a session, however, a response that ended with a tool call has no conclusion, and its reasoning stays
open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from deedbook.consumers.importers.reasoning import extensions_of
from deedbook.consumers.importers.records import Record, claimed_time
from deedbook.consumers.importers.transcripts.conversation import TranscriptResponse, UnreadItem
from deedbook.consumers.sdk.text import shorten
from deedbook.consumers.sdk.thinking.extract import TASK_NOT_STATED, ConclusionFrom, Extraction, extract_reasoning
from deedbook.consumers.sdk.thinking.response import read_tags
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KIND_OF
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.imported import UNMAPPED, DirtyValue, RecordClaims, RecordImported
from deedbook.ledger.format.codec import encode_canonical
from deedbook.projections.reasoning.memory import ReasoningMemory

task_max_chars: Final = 2_000
conclusion_max_chars: Final = 8_000
name_max_chars: Final = 200
source_max_chars: Final = 400
said_max_chars: Final = 1_500
dirty_max: Final = 20
own_id_min_chars: Final = 16
_digits: Final = 32

SESSION_FORMAT: Final = "claude-code-session"
_NUMBER: Final = "the ledger cannot hold this number: it was read as text"
_WHY: Final = {
    "redacted": "the vendor encrypted this block: only the original has it",
    "other_choice": "another answer to the same question: only the original has it",
    "unclosed_tag": "a thinking tag is not closed: the rest was read as thinking",
    "unopened_tag": "a thinking tag is closed before it is opened: the text before it was read as thinking",
}


class MappedThinking(NamedTuple):
    """A response with its graph; ``names`` are the ids that it may have, in the order in which they are tried."""

    answered: TranscriptResponse
    extraction: Extraction
    memory: ReasoningMemory
    names: tuple[str, ...]
    is_task_whole: bool


def thinking_in(answered: TranscriptResponse, task: str = "") -> MappedThinking | UnreadItem | None:
    """Return the thinking of a response; None if it has none.

    ``task`` is used if the response states none; the ids are made without it.
    """
    try:
        return _thinking_in(answered, task)
    except Refused as refusal:
        if refusal.code != "INVALID_FORMAT" or refusal.details.get("redacted"):
            return UnreadItem.of(answered, f"{refusal.code}: {refusal.message}")
        reason = _hidden(answered.response)
        return UnreadItem.of(answered, reason) if reason else None


def _thinking_in(answered: TranscriptResponse, task: str) -> MappedThinking | None:
    extraction = extract_reasoning(answered.response, task=answered.prompt.text if answered.prompt else "")
    if answered.is_session and not _is_thinking_of_a_session(extraction):
        return None
    own = task if "task" in extraction.absent and task else extraction.memory.task
    memory = msgspec.structs.replace(
        extraction.memory,
        ai_id=shorten(extraction.memory.ai_id.strip(), name_max_chars),
        task=shorten(own.strip(), task_max_chars) or TASK_NOT_STATED,
        conclusion=shorten(_conclusion_of(answered, extraction).strip(), conclusion_max_chars),
        reasoning_id="",
    )
    return MappedThinking(answered, extraction, memory, names_of(answered, extraction), memory.task == own)


def _conclusion_of(answered: TranscriptResponse, extraction: Extraction) -> str:
    is_said_by_a_step = extraction.conclusion_from == "step" and not answered.is_session
    return answer_of(extraction) or (extraction.memory.conclusion if is_said_by_a_step else "")


def answer_of(extraction: Extraction) -> str:
    """Return the answer after the last thinking; if there is none, the answer before it."""
    parts: list[str] = []
    has_thinking, follows = False, False
    for source in extraction.sources:
        regions = sorted([(region, True) for region in source.thinking] + [(region, False) for region in source.answer])
        for region, is_thinking in regions:
            text = source.text[slice(*region)].strip()
            if is_thinking or not text:
                has_thinking, follows = has_thinking or is_thinking, follows and not is_thinking
                continue
            parts = [*parts, text] if follows else [text] if has_thinking else parts
            follows = has_thinking
    return "\n\n".join(parts)


def names_of(answered: TranscriptResponse, extraction: Extraction) -> tuple[str, ...]:
    """Return the ids that a response may have, the best first; they do not depend on the file with the response."""
    sources = [[source.text, source.thinking, source.answer] for source in extraction.sources]
    by_content = _name("content", [answered.session, extraction.memory.ai_id, extraction.memory.task, sources])
    by_ids = _by_ids(answered)
    return (by_ids, by_content) if by_ids else (by_content,)


def unmapped_stream(left: TranscriptResponse | UnreadItem) -> str:
    """Return the stream of an unmapped response.

    It is the same in every file, and stays the same when the response grows.
    """
    original = str(left.size).encode() if isinstance(left, UnreadItem) and not left.original else left.original or b""
    name = _by_ids(left) or _name("original", [hashlib.sha256(original).hexdigest()])
    return f"{UNMAPPED}/{name}"


def record_of(
    thinking: MappedThinking, name: str, original: str, prompt: str | None, task: DirtyValue | None = None
) -> Record:
    """Return the record of a response: its reasoning started, extended as often as its size needs, concluded.

    ``original`` and ``prompt`` are refs of blobs; ``task`` says why the prompt is left out.
    """
    session = shorten(thinking.answered.session.strip(), name_max_chars)
    events = extensions_of(thinking.memory, session=session)
    dirty = [] if task is None else [task]
    first, *more = records_of(thinking, events, original, claims=_claims(thinking, prompt, dirty))
    return Record(f"reasoning/{name}", first, more=tuple(more), unmapped_stream=unmapped_stream(thinking.answered))


def records_of(
    thinking: MappedThinking, events: Sequence[EventData], original: str, *, claims: RecordClaims | None = None
) -> Iterator[RecordImported]:
    """Yield the imported record of each event of a reasoning; the first has the ``claims``."""
    answered = thinking.answered
    for event in events:
        yield RecordImported(
            original=original,
            source=shorten(str(answered.source).strip(), source_max_chars) or "—",
            format=answered.form or (SESSION_FORMAT if answered.is_session else thinking.extraction.format),
            mapped_kind=KIND_OF[type(event)],
            mapped=msgspec.to_builtins(event, str_keys=True),
            claimed_author=thinking.memory.ai_id or None,
            claimed_at=time_of(answered.at),
            claims=msgspec.to_builtins(claims) if claims is not None else {},
        )
        claims = None


def time_of(at: Any) -> str | None:
    """Return a time as RFC 3339 in UTC; None if it is no time or has no offset."""
    claimed = claimed_time(at)
    if claimed is None or claimed.at_us is None or not claimed.has_zone:
        return None
    time = datetime.fromisoformat(claimed.text)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as ``1-3, 5``."""
    # this difference is constant within a run of consecutive numbers
    placed = groupby(enumerate(numbers), key=lambda item: item[1] - item[0])
    runs = ([number for _, number in run] for _, run in placed)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _claims(thinking: MappedThinking, prompt: str | None, dirty: list[DirtyValue]) -> RecordClaims:
    answered, extraction = thinking.answered, thinking.extraction
    guessed = {
        f"inferred_{name}": ranges([number for number, names in extraction.inferred.items() if name in names])
        for name in ("type", "reasoning_type")
    }
    for number, ways in extraction.ways.items():
        for step, way in ways.items():
            name = f"inferred_dependencies_by_{way}"
            guessed[name] = f"{guessed[name]}, {number}←{step}" if name in guessed else f"{number}←{step}"
    has_task = thinking.memory.task != TASK_NOT_STATED
    said = guessed | {
        "session": answered.session,
        "message": answered.message,
        "prompt": prompt or "",
        "conclusion_from": _origin_of_conclusion(thinking),
        "task_from": ("importer" if "task" in extraction.absent else "prompt") if has_task else "absent",
    }
    dirty = dirty + [
        DirtyValue(path=note.path[:name_max_chars] or "$", value=note.kind, why=_WHY[note.kind])
        for note in extraction.notes
    ]
    if answered.at is not None and time_of(answered.at) is None:
        value = shorten(str(answered.at).strip(), name_max_chars) or '""'
        dirty.append(DirtyValue(path="timestamp", value=value, why="it is not a time with an offset"))
    numbers = (shorten(number.strip(), name_max_chars) for number in answered.odd)
    dirty += [DirtyValue(path="$", value=number, why=_NUMBER) for number in numbers]
    if len(dirty) > dirty_max:
        left = f"{len(dirty) - dirty_max + 1} more are not listed: the original has them"
        dirty[dirty_max - 1 :] = [DirtyValue(path="$", value="…", why=left)]
    return RecordClaims(
        said={name: shorten(value.strip(), said_max_chars) for name, value in said.items() if value.strip()},
        dirty=dirty,
    )


def _origin_of_conclusion(thinking: MappedThinking) -> ConclusionFrom:
    if not thinking.memory.conclusion:
        return "absent"
    return "answer" if answer_of(thinking.extraction) else "step"


def _is_thinking_of_a_session(extraction: Extraction) -> bool:
    """Return whether a response contains thinking. An answer about such software may only mention thinking tags."""
    return any(
        not source.path.endswith((".text", "content"))
        or read_tags(source.text).is_unopened
        or source.text.lstrip().startswith("<think")
        for source in extraction.sources
        if source.thinking
    )


def _hidden(response: Any) -> str:
    """Return why the thinking of a response is unreadable; empty if there is no sign of thinking."""
    blocks = response if isinstance(response, list) else response.get("content") if isinstance(response, dict) else None
    named = [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    if any(block.get("type") == "thinking" and block.get("signature") for block in named):
        return "the program that wrote this left the thinking out: only its signature is here"
    details = response.get("reasoning_details") if isinstance(response, dict) else None
    if isinstance(details, list) and any(isinstance(detail, dict) and "data" in detail for detail in details):
        return "the vendor encrypted this thinking"
    return ""


def _by_ids(answered: TranscriptResponse | UnreadItem) -> str:
    if len(answered.message) >= own_id_min_chars:
        return _name("ids", [answered.message])  # a resumed session repeats the message under another session's id
    return _name("ids", [answered.session, answered.message]) if answered.message and answered.session else ""


def _name(origin: str, values: list[Any]) -> str:
    return "thinking-" + hashlib.sha256(encode_canonical([origin, *values])).hexdigest()[:_digits]
