"""Packs one session into a number of tokens, for an agent that continues it.

The limit holds for the printed answer, both as text and as JSON, counted with the tokenizer that needs the most tokens
(``projections.briefs.tokens``). ``pack`` adds these parts in this order, as long as the answer stays within the limit:

1. the task and the beginning of the first next step; then one line for each finding, then one for each unknown, cut
   to the greatest length at which all of them fit;
2. the first item of every other field, shortened, so that no field is empty;
3. at level full the Markdown report, if it fits in full;
4. for each field in ``ORDER`` its first items, up to a number; then all other items that fit; then longer versions of
   shortened items;
5. the fields ``SessionSource.last``, but only if every finding and unknown is complete. They repeat findings and
   unknowns, or contain vectors.

``left_out`` counts the items of this level that the answer lacks, by short names of fields, and names the commands that
show them. It also counts the items of the session that its report lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from shlex import quote
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from deedbook.consumers.sdk.text import json_text
from deedbook.consumers.sdk.tokens import cut_to_tokens
from deedbook.projections.briefs.tokens import count_tokens, most_tokens

LEVELS: Final = {"summary": 400, "detailed": 800, "full": 1250}  # the tokens of a session

ORDER: Final = (
    "task",
    "outcome",
    "key_findings",
    "remaining_unknowns",
    "next_steps",
    "next_session_context",
    "epistemic_deltas",
    "knowledge_gaps_filled",
    "investigation_tools",
    "artifacts_created",
    "accomplished",
    "assessments",
)
# The names of fields under ``left_out``, where they differ.
SHORT_NAMES: Final = {
    "key_findings": "findings",
    "remaining_unknowns": "unknowns",
    "next_session_context": "context",
    "epistemic_deltas": "deltas",
    "knowledge_gaps_filled": "gaps",
    "investigation_tools": "tools",
    "artifacts_created": "artifacts",
    "full_markdown": "markdown",
}

_FIELDS_OF_LEVEL: Final = {"summary": 8, "detailed": 11, "full": 12}
_TEXTS: Final = frozenset({"task", "outcome", "next_session_context"})
_MAPS: Final = frozenset({"epistemic_deltas"})
_FIRST_COUNTS: Final = {"key_findings": 5, "remaining_unknowns": 5, "next_steps": 3, "knowledge_gaps_filled": 3}
_first_count_otherwise: Final = 8
_share_tokens: Final = {"task": 40, "next_steps": 12, "knowledge_gaps_filled": 8} | dict.fromkeys(
    ("outcome", "key_findings", "next_session_context"), 32
)
_other_share_tokens: Final = 20
_item_tokens: Final = {"summary": 32, "detailed": 96, "full": 128}
_gap_tokens: Final = 24  # small in the first round, because a gap's text repeats one of the findings
_id_tokens_max: Final = 48
_name_tokens_max: Final = 16
_BELIEFS: Final = ("key_findings", "remaining_unknowns")
_line_tokens: Final = (16, 12, 10, 8)
_dead_end_tokens: Final = range(20, 7, -1)  # for each text of a dead end that does not fit as a whole: the most first
_misses_max: Final = 6  # after this many consecutive offers that did not fit, a field gets nothing more


class SessionSource(NamedTuple):
    """A session in full: ``fields`` by the names of ``ORDER``, each a list of JSON values.

    A text is a list of one value. Every level begins with ``head``. ``shortened`` names the fields that the report
    itself has shortened, ``last`` the fields that get tokens after all others. ``unreported`` counts, by field, the
    items of the session that its report does not have.
    """

    head: Mapping[str, Any]
    fields: Mapping[str, Sequence[Any]]
    short_id: str
    markdown: str = ""
    shortened: frozenset[str] = frozenset()
    last: frozenset[str] = frozenset()
    unreported: Mapping[str, int] = MappingProxyType({})


def printed(value: Any) -> str:
    """Return a value as commands print it under ``--json``."""
    return json_text(value, order="deterministic")


def pack(source: SessionSource, level: str, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the session at a level of detail, with as much as ``fits`` allows."""
    packer = _Packer(source, level, fits)
    first = [name for name in packer.names if name not in source.last]
    for name in ("task", "next_steps"):
        packer.begin(name)
    for name in _BELIEFS:
        packer.offer_lines(name)
    for name in first:
        packer.begin(name)
    if level == "full":
        packer.offer_markdown()
    for name in first:
        packer.spend(name, _FIRST_COUNTS.get(name, _first_count_otherwise))
    for name in first:
        packer.spend(name, len(source.fields[name]))
    for tokens in (8, 4, 2):
        for name in first:
            packer.lengthen(name, tokens * _item_tokens[level])
    packer.spend_last()
    return packer.session()


