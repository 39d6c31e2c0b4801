"""Other people's text, made fit to be shown: on one line, of a limited length, without what could mislead a reader.

Misleading are control characters and lone surrogates (they move a terminal's cursor, or cannot be written), format
characters (they turn the direction of reading, UAX #9, or are not seen) and the separators of lines and paragraphs.

Three texts are not made here, because they are signed or stored as they are: the titles of handoffs that the router
creates (``handoffs.router.chains``), the lines of a brief (``projections.briefs.text``) and those of a report's
compressed form (``projections.reports.compressed``).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.format.forms import BREAKS

SCHEMA_VERSION: Final = 1
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
ELLIPSIS: Final = "…"
slug_max_chars: Final = 80
_MISLEADING: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def clean(text: str, mark: str = REPLACEMENT) -> str:
    """Return a text whose misleading characters are replaced by ``mark``; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(mark if _is_misleading(sign) and sign not in "\n\t" else sign for sign in text)


def visible(text: str) -> str:
    r"""Return a text whose misleading characters are written as escapes, so that whoever decides by it sees them.

    >>> visible("sh -c x\x1b[2K\u202e")
    'sh -c x\\x1b[2K\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(
        sign.encode("unicode_escape").decode() if _is_misleading(sign) and sign != "\n" else sign for sign in text
    )


def _is_misleading(sign: str) -> bool:
    return unicodedata.category(sign) in _MISLEADING


def told(text: str, indent: str = "      ", *, is_barred: bool = False) -> str:
    r"""Return what somebody wrote, as it stands among our own words: a line as it is, several each behind a bar.

    >>> told("safe\nstatus  approved"), told("safe", "", is_barred=True)
    ('\n      │ safe\n      │ status  approved', '\n│ safe')
    """
    lines = visible(text.replace("\r\n", "\n").expandtabs(4)).split("\n")
    return lines[0] if len(lines) == 1 and not is_barred else "".join(f"\n{indent}│ {line}" for line in lines)


def document(kind: str, data: Any, following: str | None = None) -> dict[str, Any]:
    """Return what every door answers with as JSON; ``following`` says how to go on, where there is more."""
    made = {"schema_version": SCHEMA_VERSION, "kind": kind, "data": data}
    return made if following is None else made | {"next": following}


def error_document(error: DeedbookError) -> dict[str, Any]:
    """Return what every door answers with when it cannot."""
    return {"schema_version": SCHEMA_VERSION, "kind": "error", "error": error.to_dict()}


def json_text(value: Any, order: Literal["deterministic"] | None = None) -> str:
    r"""Return a value as JSON in which what a terminal obeys or nobody sees is written as an escape.

    >>> json_text({"title": "a\u009b2Jb\u202e"})
    '{"title":"a\\u009b2Jb\\u202e"}'
    """
    encoded = msgspec.json.encode(value, order=order)
    text = encoded.decode()
    # JSON escapes what lies below the space: of ASCII only DEL is left to look for, a tenth of the time (measured).
    if (encoded.isascii() and b"\x7f" not in encoded) or text.isprintable():
        return text

    # Above U+FFFF JSON writes two escapes, which is what the ASCII form of a string does.
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)


def one_line(text: str, mark: str = REPLACEMENT) -> str:
    r"""Return a text on one line: each run of white space is one space, each misleading character ``mark``.

    >>> one_line("Fix\nthe \x1b[31m login\u202e", mark=" ")
    'Fix the [31m login'
    """
    if text.isprintable() and "  " not in text:
        return text.strip()
    # Split first: a line separator is white space, and only then misleading; split again: the mark may be a space.
    return " ".join(clean(" ".join(text.split()), mark).split())


def dead_end_text(event: Mapping[str, Any]) -> str:
    """Return an approach and why it failed, in one sentence; whoever reads it may try what was only argued against."""
    basis = {"tried": " (tried)", "argued": " (argued, not tried)"}.get(event.get("basis") or "", "")
    return f"{event['approach']}: {event['why_failed']}{basis}"


def on_a_line(text: str) -> str:
    """Return a text as an event's line can hold it: each break of a line and control character is a space."""
    return re.sub(f"[{BREAKS}]", " ", text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which takes an s but for one.

    >>> counted(1, "step"), counted(0, "report")
    ('1 step', '0 reports')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def shorten(text: str, chars_max: int | None) -> str:
    """Return a text, or its beginning up to a word and ``…`` when it has more than ``chars_max`` characters."""
    if chars_max is None or len(text) <= chars_max:
        return text
    if chars_max < 1:
        return ""
    kept = text[: chars_max - 1]
    if not text[chars_max - 1].isspace():
        words = kept.rsplit(None, 1)
        # Chinese has no spaces, and a long word no end that is near: then the cut is where it must be.
        if len(words) > 1 and len(words[0]) >= len(kept) // 2:
            kept = words[0]
    return kept.rstrip() + ELLIPSIS


def cut(text: str, chars_max: int) -> str:
    """Return a text, or as many of its characters as fit before ``…``, also in the middle of a word."""
    return text if len(text) <= chars_max else text[: chars_max - 1] + ELLIPSIS


def default_id(title: str) -> str:
    """Return ``YYYY-MM-DD-`` and the title in lower-case words of any script. Raises Refused: ``USAGE`` without one."""
    plain = unicodedata.normalize("NFKC", title).lower()
    slug = re.sub(r"[^\w]+", "-", plain).strip("-_")[:slug_max_chars].strip("-_")
    if not slug:
        raise Refused("USAGE", "no id can be made from the title: give one with --id")
    return f"{datetime.now(UTC):%Y-%m-%d}-{slug}"
