"""The shapes of transcripts by vendors and their tools are read; a part that is no text is reported once."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from pieces import pieces
from transcript_lines import ANSWER, PROMPT, THINKING, calls, encoded, line, says, session, thinking, write

from deedbook.consumers.importers.transcripts.conversation import Progress, TranscriptResponse, UnreadItem
from deedbook.consumers.importers.transcripts.files import read_transcript
from deedbook.consumers.importers.transcripts.mapping import MappedThinking, record_of, thinking_in

if TYPE_CHECKING:
    from pathlib import Path

TAGGED = f"<think>{THINKING}</think>\n{ANSWER}"
ASKED: dict[str, Any] = {"role": "user", "parts": [{"text": PROMPT}]}
THOUGHT = [{"text": THINKING, "thought": True}, {"text": ANSWER}]
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]}
SUMMED = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": THINKING}]}
API = {"role": "assistant", "reasoning_content": THINKING, "content": ANSWER}


def item(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a line of a session that carries an item of the API."""
    return {"timestamp": "2026-01-02T03:04:05.678Z", "type": "response_item", "payload": payload}


SHAPES: dict[str, list[Any]] = {
    "gemini, a response": [{"task": PROMPT, "candidates": [{"content": {"role": "model", "parts": THOUGHT}}]}],
    "gemini, a conversation": [{"contents": [ASKED, {"role": "model", "parts": THOUGHT}]}],
    "gemini, a session": [
        {
            "messages": [
                {"type": "user", "content": PROMPT},
                {"type": "gemini", "content": ANSWER, "thoughts": [{"subject": "x", "description": THINKING}]},
            ]
        }
    ],
    "gemini, asked and answered": [
        {"contents": [ASKED], "task": PROMPT, "candidates": [{"content": {"parts": THOUGHT}}]}
    ],
    "openai, responses": [{"task": PROMPT, "output": [SUMMED, SAID]}],
    "openai, asked and answered": [
        {"messages": [{"role": "user", "content": PROMPT}], "task": PROMPT, "response": {"choices": [{"message": API}]}}
    ],
    "openai, content in parts": [
        {"role": "user", "content": PROMPT},
        API | {"content": [{"type": "text", "text": ANSWER}]},
    ],
    "parts of a tool": [
        {"role": "user", "parts": [{"type": "text", "text": PROMPT}]},
        {"role": "assistant", "parts": [{"type": "reasoning", "text": THINKING}, {"type": "text", "text": ANSWER}]},
    ],
    "an export of chats": [
        {
            "uuid": "c",
            "chat_messages": [
                {"sender": "human", "content": [{"type": "text", "text": PROMPT}]},
                {"sender": "assistant", "content": [*thinking(), *says()]},
            ],
        }
    ],
    "from and value": [{"conversations": [{"from": "human", "value": PROMPT}, {"from": "gpt", "value": TAGGED}]}],
    "a data set": [{"prompt": PROMPT, "generation": TAGGED}],
}


def read(file: Path) -> tuple[list[MappedThinking | UnreadItem | None], Progress]:
    """Return the content of a file, and the counts."""
    progress = Progress()
    found = [
        thinking_in(one) if isinstance(one, TranscriptResponse) else one
        for one in read_transcript(file, file, progress)
    ]
    return found, progress


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["s.jsonl", "s.json"])
def test_thinking_of_every_vendor_is_found_with_its_prompt_and_answer(tmp_path: Path, shape: str, name: str) -> None:
    lines = SHAPES[shape]
    if name == "s.json":
        (tmp_path / name).write_text(json.dumps(lines[0] if len(lines) == 1 else lines, indent=1))
    else:
        write(tmp_path / name, lines)
    (thought,) = [one for one in read(tmp_path / name)[0] if one is not None]
    assert isinstance(thought, MappedThinking)
    parts = [piece.text for piece in pieces(thought.extraction)]
    assert THINKING in "".join(parts)
    assert (thought.memory.task, thought.memory.conclusion) == (PROMPT, ANSWER)


