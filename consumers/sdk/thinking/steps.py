"""Splits thinking into steps, and guesses the type of each, in English and in Chinese of both scripts.

A step is never rewritten: splitting only chooses spans. Between spans are white space and list marks, nothing else.

- A blank line and a list mark begin a new piece; fenced code is a piece of its own, and whole: a block of code and an
  excerpt of a log say nothing in parts.
- Code belongs to the step before it. An item belongs to the step before it if that is its head, which ends with a
  colon; so do the next items, if they are unnumbered, of the same type and short. A step does not grow beyond
  ``cut_chars`` by this.
- A paragraph is divided where the type of its sentences changes (observation, inference), at the end of a line that
  was not wrapped, and where a group of sentences would exceed ``step_goal_bytes``. Each of its assumptions is a step,
  because each is settled by itself. A list item is divided only by its size.
- A sentence longer than ``cut_chars`` is cut at white space, or inside the word if there is none.

The type of a step is guessed from its wording, and callers mark it as inferred. Only a label in the text itself
("Observation: …", "结论：…") is a statement. A text without any cue is an observation, the type that claims least.

Every pattern reads each character a limited number of times, because strangers may have written the thinking.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from deedbook.ledger.format.chinese import both_scripts

if TYPE_CHECKING:
    from deedbook.consumers.sdk.thinking.response import Region

PieceKind = Literal["paragraph", "item", "code"]

step_goal_bytes: Final = 320
cut_chars: Final = 1_000
code_max_chars: Final = 8_000

# A dash before a digit may be a minus sign; as a list mark it would be lost from the number.
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE: Final = re.compile(r"[ \t]*(?:```[^`\n]*|~~~[^\n]*)(?:\n|\Z)")
_FENCE_END: Final = re.compile(r"[ \t]*(?:`{3,}|~{3,})\s*")
_MARK: Final = re.compile(
    r"[ \t]*+(?:"
    r"(?:[-*+•‣·](?![ \t]++\d)|\d{1,3}[.)]|\((?:\d{1,3}|[a-z])\))(?=[ \t])"
    r"|\d{1,3}[、．](?!\d)|[（(][一二三四五六七八九十\d]{1,3}[）)]|[①-⑳]|[一二三四五六七八九十]{1,3}、"
    r"|(?:step|第)[ \t]*[\d一二三四五六七八九十]{1,3}[ \t]*步?[:：.，,、]"
    r")[ \t]*",
    re.IGNORECASE,
)
_SENTENCE_END: Final = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+(?=\s)|[。！？；]++[”’」』）\"')\]]*+|\n(?=\s*+\S)")
# A number after a colon is the mark of an item whose line break was lost.
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|cf|vs|dr|mr|ms|fig|eq|approx)$|[:：]\d{1,3}$", re.IGNORECASE
)
_HEAD: Final = re.compile(r"[:：][*_]{0,3}\s*\Z")
_HEAD_OF_LABEL: Final = re.compile(r"[:：][*_]{0,3}\s*\n\s*")
_abbreviation_max_chars: Final = 8
_wrapped_min_chars: Final = 60
_indent_max_chars: Final = 80
_LABELS: Final = {
    "observation": "observation|fact|evidence|观察|事实|现象|证据",
    "inference": "inference|deduction|推断|推理|推论",
    "assumption": "assumption|假设|假定|前提",
    "hypothesis": "hypothesis|假说|猜想|猜测",
    "conclusion": "(?:final )?(?:conclusion|answer)|结论|最终答案|答案",
}
_LABEL: Final = re.compile(
    r"[ \t#>*_]*+(?:"
    + "|".join(f"(?P<{name}>{both_scripts(words)})" for name, words in _LABELS.items())
    + r")[ \t]*+\d{0,3}[ \t*_]*+[:：]",
    re.IGNORECASE,
)
_CUES: Final = {
    name: re.compile(both_scripts(cue), re.IGNORECASE)
    for name, cue in {
        "conclusion": (
            r"\b(?:in conclusion|to conclude|in summary|to sum up|(?:the|my) (?:final )?(?:answer|conclusion) is"
            r"|(?:i|we) conclude)\b|综上|总之|结论是|总的来说|总结一下|最终答案|答案[是为]|由此得出结论"
        ),
        "assumption": (
            # Does not match "it assumes …" or "a wrong assumption", because the author does not assume these.
            r"\b(?:assume|assuming|presum(?:e|ing|ably)|take (?:it )?for granted)\b"
            r"|(?<!wrong )(?<!incorrect )(?<!false )\bassumptions?\b|\b(?:i|we|i've|we've|have) (?:assumed|presumed)\b"
            r"|假设|假定|默认为|想必|姑且认为"
        ),
        "hypothesis": (
            r"\b(?:hypothes[ie]s|hypothesi[sz]e|perhaps|maybe|possibly|what if|suppose|i suspect|my guess"
            r"|(?:might|may|could) (?:be|have)|(?:it is|it's|is) (?:likely|possible|plausible))\b"
            r"|假说|猜想|猜测|也许|或许|(?<!不)可能|怀疑|会不会"
        ),
        "inference": (
            r"\b(?:therefore|thus|hence|consequently|because|since(?! \d)|(?:which|this|that) means"
            r"|impl(?:y|ies|ied)|it follows|follows from|must (?:be|have)|as a result|suggests?)\b|^\W*+so\b(?! far)"
            r"|因此|所以|因为|由于|说明|意味着|可见|于是|推断|推出|可得|那么|从而"
        ),
    }.items()
}
_REASONING_CUES: Final = {
    name: re.compile(both_scripts(cue), re.IGNORECASE)
    for name, cue in {
        "analogical": (
            r"\b(?:analog(?:y|ous|ously|ies)|similar(?:ly)? to|similarly|just (?:like|as)|in the same way|reminds me)\b"
            r"|类比|类似|如同|好比|就像|同理"
        ),
        "abductive": (
            r"\b(?:(?:best|likely|likeliest|simplest|plausible) explanation|(?:would|could|might) explain|explains why"
            r"|(?:probably|likely|perhaps) because|suggests?|i suspect|must have been)\b"
            r"|最可能的(?:原因|解释)|可能是因为|解释了|合理的解释|怀疑是"
        ),
        "inductive": (
            r"\b(?:in general|generally|usually|typically|tends? to|every time|always|so far|in (?:all|most|every) case"
            r"|the pattern)\b|通常|一般来说|往往|总是|每次|规律|归纳"
        ),
        "deductive": (
            r"\b(?:therefore|thus|hence|it follows|follows from|necessarily|by definition|must be|implies)\b"
            r"|^\W*+so\b(?! far)|因此|所以|必然|必定|可得|推出|由此|意味着"
        ),
    }.items()
}


class _Piece(NamedTuple):
    start: int
    end: int
    kind: PieceKind


def split_steps(text: str, region: Region) -> list[Region]:
    """Return the spans of the steps in one region of a text, in order, without overlap, each trimmed and not empty."""
    spans: list[Region] = []
    listed = ""  # the type of the items in the list that the last step holds with its head; empty: none
    for piece in _pieces(text, region):
        divided = _divided(text, piece)
        if divided and spans:
            listed, is_joined = _joined(text, spans[-1], divided[0], piece.kind, listed)
            if is_joined:
                spans[-1] = (spans[-1][0], divided.pop(0)[1])
        spans += divided
    return spans


def _joined(text: str, last: Region, span: Region, kind: PieceKind, listed: str) -> tuple[str, bool]:
    """Return the type of the open list after a span, and whether the span belongs to the last step."""
    whole, content = (last[0], span[1]), text[slice(*span)]
    is_long = whole[1] - whole[0] > cut_chars and any(map(str.isalnum, content))  # a bare fence is no step
    if kind == "paragraph" or is_long:
        return "", False
    if kind == "code":
        return "", True
    type_, has_number = classify_step_type(content), any(map(str.isnumeric, text[last[1] : span[0]]))
    if _HEAD.search(text, last[0], last[1]):
        # Each assumption is settled by itself, and items are referred to by their numbers.
        return "" if has_number or "assumption" in {type_, classify_step_type(text[slice(*last)])} else type_, True
    return (
        (listed, True) if listed == type_ and not has_number and _width(text, whole) <= step_goal_bytes else ("", False)
    )


def item_after_head(step: str) -> str:
    """Return the mark of the first item in a step that begins with the head of its list; empty if there is none."""
    head = _HEAD_OF_LABEL.search(step)
    mark = _MARK.match(step, head.end()) if head else None
    return mark[0] if mark else ""


def _pieces(text: str, region: Region) -> Iterator[_Piece]:
    start = region[0]
    kind: PieceKind = "paragraph"
    fences = (line.start() for line in _LINE.finditer(text, *region) if _FENCE_END.fullmatch(line[0]))
    last_fence = max(fences, default=-1)
    for line in _LINE.finditer(text, *region):
        mark = None if kind == "code" else _MARK.match(text, line.start(), line.end())
        if kind == "code":
            if _FENCE_END.fullmatch(text, line.start(), line.end()):
                yield _Piece(start, line.end(), "code")
                start, kind = line.end(), "paragraph"
        elif _FENCE.match(text, line.start(), line.end()):
            yield _Piece(start, line.start(), kind)
            start, kind = line.start(), "code"
            # A bare fence that nothing closes ends a block of code whose beginning was lost, unless the text starts
            # with it.
            if start == last_fence and trimmed(text, (region[0], start)):
                yield _Piece(start, line.end(), "code")
                start, kind = line.end(), "paragraph"
        elif mark:
            yield _Piece(start, line.start(), kind)
            start, kind = mark.end(), "item"
        elif line[0].isspace():
            yield _Piece(start, line.start(), kind)
            start, kind = line.end(), "paragraph"
    yield _Piece(start, region[1], kind)


def _divided(text: str, piece: _Piece) -> list[Region]:
    whole = trimmed(text, (piece.start, piece.end))
    if whole is None:
        return []
    is_whole_code = piece.kind == "code" and whole[1] - whole[0] <= code_max_chars
    if is_whole_code or (piece.kind == "item" and _width(text, whole) <= step_goal_bytes):
        return [whole]
    groups: list[Region] = []
    group_type = ""
    for sentence in _sentences(text, whole):
        type_ = classify_step_type(text[slice(*sentence)]) if piece.kind == "paragraph" else piece.kind
        joined = (groups[-1][0], sentence[1]) if groups else sentence
        is_line = bool(groups) and "\n" in text[groups[-1][1] : sentence[0]] and text[sentence[0]].isalpha()
        is_alike = type_ == group_type != "assumption"
        if groups and not is_line and is_alike and _width(text, joined) <= step_goal_bytes:
            groups[-1] = joined
        else:
            groups.append(sentence)
        group_type = type_
    return [span for group in groups for span in _cut(text, group)]


def _sentences(text: str, region: Region) -> Iterator[Region]:
    start = region[0]
    for end in _SENTENCE_END.finditer(text, *region):
        before = text[max(start, end.start() - _abbreviation_max_chars) : end.start()]
        if end[0] == "." and _ABBREVIATION.search(before):
            continue
        if end[0] == "\n" and _is_wrapped(text, end.start()):
            continue
        if sentence := trimmed(text, (start, end.end())):
            yield sentence
        start = end.end()
    if rest := trimmed(text, (start, region[1])):
        yield rest


def _is_wrapped(text: str, end: int) -> bool:
    """Return whether a line is wrapped: the next line begins in lower case, and is indented or follows a long line."""
    following = text[end + 1 : end + 1 + _indent_max_chars].lstrip()
    is_small = following[:1].islower() and following[:1].isascii()
    is_long = end - text.rfind("\n", 0, end) > _wrapped_min_chars
    return is_small and (is_long or text[end + 1].isspace())


def _cut(text: str, span: Region) -> Iterator[Region]:
    start, end = span
    while end - start > cut_chars:
        limit = start + cut_chars
        space = next((place for place in range(limit, start, -1) if text[place].isspace()), limit)
        if part := trimmed(text, (start, space)):
            yield part
        start = space
    if rest := trimmed(text, (start, end)):
        yield rest


def trimmed(text: str, region: Region) -> Region | None:
    """Return a region without the white space around it, or None if nothing is left."""
    part = text[slice(*region)]
    inner = part.strip()
    if not inner:
        return None
    start = region[0] + len(part) - len(part.lstrip())
    return start, start + len(inner)


def _width(text: str, region: Region) -> int:
    """Return the UTF-8 bytes of a region: by this measure a Chinese and an English sentence are about as long."""
    return len(text[slice(*region)].encode())


def stated_step_type(text: str) -> str | None:
    """Return the type in a label at the start of a text, or None."""
    label = _LABEL.match(text)
    return label.lastgroup if label else None


def classify_step_type(text: str) -> str:
    """Return the type of a step: by its label, else by the first cue found, else ``observation``."""
    return stated_step_type(text) or _first(_CUES, text) or "observation"


def infer_reasoning_type(text: str) -> str:
    """Return the kind of inference that a step's wording shows; empty if it shows none."""
    return _first(_REASONING_CUES, text) or ""


def _first(cues: dict[str, re.Pattern[str]], text: str) -> str | None:
    return next((name for name, cue in cues.items() if cue.search(text)), None)
