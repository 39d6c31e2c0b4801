"""``make bench-reader``: exams that show how much a reader learns from a brief, and the table of the readers' answers.

    python -m tests.bench.brief_quality.reader write  [--exams DIR] [--key DIR] [--graphs N] [--seed N]
    python -m tests.bench.brief_quality.reader grade  [--exams DIR] [--key DIR]

``write`` writes one file for each condition, ``CONDITION.md``. All files have the same questions about the same graphs;
the condition decides which text stands beside the questions: the whole reasoning (``full``), a brief of 400, 200 or 120
tokens, the first steps that fit into 400 tokens (``first-N``), or none. The right answers are in another folder
(``--key``), which no reader may see. A reader is a language model or a person. They read one file and no other, and
write ``answers/READER/CONDITION.json`` below the exams: an object that maps the number of each question to the letter
of an answer, ``{"1.1": "B", "1.2": "D"}``. ``grade`` reads all such files and prints the share of right answers, by
condition and kind; a missing answer is wrong.

There are five kinds of questions, with four answers each: the source location cited for a statement (*evidence*),
something that nobody looked at (*limitations*), an assumption (*assumptions*), a premise of a step (*premises*: the
wrong answers are statements of the other graphs), and the exact wording of a sentence (*details*: four likely
sentences). Except for premises, every wrong answer has the form of the right one and words of the same graph. A sixth
kind (*links*) has a column of its own: readers find a premise of a step among the most similar statements of the *same*
graph. There, the statements in a brief mislead readers if the brief lacks the right one. All random choices come from
the seed: the same cases give the same files.

No question of a file gives away the answer of another: only its own question quotes an assumption, no other question
quotes a sentence whose wording is asked for, and no two graphs share a row of the cases.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.projections.briefs.anchors import evidence_location
from deedbook.projections.briefs.critical import critical_numbers, is_open_assumption
from deedbook.projections.briefs.prompt import TransferLevel, to_context_prompt
from deedbook.projections.briefs.text import content_words
from tests.bench.brief_quality.baselines import first_n
from tests.bench.brief_quality.cases import load_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from deedbook.projections.reasoning.memory import ReasoningMemory

EXAMS: Final = Path("build") / "reader-exams"
KEY: Final = Path("build") / "reader-key"
GRAPHS: Final = 20
OPTIONS: Final = 4
LETTERS: Final = "ABCD"
KINDS: Final = ("evidence", "limitations", "assumptions", "premises", "details")
LINKS: Final = "links"
PER_GRAPH: Final = {"evidence": 2, "limitations": 1, "assumptions": 1, "premises": 2, LINKS: 1, "details": 2}
_WORD: Final = re.compile(r"[A-Za-z]{4,}")
_TRIES: Final = 200
_ENDING: Final = 2
README: Final = """# Exams for a reader of briefs

Each file CONDITION.md is one exam: {questions} questions about {graphs} reasonings, the same ones in every file; the
files differ in what stands above the questions. A reader gets one file, and neither another one nor the key.
Answer every question with one letter; where the text does not say, take what is most likely. Write one JSON object,
the number of each question to its letter, to answers/READER/CONDITION.json below this folder:

    {{"1.1": "B", "1.2": "D"}}

Then: python -m tests.bench.brief_quality.reader grade --exams THIS_FOLDER --key THE_FOLDER_OF_THE_KEY
"""
HEAD: Final = """Another agent handed on what it reasoned. For each of {graphs} reasonings stands below what you
received of it, then questions of four answers each, of which one is right. Answer from what you received;
where it does not say, take the likeliest answer. Return one JSON object and nothing else, the number of each question
to its letter: {{"1.1": "B", "1.2": "D"}}
"""


class Question(NamedTuple):
    """A question, its answers in the order in which readers see them, and the right one."""

    kind: str
    text: str
    options: list[str]
    right: int


def conditions() -> dict[str, Callable[[ReasoningMemory], str]]:
    """Return for each condition the function that makes a graph's text for readers."""
    minimal, standard, _ = TransferLevel
    return {
        "full": full_text,
        "400": lambda memory: to_context_prompt(compress(memory, standard, 400)).prompt,
        "200": lambda memory: to_context_prompt(compress(memory, minimal, 200)).prompt,
        "120": lambda memory: to_context_prompt(compress(memory, minimal, 120)).prompt,
        "first-N": lambda memory: first_n(memory, 400),
        "nothing": lambda _: "(nothing)",
    }


