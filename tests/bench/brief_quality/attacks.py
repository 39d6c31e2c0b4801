"""Texts that must not pass as briefs, and changes of single facts that must be detected.

A *gamed* text has the words of a graph but none of its reasoning. A *corrupted* text is an honest brief with one fact
changed. ``check_certificate`` must detect the change in a brief of verbatim facts, the vetoes (``briefs.vetoes``) in
free text.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from deedbook.projections.briefs.anchors import anchors, evidence_location
from deedbook.projections.briefs.critical import critical_numbers, critical_units
from deedbook.projections.briefs.index import index_graph
from deedbook.projections.briefs.text import NEGATORS, content_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbook.ledger.events.brief import Brief, Fact
    from deedbook.projections.reasoning.memory import ReasoningMemory

RARE_SHARE: Final = 0.6
_NUMBER: Final = re.compile(r"(?<![\w.,/])\d+(?:\.\d+)?(?![\w/]|[.,]\d)")
_LINE: Final = re.compile(r"(?<=:)\d+")
_NEGATED: Final = re.compile(
    r"\b(?:do|does|did|is|are|was|were|can|will|has|have)(?: not|n't)\b|\bcannot\b|\bnever\b|\bno\b"
)
_AUXILIARY: Final = re.compile(r"\b(is|are|was|were|can|will|has|have|had|must|should|would|could)\b")
_CJK_NEGATED: Final = re.compile("没有|不再|不能|不")
_WORD: Final = re.compile(r"(?<!\S)[A-Za-z]+ ")
_NAME: Final = re.compile(r"\b[a-z]{4,}\b")


def gamed(memory: ReasoningMemory, other: ReasoningMemory) -> dict[str, str]:
    """Return the text of each attack on a graph; one of them is the reasoning of ``other``."""
    texts = key_texts(memory)
    every = sorted(word for text in texts for word in words(text))
    found = sorted(anchors("\n".join(place_lines(memory))) | anchors("\n".join(texts)))
    return {
        "sorted words": " ".join(every),
        "bag of anchors": " ".join(found),
        "60 % rarest words": "\n".join(rarest(memory, text) for text in texts),
        "conclusion × 12": "\n".join([memory.conclusion] * 12),
        "another graph": "\n".join(key_texts(other)),
        "empty": "",
    }


def key_texts(memory: ReasoningMemory) -> list[str]:
    """Return the critical texts of a graph in reading order."""
    return [unit.text for unit in critical_units(memory, critical_numbers(memory))]


def place_lines(memory: ReasoningMemory) -> list[str]:
    """Return the cited source locations of all evidence; each is an anchor."""
    return [evidence_location(reference) for step in memory.steps for reference in step.evidence]


def rarest(memory: ReasoningMemory, text: str) -> str:
    """Return the rarest words of a text, in the order of the text."""
    index = index_graph(memory)
    tokens = words(text)
    ranked = sorted(range(len(tokens)), key=lambda place: -index.weight_of(content_of([tokens[place]])[0]))
    kept = sorted(ranked[: max(1, int(RARE_SHARE * len(tokens)))])
    return " ".join(tokens[place] for place in kept)


def free_text(memory: ReasoningMemory) -> list[str]:
    """Return a graph's critical steps as lines of free text, each with its evidence."""
    critical = critical_numbers(memory)
    return [
        step.content + "".join(f" ({evidence_location(reference)})" for reference in step.evidence)
        for step in memory.steps
        if step.step_number in critical
    ]


def changed_line(sort: str, line: str, chance: random.Random) -> str | None:
    """Return a line with one change of the type ``sort``; None if the line has nothing that it can change."""
    match sort:
        case "path":
            return _sub(_LINE, line, lambda match: str(int(match[0]) + 1_000), chance)
        case "number":
            return _sub(_NUMBER, line, lambda match: _near(match[0], chance), chance)
        case "negation":
            return _negated(line)
    raise ValueError(sort)


def honest_changes(lines: list[str], chance: random.Random) -> Iterator[list[str]]:
    """Yield the lines unchanged, with one plain word dropped from each, and joined in pairs by "and"."""
    yield lines
    yield [_shorter(line, chance) for line in lines]
    pairs = [lines[place : place + 2] for place in range(0, len(lines), 2)]
    yield [" and ".join(line.rstrip(".") for line in pair) for pair in pairs]


def _shorter(line: str, chance: random.Random) -> str:
    """Return a line without one of its words that is neither a negation nor a number."""
    plain = [match for match in _WORD.finditer(line) if match[0].strip().lower() not in NEGATORS]
    if not plain:
        return line
    match = chance.choice(plain)
    return line[: match.start()] + line[match.end() :]


def corrupted_briefs(brief: Brief, chance: random.Random) -> Iterator[tuple[str, Brief]]:
    """Yield the type of a change and the brief with one fact changed so, for every fact and type that applies."""
    for place, fact in enumerate(brief.facts):
        for sort, changed in _corrupted_facts(fact, chance):
            if changed != fact:
                yield sort, replace(brief, facts=[*brief.facts[:place], changed, *brief.facts[place + 1 :]])


def _corrupted_facts(fact: Fact, chance: random.Random) -> Iterator[tuple[str, Fact]]:
    for sort in ("number", "negation"):
        changed = changed_line(sort, fact.text, chance)
        if changed is not None:
            yield sort, replace(fact, text=changed)
    if fact.evidence:
        moved = _LINE.sub(lambda match: str(int(match[0]) + 1), fact.evidence[0], count=1)
        yield "path", replace(fact, evidence=[moved, *fact.evidence[1:]])
    named = _NAME.findall(fact.text)
    if len(set(named)) > 1:
        one, other = named[0], next(name for name in named if name != named[0])
        swapped = re.sub(rf"\b({one}|{other})\b", lambda match: other if match[0] == one else one, fact.text)
        yield "names swapped", replace(fact, text=swapped)
    yield "word dropped", replace(fact, text=fact.text.partition(" ")[2])
    yield "premises", replace(fact, rests_on=[*fact.rests_on, fact.step + 1])


def _sub(pattern, text, change, chance):
    found = list(pattern.finditer(text))
    if not found:
        return None
    match = chance.choice(found)
    return text[: match.start()] + change(match) + text[match.end() :]


def _near(number: str, chance: random.Random) -> str:
    """Return a different number nearby. It often occurs elsewhere in the graph, which makes the change hard to see."""
    value = float(number) + chance.choice((-3, -2, -1, 1, 2, 3, 10))
    return f"{abs(value) + (value == 0):g}"


def _negated(line: str) -> str | None:
    if _NEGATED.search(line):
        return re.sub(r"\s+", " ", _NEGATED.sub(_positive, line, count=1)).strip()
    if _AUXILIARY.search(line):
        return _AUXILIARY.sub(r"\1 not", line, count=1)
    return _CJK_NEGATED.sub("", line, count=1) if _CJK_NEGATED.search(line) else None


def _positive(match: re.Match[str]) -> str:
    said = match[0].split()[0].removesuffix("n't")
    return {"cannot": "can", "never": "", "no": ""}.get(said, said)
