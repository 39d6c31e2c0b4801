"""Chains as values: when an event meets conditions, then these handoffs; and what a check says beyond their form.

A handoff's fields are templates: text with ``{placeholders}``, filled with what others wrote, which stays data: it can
neither end its line, nor move a terminal's cursor or turn the direction of reading, nor open a heading, list or code
block of the markdown file that the handoff is rendered to.

Conditions on what only the event will tell (an id, a title with a placeholder) count as met, so a loop may be named
that never comes about, and none is left unnamed. Hops bound every loop in depth. In breadth they do not: chains that
react to ``handoff.created`` react to the router's own events, with nobody's approval in between, and eight steps of
eight hops would be millions. So a file whose chains could make more than ``handoffs_at_once_max`` handoffs of one event
by themselves is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from consumers.sdk.text import shorten
from ledger.errors import Refused
from ledger.events.handoff import UnlockAt

PLACEHOLDERS: Final = (
    "id", "title", "from", "to", "reviewer", "author", "summary", "reasoning_ref", "artifacts", "chain", "hop", "day",
)  # fmt: skip

_TOKENS: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
# Controls, line and paragraph separators, and the marks that turn the direction of reading (UAX #9).
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
        """The text it always gives; None when that depends on the event."""
        return self.parts[0][0] if len(self.parts) == 1 else None


def parse_template(text: str) -> Template:
    """Return the template in ``text``: ``{name}`` is a placeholder, ``{{`` and ``}}`` are braces.

    Raises:
        Refused: ``INVALID_FIELD`` with the ``placeholder``, for one that is unknown and for a brace that stands alone.
    """
    parts: list[tuple[str, str | None]] = []
    literal, end = "", 0
    for token in _TOKENS.finditer(text):
        literal, end = literal + text[end : token.start()], token.end()
        name = token.group(1)
        if token.group() in ("{{", "}}"):
            literal += token.group()[0]
        elif name is None:
            message = f"a lone {token.group()}: write {token.group() * 2} for a brace"
            raise Refused("INVALID_FIELD", message, placeholder=token.group())
        elif name not in PLACEHOLDERS:
            message = f"there is no placeholder {{{name}}}: there are {', '.join(PLACEHOLDERS)}"
            raise Refused("INVALID_FIELD", message, placeholder=token.group())
        else:
            parts.append((literal, name))
            literal = ""
    parts.append((literal + text[end:], None))
    return Template(text, tuple(parts))


def fill_line(template: Template, values: Mapping[str, str], chars_max: int | None = None) -> str:
    """Return one line; where it would be longer than ``chars_max``, it ends at a word with ``…``."""
    filled = "".join(literal + (values[name] if name else "") for literal, name in template.parts)
    return shorten(one_line(filled), chars_max)


def fill_text(template: Template, values: Mapping[str, str], chars_max: int | None = None) -> str:
    """Return text of several lines.

    A value of several lines whose placeholder stands alone on its line becomes a block quote; elsewhere a value is one
    line, and where it begins a line, a character that markdown would act on is escaped (CommonMark §2.4).
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


# The limits of the fields of ``handoff.created`` (ledger.events.fields), which a template must not exceed either.
label_max_chars: Final = 200
line_max_chars: Final = 2000
text_max_chars: Final = 40_000

Text = TypeVar("Text")


class Condition(NamedTuple):
    """What one property of an event or its handoff must be: any of the patterns, in which ``*`` is any text."""

    name: str
    patterns: tuple[str, ...]

    def is_met_by(self, value: str) -> bool:
        """Whether a value is one of the condition's."""
        return any(fits(pattern, value) for pattern in self.patterns)


