"""Made-up sessions in the formats that Claude Code, Codex CLI and Gemini CLI write."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

CLAUDE_ID: Final = "6f1f0f0e-53a3-4f1e-9a55-0c5f3a0d2b11"
CODEX_ID: Final = "01a22b9b-4f9e-7b43-9902-67a8b35a6532"
GEMINI_ID: Final = "c1a8f7e2-6d7b-4f3c-8f64-1f0a9d5e7c22"
REQUEST: Final = "The importer drops the last line of a file. Find out why."
SECOND: Final = "/src/lines.py has the same fault, hasn't it?"


def at(number: int) -> str:
    """Return the time of a line."""
    return f"2026-11-29T10:{number // 60:02}:{number % 60:02}.000Z"


def encoded(rows: list[dict[str, Any] | str]) -> bytes:
    """Return rows as JSON Lines; a row that is a text is written unchanged."""
    return b"".join((row if isinstance(row, str) else json.dumps(row)).encode() + b"\n" for row in rows)


def write(file: Path, rows: list[dict[str, Any] | str]) -> Path:
    """Write a session and return its file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(encoded(rows))
    return file


class ClaudeLines:
    """Lines of Claude Code, each after the one before it."""

    def __init__(self, folder: str, session: str = CLAUDE_ID) -> None:
        self.rows: list[dict[str, Any] | str] = []
        self._folder, self._session = folder, session
        self.last: str | None = None

    def add(self, role: str, content: Any, *, parent: str | None = None, **more: Any) -> str:
        """Add a line, after ``parent`` if that is given, and return its id."""
        number = len(self.rows)
        uuid = f"00000000-0000-4000-8000-{number:012}"
        message: dict[str, Any] = {"role": role, "content": content}
        if role == "assistant":
            message |= {"id": more.pop("message", f"msg_{number:024}"), "type": "message", "model": "a-model"}
        self.rows.append(
            {
                "parentUuid": parent or self.last,
                "isSidechain": False,
                "userType": "external",
                "cwd": self._folder,
                "sessionId": self._session,
                "version": "2.1.197",
                "gitBranch": "main",
                "type": role,
                "message": message,
                "uuid": uuid,
                "timestamp": at(number),
            }
            | more
        )
        self.last = uuid
        return uuid


