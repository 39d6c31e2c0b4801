"""Sessions that a program exported as Markdown are read message by message; tools' results are no thinking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from transcript_lines import ANSWER, CCTRACE, MODEL, PROMPT, SPECSTORY, THINKING

from deedbook.consumers.importers.reasoning import extensions_of
from deedbook.consumers.importers.transcripts.conversation import Progress, TranscriptResponse, UnreadItem
from deedbook.consumers.importers.transcripts.files import read_transcript
from deedbook.consumers.importers.transcripts.mapping import MappedThinking, records_of, thinking_in

if TYPE_CHECKING:
    from pathlib import Path

SESSION = "0a1b2c3d-0000-4000-8000-000000000001"


def read(folder: Path, text: str) -> list[TranscriptResponse | UnreadItem]:
    """Return the content of a Markdown file with this text."""
    file = folder / "export.md"
    file.write_bytes(text.encode())
    return list(read_transcript(file, file, Progress()))


def thoughts(folder: Path, text: str) -> list[MappedThinking]:
    """Return the thoughts in a Markdown file; nothing in it may be unreadable."""
    found = [thinking_in(response) for response in read(folder, text) if isinstance(response, TranscriptResponse)]
    return [thought for thought in found if isinstance(thought, MappedThinking)]


def steps(thought: MappedThinking) -> str:
    """Return the text of all steps."""
    return " ".join(step.content for step in thought.memory.steps)


@pytest.mark.parametrize(
    ("text", "form", "rows"),
    [
        (
            SPECSTORY,
            "specstory-markdown",
            [
                (13, "2025-07-20 11:56:12Z", MODEL, PROMPT, THINKING, ANSWER),
                (34, None, MODEL, PROMPT, "The file has no pool. I must look elsewhere.", ""),
                (55, None, "", "And now?", "Nothing is left to do.", "It is done."),
            ],
        ),
        (
            CCTRACE,
            "cctrace-markdown",
            [
                (18, None, MODEL, PROMPT, THINKING, ANSWER),
                (70, None, MODEL, PROMPT, "The loop is:\n```go\nfor {}\n``` It never ends.", ""),
            ],
        ),
    ],
    ids=["specstory", "cctrace"],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_each_block_of_thinking_is_a_response_with_the_text_after_it(
    tmp_path: Path, text: str, form: str, rows: list[tuple[object, ...]], line_end: str
) -> None:
    found = thoughts(tmp_path, text.replace("\n", line_end))
    read_rows = [
        (
            thought.answered.source.line,
            thought.answered.at,
            thought.memory.ai_id,
            thought.memory.task,
            steps(thought).replace("\r", ""),
            thought.memory.conclusion,
        )
        for thought in found
    ]
    assert read_rows == rows
    assert {(thought.answered.session, thought.answered.form) for thought in found} == {(SESSION, form)}
    record = next(records_of(found[0], extensions_of(found[0].memory), "sha256:0"))
    assert record.format == form


def test_original_of_a_response_is_its_messages_byte_for_byte(tmp_path: Path) -> None:
    first, second, third = (thought.answered.original.decode() for thought in thoughts(tmp_path, SPECSTORY))
    assert first.startswith("_**Agent (")
    assert first.rstrip().endswith(ANSWER)
    assert second.rstrip().endswith("elsewhere.")
    assert third in SPECSTORY
    assert third.startswith("_**Agent**_")


def test_export_that_grew_repeats_its_first_responses_under_the_same_ids(tmp_path: Path) -> None:
    short, _, _ = SPECSTORY.partition("_**User**_\n\nAnd now?")
    before, after = thoughts(tmp_path, short), thoughts(tmp_path, SPECSTORY)
    assert [thought.names for thought in after[: len(before)]] == [thought.names for thought in before]
    assert len(after) == len(before) + 1


@pytest.mark.parametrize("export", [SPECSTORY, CCTRACE])
def test_export_without_thinking_has_no_response(tmp_path: Path, export: str) -> None:
    text = export.replace("<think><details>", "").replace("Internal Reasoning", "Plan")
    assert read(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("## User\n\nWhy?\n\n## Assistant\n\nThe tag <thinking> opens it.\n\n## Design\n\nIt is so.", False),
        ("**Human:** Why?\n\n**Assistant:** It is so.</think> It is done.", False),
        ("## User\n\nWhy?\n\n## Assistant\n\n<think>It is so.</think>\n\nIt is done.", True),
        ("<think>It is so. The user asks.\n\n## User\n\nIt is done.", True),
    ],
)
def test_export_of_another_program_is_read_only_if_its_tags_are_balanced(
    tmp_path: Path, text: str, *, is_read: bool
) -> None:
    (item,) = read(tmp_path, text)
    assert isinstance(item, TranscriptResponse) == is_read
    if isinstance(item, UnreadItem):
        assert "thinking cannot be told from the rest" in item.reason
        assert item.original == text.encode()


@pytest.mark.parametrize(
    "mark", ["\n", "---\n", "<think>", "<details>\n", "_**Agent**_\n", "```\n", "### 🤖 Assistant\n"]
)
def test_long_runs_of_any_mark_are_read(tmp_path: Path, mark: str) -> None:
    assert read(tmp_path, f"{SPECSTORY}\n{mark * 20_000}x") != []
    assert read(tmp_path, f"{CCTRACE}\n{mark * 20_000}x") != []


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("export", "line"),
    [
        (SPECSTORY, "_**Agent (x" + "1111-" * 40_000),
        (CCTRACE, f"### 🤖 Assistant ({MODEL})\n<details><summary>" + "Internal Reasoning " * 40_000),
    ],
    ids=["heading", "summary"],
)
def test_long_line_that_is_nearly_a_mark_is_read_at_once(tmp_path: Path, export: str, line: str) -> None:
    assert thoughts(tmp_path, f"{export}\n{line}\n")