def full_text(memory: ReasoningMemory) -> str:
    """Return all of a graph as a listing."""
    lines = [f"Task: {memory.task}"]
    for step in memory.steps:
        rests_on = memory.dependencies.get(step.step_number, [])
        kind = "assumption, not validated" if is_open_assumption(step) else step.type
        after = f" (rests on {', '.join(map(str, rests_on))})" if rests_on else ""
        places = "".join(f" [{evidence_location(one)}]" for one in step.evidence)
        lines.append(f"{step.step_number}. {kind}{after}: {step.content}{places}")
    lines += [f"Limitation: {text}" for text in memory.known_limitations]
    return "\n".join([*lines, f"Conclusion: {memory.conclusion}"])


def questions_of(memories: Sequence[ReasoningMemory], seed: int) -> list[list[Question]]:
    """Return the questions about each graph, at most ``PER_GRAPH`` of each kind."""
    chances = [random.Random(f"{seed} {memory.reasoning_id}") for memory in memories]
    asked: list[list[Question]] = []
    for memory, chance in zip(memories, chances, strict=True):
        strange = [content for other in memories if other is not memory for content in _quotable(other).values()]
        askers = [*_ASKED.items(), ("premises", lambda memory, chance: _premises(memory, strange, chance))]  # noqa: B023
        asked.append([one for kind, ask in askers for one in _drawn(kind, ask(memory, chance), chance)])
    quoted = "\n".join(text for questions in asked for one in questions for text in (one.text, *one.options))
    for memory, chance, questions in zip(memories, chances, asked, strict=True):
        questions.extend(_drawn("details", _details(memory, quoted, chance), chance))
    return asked


def _drawn(kind: str, questions: Iterable[Question], chance: random.Random) -> list[Question]:
    drawn = list(questions)
    return chance.sample(drawn, min(PER_GRAPH[kind], len(drawn)))


def _quotable(memory: ReasoningMemory) -> dict[int, str]:
    """Return the statements that a question may quote: no open assumption, because another question asks for it."""
    return {step.step_number: step.content for step in memory.steps if not is_open_assumption(step)}


def _evidence(memory: ReasoningMemory, chance: random.Random) -> Iterator[Question]:
    critical = critical_numbers(memory)
    places = sorted({evidence_location(one) for step in memory.steps for one in step.evidence})
    for step in memory.steps:
        if step.evidence and step.step_number in critical & _quotable(memory).keys():
            text = f"Which place is cited for this: “{step.content}”?"
            yield from _question("evidence", text, evidence_location(step.evidence[0]), places, chance)


def _limitations(memory: ReasoningMemory, chance: random.Random) -> Iterator[Question]:
    for limitation in memory.known_limitations:
        text = "Which limitation does the author name?"
        yield from _question("limitations", text, limitation, _variants(memory, limitation, chance), chance)


def _assumptions(memory: ReasoningMemory, chance: random.Random) -> Iterator[Question]:
    for step in filter(is_open_assumption, memory.steps):
        text = "What does the author take for granted, without having validated it?"
        yield from _question("assumptions", text, step.content, _variants(memory, step.content, chance), chance)


def _premises(memory: ReasoningMemory, strange: Sequence[str], chance: random.Random) -> Iterator[Question]:
    contents = _quotable(memory)
    wrong = [content for content in strange if content not in contents.values()]
    for number, rests_on in _resting_on(memory):
        yield from _question("premises", _resting(contents[number]), contents[chance.choice(rests_on)], wrong, chance)


