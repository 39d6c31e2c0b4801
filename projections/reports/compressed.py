"""The report as small JSON: for git notes and quick resumption.

Pure. Keys and limits are those that readers of such notes know, with three differences that prevent misreading: a word
is cut only if it is too long by itself, and every cut is a ``…``; ``more`` counts the omitted and shortened entries;
``ref`` leads to the whole report.

A wide character (Chinese, Japanese, Korean) counts as two towards a limit: it carries about as much meaning, and costs
as many tokens, as two letters. Chinese and Japanese have no spaces: a text is cut after punctuation if that keeps half
of it, else between any two ideographs or hiragana, because only a dictionary knows where a word ends.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from deedbook.projections.briefs.text import CJK_MARKS, is_between_signs
from deedbook.projections.reports.report import Report, uncorrected

short_id_chars: Final = 8
task_max_chars: Final = 200
finding_max_chars: Final = 150
findings_max: Final = 5
unknown_max_chars: Final = 100
unknowns_max: Final = 5
context_max_chars: Final = 300
step_max_chars: Final = 100
steps_max: Final = 3
delta_min: Final = 0.10
ref_digits: Final = 12

ELLIPSIS: Final = "…"
_SPACE: Final = re.compile(r"\s+")
_JOINER: Final = "\u200d"


_FIELDS: Final = {"findings": "key_findings", "unknowns": "remaining_unknowns"}


def compressed_of(report: Report) -> str:
    """Return the report as compact JSON, without retracted statements; ``ref`` and ``more`` come last."""
    corrected, report = len(report.corrections), uncorrected(report)
    # Compared at 4 decimals (0.90 - 0.80 is 0.10 here), then rounded to 2.
    rounded = {name: round(delta, 4) for name, delta in report.epistemic_deltas.items()}
    deltas = {name: round(delta, 2) for name, delta in rounded.items() if abs(delta) >= delta_min}
    fields: dict[str, Any] = {
        "s": report.session_id[:short_id_chars],
        "ai": report.ai_id,
        "ts": report.timestamp,
        "task": shorten(report.title, task_max_chars),
        **({"outcome": shorten(report.outcome, task_max_chars)} if report.outcome else {}),
        "deltas": deltas,
        "findings": _top(report.key_findings, findings_max, finding_max_chars),
        "unknowns": _top(report.remaining_unknowns, unknowns_max, unknown_max_chars),
        "next": shorten(report.next_session_context, context_max_chars),
        "recommend": _top(report.recommended_next_steps, steps_max, step_max_chars),
        "calibrated": report.calibration_status,
        "ref": short_ref(report.report_id),
    }
    more = _left_out(report, fields) | ({"corrected": corrected} if corrected else {})
    return msgspec.json.encode(fields | ({"more": more} if more else {})).decode()


def shorten(text: str, chars_max: int) -> str:
    """Return a text of at most ``chars_max`` characters, cut between words and marked with an ellipsis.

    A wide character counts as two. A word that would leave most of the space empty (a URL, a path, JSON, a sentence of
    Thai) is cut inside, and the text after it gets half of the space, because it explains the word.
    """
    trimmed = text.strip()
    if len(trimmed) <= chars_max and _width(trimmed) <= chars_max:
        return trimmed
    room = chars_max - len(ELLIPSIS)
    beginning = trimmed[: _word_end(trimmed, room)].rstrip()
    used = _width(beginning)
    if 2 * used >= room:
        return beginning + ELLIPSIS
    half = _sign_end(trimmed, (room + used) // 2)
    following = _SPACE.search(trimmed, max(len(beginning) + 1, half))
    rest = trimmed[following.end() :] if following else ""
    tail = shorten(rest, chars_max - _width(trimmed[:half]) - 2) if rest and half > len(beginning) + 1 else ""
    if tail in {"", ELLIPSIS}:
        return trimmed[: _sign_end(trimmed, room)].rstrip() + ELLIPSIS
    return f"{trimmed[:half]}{ELLIPSIS} {tail}"


def _word_end(text: str, room: int) -> int:
    if text.isascii():  # most texts
        cut = text[: room + 1]
        return room if cut[-1].isspace() else max(0, len(cut) - len(cut.rsplit(maxsplit=1)[-1]) - 1)
    between_words = between_signs = used = 0
    for position, sign in enumerate(text):
        if sign.isspace() or (position and text[position - 1] in CJK_MARKS):
            between_words = position
        elif position and is_between_signs(text[position - 1], sign):
            between_signs = position
        used += _sign_width(sign)
        if used > room:
            break
    return between_words if 2 * between_words >= between_signs else between_signs


def _sign_end(text: str, room: int) -> int:
    """Return the end of the last character that fits, with its combining marks."""
    end = used = 0
    for position, sign in enumerate(text):
        if used > room:
            break
        if not unicodedata.category(sign).startswith("M") and sign != _JOINER != text[position - 1]:
            end = position
        used += _sign_width(sign)
    return end


def short_ref(report_id: str) -> str:
    """Return the beginning of an event's id that every command accepts."""
    algorithm, colon, digest = report_id.partition(":")
    return digest[:ref_digits] if colon else algorithm[:ref_digits]


def _top(texts: Sequence[str], count_max: int, chars_max: int) -> list[str]:
    return [shorten(text, chars_max) for text in texts[:count_max]]


def _left_out(report: Report, fields: dict[str, Any]) -> dict[str, Any]:
    """Return for each key how many entries were left out and how many were shortened, even for fields without a key."""
    more: dict[str, Any] = {}
    whole_texts = {
        "task": [report.title],
        "outcome": [report.outcome],
        "findings": report.key_findings,
        "unknowns": report.remaining_unknowns,
        "next": [report.next_session_context],
        "recommend": report.recommended_next_steps,
    }
    for key, texts in whole_texts.items():
        entries_shown = fields.get(key, "")
        entries_shown = entries_shown if isinstance(entries_shown, list) else [entries_shown]
        shortened = sum(text.strip() != whole for text, whole in zip(texts, entries_shown, strict=False))
        unreported = getattr(report.left_out, _FIELDS.get(key, ""), 0)
        counts = {"left_out": len(texts) - len(entries_shown) + unreported, "shortened": shortened}
        if any(counts.values()):
            more[key] = {name: count for name, count in counts.items() if count}
    small = [name for name in report.epistemic_deltas if name not in fields["deltas"]]
    if small:
        more["deltas"] = {"left_out": len(small)}
    without_key: dict[str, Sequence[object]] = {
        "accomplished": report.accomplished,
        "gaps": report.knowledge_gaps_filled,
        "tools": report.investigation_tools,
        "artifacts": report.artifacts_created,
    }
    return more | {key: {"left_out": len(entries)} for key, entries in without_key.items() if entries}


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_sign_width, text))


@lru_cache(maxsize=4096)
def _sign_width(sign: str) -> int:
    return 2 if unicodedata.east_asian_width(sign) in {"W", "F"} else 1
