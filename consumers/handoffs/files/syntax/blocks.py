"""The blocks of a markdown file by line, as CommonMark has them (seed 002, DESIGN §10).

markdown-it-py says where headings, list items and code stand, so that a check box in a code fence or a heading in a
quotation is none. Nothing inside a line is read here. Nesting beyond ``nesting_max`` is not looked into; check boxes
there are named as problems by whoever reads them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from markdown_it import MarkdownIt

from consumers.handoffs.files.syntax.lines import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

nesting_max: Final = 40

_CODE: Final = frozenset({"fence", "code_block", "html_block"})
_HTML_ENDS: Final = (
    (re.compile(r"\s*<!--"), re.compile(r"-->")),
    (re.compile(r"\s*<\?"), re.compile(r"\?>")),
    (re.compile(r"\s*<!\[CDATA\["), re.compile(r"\]\]>")),
    (re.compile(r"\s*<![A-Za-z]"), re.compile(r">")),
    (
        re.compile(r"\s*<(?:script|pre|style|textarea)(?=[\s>]|$)", re.IGNORECASE),
        re.compile(r"</(?:script|pre|style|textarea)>", re.IGNORECASE),
    ),
)


class Heading(NamedTuple):
    """A heading on lines ``start`` to ``stop``; ``is_hashed`` tells ``## X`` from a text that is underlined."""

    level: int
    text: str
    start: int
    stop: int
    is_hashed: bool


class Item(NamedTuple):
    """A list item that begins with a paragraph on lines ``start`` to ``stop``; all of it ends at ``end``."""

    text: str
    start: int
    stop: int
    end: int


class Blocks(NamedTuple):
    """What stands where; line numbers count from 0. ``open_start`` is where a block begins that is never closed."""

    headings: tuple[Heading, ...]
    items: tuple[Item, ...]
    code: frozenset[int]
    tables: tuple[tuple[int, int], ...]
    open_start: int | None


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"maxNesting": nesting_max}).enable("table").disable(["inline", "text_join"])


def read_blocks(lines: Sequence[str]) -> Blocks:
    """Return the blocks of a file."""
    tokens = _markdown().parse("".join(f"{text_of(line)}\n" for line in lines))
    headings: list[Heading] = []
    items: list[Item] = []
    tables: list[tuple[int, int]] = []
    code: set[int] = set()
    open_start: int | None = None
    quotes = 0
    for index, token in enumerate(tokens):
        quotes += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        start, stop = token.map or (0, 0)
        if token.type in _CODE:
            code.update(range(start, stop))
            if token.level == 0 and stop >= len(lines) and not _is_closed(token, lines):
                open_start = start
        elif token.type == "heading_open" and token.level == 0:
            is_hashed = token.markup.startswith("#")
            headings.append(Heading(int(token.tag[1:]), tokens[index + 1].content, start, stop, is_hashed))
        elif token.type == "table_open" and token.level == 0:
            tables.append((start, stop))
        elif token.type == "list_item_open" and not quotes and tokens[index + 1].type == "paragraph_open":
            inline = tokens[index + 2]
            first, last = inline.map or (start, stop)
            items.append(Item(inline.content, first, last, max(last, min(stop, len(lines)))))
    return Blocks(tuple(headings), tuple(items), frozenset(code), tuple(tables), open_start)


def _is_closed(token: Token, lines: Sequence[str]) -> bool:
    """Tell whether a block of code or HTML at the end of the file ends by itself."""
    start, stop = token.map or (0, 0)
    if token.type == "code_block":
        return True
    if token.type == "fence":
        last = text_of(lines[min(stop, len(lines)) - 1]).strip()
        return stop - start > 1 and len(last) >= len(token.markup) and not last.strip(token.markup[0])
    for begins, ends in _HTML_ENDS:
        if found := begins.match(token.content):
            return ends.search(token.content, found.end()) is not None
    return True
