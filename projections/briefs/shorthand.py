"""A brief's statements in as few tokens as possible, and back: the form for a model if the budget is full.

    SHORT: x{a|b}y=xay, xby; α=the logs of the gateway
    BRIEF: α are kept 30 days [conf/log.yaml:4]; {Retries|Timeouts} fill α
    Limits: Staging was not looked at

Every head is a section of the plain form, followed by its statements. If a statement contains a semicolon, each
statement has its own line. SHORT is present only if it is used, and explains the rest: a Greek letter is its phrase,
and braces work as in a shell. So anybody with a prompt can write it out (``read_statements``). ``shorten`` checks this:
a text that does not come back byte for byte is sent unchanged. Six phrases are enough (22 saved no more), and a phrase
never contains another. Rejected: leaving out articles (an eighth fewer tokens, but "vitamin a" is not "vitamin");
labels on statements and phrases within phrases, which no reader needs; searching phrases in joined statements (of 96
briefs one was shorter for it, by one token).
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import Final

from deedbook.projections.briefs.tokens import count_tokens

SHORT: Final = "SHORT"
ASSUMED: Final = "Assumed"
LIMITS: Final = "Limits"
ALTERNATIVES: Final = "Alternatives"
BRIEF: Final = "BRIEF"
OTHERS: Final = "Other"
HEADS: Final = (ASSUMED, LIMITS, ALTERNATIVES, BRIEF, OTHERS)
"""In order of priority: a smaller budget drops the last heads first.

A receiver can guess facts, but not the first heads.
"""
SYMBOLS: Final = "αβγδεζηθκλμξπστφχψω"
"""Each symbol is one token, with and without a space before it."""
BRACES: Final = "x{a|b}y=xay, xby"

phrases_max: Final = 6
phrases_weighed_max: Final = 60
phrase_pieces_max: Final = 40
expanded_max_chars: Final = 1_000_000
_phrase_saving_min: Final = 0.08
_merge_saving_min_tokens: Final = 3
_shared_pieces_min: Final = 2
_entry_tokens: Final = 3
_PIECE: Final = re.compile(r"\s*(?:\w[\w'’]*|[^\w\s])")
_BEHIND: Final = "FULL REASONING: "  # the only section that may follow the statements
_STARTS: Final = re.compile(rf"({'|'.join((SHORT, *HEADS))}):(?: |$)")

Statements = Mapping[str, list[str]]
"""The statements of each section, by head."""


def shorten(statements: Statements, beside: str = "") -> str:
    """Return the shortest lines with the same statements. Symbols that ``beside``, the other text, has are not used."""
    everything = "\n".join([beside, *(item for items in statements.values() for item in items)])
    symbols = [symbol for symbol in SYMBOLS if symbol not in everything]
    plain, (short, entries) = _written(statements), _abbreviated(statements, symbols)
    texts = [plain, _written(short, entries)]
    if not any(mark in everything for mark in "{|}"):
        merged = {head: _merge(items) for head, items in short.items()}
        texts.append(_written(merged, [BRACES] * (merged != short) + entries))
    shortest = min(texts, key=count_tokens)  # the first of equally short ones, so a form that saves nothing is not used
    wanted = {head: Counter(items) for head, items in statements.items() if items}
    back = {head: Counter(items) for head, items in read_statements(shortest.split("\n"))}
    return shortest if back == wanted else plain


def read_statements(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the heads of shortened lines with their statements written out; a line under no head has the head "".

    Text that would grow beyond ``expanded_max_chars`` is not from ``shorten``, and stays as it is.
    """
    phrases: dict[int, str] = {}
    room, has_braces = expanded_max_chars, False
    for head, items in _sections(lines):
        if head == SHORT:
            phrases = {ord(item[0]): item[2:] for item in items if item[:1] in SYMBOLS and item[1:2] == "="}
            has_braces = BRACES in items
            continue
        written: list[str] = []
        for item in items if head else ():
            room -= len(item) + sum(item.count(chr(symbol)) * len(phrase) for symbol, phrase in phrases.items())
            text = item.translate(phrases) if room >= 0 else ""
            before, _, rest = text.partition("{") if has_braces else (text, "", "")
            among, closed, after = rest.partition("}")
            room -= len(before + after) * among.count("|")
            written += [before + part + after for part in among.split("|")] if closed and room >= 0 else [text]
        yield head, written if head and room >= 0 else items


def is_head(line: str) -> bool:
    """Return whether a line begins with a head."""
    return bool(_STARTS.match(line))


def _sections(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    head, items, is_listed = "", list[str](), False
    for line in lines:
        match = _STARTS.match(line)
        if match is None and is_listed and not line.startswith(_BEHIND):
            items.append(line)
            continue
        if items:
            yield head, items
        rest = line[match.end() :] if match else line
        head, is_listed = (match[1], not rest) if match else ("", False)
        items = [] if is_listed else rest.split("; ") if match else [line]
    if items:
        yield head, items


def _written(statements: Statements, entries: Iterable[str] = ()) -> str:
    lines = [f"{SHORT}: {'; '.join(entries)}"] if entries else []
    for head, items in statements.items():
        if any(";" in item for item in items):
            lines += [f"{head}:", *items]
        elif items:
            lines.append(f"{head}: {'; '.join(items)}")
    return "\n".join(lines)


# Phrases


def _abbreviated(statements: Statements, symbols: Iterable[str]) -> tuple[Statements, list[str]]:
    """Return statements with a symbol for each frequent phrase, and the entries for SHORT.

    Both are unchanged if that does not save enough.
    """
    phrases = _phrases("\n".join(item for items in statements.values() for item in items))
    short, entries = dict(statements), list[str]()
    for symbol, phrase in zip(symbols, phrases, strict=False):
        short = {head: [with_symbol(item, phrase, symbol) for item in items] for head, items in short.items()}
        entries.append(f"{symbol}={phrase}")
    least = count_tokens(_written(statements)) * (1 - _phrase_saving_min)
    return (short, entries) if entries and count_tokens(_written(short, entries)) <= least else (statements, [])


def with_symbol(text: str, phrase: str, symbol: str) -> str:
    """Return a text with a symbol for each occurrence of a phrase in whole words."""
    return _whole_words(phrase).sub(symbol, text) if phrase in text else text


@lru_cache(maxsize=4_096)
def _whole_words(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w'’]){re.escape(phrase)}(?![\w'’])")


