"""Every file that holds a transcript is read response by response: all thinking is found, and nothing is skipped."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from pieces import pieces
from transcript_lines import (
    ANSWER,
    MODEL,
    PROMPT,
    THINKING,
    calls,
    encoded,
    line,
    says,
    session,
    thinking,
    write,
)

from deedbook.consumers.importers.transcripts import files
from deedbook.consumers.importers.transcripts.conversation import Progress, TranscriptResponse, UnreadItem
from deedbook.consumers.importers.transcripts.files import find_transcripts, read_transcript
from deedbook.consumers.importers.transcripts.mapping import MappedThinking, ranges, thinking_in, time_of
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

TAGGED = f"<think>{THINKING}</think>\n{ANSWER}"


def read(file: Path, root: Path | None = None) -> tuple[list[TranscriptResponse | UnreadItem], Progress]:
    """Return the content of a file, and the counts."""
    progress = Progress()
    return list(read_transcript(file, root or file, progress)), progress


def thoughts(file: Path) -> list[MappedThinking]:
    """Return the thoughts in a file; nothing in it may be unreadable."""
    found = [thinking_in(one) for one in read(file)[0] if isinstance(one, TranscriptResponse)]
    return [one for one in found if isinstance(one, MappedThinking)]


def test_lines_of_one_message_are_one_response_with_exactly_these_lines(tmp_path: Path) -> None:
    lines = session()
    (thought,) = thoughts(write(tmp_path / "s.jsonl", [{"type": "summary", "summary": "x"}, *lines]))
    assert thought.answered.original == encoded([lines[1], lines[2], lines[4]])
    assert str(thought.answered.source) == "s.jsonl:3"
    assert (thought.memory.task, thought.memory.conclusion, thought.memory.ai_id) == (PROMPT, ANSWER, MODEL)
    assert (thought.answered.session, thought.answered.message) == ("s-1", "msg_1")


def test_responses_that_interleave_are_told_apart(tmp_path: Path) -> None:
    one, two = session(1, text="First one. It is so."), session(2, text="Second one. It is not so.")
    mixed = [line for pair in zip(one, two, strict=True) for line in pair]
    found = thoughts(write(tmp_path / "s.jsonl", mixed))
    assert [thought.memory.steps[0].content for thought in found] == [
        "First one. It is so.",
        "Second one. It is not so.",
    ]
    assert [thought.answered.original for thought in found] == [
        encoded([lines[1], lines[2], lines[4]]) for lines in (one, two)
    ]


def test_steps_and_gaps_give_the_thinking_back_whole(tmp_path: Path) -> None:
    text = "First I look.\n\n- one\n- two\n\n```\ncode\n```\nTherefore it leaks. " * 400
    (thought,) = thoughts(write(tmp_path / "s.jsonl", session(text=text)))
    assert "".join(piece.text for piece in pieces(thought.extraction)) == text
    assert [step.content for step in thought.memory.steps] == [
        piece.text for piece in pieces(thought.extraction) if piece.step is not None
    ]


def test_prompt_is_the_users_words_above_the_response_and_no_tools_result(tmp_path: Path) -> None:
    lines = [
        line("user", "u1", "First question?"),
        line("user", "m1", "<local note>", parent="u1", isMeta=True),
        line("assistant", "a1", thinking("One."), parent="m1", message="m-1"),
        line("user", "r1", [{"type": "tool_result", "tool_use_id": "t", "content": "big"}], parent="a1"),
        line("user", "u2", [{"type": "text", "text": "Second question?"}], parent="r1"),
        line("user", "x1", "Asked of a helper", isSidechain=True),
        line("assistant", "a2", thinking("Two."), parent="u2", message="m-2"),
        line("assistant", "x2", thinking("Three."), parent="x1", message="m-3", isSidechain=True),
        line("assistant", "a3", thinking("Four."), parent="u1", message="m-4"),
        line("user", "u3", "This session is being continued", isCompactSummary=True),
        line("assistant", "a4", thinking("Five."), parent="gone", message="m-5"),
    ]
    found = thoughts(write(tmp_path / "s.jsonl", lines))
    assert [thought.memory.task for thought in found] == [
        "First question?",
        "Second question?",
        "Asked of a helper",
        "First question?",
        "Second question?",
    ]


MESSAGES: list[Any] = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": [*thinking(), *says()]}]
SHAPES: dict[str, tuple[str, bytes]] = {
    "session": ("s.jsonl", encoded(session())),
    "session without ids": ("s.jsonl", encoded([{"type": "user", "message": MESSAGES[0]}, {"message": MESSAGES[1]}])),
    "array of session lines": ("s.json", json.dumps(session()).encode()),
    "array of messages": ("s.json", json.dumps(MESSAGES, indent=1).encode()),
    "object of messages": ("s.json", json.dumps({"id": 7, "messages": MESSAGES}).encode()),
    "lines of messages": ("s.jsonl", encoded(MESSAGES)),
    "lines of conversations": ("s.jsonl", encoded([{"messages": MESSAGES}])),
    "from and value": (
        "s.json",
        json.dumps({"conversations": [{"from": "human", "value": PROMPT}, {"from": "gpt", "text": TAGGED}]}).encode(),
    ),
    "reasoning_content": (
        "s.jsonl",
        encoded([{"task": PROMPT, "choices": [{"message": {"reasoning_content": THINKING, "content": ANSWER}}]}]),
    ),
    "reasoning": ("s.json", json.dumps({"prompt": PROMPT, "reasoning": THINKING, "content": ANSWER}).encode()),
    "thinking field": ("s.jsonl", encoded([{"task": PROMPT, "thinking": THINKING, "answer": ANSWER}])),
    "tags in a message": ("s.jsonl", encoded([MESSAGES[0], {"role": "assistant", "content": TAGGED}])),
    "tags in a session": ("s.jsonl", encoded([line("user", "u", PROMPT), line("assistant", "a", says(TAGGED))])),
    "array of blocks": ("s.json", json.dumps([*thinking(), *says()]).encode()),
    "text": ("s.txt", TAGGED.encode()),
    "markdown": ("s.md", f"[notes]\n\n{TAGGED}".encode()),
    "helper of a session": (
        "s.jsonl",
        encoded(
            [line("user", "u", PROMPT), {"type": "progress", "sessionId": "s-1", "data": {"message": session()[1]}}]
        ),
    ),
    "byte order mark": ("s.jsonl", b"\xef\xbb\xbf" + encoded(MESSAGES)),
    "no line end": ("s.jsonl", encoded(MESSAGES).rstrip(b"\n")),
    "windows line ends": ("s.jsonl", encoded(MESSAGES).replace(b"\n", b"\r\n")),
    "blank lines": ("s.jsonl", b"\n\n" + encoded(MESSAGES).replace(b"\n", b"\n\n")),
    "lines in a .json": ("s.json", encoded(MESSAGES)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_its_thinking(tmp_path: Path, shape: str) -> None:
    name, content = SHAPES[shape]
    file = tmp_path / name
    file.write_bytes(content)
    found, _ = read(file)
    assert not [one for one in found if isinstance(one, UnreadItem)]
    (thought,) = thoughts(file)
    said = " ".join(step.content for step in thought.memory.steps)
    assert said.replace(" ", "") == THINKING.replace(" ", "")
    assert all(one in content for one in thought.answered.original.splitlines())
    assert json.dumps(THINKING)[1:-1] in thought.answered.original.decode() or THINKING in (
        thought.answered.original.decode()
    )
    if shape not in ("array of blocks", "text", "markdown"):
        assert thought.memory.task == PROMPT
    if shape != "helper of a session":
        assert thought.memory.conclusion.endswith(ANSWER)


BROKEN: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{broken\n", "INVALID_FORMAT"),
    "cut off": (encoded([session()[1]])[:200], "INVALID_FORMAT"),
    "no UTF-8": (b'{"type": "assistant", "message": {"x": "\xff"}}\n', "INVALID_FORMAT"),
    "a key twice": (b'{"role": "assistant", "thinking": "a", "thinking": "b"}\n', "DUPLICATE_KEY"),
    "too deep": (b'{"role": "assistant", "thinking": "a", "x": ' + b"[" * 99 + b"]" * 99 + b"}\n", "NESTING_TOO_DEEP"),
    "nothing but brackets": (b"[" * 100_000 + b"\n", "NESTING_TOO_DEEP"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_line_is_handed_on_with_its_place_and_the_others_are_read(tmp_path: Path, fault: str) -> None:
    content, code = BROKEN[fault]
    found, _ = read(write(tmp_path / "s.jsonl", [*session(1), content.rstrip(b"\n") + b"\n", *session(2)]))
    (unread,) = [one for one in found if isinstance(one, UnreadItem)]
    assert (unread.source.line, unread.original) == (6, content.rstrip(b"\n") + b"\n")
    assert unread.reason.startswith(code), unread.reason
    assert sum(isinstance(one, TranscriptResponse) for one in found) == 2


@pytest.mark.parametrize(
    "content",
    [
        [{"role": "assistant", "thinking": 5}],
        [line("assistant", "a", [{"type": "thinking", "thinking": ["x"]}])],
        [b'{"role": "assistant", "thinking": "\\ud83d alone"}\n'],
        [line("assistant", "a", ["thinking"])],
        [{"role": "assistant", "thinking": "x" * (1024**2 + 1)}],
    ],
)
def test_response_that_is_no_response_is_kept_aside(tmp_path: Path, content: list[Any]) -> None:
    ((answered,), _) = read(write(tmp_path / "s.jsonl", content))
    assert isinstance(answered, TranscriptResponse)
    assert isinstance(thinking_in(answered), UnreadItem)


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "redacted_thinking", "data": "AAAA"}, *says()],
        [*thinking("", "c2ln"), *says()],
    ],
)
def test_encrypted_thinking_is_told_from_none(tmp_path: Path, content: list[Any]) -> None:
    ((answered,), _) = read(write(tmp_path / "s.jsonl", [line("assistant", "a", content, message="m")]))
    assert isinstance(answered, TranscriptResponse)
    hidden = thinking_in(answered)
    assert isinstance(hidden, UnreadItem)
    assert hidden.reason


def test_encrypted_block_beside_readable_thinking_is_named(tmp_path: Path) -> None:
    content = [*thinking(), {"type": "redacted_thinking", "data": "AAAA"}]
    (thought,) = thoughts(write(tmp_path / "s.jsonl", [line("assistant", "a", content, message="m")]))
    assert [note.kind for note in thought.extraction.notes] == ["redacted"]


@pytest.mark.parametrize(
    "lines",
    [
        [{"type": "file-history-snapshot", "snapshot": {"thinking": "x"}}, {"type": "system", "content": "thinking"}],
        [line("user", "u", "What is <think>?"), line("assistant", "a", says("A <think> tag opens it."), message="m")],
        [line("user", "u", [{"type": "tool_result", "content": '{"type": "thinking", "thinking": "x"}'}])],
        [b'{"type": "user", "message": {"content": [{"type": "tool_result", "content": "\\ud83d"}]}}\n'],
        [line("assistant", "a", thinking("", ""), message="m")],
        [1, None, "thinking", [], [1, 2], {}],
        [{"messages": []}, {"messages": "thinking"}, {"message": "thinking"}, {"data": "thinking", "type": "progress"}],
    ],
)
def test_lines_without_thinking_are_counted_and_nothing_else(tmp_path: Path, lines: list[Any]) -> None:
    found, progress = read(write(tmp_path / "s.jsonl", lines))
    assert [thinking_in(one) for one in found if isinstance(one, TranscriptResponse)] == [None] * len(found)
    assert progress.skipped + sum(one.lines for one in found if isinstance(one, TranscriptResponse)) == len(lines)


def test_tool_that_is_called_with_what_no_ledger_holds_costs_nothing(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    lines = session()
    lines[2]["message"]["content"] = calls(deep=deep)
    (thought,) = thoughts(write(tmp_path / "s.jsonl", lines))
    assert thought.answered.original == encoded([lines[1], lines[2], lines[4]])


def test_line_that_is_too_long_is_kept_and_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "line_size_max_bytes", 2_000)
    long = encoded([line("assistant", "l", thinking("x" * 5_000), message="m")])
    found, progress = read(write(tmp_path / "s.jsonl", [*session(1), long, *session(2)]))
    (unread,) = [one for one in found if isinstance(one, UnreadItem)]
    assert (unread.original, unread.size, unread.source.line) == (long, len(long), 6)
    assert unread.reason.startswith("TOO_LARGE")
    assert progress.done_bytes == (tmp_path / "s.jsonl").stat().st_size
    monkeypatch.setattr(files, "content_size_max_bytes", 3_000)
    found, _ = read(tmp_path / "s.jsonl")
    assert [(one.original, one.size) for one in found if isinstance(one, UnreadItem)] == [(None, len(long))]
    assert len(found) == 3


@pytest.mark.parametrize("name", ["s.json", "s.txt"])
def test_file_that_is_too_large_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(files, "document_size_max_bytes", 10)
    (tmp_path / name).write_text(TAGGED)
    ((unread,), _) = read(tmp_path / name)
    assert isinstance(unread, UnreadItem)
    assert unread.reason.startswith("TOO_LARGE")


def test_folder_is_walked_for_transcripts_only(tmp_path: Path) -> None:
    (tmp_path / "in" / ".hidden").mkdir(parents=True)
    kept = {
        "in/a.jsonl": encoded(session(1)),
        "b.json": json.dumps(MESSAGES).encode(),
        "c.md": TAGGED.encode(),
    }
    passed = {
        "d.md": b"no tags",
        "e.json": b'{"name": "package"}',
        "f.json": b"{broken",
        "in/.hidden/g.jsonl": encoded(session(2)),
        "h.py": b"thinking",
    }
    for name, content in (kept | passed).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "in" / "a.jsonl")
    found = find_transcripts(tmp_path)
    names = {str(one.source).partition(":")[0].partition("#")[0] for file in found for one in read(file, tmp_path)[0]}
    assert names == kept.keys()


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refusal:
        find_transcripts(tmp_path / "none.jsonl")
    assert refusal.value.code == "NOT_FOUND"


@pytest.mark.parametrize(
    ("at", "wanted"),
    [
        ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05.000Z"),
        (1_767_323_045, "2026-01-02T03:04:05.000Z"),
        (1_767_323_045_678, "2026-01-02T03:04:05.678Z"),
        (10**400, None),
        ("2026-01-02T03:04:05", None),
        ("yesterday", None),
        (True, None),
        (1e40, None),
        ({}, None),
        (None, None),
    ],
)
def test_times_are_told_in_utc_or_not_at_all(at: Any, wanted: str | None) -> None:
    assert time_of(at) == wanted


def test_numbers_are_told_as_ranges() -> None:
    assert ranges([1, 2, 3, 5, 7, 8]) == "1-3, 5, 7-8"
    assert ranges([]) == ""


def test_pipe_is_told_of_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    ((unread,), _) = read(tmp_path / "pipe.jsonl", tmp_path)
    assert isinstance(unread, UnreadItem)
    assert "is a pipe" in unread.reason
