r"""The patterns of short texts in events: one line without invisible characters, and ids that cannot be confused.

Each is a fixed set of characters and does not use Unicode's tables, which grow with every Python. Patterns end in \Z,
because Python's $ accepts a trailing newline, and name the digits, because \d accepts those of every script. The
published schemas use $, which in their dialect means the end.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

REF_PATTERN: Final = r"^(event|blake3|sha256):[0-9a-f]{64}\Z"
EVENT_ID_PATTERN: Final = r"^event:[0-9a-f]{64}\Z"
BLOB_ID_PATTERN: Final = r"^blake3:[0-9a-f]{64}\Z"
VERSION_PATTERN: Final = r"^sha256:[0-9a-f]{64}\Z"
NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,62}\Z"
# 16 bytes in base64url without padding. The last character holds two bits, so the other four must be zero.
SALT_PATTERN: Final = r"^[A-Za-z0-9_-]{21}[AQgw]\Z"
DAY_PATTERN: Final = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
TIME_PATTERN: Final = DAY_PATTERN + r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z\Z"

ROOT: Final = "root"
NODE: Final = "node"
CHECKPOINT: Final = "checkpoint"
RESERVED_NAMES: Final = frozenset({ROOT, NODE, CHECKPOINT})
Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN, description="The registered name of an agent.")]
UnlockAt: TypeAlias = Literal["completed", "verified"]
"""The status of a dependency from which a handoff can start."""

# Characters that end a line somewhere or move a cursor: controls except the tab, NEL included; Unicode's separators.
BREAKS: Final = r"\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029"
# Invisible characters: soft hyphen, fillers, zero width, marks of direction, tags.
_UNSEEN: Final = (
    r"\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e0fff"
)
# Characters that make another id look the same: other spaces, combining marks, variants, compatibility forms (the signs
# of ohm, kelvin and angstrom, mathematical and full-width letters and digits).
_ALIKE: Final = (
    r"\t\xa0\u0300-\u036f\u1100-\u11ff\u1680\u1ab0-\u1aff\u1dc0-\u1dff\u2000-\u200a\u202f\u205f\u20d0-\u20ff\u2800\u3000"
    r"\u3099\u309a\ufe00-\ufe0f\ufe20-\ufe2f\ufffc-\uffff\u2126\u212a\u212b\uff10-\uff19\uff21-\uff3a\uff41-\uff5a"
    "\U0001d400-\U0001d7ff"
)
NOT_IN_IDS: Final = BREAKS + _UNSEEN + _ALIKE

# Scripts whose letters look like those of another one, as Unicode 14 assigned them (Scripts.txt). An id has letters of
# only one of them (UTS 39, single script). Other scripts, such as Chinese, may be combined with any.
_LATIN: Final = (
    r"A-Za-z\xaa\xba\xc0-\xd6\xd8-\xf6\xf8-\u02b8\u1d00-\u1d25\u1d2c-\u1d5c\u1d62-\u1d65\u1d6b-\u1d77\u1d79-\u1dbe"
    r"\u1e00-\u1eff\u2c60-\u2c7f\ua722-\ua7ff\uab30-\uab64\uab66-\uab69"
)
_CYRILLIC: Final = r"\u0400-\u052f\u1c80-\u1c88\u1d2b\u1d78\u2de0-\u2dff\ua640-\ua69f"
_GREEK: Final = (
    r"\u0370-\u037d\u037f-\u03e1\u03f0-\u03ff\u1d26-\u1d2a\u1d5d-\u1d61\u1d66-\u1d6a\u1dbf\u1f00-\u1fff\uab65"
)
# Coptic, Armenian, Cherokee, Canadian syllabics, Lisu, Deseret and Osage, treated as one script.
_OTHERS: Final = "\u03e2-\u03ef\u0531-\u058f\u13a0-\u167f\u2c80-\u2cff\ua4d0-\ua4ff\uab70-\uabbf\U00010400-\U000104ff"
_SCRIPTS: Final = (_LATIN, _CYRILLIC, _GREEK, _OTHERS)
OF_ONE_SCRIPT: Final = (
    "(?=" + "|".join(rf"[^{''.join(other for other in _SCRIPTS if other != script)}]*\Z" for script in _SCRIPTS) + ")"
)

LINE_PATTERN: Final = rf"^[^{BREAKS}]*\Z"
LABEL_PATTERN: Final = rf"^[^{BREAKS}{_UNSEEN}]*\Z"
ID: Final = rf"[^\- {NOT_IN_IDS}](?: ?[^ {NOT_IN_IDS}])*"
STATEMENT_PATTERN: Final = rf"[^ {BREAKS}{_UNSEEN}\t\xa0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]"
STORE_PATTERN: Final = r"^postgres(ql)?://(?![^/?#]*:[^/?#]*@)(?!.*[?&](ssl)?password=)[!-~]+\Z"
OWN: Final = "x."
"""The beginning of the name of each declared kind, and of the type of its streams."""
# The parts of these names after ``x``.
_OWN_PART: Final = r"\.[a-z][a-z0-9_]{0,31}"
OWN_KIND_PATTERN: Final = rf"^x({_OWN_PART}){{2,5}}\Z"
OWN_STREAM_PATTERN: Final = rf"^x({_OWN_PART}){{1,4}}\Z"
PROPERTY_PATTERN: Final = r"^[A-Za-z][A-Za-z0-9_]{0,63}\Z"
STREAM_PATTERN: Final = rf"^([a-z]+|x({_OWN_PART}){{1,4}})(/{OF_ONE_SCRIPT}{ID})?\Z"
ID_PATTERN: Final = rf"^(?:{OF_ONE_SCRIPT}{ID})?\Z"
FILE_ID_PATTERN: Final = rf"^{OF_ONE_SCRIPT}[^\-/\\. {NOT_IN_IDS}](?: ?[^/\\ {NOT_IN_IDS}])*\Z"

_VISIBLE: Final = (
    "without invisible or ambiguous characters, without Latin, Cyrillic or Greek letters together, and with no dash or "
    "space at its ends"
)
_WORDS: Final = {
    REF_PATTERN: "a reference must be `event:`, `blake3:` or `sha256:` and 64 hex digits",
    NAME_PATTERN: "an agent's name must be 1 to 63 of a-z, 0-9, _ and -, and begin with a letter or digit",
    TIME_PATTERN: "a time must look like 2026-01-31T12:00:00Z",
    SALT_PATTERN: "a salt must be 16 random bytes in base64url without padding: 22 characters",
    LINE_PATTERN: "a line must not contain line breaks or control characters: use spaces instead",
    LABEL_PATTERN: "a label must not contain line breaks, control characters or invisible characters: remove them",
    STATEMENT_PATTERN: "the text is blank: write something",
    STORE_PATTERN: "a store must be postgresql://USER@HOST/DATABASE without a password: use passfile=FILE for it",
    OWN_KIND_PATTERN: "a declared kind is named x.A.B: after x, two to five words of a-z, 0-9 and _, joined by dots",
    OWN_STREAM_PATTERN: "the type of its streams is named x.A: after x, one to four words of a-z, 0-9 and _",
    STREAM_PATTERN: f"a stream must be FAMILY/ID; an id is one line {_VISIBLE}: choose another",
    ID_PATTERN: f"an id must be one line {_VISIBLE}",
    FILE_ID_PATTERN: f"a handoff's id names its file: one line {_VISIBLE}, without slashes and a dot at its beginning",
}
# Texts that a refusal shows instead of a pattern. The keys are patterns as msgspec prints them.
WORDS: Final = {repr(pattern): text for pattern, text in _WORDS.items()}


def is_own(kind: str) -> bool:
    """Return whether a kind is a declared one, by its name."""
    return kind.startswith(OWN)


def in_one_script(text: str) -> str:
    """Return a text with the letters of only one of ``_SCRIPTS``: that of the first such letter. All others stay."""
    groups = [re.compile(f"[{script}]") for script in _SCRIPTS]
    first = next((group for letter in text for group in groups if group.match(letter)), None)
    others = [group for group in groups if group is not first]
    return "".join(letter for letter in text if first is None or not any(group.match(letter) for group in others))