class Step(msgspec.Struct, Generic[Text], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One handoff of a chain: in the file its fields are texts, in a chain templates."""

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
    """Return whether ``text`` is ``pattern``, in which each ``*`` is any text; letters count as they are written."""
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    *middle, last = others
    if not text.startswith(first):
        return False
    position = len(first)
    for part in middle:
        found = text.find(part, position)
        if found < 0:
            return False
        position = found + len(part)
    return len(text) - len(last) >= position and text.endswith(last)


Roles: TypeAlias = Mapping[str, frozenset[str]]

handoffs_at_once_max: Final = 1000
_ROUTER: Final = "router"
OWN_KIND: Final = "handoff.created"
"""What the router signs that a chain may react to at once; ``handoff.ready`` needs an approval first."""


def feeds(maker: Chain, step: Step[Template], taker: Chain, *, kind: str | None = None) -> bool:
    """Return whether a handoff that ``step`` of ``maker`` makes could fire ``taker`` (with an event of ``kind``)."""
    if kind is not None and kind not in taker.kinds:
        return False
    known: dict[str, str | None] = {
        "from": _ROUTER, "to": step.to.literal, "reviewer": None if step.reviewer is None else step.reviewer.literal,
        "chain": maker.name, "kind": kind, "author": _ROUTER if kind == OWN_KIND else None,
    }  # fmt: skip
    for condition in taker.where:
        value = known.get(condition.name)
        if value is not None and not condition.is_met_by(value):
            return False
        if condition.name == "title" and not any(_could_give(step.title, pattern) for pattern in condition.patterns):
            return False
    return True


def _could_give(template: Template, pattern: str) -> bool:
    """Return whether a template could give what fits a pattern, as far as their beginnings tell."""
    if template.literal is not None:
        return fits(pattern, one_line(template.literal))
    begun, wanted = one_line(template.parts[0][0]), pattern.partition("*")[0]
    return begun.startswith(wanted) or wanted.startswith(begun)


def find_loops(chains: Sequence[Chain]) -> list[tuple[str, ...]]:
    """Return the loops of chains that can feed themselves, each once, as names from a chain back to itself."""
    after = {
        maker.name: [taker.name for taker in chains if any(feeds(maker, step, taker) for step in maker.steps)]
        for maker in chains
    }
    found: dict[frozenset[str], tuple[str, ...]] = {}
    for name in after:
        loop = _way_back(name, after)
        if loop is not None:
            found.setdefault(frozenset(loop), loop)
    return list(found.values())


def check_breadth(chains: Sequence[Chain]) -> None:
    """Refuse chains that could make too many handoffs of one event without anybody's act in between."""
    # How many handoffs each step makes of one event that fires every chain, then of those handoffs, and so on.
    fed = {
        (maker.name, number): [taker for taker in chains if feeds(maker, step, taker, kind=OWN_KIND)]
        for maker in chains
        for number, step in enumerate(maker.steps)
    }
    making = Counter(dict.fromkeys(fed, 1))
    count, hop = 0, 1
    while making:
        count += making.total()
        if count > handoffs_at_once_max:
            message = f"these chains react to {OWN_KIND}, which the router itself signs, and could make more than "
            message += (
                f"{handoffs_at_once_max} handoffs of one event: lower hops_max, or name in `where` whose they are"
            )
            raise Refused("TOO_LARGE", message, count=count)
        hop += 1
        following = Counter[tuple[str, int]]()
        for made, number_of in making.items():
            for taker in fed[made]:
                if hop <= taker.hops_max:
                    following.update({(taker.name, number): number_of for number in range(len(taker.steps))})
        making = following


def _way_back(name: str, after: dict[str, list[str]]) -> tuple[str, ...] | None:
    """Return the shortest way from a chain back to itself."""
    ways: list[tuple[str, ...]] = [(name,)]
    seen: set[str] = set()
    for way in ways:
        for following in after[way[-1]]:
            if following == name:
                return (*way, name)
            if following not in seen:
                seen.add(following)
                ways.append((*way, following))
    return None


def described(chain: Chain) -> dict[str, Any]:
    """Return a chain in plain values, as its file says it."""
    return {
        "name": chain.name, "when": sorted(chain.kinds),
        "where": {condition.name: list(condition.patterns) for condition in chain.where}, "hops_max": chain.hops_max,
        "then": [_described(step) for step in chain.steps],
    }  # fmt: skip


def advise(chains: Sequence[Chain], agents: Roles | None, default_reviewer: str | None) -> list[str]:
    """Return warnings: loops, and, where the roles of the registered ``agents`` are known, who is missing."""
    hops = {chain.name: chain.hops_max for chain in chains}
    warnings = [
        f"loop: {' → '.join(loop)} can go on by itself; it stops after {max(hops[name] for name in loop)} hops"
        for loop in find_loops(chains)
    ]
    for chain in chains:
        for number, step in enumerate(chain.steps, 1):
            missing = _missing(step, agents, default_reviewer)
            warnings += [f"chain {chain.name}, step {number}: {text}" for text in missing]
    return warnings


def _missing(step: Step[Template], agents: Roles | None, default_reviewer: str | None) -> Iterator[str]:
    reviewer = default_reviewer if step.reviewer is None else step.reviewer.literal
    if step.reviewer is None and default_reviewer is None:
        yield "names no reviewer, and there is no default_reviewer in config.toml: the gate will refuse it"
    if reviewer is not None and reviewer == step.to.literal:
        yield f"{reviewer} would review his own work: the gate will refuse it"
    if agents is None:
        return
    if step.to.literal is not None and step.to.literal not in agents:
        yield f"there is no agent {step.to.literal}"
    if reviewer is not None and reviewer not in agents:
        yield f"there is no agent {reviewer}"
    elif reviewer is not None and not agents[reviewer] & {"reviewer", "human"}:
        yield f"{reviewer} is neither reviewer nor human"


def _described(step: Step[Template]) -> dict[str, Any]:
    return {
        name: value.source if isinstance(value, Template) else [one.source for one in value]
        for name, value in msgspec.structs.asdict(step).items()
        if value and name != "unlock_at"
    } | ({"unlock_at": step.unlock_at} if step.unlock_at != "completed" else {})