def claude_lines(folder: str) -> ClaudeLines:
    """Return a session with thinking, two parallel tool calls, an image and texts of the harness."""
    lines = ClaudeLines(folder)
    lines.rows.append({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}})
    lines.add("user", "<command-name>/clear</command-name>", isMeta=True)
    lines.add("user", REQUEST)
    think = [{"type": "thinking", "thinking": "It is the end of the file.", "signature": "c2ln"}]
    lines.add("assistant", think, message="msg_one")
    lines.add("assistant", [{"type": "text", "text": "I read the reader first."}], message="msg_one")
    for id_, command in (("t1", "cat src/reader.py"), ("t2", "pytest -q")):
        call = {"type": "tool_use", "id": id_, "name": "Bash", "input": {"command": command}}
        lines.add("assistant", [call], message="msg_one")
    error = {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "1 failed"}]}
    lines.add("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "while line := f.readline():"}])
    lines.add("user", [error | {"is_error": True}])
    lines.add("assistant", [{"type": "text", "text": "The last line has no line feed."}])
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    lines.add("user", [{"type": "text", "text": SECOND}, image])
    lines.add("assistant", [{"type": "text", "text": "Yes, in line 12."}])
    return lines


_CLAUDE_WORK: Final = """I read the reader first.

[tool Bash] {"command": "cat src/reader.py"}

[result] while line := f.readline():

[tool Bash] {"command": "pytest -q"}

[error] 1 failed"""
CLAUDE_TEXTS: Final = [
    ("user", REQUEST),
    ("assistant", _CLAUDE_WORK),
    ("assistant", "The last line has no line feed."),
    ("user", SECOND),
    ("assistant", "Yes, in line 12."),
]


def codex_rows(folder: str) -> list[dict[str, Any] | str]:
    """Return a session with its instructions, encrypted reasoning, a call of a command and a patch."""

    def item(number: int, **payload: Any) -> dict[str, Any]:
        return {"timestamp": at(number), "ordinal": number, "type": "response_item", "payload": payload}

    def text(number: int, role: str, text: str) -> dict[str, Any]:
        type_ = "output_text" if role == "assistant" else "input_text"
        return item(number, type="message", role=role, content=[{"type": type_, "text": text}])

    def event(number: int, **payload: Any) -> dict[str, Any]:
        return {"timestamp": at(number), "ordinal": number, "type": "event_msg", "payload": payload}

    meta = {"session_id": CODEX_ID, "id": CODEX_ID, "timestamp": at(0), "cwd": folder, "originator": "codex_cli_rs"}
    meta |= {"cli_version": "0.171.0", "source": "cli", "model_provider": "openai", "git": {"branch": "main"}}
    return [
        {"timestamp": at(0), "ordinal": 0, "type": "session_meta", "payload": meta},
        event(1, type="task_started", turn_id="turn-1", started_at=1796027928),
        text(2, "developer", "<permissions instructions>…"),
        text(3, "user", f"<environment_context>\n  <cwd>{folder}</cwd>\n</environment_context>"),
        {"timestamp": at(4), "ordinal": 4, "type": "turn_context", "payload": {"turn_id": "turn-1", "cwd": folder}},
        text(5, "user", REQUEST),
        event(6, type="user_message", message=REQUEST, images=[]),
        item(7, type="reasoning", summary=[], content=None, encrypted_content="gAAAA"),
        text(8, "assistant", "I look at the reader."),
        event(9, type="agent_message", message="I look at the reader."),
        item(10, type="function_call", name="exec_command", arguments='{"cmd": "tail -1 a"}', call_id="c1"),
        item(11, type="function_call_output", call_id="c1", output="Process exited with code 0\nOutput:\nlast"),
        item(
            12, type="custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c2", status="completed"
        ),
        item(
            13, type="custom_tool_call_output", call_id="c2", output='{"output":"Success","metadata":{"exit_code":0}}'
        ),
        text(14, "assistant", "Repaired."),
        event(15, type="task_complete", turn_id="turn-1", last_agent_message="Repaired."),
    ]


_CODEX_WORK: Final = """I look at the reader.

[tool exec_command] {"cmd": "tail -1 a"}

[result] Process exited with code 0
Output:
last

[tool apply_patch] *** Begin Patch

[result] Success"""
CODEX_TEXTS: Final = [("user", REQUEST), ("assistant", _CODEX_WORK), ("assistant", "Repaired.")]


def gemini_rows(folder: str) -> list[dict[str, Any] | str]:
    """Return a session with texts of the harness, thoughts, a tool call, and a repeated and a withdrawn message."""

    def message(number: int, type_: str, text: str, **more: Any) -> dict[str, Any]:
        return {"id": f"g{number}", "timestamp": at(number), "type": type_, "content": [{"text": text}]} | more

    shell = {"id": "run-1", "name": "run_shell_command", "args": {"command": "tail -1 a"}, "status": "success"}
    response = {"functionResponse": {"id": "run-1", "name": "run_shell_command", "response": {"output": "last"}}}
    thought = {"subject": "End of file", "description": "No line feed.", "timestamp": at(3)}
    digest = hashlib.sha256(folder.encode()).hexdigest()
    return [
        {"sessionId": GEMINI_ID, "projectHash": digest, "startTime": at(0), "lastUpdated": at(9), "kind": "main"},
        message(1, "user", "<session_context>\nToday is Sunday.\n</session_context>"),
        message(2, "user", REQUEST),
        message(3, "gemini", "I look at"),
        message(3, "gemini", "I look at the reader.", thoughts=[thought], toolCalls=[shell | {"result": [response]}]),
        {"$set": {"lastUpdated": at(4)}},
        message(5, "user", "Something else"),
        message(6, "gemini", "As you like."),
        {"$rewindTo": "g5"},
        message(7, "info", "Request cancelled."),
        message(8, "user", "Go on."),
        message(9, "gemini", "Repaired."),
    ]


GEMINI_TEXTS: Final = [
    ("user", REQUEST),
    (
        "assistant",
        'I look at the reader.\n\n[tool run_shell_command] {"command": "tail -1 a"}\n\n[result] last',
    ),
    ("user", "Go on."),
    ("assistant", "Repaired."),
]