class _Packer:
    """The items taken from a source so far; an offer is taken only if the whole still fits."""

    def __init__(self, source: SessionSource, level: str, fits: Callable[[dict[str, Any]], bool]) -> None:
        self.source = source
        self.level = level
        self.names = ORDER[: _FIELDS_OF_LEVEL[level]]
        self.taken: dict[str, dict[int, Any]] = {name: {} for name in self.names}
        self.markdown = ""
        self._fits_whole = fits

    def begin(self, name: str) -> None:
        """Take the first item of a field, shortened to its share, unless the field already has an item."""
        for value in self.source.fields[name][:1]:
            if 0 not in self.taken[name]:
                self._offer(name, 0, cut(value, _share_tokens.get(name, _other_share_tokens)))

    def offer_lines(self, name: str) -> None:
        """Take a line of each item, as long as possible if all of them fit; else as many short lines as fit."""
        values = self.source.fields[name]
        for tokens in _line_tokens:
            self.taken[name] = {position: cut(value, tokens) for position, value in enumerate(values)}
            if self._fits_whole(self.session()):
                return
        self.taken[name] = {}
        self.spend(name, len(values), _line_tokens[-1])

    def spend(self, name: str, count: int, tokens: int | None = None) -> None:
        """Take up to ``count`` items of a field, each shortened to ``tokens`` (by default the limit of an item)."""
        misses = 0
        for position, value in enumerate(self.source.fields[name][:count]):
            taken = self.taken[name].get(position)
            if taken == value or (tokens is not None and taken is not None):
                continue
            offered = cut(value, _gap_tokens if name == "knowledge_gaps_filled" else tokens or _item_tokens[self.level])
            misses = 0 if self._offer(name, position, offered) else misses + 1
            if misses == _misses_max:
                return

    def lengthen(self, name: str, tokens: int) -> None:
        """Replace shortened items by longer versions, as far as they fit."""
        for position, taken in list(self.taken[name].items()):
            value = self.source.fields[name][position]
            if taken != value and not self._offer(name, position, value):
                self._offer(name, position, cut(value, tokens))

    def spend_last(self) -> None:
        """Take the last fields, if no finding or unknown was left out or shortened."""
        if any(len(self.taken[name]) < len(self.source.fields[name]) or self._is_shortened(name) for name in _BELIEFS):
            return
        for name in sorted(self.source.last):
            self.begin(name)
            self.spend(name, len(self.source.fields[name]))

    def offer_markdown(self) -> None:
        """Take the Markdown report if it fits in full."""
        self.markdown = self.source.markdown
        if not self._fits_whole(self.session()):
            self.markdown = ""

    def session(self) -> dict[str, Any]:
        """Return the session with the items taken so far."""
        session = dict(self.source.head)
        for key, tokens in (("session_id", _id_tokens_max), ("ai_id", _name_tokens_max)):
            shorten = _beginning if key == "session_id" else cut_to_tokens
            session[key] = shorten(session[key], tokens)
        for name in self.names:
            taken = [self.taken[name][position] for position in sorted(self.taken[name])]
            session[name] = (taken or [""])[0] if name in _TEXTS else dict(taken) if name in _MAPS else taken
        if not session["outcome"]:
            del session["outcome"]
        if self.level == "full":
            session["full_markdown"] = self.markdown
        return session | ({"left_out": left_out} if (left_out := self._left_out(session)) else {})

    def _left_out(self, session: Mapping[str, Any]) -> dict[str, Any]:
        fields = self.source.fields
        left_out: dict[str, Any] = {
            SHORT_NAMES.get(name, name): count
            for name in self.names
            if (count := len(fields[name]) + self.source.unreported.get(name, 0) - len(self.taken[name]))
        }
        names = [SHORT_NAMES.get(name, name) for name in self.names if self._is_shortened(name)]
        names += [key for key in ("session_id", "ai_id") if session[key] != self.source.head[key]]
        if names:
            left_out["shortened"] = names
        if self.level == "full" and self.source.markdown and self.markdown != self.source.markdown:
            left_out["markdown"] = 1
        if left_out:
            # A report has everything except single assessments and dead ends, unless its session has more findings.
            has_report = "no_report" not in session
            verbs = ["report"] if has_report else []
            verbs += ["session"] if not has_report or any(self.source.unreported.values()) else []
            id_ = quote(_beginning(self.source.short_id, _id_tokens_max))
            left_out["see"] = ", ".join(f"deed {verb} show {id_}" for verb in verbs)
        return left_out

    def _is_shortened(self, name: str) -> bool:
        if name in self.source.shortened and self.taken[name]:
            return True
        return any(value != self.source.fields[name][position] for position, value in self.taken[name].items())

    def _offer(self, name: str, position: int, value: Any) -> bool:
        taken = self.taken[name]
        self.taken[name] = taken | {position: value}
        if self._fits_whole(self.session()):
            return True
        self.taken[name] = taken
        return False


def cut(value: Any, limit: int) -> Any:
    """Return a value with its texts shortened to a number of tokens each; the parts of a pair stay as they are."""
    if isinstance(value, str):
        return cut_to_tokens(value, limit)
    if isinstance(value, dict):
        return {name: cut_to_tokens(part, limit) if isinstance(part, str) else part for name, part in value.items()}
    return value


def dead_ends_within(dead_ends: Iterator[dict[str, str]], limit: int) -> tuple[list[dict[str, str]], int]:
    """Return the dead ends that fit into a number of tokens, in their order, and the number of the others."""
    taken: list[dict[str, str]] = []
    left = 0
    for dead_end in dead_ends:
        for offered in (dead_end, *(cut(dead_end, tokens) for tokens in _dead_end_tokens)):
            if most_tokens(printed([*taken, offered])) <= limit:
                taken.append(offered)
                break
        else:
            left += 1
    return taken, left


def _beginning(text: str, tokens: int) -> str:
    """Return as much of an id as fits, unmarked: every command accepts the beginning of a session's id."""
    while count_tokens(text) > tokens:
        text = text[: len(text) * 3 // 4]
    return text
