"""Resuming: what the next agent reads of the sessions before it, within a stated number of tokens (seed 004).

Selection is the seed's: the last session, the last few, or one by its id (a beginning of it will do); without an agent,
of all agents. The whole answer, dead ends included, has at most as many tokens as its sessions may have (400, 800 or
1,250 each), counted exactly as commands print it. A session without a report resumes from its events, marked
``no_report``: a crashed agent leaves no report, and that is when resuming matters most.

Dead ends come beside the sessions, those of the resumed sessions first, then those of sessions about similar tasks:
what failed is not to be tried again. What another tool recorded is marked ``imported``: nobody of this ledger stands
for it but the importer, who only says where it comes from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from consumers.sessions.reports.packing import LEVELS, dead_ends_within, pack, printed
from consumers.sessions.reports.sources import source_of
from ledger.codec import converted
from ledger.errors import Refused
from projections.briefs.tokens import count_tokens, tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledger.client import Ask

    Blobs = Callable[[str], bytes]

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
MODES: Final = ("last", "last_n", "session_id")
sessions_max: Final = 5
dead_end_tokens: Final = {"summary": 40, "detailed": 120, "full": 160}
"""What dead ends may cost in all, out of the tokens of the sessions."""

_similar_max: Final = 10
_short_id_chars: Final = (8, 13, 18, 24)


def resume(
    answer: Ask,
    get_blob: Blobs,
    *,
    ai_id: str | None = None,
    resume_mode: str = "last",
    session_id: str | None = None,
    count: int = 1,
    detail_level: str = "summary",
) -> dict[str, Any]:
    """Return ``{"sessions", "total_sessions", "token_estimate", "tokens_exact", "detail_level", "dead_ends"}``.

    ``token_estimate`` counts this answer; ``tokens_exact`` is false where no tokenizer is installed. ``count`` above
    five is five, as in the seed. Without any session there is a ``message``.

    Raises:
        Refused: ``INVALID_FIELD`` for a mode, level or count that is none; for a session by id ``NOT_FOUND`` or
            ``REF_AMBIGUOUS``.
    """
    if detail_level not in LEVELS:
        raise _no_choice("detail_level", detail_level, tuple(LEVELS))
    rows = _selected(answer, ai_id, resume_mode, session_id, count)
    made: dict[str, Any] = {
        "sessions": [],
        "total_sessions": len(rows),
        "token_estimate": 0,
        "tokens_exact": tokenizer().exact,
        "detail_level": detail_level,
        "dead_ends": [],
    }
    if not rows:
        made["message"] = f"No sessions found for ai_id={ai_id}" if ai_id else "No sessions found"
        return _counted(made)
    shown = [answer("sessions.show", {"id": row["session_id"]}) for row in rows]
    budget = LEVELS[detail_level] * len(rows)
    kept, left_out = dead_ends_within(
        _dead_ends(answer, shown, _task_of(shown[0], rows[0])), dead_end_tokens[detail_level] * len(rows)
    )
    made["dead_ends"] = kept
    if left_out:
        made["dead_ends_left_out"] = left_out
    sources = [
        source_of(one, row["report"], get_blob, level=detail_level, short_id=_short_id(answer, row["session_id"]))
        for one, row in zip(shown, rows, strict=True)
    ]
    for number, source in enumerate(sources):
        # What a session does not need, the older ones after it may use, each up to its own limit.
        rest = budget - count_tokens(printed(made | {"token_estimate": budget})) - len(sources)
        share = rest // (len(sources) - number)
        made["sessions"].append(pack(source, detail_level, min(share, LEVELS[detail_level])))
    return _counted(made)


def _selected(answer: Ask, ai_id: str | None, mode: str, session_id: str | None, count: int) -> list[dict[str, Any]]:
    if mode not in MODES:
        raise _no_choice("resume_mode", mode, MODES)
    if mode == "session_id" and not session_id:
        raise Refused("INVALID_FIELD", "resume_mode session_id asks for a session: give session_id", field="session_id")
    if session_id:
        found: list[dict[str, Any]] = answer("reports.sessions", {"id": session_id, "limit": 1})["sessions"]
        return found
    number = converted(count, AtLeastOne, "count")
    asked: dict[str, Any] = {"limit": 1 if mode == "last" else min(number, sessions_max)}
    # An agent is known by the label it gives itself; where nobody gave this one, by its registered name. What it
    # imported is not its own work.
    whose: list[dict[str, Any]] = [{"ai_id": ai_id}, {"author": ai_id, "imported": False}] if ai_id else [{}]
    # A session in which nothing was recorded yet is most often the one that asks: others come first.
    wanted = [asked | one | {"recorded": recorded} for one in whose for recorded in (True, False)]
    pages = (answer("reports.sessions", one)["sessions"] for one in wanted)
    return list(next(filter(None, pages), []))


def _task_of(shown: dict[str, Any], row: dict[str, Any]) -> str:
    """Return what a session was about: the task it was started with, else that of its report."""
    started: str = shown["task"].strip()
    return started or ("" if row["report"] is None else row["report"]["task_summary"].strip())


def _dead_ends(answer: Ask, shown: list[dict[str, Any]], task: str) -> Iterator[dict[str, str]]:
    """Yield the dead ends of the sessions themselves, then of those about tasks like the newest one's."""
    seen: set[tuple[str, str]] = set()
    own = [
        one | {"session_id": session["id"], "imported": session["imported"]}
        for session in shown
        for one in session["dead_ends"]
    ]
    similar: list[dict[str, Any]] = []
    if task:
        similar = answer("reports.dead_ends", {"task": task, "limit": _similar_max})["dead_ends"]
    for one in [*own[:_similar_max], *similar]:
        what = (one["approach"], one["why_failed"])
        if what not in seen:
            seen.add(what)
            told = {"approach": one["approach"], "why_failed": one["why_failed"]}
            if one["imported"] is not None:
                told["imported"] = one["imported"]["importer"]
            is_own = len(shown) == 1 and one["session_id"] == shown[0]["id"]
            yield told if is_own else told | {"session": _short_id(answer, one["session_id"])}


def _short_id(answer: Ask, session_id: str) -> str:
    """Return a beginning of a session's id that finds it alone."""
    for chars in _short_id_chars:
        if chars >= len(session_id):
            break
        try:
            answer("reports.sessions", {"id": session_id[:chars], "limit": 1})
        except Refused:
            continue
        return session_id[:chars]
    return session_id


def _counted(made: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with the number of its own tokens in it."""
    for _ in range(3):
        made["token_estimate"] = count_tokens(printed(made))
    return made


def _no_choice(field: str, given: str, choices: tuple[str, ...]) -> Refused:
    return Refused("INVALID_FIELD", f"{field} is one of {', '.join(choices)}, not {given!r}", field=field)