def _phrases(text: str) -> list[str]:
    longest = heapq.nlargest(
        phrases_weighed_max, _repeated(text).items(), key=lambda item: (item[1] * len(item[0]), item)
    )
    queue = [(-_saving(hits, phrase), phrase) for phrase, hits in longest]
    heapq.heapify(queue)
    chosen: list[str] = []
    while queue and queue[0][0] < 0 and len(chosen) < phrases_max:
        _, phrase = heapq.heappop(queue)
        # Another phrase may have replaced some of its occurrences.
        saving = _saving(len(_whole_words(phrase).findall(text)), phrase)
        if queue and -saving > queue[0][0]:
            heapq.heappush(queue, (-saving, phrase))
        elif saving > 0:
            chosen.append(phrase)
            text = with_symbol(text, phrase, "\0")
    return chosen


def _saving(hits: int, phrase: str) -> int:
    tokens = count_tokens(phrase)
    return hits * (tokens - 1) - (tokens + _entry_tokens)


def _repeated(text: str) -> dict[str, int]:
    """Return every phrase of two pieces or more, from a word's start to a word's end, that occurs twice."""
    counts: Counter[str] = Counter()
    lines = [_pieces(line) for line in text.split("\n")]
    piece_counts = Counter(piece.lstrip() for line in lines for piece in line)
    # A piece that occurs once is in no phrase, and a semicolon ends an entry of SHORT.
    kinds = {word: _is_word(word) for word, count in piece_counts.items() if count > 1 and word != ";"}
    for line in lines:
        for start, phrase in enumerate(map(str.lstrip, line)):
            for piece in line[start + 1 : start + phrase_pieces_max] if kinds.get(phrase) else ():
                is_word = kinds.get(piece.lstrip())
                if is_word is None:
                    break
                phrase += piece  # noqa: PLW2901 - it grows
                if is_word:
                    counts[phrase] += 1
    return {phrase: count for phrase, count in counts.items() if count > 1}


@lru_cache(maxsize=4_096)
def _pieces(line: str) -> list[str]:
    return _PIECE.findall(line)


def _is_word(piece: str) -> bool:
    return piece[0].isalnum() or piece[0] == "_"


# Statements that share a beginning or an end


def _merge(items: list[str]) -> list[str]:
    pieces = [_pieces(item) for item in items]
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for position, own in enumerate(pieces):
        begins, last = list(accumulate(own[:phrase_pieces_max])), own[: -phrase_pieces_max - 1 : -1]
        keys = [f"^{begin}" for begin in begins]
        if own and not _cites(items[position]):  # These may share an end, too.
            keys += [*(f"^^{begin}" for begin in begins), f"{own[0]}^{own[-1]}"]
            keys += [f"{end}$" for end in accumulate(last, lambda end, piece: piece + end)]
        for key in keys:
            groups[key].append(position)
    alike = {tuple(positions) for positions in groups.values() if len(positions) > 1}
    joinable = [(*_joined(positions, items, pieces), positions) for positions in alike]
    taken: dict[int, str] = {}
    for saving, text, positions in sorted(joinable, key=lambda group: (-group[0], group[2])):
        rest = tuple(position for position in positions if position not in taken)
        if rest != positions:
            saving, text = _joined(rest, items, pieces) if len(rest) > 1 else (0, "")  # noqa: PLW2901 - of what is left
        if saving >= _merge_saving_min_tokens:
            taken |= dict.fromkeys(rest, "") | {rest[0]: text}
    return [text for position, item in enumerate(items) if (text := taken.get(position, item))]


def _cites(item: str) -> bool:
    """Return whether a statement ends in evidence, which must not end up after other statements."""
    return item.endswith("]")


def _joined(positions: tuple[int, ...], items: list[str], pieces: list[list[str]]) -> tuple[int, str]:
    """Return the tokens saved by joining statements with braces, and the joined statement."""
    own = [pieces[position] for position in positions]
    begin = _shared(own)
    end = 0 if any(_cites(items[position]) for position in positions) else _shared([part[begin:][::-1] for part in own])
    if begin + end < _shared_pieces_min:
        return 0, ""
    before, after = "".join(own[0][:begin]), "".join(own[0][len(own[0]) - end :])
    among = [items[position][len(before) : len(items[position]) - len(after)] for position in positions]
    if all(part.startswith(" ") for part in among):
        before, among = f"{before} ", [part[1:] for part in among]
    text = f"{before}{{{'|'.join(among)}}}{after}"
    return sum(count_tokens(f"{items[position]};") for position in positions) - count_tokens(f"{text};"), text


def _shared(rows: list[list[str]]) -> int:
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False)))