def _links(memory: ReasoningMemory, chance: random.Random) -> Iterator[Question]:
    contents = _quotable(memory)
    for number, rests_on in _resting_on(memory):
        content, words = contents[number], set(content_words(contents[number]))
        others = [one for one in contents if one not in {*rests_on, number} and contents[one] != content]
        # Take the most similar statements, so that similarity alone does not identify the premise.
        likest = sorted(others, key=lambda one: -len(words & set(content_words(contents[one]))))[: 2 * OPTIONS]
        if not any(contents[one] == contents[rest] for one in likest for rest in rests_on):
            wrong = [contents[one] for one in likest]
            yield from _question(LINKS, _resting(content), contents[chance.choice(rests_on)], wrong, chance)


def _resting_on(memory: ReasoningMemory) -> Iterator[tuple[int, list[int]]]:
    """Yield the statements that depend on others, and their premises, as far as questions may quote both."""
    contents = _quotable(memory)
    for number, rests_on in memory.dependencies.items():
        quotable = [one for one in rests_on if one in contents]
        if number in contents and quotable:
            yield number, quotable


def _resting(content: str) -> str:
    return f"On which statement does this rest directly: “{content}”?"


def _details(memory: ReasoningMemory, quoted: str, chance: random.Random) -> Iterator[Question]:
    critical = critical_numbers(memory) & _quotable(memory).keys()
    for step in memory.steps:
        if step.step_number in critical and step.content != memory.conclusion and step.content not in quoted:
            text = "Which of these sentences stands in the reasoning, word for word?"
            yield from _question("details", text, step.content, _variants(memory, step.content, chance), chance)


_ASKED: Final = {
    "evidence": _evidence,
    "limitations": _limitations,
    "assumptions": _assumptions,
    LINKS: _links,
}


def _question(kind: str, text: str, right: str, wrong: Sequence[str], chance: random.Random) -> Iterator[Question]:
    """Yield the question with its answers in random order, or nothing if there are too few wrong ones."""
    others = [one for one in dict.fromkeys(wrong) if one != right]
    if len(others) >= OPTIONS - 1:
        options = [right, *chance.sample(others, OPTIONS - 1)]
        chance.shuffle(options)
        yield Question(kind, text, options, options.index(right))


def _variants(memory: ReasoningMemory, text: str, chance: random.Random) -> list[str]:
    """Return three variants of a text that are not in the graph, or nothing if there are no such variants.

    Two of its distinctive words are replaced by words with the same ending: the first, the second, and both. A
    distinctive word also occurs in other steps, and is not part of a template such as "Nobody looked at …". Each of the
    four forms is equally similar to the others, so similarity does not give the right one away.
    """
    others = [step.content for step in memory.steps if step.content != text]
    used = sorted({word for content in others for word in _WORD.findall(content) if word.islower()})
    own = [word for word in dict.fromkeys(_WORD.findall(text)) if word in used]
    vocabulary = [word for word in used if word not in _WORD.findall(text)]
    for _ in range(_TRIES if len(own) > 1 and len(vocabulary) > 1 else 0):
        changes = []
        for word in chance.sample(own, 2):
            alike = [other for other in vocabulary if other[-_ENDING:] == word[-_ENDING:]] or vocabulary
            changes.append((word, chance.choice(alike)))
        first, second = (_changed(text, *change) for change in changes)
        forms = [first, second, _changed(first, *changes[1])]
        if len({text, *forms}) == OPTIONS and not any(form in others for form in forms):
            return forms
    return []


def _changed(text: str, word: str, other: str) -> str:
    return re.sub(rf"\b{word}\b", other, text)


def graphs(count: int, seed: int) -> list[ReasoningMemory]:
    """Return ``count`` graphs, drawn from those with unused steps and from those without."""
    cases = load_cases()
    chance = random.Random(seed)
    drawn: list[ReasoningMemory] = []
    rows: set[str] = set()
    for group in (cases.distracted, cases.dense):
        most = len(drawn) + count // 2
        for case in chance.sample(group, len(group)):
            own = set(case.memory.reasoning_id.split("+"))
            if len(drawn) < most and rows.isdisjoint(own):
                drawn.append(case.memory)
                rows |= own
    return drawn


