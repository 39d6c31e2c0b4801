"""A hundred transcripts in six vendors' shapes: the share of valid graphs, with and without links that were found."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from transcript_lines import session, write

from deedbook.consumers.importers.transcripts.conversation import Progress, TranscriptResponse
from deedbook.consumers.importers.transcripts.files import read_transcript
from deedbook.consumers.importers.transcripts.mapping import MappedThinking, record_of, thinking_in
from deedbook.consumers.reasoning.validator.validator import ReasoningValidator
from deedbook.projections.reasoning.memory import ReasoningMemory, check_graph

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

THINGS = ["pool", "cache", "token", "queue", "index", "lock", "parser", "router", "backup", "session"]
STATES = ["is closed early", "fills up at night", "is read twice", "never expires", "waits for the disk", "is shared"]
EFFECTS = ["the login fails", "requests pile up", "old values are served", "the job is started again", "memory grows"]
ACTS = ["close it at the end", "give it a limit", "keep it per user", "write it to another disk", "measure it first"]
PLACES = ["src/pool.py", "app/cache.go", "lib/token_store.ts", "core/Router.java", "jobs/nightly.sql"]


def stated(of: random.Random) -> str:
    """Return thinking whose text states its premises, in one of eight manners."""
    one, two = of.sample(THINGS, 2)
    state, other, effect, act = of.choice(STATES), of.choice(STATES), of.choice(EFFECTS), of.choice(ACTS)
    place, a, b = of.choice(PLACES), of.randint(2, 90), of.randint(2, 90)
    manners = [
        f"The {one} {state}. The {two} {other}.\n\nSo {effect}.\n\nTherefore we should {act}.",
        f"1. The {one} {state}.\n2. The {two} {other}.\n3. From (1) and (2), {effect}.\n4. Step 3 means: {act}.",
        f"a = {a}\nb = {b}\ntotal = a + b\ntotal is {a + b}, so the answer is {a + b}",
        f"Observation: the {one} {state}.\nInference: {effect}, because of the {two}.\nConclusion: {act}.",
        f"我看到 {one} 有问题。{two} 也一样。因此请求会堆积。\n\n综上，应该{of.choice(['限制它', '关闭它'])}。",
        (
            f"Let me look. {place} opens the {one}.\n\nThe {one} {state}.\n\nThat means {effect} in {place}.\n\n"
            f"Hmm, perhaps the {two} {other} too.\n\nIn conclusion, {act}."
        ),
        (
            f"The user says that {effect}. I check the {one} first: it {state}.\n\nIt follows that {effect}.\n\n"
            f"Assume the {two} is fine.\n\nThus: {act}."
        ),
        f"- the {one} {state}\n- the {two} {other}\n\nSince both points hold, {effect}.\n\nHence {act}.",
    ]
    return of.choice(manners)


def unstated(of: random.Random) -> str:
    """Return thinking that only wanders."""
    seen = [f"The {of.choice(THINGS)} {of.choice(STATES)}." for _ in range(of.randint(1, 4))]
    return "\n\n".join([*seen, of.choice(["Hm.", "I wonder.", "Next file."])])


SHAPES: list[Callable[[str, str, str], Any]] = [
    lambda prompt, text, answer: {"prompt": prompt, "thinking": text, "content": answer},
    lambda prompt, text, answer: {
        "task": prompt,
        "content": [{"type": "thinking", "thinking": text, "signature": "c2ln"}, {"type": "text", "text": answer}],
    },
    lambda prompt, text, answer: {
        "task": prompt,
        "choices": [{"message": {"reasoning_content": text, "content": answer}}],
    },
    lambda prompt, text, answer: {
        "task": prompt,
        "candidates": [{"content": {"parts": [{"text": text, "thought": True}, {"text": answer}]}}],
    },
    lambda prompt, text, answer: {
        "task": prompt,
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer}]},
        ],
    },
    lambda prompt, text, answer: {"prompt": prompt, "generation": f"<think>{text}</think>\n{answer}"},
]


def graphs(folder: Path, manner: Callable[[random.Random], str], count: int) -> list[ReasoningMemory]:
    """Return the graphs of transcripts that are written to files and read as any other."""
    of = random.Random(manner.__name__)
    made = []
    for number in range(count):
        shape = SHAPES[number % len(SHAPES)]
        file = folder / f"{manner.__name__}-{number}.json"
        file.write_text(json.dumps(shape(f"Why does {number} fail?", manner(of), of.choice(ACTS))))
        (response,) = list(read_transcript(file, file, Progress()))
        assert isinstance(response, TranscriptResponse)
        thought = thinking_in(response)
        assert isinstance(thought, MappedThinking)
        made.append(thought.memory)
    return made


def share(memories: list[ReasoningMemory]) -> float:
    reports = [ReasoningValidator().validate(memory) for memory in memories]
    return sum(report.passed and not report.counts().inferences_unlinked for report in reports) / len(memories)


def without_links(memory: ReasoningMemory) -> ReasoningMemory:
    return ReasoningMemory(**{**{name: getattr(memory, name) for name in memory.__struct_fields__}, "dependencies": {}})


def test_most_transcripts_that_state_their_steps_hold_together(tmp_path: Path) -> None:
    stating, wandering = graphs(tmp_path, stated, 80), graphs(tmp_path, unstated, 20)
    for memory in (*stating, *wandering):
        check_graph(memory)
    assert share([without_links(memory) for memory in stating]) == 0.0
    assert share(stating) >= 0.9
    assert share(wandering) == 0.0  # a text that states no links gets none


def test_how_each_link_was_found_stands_with_the_import(tmp_path: Path) -> None:
    text = "1. The disk is full.\n2. Backups go there.\n3. From (1) and (2), they fail.\n4. Therefore move them."
    file = write(tmp_path / "s.jsonl", session(text=text))
    (response,) = [one for one in read_transcript(file, file, Progress()) if isinstance(one, TranscriptResponse)]
    thought = thinking_in(response)
    assert isinstance(thought, MappedThinking)
    first, more, *_ = record_of(thought, "r", "blake3:" + "0" * 64, None).events
    said = first.claims["said"]
    assert said["inferred_dependencies_by_reference"] == "3←1, 3←2"
    assert said["inferred_dependencies_by_connective"] == "4←3"
    assert more.mapped["dependencies"] == {"3": [1, 2], "4": [3]}


@pytest.mark.parametrize(
    ("text", "conclusion", "origin"),
    [
        ("I see the key. In conclusion, rotate it.", "In conclusion, rotate it.", "step"),
        ("我看到金鑰。因此洩漏了。結論：立刻輪換。", "結論：立刻輪換。", "step"),
        ("I see the key.", "", "absent"),
    ],
)
def test_response_without_an_answer_concludes_with_its_concluding_step(
    tmp_path: Path, text: str, conclusion: str, origin: str
) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"thinking": text}), "utf-8")
    (response,) = read_transcript(tmp_path / "r.json", tmp_path / "r.json", Progress())
    assert isinstance(response, TranscriptResponse)
    thought = thinking_in(response)
    assert isinstance(thought, MappedThinking)
    assert thought.memory.conclusion == conclusion
    assert record_of(thought, "r", "blake3:" + "0" * 64, None).events[0].claims["said"]["conclusion_from"] == origin


@pytest.mark.parametrize(("stated_task", "task", "expected"), [("Why?", "Other", "Why?"), ("", "Given", "Given")])
def test_task_that_is_given_stands_where_none_is_stated(
    tmp_path: Path, stated_task: str, task: str, expected: str
) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"thinking": "It fails. So stop.", "task": stated_task}))
    (response,) = list(read_transcript(tmp_path / "r.json", tmp_path / "r.json", Progress()))
    assert isinstance(response, TranscriptResponse)
    with_task, without = thinking_in(response, task), thinking_in(response)
    assert isinstance(with_task, MappedThinking)
    assert isinstance(without, MappedThinking)
    assert with_task.memory.task == expected
    assert with_task.names == without.names  # the same response is imported once, whatever it is said to be about
