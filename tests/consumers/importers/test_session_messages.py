"""The messages of sessions are read as they were said, whatever else is in the files."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from credentials import CREDENTIALS, GITHUB
from harness_sessions import (
    CLAUDE_TEXTS,
    CODEX_TEXTS,
    GEMINI_TEXTS,
    REQUEST,
    ClaudeLines,
    at,
    claude_lines,
    codex_rows,
    gemini_rows,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbook.consumers.importers.transcripts import messages as reader
from deedbook.consumers.importers.transcripts.files import line_size_max_bytes
from deedbook.consumers.importers.transcripts.messages import read_messages
from deedbook.ledger.errors import Refused
from deedbook.ledger.secrets.scanner import scan

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.consumers.importers.transcripts.messages import HarnessName, SessionTranscript


def texts(transcript: SessionTranscript) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in transcript.messages]


def test_session_of_claude_code_is_read(tmp_path: Path) -> None:
    transcript = read_messages(write(tmp_path / "s.jsonl", claude_lines("/shop").rows), "claude-code")
    assert texts(transcript) == CLAUDE_TEXTS
    assert transcript.folder == "/shop"
    assert transcript.messages[0].at == at(2)
    assert transcript.calls == {"Bash": 2}
    assert transcript.left_out == {"thinking block": 1, "image": 1, "harness text": 1}


def test_session_of_codex_is_read(tmp_path: Path) -> None:
    transcript = read_messages(write(tmp_path / "s.jsonl", codex_rows("/shop")), "codex")
    assert texts(transcript) == CODEX_TEXTS
    assert transcript.calls == {"exec_command": 1, "apply_patch": 1}
    assert transcript.left_out == {"thinking block": 1, "harness text": 2}


def test_session_of_gemini_is_read(tmp_path: Path) -> None:
    transcript = read_messages(write(tmp_path / "s.jsonl", gemini_rows("/shop")), "gemini")
    assert texts(transcript) == GEMINI_TEXTS
    assert transcript.left_out == {"withdrawn message": 2, "harness text": 2, "thinking block": 1}


def test_document_of_an_older_gemini_is_read(tmp_path: Path) -> None:
    first, *rows = [row for row in gemini_rows("/shop") if isinstance(row, dict) and "$set" not in row]
    document = first | {"messages": [row for row in rows if row.get("id") in ("g2", "g8", "g9")]}
    (tmp_path / "session.json").write_text(json.dumps(document, indent=2))
    assert [role for role, _ in texts(read_messages(tmp_path / "session.json", "gemini"))] == [
        "user",
        "user",
        "assistant",
    ]


def test_edited_prompt_replaces_the_branch_below_the_first_one(tmp_path: Path) -> None:
    lines = ClaudeLines("/shop")
    start = lines.add("user", REQUEST)
    answer = lines.add("assistant", [{"type": "text", "text": "Which file?"}], parent=start)
    lines.add("user", "a.py")
    lines.add("assistant", [{"type": "text", "text": "I look at a.py."}])
    lines.add("assistant", [{"type": "text", "text": "Done in a.py."}])
    lines.add("user", "b.py", parent=answer)
    lines.add("assistant", [{"type": "text", "text": "Done in b.py."}])
    transcript = read_messages(write(tmp_path / "s.jsonl", lines.rows), "claude-code")
    assert [text for _, text in texts(transcript)] == [REQUEST, "Which file?", "b.py", "Done in b.py."]
    assert transcript.left_out == {"withdrawn message": 3}


def test_turns_that_codex_rolled_back_are_left_out(tmp_path: Path) -> None:
    rows = codex_rows("/shop")
    rolled = {"timestamp": at(20), "type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    again = [row for row in rows if isinstance(row, dict) and row["payload"].get("role") in ("user", "assistant")]
    transcript = read_messages(write(tmp_path / "s.jsonl", [*rows, *again, rolled]), "codex")
    assert texts(transcript) == CODEX_TEXTS


def test_sub_agents_and_errors_of_the_vendor_are_left_out(tmp_path: Path) -> None:
    lines = claude_lines("/shop")
    lines.add("assistant", [{"type": "text", "text": "I search."}], isSidechain=True)
    lines.add("assistant", [{"type": "text", "text": "API Error: 529"}], isApiErrorMessage=True)
    transcript = read_messages(write(tmp_path / "s.jsonl", lines.rows), "claude-code")
    assert texts(transcript) == CLAUDE_TEXTS
    assert transcript.left_out["sub-agent message"] == 1


def test_lines_that_nobody_can_read_are_counted(tmp_path: Path) -> None:
    nested = "[" * 100_000 + "]" * 100_000
    bad = ["{broken", nested, '{"type": "user", "message": ' + nested + "}", "[1]", '"text"', "{}"]
    huge = '{"type": "user", "message": {"content": "' + "x" * line_size_max_bytes + '"}}'
    rows: list[Any] = [*bad[:3], huge, *claude_lines("/shop").rows, *bad[3:]]
    transcript = read_messages(write(tmp_path / "s.jsonl", rows), "claude-code")
    assert texts(transcript) == CLAUDE_TEXTS
    assert transcript.left_out["unreadable line"] == 6


@pytest.mark.parametrize("harness", ["claude-code", "codex", "gemini"])
def test_file_without_a_message_is_refused(tmp_path: Path, harness: HarnessName) -> None:
    for name, content in (("empty.jsonl", b""), ("noise.jsonl", os.urandom(2_000)), ("other.json", b'{"a": [1]}')):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Refused, match="has no messages"):
            read_messages(tmp_path / name, harness)


def test_link_and_pipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to(write(tmp_path / "s.jsonl", claude_lines("/shop").rows))
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in ("link.jsonl", "pipe.jsonl"):
        with pytest.raises(Refused, match="INVALID_FORMAT"):
            read_messages(tmp_path / name, "claude-code")


def test_session_of_gemini_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "document_size_max_bytes", 100)
    with pytest.raises(Refused, match="TOO_LARGE"):
        read_messages(write(tmp_path / "s.jsonl", gemini_rows("/shop")), "gemini")


FIELDS = (
    *("type", "role", "message", "content", "text", "payload", "id", "uuid", "parentUuid", "name", "input", "call_id"),
    *("output", "toolCalls", "thoughts", "result", "$set", "$rewindTo", "messages", "num_turns", "timestamp", "cwd"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=8,
)
TYPES = ("user", "assistant", "gemini", "event_msg", "response_item", "session_meta", "tool_use", "function_call")


@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON | st.sampled_from(TYPES)), max_size=4), st.data())
@settings(max_examples=60)
def test_any_fields_are_read_without_an_error(rows: list[Any], data: st.DataObject) -> None:
    harness: HarnessName = data.draw(st.sampled_from(["claude-code", "codex", "gemini"]))
    reading = reader._READINGS[harness]()
    for row in rows:
        reading.feed(row)
    reading.finish()
    assert all(message.text.strip() for message in reading.transcript(harness).messages)


@pytest.mark.parametrize("position", [0, 20, 39_970, 39_980, 40_000, 44_070, 44_096])
def test_secret_at_a_cut_leaves_no_part_of_itself(tmp_path: Path, position: int) -> None:
    lines = ClaudeLines("/shop")
    words = "word " * 10_000
    lines.add("user", f"{words[:position]} {GITHUB} {words[position:]}")
    (message,) = read_messages(write(tmp_path / "s.jsonl", lines.rows), "claude-code").messages
    assert GITHUB[:12] not in message.text
    assert len(message.text) < reader.message_max_chars + 100


def test_secret_at_the_end_of_what_was_scanned_leaves_no_part_of_itself(tmp_path: Path) -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{'MIIEvQIBADANBgkq' * 500}\n-----END PRIVATE KEY-----\n"
    words = ("word " * 10_000)[: reader.message_max_chars + reader._margin_chars - len(key) - 25]
    lines = ClaudeLines("/shop")
    lines.add("user", f"{key}{words} {GITHUB} {words}")
    (message,) = read_messages(write(tmp_path / "s.jsonl", lines.rows), "claude-code").messages
    assert message.text.startswith("[redacted: private key]")
    assert GITHUB[:12] not in message.text


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in CREDENTIALS.items() for text in texts])
def test_no_form_of_a_secret_is_in_a_message(tmp_path: Path, kind: str, text: str) -> None:
    lines = ClaudeLines("/shop")
    lines.add("user", f"Use this: {text}")
    call = {"type": "tool_use", "id": "t", "name": "Write", "input": {"file_path": ".env", "content": text}}
    lines.add("assistant", [{"type": "text", "text": f"I use {text}."}, call])
    lines.add("user", [{"type": "tool_result", "tool_use_id": "t", "content": f"wrote\n{text}\n"}])
    transcript = read_messages(write(tmp_path / "s.jsonl", lines.rows), "claude-code")
    assert transcript.secrets[kind] >= 3
    assert scan([message.text for message in transcript.messages]) is None


def test_of_a_long_session_the_first_request_and_the_newest_messages_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "messages_max", 5)
    lines = ClaudeLines("/shop")
    for number in range(10):
        lines.add("user", f"request {number}")
    transcript = read_messages(write(tmp_path / "s.jsonl", lines.rows), "claude-code")
    assert [text for _, text in texts(transcript)] == [f"request {number}" for number in (0, 6, 7, 8, 9)]
    assert transcript.left_out == {"older message": 5}