def write(exams: Path, key: Path, count: int, seed: int) -> str:
    """Write the exams and the key, and return a sentence about them."""
    memories = graphs(count, seed)
    asked = questions_of(memories, seed)
    total = sum(map(len, asked))
    for folder in (exams, key):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text_of in conditions().items():
        parts = [HEAD.format(graphs=len(memories))]
        for number, (memory, questions) in enumerate(zip(memories, asked, strict=True), start=1):
            parts.append(f"# Reasoning {number}\n\n{text_of(memory)}\n\n{_printed(number, questions)}")
        (exams / f"{name}.md").write_text("\n".join(parts), "utf-8")
    (exams / "README.md").write_text(README.format(questions=total, graphs=len(memories)), "utf-8")
    right = {
        f"{number}.{place}": {"kind": question.kind, "answer": LETTERS[question.right]}
        for number, questions in enumerate(asked, start=1)
        for place, question in enumerate(questions, start=1)
    }
    (key / "key.json").write_text(json.dumps(right, indent=1), "utf-8")
    kinds = Counter(question.kind for questions in asked for question in questions)
    said = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"{exams}: {len(conditions())} exams of {total} questions on {len(memories)} graphs ({said}); key in {key}"


def _printed(number: int, questions: list[Question]) -> str:
    lines: list[str] = []
    for place, question in enumerate(questions, start=1):
        lines.append(f"{number}.{place} {question.text}")
        lines += [f"   {letter}) {option}" for letter, option in zip(LETTERS, question.options, strict=True)]
    return "\n".join([*lines, ""])


def grade(exams: Path, key: Path) -> list[list[str]]:
    """Return the rows of the table: reader, condition, and the share of right answers to ``KINDS`` and to each kind.

    Raises:
        ValueError: When an answer belongs to no question of the key, or is not a letter.
    """
    right = json.loads((key / "key.json").read_text("utf-8"))
    kinds = [kind for kind in (*KINDS, LINKS) if any(one["kind"] == kind for one in right.values())]
    rows = [["reader", "condition", "answered", "right", "of full", *kinds]]
    shares: dict[tuple[str, str], dict[str, float]] = {}
    answered: dict[tuple[str, str], int] = {}
    for path in sorted((exams / "answers").rglob("*.json")):
        reader, answers = str(path.parent.relative_to(exams / "answers")), json.loads(path.read_text("utf-8"))
        for number, answer in answers.items():
            if number not in right or answer not in LETTERS or len(answer) != 1:
                raise ValueError(f"{path}: {number}: {answer} answers no question of this exam")
        hits: defaultdict[str, list[bool]] = defaultdict(list)
        for number, one in right.items():
            hits[one["kind"]].append(answers.get(number) == one["answer"])
        all_hits = [hit for kind in KINDS for hit in hits[kind]]
        shares[reader, path.stem] = {"": sum(all_hits) / len(all_hits)} | {
            kind: sum(hits[kind]) / len(hits[kind]) for kind in kinds
        }
        answered[reader, path.stem] = len(answers)
    order = list(conditions())
    for reader, name in sorted(shares, key=lambda one: (one[0], order.index(one[1]) if one[1] in order else 99)):
        share, full = shares[reader, name], shares.get((reader, "full"), {}).get("", 0.0)
        of_full = f"{share[''] / full:.3f}" if full else "–"
        by_kind = [f"{share[kind]:.2f}" for kind in kinds]
        rows.append([reader, name, str(answered[reader, name]), f"{share['']:.3f}", of_full, *by_kind])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the exams, or grade the answers."""
    parser = argparse.ArgumentParser(
        prog="make bench-reader", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("write", "grade"))
    parser.add_argument("--exams", type=Path, default=EXAMS, help=f"the folder of the exams (default: {EXAMS})")
    parser.add_argument("--key", type=Path, default=KEY, help=f"the folder of the key (default: {KEY})")
    parser.add_argument("--graphs", type=int, default=GRAPHS, help=f"how many graphs (default: {GRAPHS})")
    parser.add_argument("--seed", type=int, default=1, help="what is drawn (default: 1)")
    asked = parser.parse_args(arguments)
    if asked.action == "write":
        print(write(asked.exams, asked.key, asked.graphs, asked.seed))
        return
    try:
        rows = grade(asked.exams, asked.key)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