def test_items_of_a_session_are_read_at_the_time_of_their_line(tmp_path: Path) -> None:
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": PROMPT}]}
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    called = {"type": "function_call", "name": "shell", "arguments": "{}"}
    lines = [item(one) for one in (asked, SUMMED, called, hidden)]
    found, progress = read(write(tmp_path / "s.jsonl", lines))
    thought, unreadable = found
    assert isinstance(thought, MappedThinking)
    assert (thought.memory.task, thought.answered.at) == (PROMPT, "2026-01-02T03:04:05.678Z")
    assert isinstance(unreadable, UnreadItem)
    assert "redacted" in unreadable.reason
    assert progress.skipped == 2


def test_a_message_that_only_calls_tools_about_thinking_is_passed_over(tmp_path: Path) -> None:
    lines = [line("assistant", "a", calls(command="grep thinking"), message="m-1"), *session()]
    found, progress = read(write(tmp_path / "s.jsonl", lines))
    assert [type(one) for one in found] == [MappedThinking]
    assert progress.skipped == 3  # a call, a prompt and a result are no thinking


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(encoded(session())), "gzip"),
        (encoded(session()).decode().encode("utf-16"), "UTF-16"),
        (b"PK\x03\x04" + b"\n" * 50, "zip"),
    ],
)
@pytest.mark.parametrize("name", ["s.jsonl", "s.json", "s.txt"])
def test_a_file_that_is_no_text_is_one_thing_unread(tmp_path: Path, content: bytes, said: str, name: str) -> None:
    (tmp_path / name).write_bytes(content)
    (unread,), _ = read(tmp_path / name)
    assert isinstance(unread, UnreadItem)
    assert (unread.original, said in unread.reason) == (content, True)


@pytest.mark.parametrize("kind", [{}, [], 7, None, True])
def test_a_type_that_is_no_text_harms_nothing(tmp_path: Path, kind: Any) -> None:
    odd = {"type": kind, "payload": {"type": kind}, "role": "user", "content": [{"type": kind, "thought": True}]}
    found, _ = read(write(tmp_path / "s.jsonl", [odd, odd | {"role": "assistant"}, *session()]))
    assert [type(one) for one in found if isinstance(one, MappedThinking)] == [MappedThinking]


def test_a_resumed_session_repeats_its_responses_under_the_same_names(tmp_path: Path) -> None:
    lines = [
        line("user", "u", PROMPT),
        line("assistant", "a", thinking(), message="msg_01AbCdEfGhIjKlMnOpQr", sessionId="s-1"),
        line("assistant", "b", thinking(), message="msg_01AbCdEfGhIjKlMnOpQr", sessionId="s-2"),
        line("assistant", "c", thinking(), message="short", sessionId="s-1"),
        line("assistant", "d", thinking(), message="short", sessionId="s-2"),
    ]
    found = [one for one in read(write(tmp_path / "s.jsonl", lines))[0] if isinstance(one, MappedThinking)]
    long_one, long_two, short_one, short_two = (one.names[0] for one in found)
    assert long_one == long_two
    assert short_one != short_two


@pytest.mark.parametrize("number", ["1234567890123456789", "NaN", "-Infinity", "1e999", "9" * 5000])
@pytest.mark.parametrize("name", ["s.jsonl", "s.json"])
def test_a_number_that_no_event_holds_costs_no_thinking_and_is_told(tmp_path: Path, number: str, name: str) -> None:
    text = json.dumps({"message": API, "score": "@"}).replace('"@"', number)
    (tmp_path / name).write_text(text)
    ((thought,), _) = read(tmp_path / name)
    assert isinstance(thought, MappedThinking)
    assert thought.memory.conclusion == ANSWER
    first = record_of(thought, "x", "blake3:" + "0" * 64, None).data
    assert [one["value"][:19] for one in first.claims["dirty"]] == [number[:19]]


def test_a_number_excuses_no_other_fault(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(
        '{"score": NaN, "thinking": "a", "thinking": "b"}\n{"score": NaN, "thinking": }\n'
    )
    found, _ = read(tmp_path / "s.jsonl")
    assert [type(one) for one in found] == [UnreadItem, UnreadItem]


def test_null_among_messages_costs_none_of_them(tmp_path: Path) -> None:
    lines = [None, {"role": "user", "content": PROMPT}, API, 7]
    for document in (lines, {"messages": lines}):
        (tmp_path / "s.json").write_text(json.dumps(document))
        ((thought,), _) = read(tmp_path / "s.json")
        assert isinstance(thought, MappedThinking)
