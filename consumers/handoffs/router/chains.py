"""Chains as values: an event that meets the conditions causes handoffs; and the advice of `router check`.

A handoff's fields are templates: text with ``{placeholders}``. The placeholders are filled with untrusted text, which
stays data: it cannot end its line, move a terminal's cursor, change the direction of reading, or begin a heading, list
or code block in the handoff's markdown file.

The limit of hops ends every loop. Chains cannot multiply handoffs by themselves: a handoff that a chain made fires
another chain only after an operation by somebody else (``mismatch``). So ``handoff.created`` never fires for a chain's
handoff.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from deedbook.consumers.sdk.text import shorten
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.forms import UnlockAt

PLACEHOLDERS: Final = (
    "id",
    "title",
    "from",
    "to",
    "reviewer",
    "author",
    "summary",
    "reasoning_ref",
    "artifacts",
    "chain",
    "hop",
    "day",
)

_TOKENS: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
# Controls, line and paragraph separators, and the characters that change the direction of reading (UAX #9).
_CONTROLS: Final = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"
_CONTROL_RUN: Final = re.compile(f"[{_CONTROLS}]+")
_CONTROL_BUT_NEWLINE: Final = re.compile(f"(?!\\n)[{_CONTROLS}]")
_OPENS_A_BLOCK: Final = tuple("#`~-=>*+_|<[")


class Template(NamedTuple):
    """A template: its source, and each placeholder with the literal text before it (the last has no placeholder)."""

    source: str
    parts: tuple[tuple[str, str | None], ...]

    @property
    def literal(self) -> str | None:
        """The fixed text of the template; None if the text depends on the event."""
        return self.parts[0][0] if len(self.parts) == 1 else None


def parse_template(text: str) -> Template:
    """Return the template in ``text``: ``{name}`` is a placeholder, ``{{`` and ``}}`` are braces.

    Raises Refused: ``INVALID_FIELD`` with the ``placeholder``, if it is unknown or a lone brace.
    """
    parts: list[tuple[str, str | None]] = []
    literal, end = "", 0
    for token in _TOKENS.finditer(text):
        literal, end = literal + text[end : token.start()], token.end()
        name = token.group(1)
        if token.group() in ("{{", "}}"):
            literal += token.group()[0]
        elif name is None:
            message = f"a single {token.group()} is not allowed: write {token.group() * 2} for a brace"
            raise Refused("INVALID_FIELD", message, placeholder=token.group())
        elif name not in PLACEHOLDERS:
            message = f"there is no placeholder {{{name}}}: use one of {', '.join(PLACEHOLDERS)}"
            raise Refused("INVALID_FIELD", message, placeholder=token.group())
        else:
            parts.append((literal, name))
            literal = ""
    parts.append((literal + text[end:], None))
    return Template(text, tuple(parts))


def fill_line(template: Template, values: Mapping[str, str], chars_max: int | None = None) -> str:
    """Return the filled template as one line; if longer than ``chars_max``, it is cut at a word and ends with ``…``."""
    filled = "".join(literal + (values[name] if name else "") for literal, name in template.parts)
    return shorten(one_line(filled), chars_max)


def fill_text(template: Template, values: Mapping[str, str], chars_max: int | None = None) -> str:
    """Return the filled template as text of several lines.

    A value of several lines whose placeholder is alone on its line becomes a block quote. Elsewhere a value is one
    line, and at the beginning of a line a character with a meaning in markdown is escaped (CommonMark §2.4).
    """
    filled = ""
    for position, (literal, name) in enumerate(template.parts):
        filled += literal
        if name is None:
            continue
        value = values[name]
        if filled.rpartition("\n")[2].strip():
            filled += one_line(value)
            continue
        after, further = template.parts[position + 1]
        is_alone = after.startswith("\n") or not (after or further)
        filled += _quoted(value) if is_alone and "\n" in value.strip() else _escaped(one_line(value))
    return shorten(filled.strip(), chars_max)


def one_line(text: str) -> str:
    """Return ``text`` with every run of controls and line ends as one space."""
    return _CONTROL_RUN.sub(" ", text).strip()


def _quoted(value: str) -> str:
    lines = _CONTROL_BUT_NEWLINE.sub(" ", value.replace("\r\n", "\n")).strip().split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _escaped(value: str) -> str:
    return "\\" + value if value.startswith(_OPENS_A_BLOCK) else value


# The limits of the fields of ``handoff.created`` (ledger.events.fields); a template must not exceed them either.
label_max_chars: Final = 200
line_max_chars: Final = 2000
text_max_chars: Final = 40_000

Text = TypeVar("Text")


class Condition(NamedTuple):
    """A property of an event or its handoff that must match one of the patterns, in which ``*`` is any text."""

    name: str
    patterns: tuple[str, ...]


class Step(msgspec.Struct, Generic[Text], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One handoff that a chain creates. ``Text`` is str as read from chains.toml, and Template once it is parsed."""

    to: Text
    reviewer: Text | None = None
    title: Text
    id: Text | None = None
    task: Text | None = None
    context: Text | None = None
    proposal: Text | None = None
    answers: Text | None = None
    tasks: tuple[Text, ...] = ()
    criteria: tuple[Text, ...] = ()
    depends_on: tuple[Text, ...] = ()
    unlock_at: UnlockAt = "completed"


class Chain(NamedTuple):
    """When an event of one of ``kinds`` meets every condition, each step becomes a handoff."""

    name: str
    kinds: frozenset[str]
    where: tuple[Condition, ...]
    steps: tuple[Step[Template], ...]
    hops_max: int


def fits(pattern: str, text: str) -> bool:
    """Return whether ``text`` matches ``pattern``, in which each ``*`` is any text; case matters."""
    return fnmatchcase(text, re.sub(r"[?[]", r"[\g<0>]", pattern))


Roles: TypeAlias = Mapping[str, Collection[str]]


def advise(chains: Sequence[Chain], agents: Roles | None, default_reviewer: str | None) -> list[str]:
    """Return warnings about fields that the gate will refuse, and about missing agents if ``agents`` is not None."""
    return [
        f"chain {chain.name}, step {number}: {text}"
        for chain in chains
        for number, step in enumerate(chain.steps, 1)
        for text in _missing(step, agents, default_reviewer)
    ]


def _missing(step: Step[Template], agents: Roles | None, default_reviewer: str | None) -> Iterator[str]:
    reviewer = default_reviewer if step.reviewer is None else step.reviewer.literal
    if step.reviewer is None and default_reviewer is None:
        reason = "config.toml has no default_reviewer, and there is not exactly one human"
        yield f"it names no reviewer, {reason}: the gate will refuse it"
    if reviewer is not None and reviewer == step.to.literal:
        yield f"{reviewer} would review their own work: the gate will refuse it"
    if agents is None:
        return
    if step.to.literal is not None and step.to.literal not in agents:
        yield f"there is no agent {step.to.literal}"
    if reviewer is not None and reviewer not in agents:
        yield f"there is no agent {reviewer}"
    elif reviewer is not None and {"reviewer", "human"}.isdisjoint(agents[reviewer]):
        yield f"{reviewer} has neither the role reviewer nor the role human"
