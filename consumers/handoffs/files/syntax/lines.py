r"""A file as lines and blocks that keep every byte, so unchanged parts stay as they were.

A *line* includes its own ending (``\n``, ``\r\n`` or ``\r``, as in CommonMark; the last may have none), because a file
may mix them. A byte order mark is stored apart from the first line. New texts get the endings of the lines that they
replace or follow, and a file without a newline at its end stays so after an edit there. So an edit and its reverse give
the same bytes again. A *block* is CommonMark's, so a check box in a code fence or a heading in a quotation does not
count. Nesting beyond ``nesting_max`` is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from deedbook.ledger.errors import Refused

file_size_max_bytes: Final = 1024**2
problems_max: Final = 100
quoted_max_chars: Final = 60

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
# Matches UTF-8 that was read as Latin-1 or Windows-1252 and written again. Of the two-byte characters, only those that
# begin with Â or Ã count: another pair, such as "É»", can be good French.
_AFTER: Final = "[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
_MOJIBAKE: Final = re.compile(f"\ufffd|[ÂÃ]{_AFTER}|[à-ï]{_AFTER}{{2}}|[ð-ô]{_AFTER}{{3}}")


class Problem(NamedTuple):
    """A fault that a person should check; the file is still read. ``line`` counts from 1."""

    line: int
    text: str


class Edit(NamedTuple):
    """Replaces the lines ``start`` to before ``stop`` (from 0); texts without an ending get a neighbour's."""

    start: int
    stop: int
    texts: tuple[str, ...] = ()


def read_lines(content: bytes) -> tuple[bool, tuple[str, ...]]:
    """Return whether there is a byte order mark, and the lines. Raises Refused: ``TOO_LARGE``, ``INVALID_FORMAT``."""
    if len(content) > file_size_max_bytes:
        message = f"the file has {len(content)} bytes; the limit is {file_size_max_bytes}: split it"
        raise Refused("TOO_LARGE", message, size=len(content), line=1)
    has_mark = content.startswith(_BYTE_ORDER_MARK)
    body = content[len(_BYTE_ORDER_MARK) :] if has_mark else content
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = 1 + len(re.findall(rb"\r\n|\r|\n", body[: error.start]))
        is_cut = error.reason == "unexpected end of data"
        advice = "the file ends inside a character; perhaps it is only half written" if is_cut else "save it as UTF-8"
        raise Refused("INVALID_FORMAT", f"line {line} is not UTF-8: {advice}", line=line) from error
    if "\x00" in text:
        line = 1 + len(re.findall(r"\r\n|\r|\n", text[: text.index("\x00")]))
        raise Refused("INVALID_FORMAT", f"line {line} has a NUL byte, so this is not text: remove it", line=line)
    return has_mark, tuple(_LINE.findall(text))


def join_lines(lines: Sequence[str], *, has_mark: bool) -> bytes:
    """Return the bytes of a file; the opposite of ``read_lines``."""
    return (_BYTE_ORDER_MARK if has_mark else b"") + "".join(lines).encode("utf-8")


def text_of(line: str) -> str:
    """Return a line without its ending."""
    return line.rstrip("\r\n")


def is_blank(line: str) -> bool:
    """Whether a line has only white space."""
    return not line.strip()


def trim_blank(lines: Sequence[str], start: int, stop: int) -> tuple[int, int]:
    """Return the range without the blank lines around it; an empty range at ``start`` if all are blank."""
    filled = [index for index in range(start, stop) if not is_blank(lines[index])]
    return (filled[0], filled[-1] + 1) if filled else (start, start)


def apply_edits(lines: Sequence[str], edits: Sequence[Edit]) -> list[str]:
    """Return the lines after edits that do not overlap; edits at the same position keep their order."""
    result: list[str] = []
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.stop)):
        result += lines[position : edit.start]
        for offset, text in enumerate(edit.texts):
            replaced = edit.start + offset
            near = replaced if replaced < edit.stop else edit.start - 1
            result.append(text if _ending(text) else text + _ending_near(lines, near))
        position = max(position, edit.stop)
    result += lines[position:]
    return _with_end_of(lines, result)


def _with_end_of(lines: Sequence[str], result: list[str]) -> list[str]:
    """Give every inner line an ending, and the last one only if the file ended in one."""
    for index in range(len(result) - 1):
        if not _ending(result[index]):
            result[index] += _ending_near(lines, index)
    if result and lines and not _ending(lines[-1]):
        result[-1] = text_of(result[-1])
    return result


def _ending(line: str) -> str:
    return line[len(text_of(line)) :]


def _ending_near(lines: Sequence[str], index: int) -> str:
    """Return the ending of a line; if it has none, that of the nearest line before it, else of the first line."""
    for near in (*range(min(index, len(lines) - 1), max(index - 3, -1), -1), 0):
        if 0 <= near < len(lines) and _ending(lines[near]):
            return _ending(lines[near])
    return "\n"


def text_problems(lines: Sequence[str], *, has_mark: bool) -> Iterator[Problem]:
    """Yield the faults of a file as text: a byte order mark, mixed line endings, garbled characters."""
    if has_mark:
        yield Problem(1, "the file begins with a byte order mark (BOM); it stays")
    first = _ending(lines[0]) if lines else ""
    for number, line in enumerate(lines, start=1):
        ending = _ending(line)
        if ending and ending != first:
            yield Problem(number, f"mixed line endings: {ending!r} here, {first!r} on line 1; each stays")
            break
    for number, line in enumerate(lines, start=1):
        if not line.isascii() and (damaged := _MOJIBAKE.search(line)):
            around = line[max(0, damaged.start() - 10) : damaged.end() + 10].strip()
            yield Problem(number, f"garbled characters (mojibake) near {quoted(around)}; they stay")


def quoted(text: str) -> str:
    """Return the beginning of a text, quoted for a message."""
    return repr(text if len(text) <= quoted_max_chars else text[:quoted_max_chars] + "…")


def settled(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the problems by line, at most ``problems_max``; the last one says how many more there are."""
    ordered = sorted(set(problems))
    if len(ordered) <= problems_max:
        return tuple(ordered)
    more = ordered[problems_max - 1]
    rest = len(ordered) - problems_max
    return (*ordered[: problems_max - 1], Problem(more.line, f"{more.text} (and {rest} more problems after it)"))


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
    """A heading on lines ``start`` to ``stop``; ``is_hashed`` if it is ``## X`` and not underlined text."""

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
    """The blocks by position, with lines from 0; ``open_start`` is the first line of a block that is never closed."""

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
    """Return whether a block of code or HTML at the end of the file is closed."""
    start, stop = token.map or (0, 0)
    if token.type == "code_block":
        return True
    if token.type == "fence":
        last = text_of(lines[min(stop, len(lines)) - 1]).strip()
        return stop - start > 1 and len(last) >= len(token.markup) and not last.strip(token.markup[0])
    for begins, ends in _HTML_ENDS:
        if begin := begins.match(token.content):
            return ends.search(token.content, begin.end()) is not None
    return True
