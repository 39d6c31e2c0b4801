"""Sanitize, escape and shorten untrusted text before an interface shows it.

These characters can mislead a reader: control characters and lone surrogates (they move a terminal's cursor, or cannot
be written), format characters (they reverse the reading direction, UAX #9, or are invisible), and line and paragraph
separators.

Three texts do not use this module, because they are signed or stored unchanged: the titles of handoffs that the router
creates (``handoffs.router.chains``), the lines of a brief (``projections.briefs.text``) and those of a report's
compressed form (``projections.reports.compressed``).
"""

from __future__ import annotations

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


def sanitize_text(text: str, replacement: str = REPLACEMENT) -> str:
    """Return the text with each misleading character replaced by ``replacement``; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(replacement if _is_misleading(char) and char not in "\n\t" else char for char in text)


def escape_text(text: str) -> str:
    r"""Return the text with each misleading character written as an escape, so that a person who decides sees it.

    >>> escape_text("sh -c x\x1b[2K\u202e")
    'sh -c x\\x1b[2K\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode() if _is_misleading(char) and char != "\n" else char for char in text
    )


def _is_misleading(char: str) -> bool:
    return unicodedata.category(char) in _MISLEADING


def quote_text(text: str, indent: str = "      ", *, is_barred: bool = False) -> str:
    r"""Return escaped untrusted text for terminal output: one line unchanged, several lines each behind a bar.

    The bar keeps a line of untrusted text from passing for a line of the program.

    >>> quote_text("safe\nstatus  approved"), quote_text("safe", "", is_barred=True)
    ('\n      │ safe\n      │ status  approved', '\n│ safe')
    """
    lines = escape_text(text.replace("\r\n", "\n").expandtabs(4)).split("\n")
    return lines[0] if len(lines) == 1 and not is_barred else "".join(f"\n{indent}│ {line}" for line in lines)


def document(kind: str, data: Any, following: str | None = None) -> dict[str, Any]:
    """Return the JSON document of an answer; ``following`` is the command or address of the next page."""
    answer = {"schema_version": SCHEMA_VERSION, "kind": kind, "data": data}
    return answer if following is None else answer | {"next": following}


def error_document(error: DeedbookError) -> dict[str, Any]:
    """Return the JSON document of an error."""
    return {"schema_version": SCHEMA_VERSION, "kind": "error", "error": error.to_dict()}


def json_text(value: Any, order: Literal["deterministic"] | None = None) -> str:
    r"""Return a value as JSON with control characters and invisible characters written as escapes.

    >>> json_text({"title": "a\u009b2Jb\u202e"})
    '{"title":"a\\u009b2Jb\\u202e"}'
    """
    encoded = msgspec.json.encode(value, order=order)
    text = encoded.decode()
    # JSON escapes all characters below the space, so DEL is the only ASCII left to find. That takes a tenth of the time
    # (measured).
    if (encoded.isascii() and b"\x7f" not in encoded) or text.isprintable():
        return text

    return "".join(char if char.isprintable() else _json_escapes(char) for char in text)


def _json_escapes(char: str) -> str:
    """Return the escape of a character in JSON; above U+FFFF these are two, one for each unit of UTF-16."""
    return "".join(f"\\u{unit}" for unit in char.encode("utf-16-be").hex(" ", 2).split())


def sanitize_line(text: str, replacement: str = REPLACEMENT) -> str:
    r"""Return the text on one line: each run of white space is one space, each misleading character ``replacement``.

    >>> sanitize_line("Fix\nthe \x1b[31m login\u202e", replacement=" ")
    'Fix the [31m login'
    """
    if text.isprintable() and "  " not in text:
        return text.strip()
    # Split first, because a line separator counts as white space; split again, because the replacement may be a space.
    return " ".join(sanitize_text(" ".join(text.split()), replacement).split())


def dead_end_text(event: Mapping[str, Any]) -> str:
    """Return an approach and why it failed, in one sentence that says whether the approach was tried or only argued."""
    basis = {"tried": " (tried)", "argued": " (argued, not tried)"}.get(event.get("basis") or "", "")
    return f"{event['approach']}: {event['why_failed']}{basis}"


def replace_line_breaks(text: str) -> str:
    """Return the text with each line break and control character replaced by a space, as single-line fields require."""
    return re.sub(f"[{BREAKS}]", " ", text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    >>> counted(1, "step"), counted(0, "report")
    ('1 step', '0 reports')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def shorten(text: str, chars_max: int | None) -> str:
    """Return the text; a text of more than ``chars_max`` characters is cut after a word and ends with ``…``."""
    if chars_max is None or len(text) <= chars_max:
        return text
    if chars_max < 1:
        return ""
    beginning = text[: chars_max - 1]
    if not text[chars_max - 1].isspace():
        words = beginning.rsplit(None, 1)
        # Chinese has no spaces, and a long word may have no end nearby: then the cut is inside the word.
        if len(words) > 1 and len(words[0]) >= len(beginning) // 2:
            beginning = words[0]
    return beginning.rstrip() + ELLIPSIS


def cut(text: str, chars_max: int) -> str:
    """Return the text; a text of more than ``chars_max`` characters is cut anywhere and ends with ``…``."""
    return text if len(text) <= chars_max else text[: chars_max - 1] + ELLIPSIS


def default_id(title: str) -> str:
    """Return today's date and the title as a slug, in any script. Raises Refused: ``USAGE`` for a title without a word.

    "Expire tokens!" becomes ``2026-02-10-expire-tokens``.
    """
    return f"{datetime.now(UTC):%Y-%m-%d}-{slug_of(title)}"


def slug_of(text: str, chars_max: int = slug_max_chars) -> str:
    """Return the words of a text, in any script, joined by hyphens.

    Raises Refused: ``USAGE`` for a text without a word.

    >>> slug_of("Which route serves health?", 20)
    'which-route-serves-h'
    """
    plain = unicodedata.normalize("NFKC", text).lower()
    slug = re.sub(r"[^\w]+", "-", plain).strip("-_")[:chars_max].strip("-_")
    if not slug:
        raise Refused("USAGE", "no id can be made from the title: give the id, too")
    return slug
