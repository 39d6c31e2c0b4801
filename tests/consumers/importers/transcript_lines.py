"""Transcripts written for tests in the shapes of models' tools, line by line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

THINKING: Final = "The pool is closed early. So the login fails because no connection is left. 连接池关得太早。"
ANSWER: Final = "Close the pool at the end."
PROMPT: Final = "Why does the login fail? 为什么?"
MODEL: Final = "model-x-1"


def line(kind: str, uuid: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return a line of a session; ``parent``, ``message`` (its id) and other fields may be given."""
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"model": MODEL, "type": "message", "usage": {"output_tokens": 9}}
    if "message" in more:
        message["id"] = more.pop("message")
    return {
        "parentUuid": more.pop("parent", None),
        "isSidechain": False,
        "sessionId": "s-1",
        "version": "2.1.0",
        "cwd": "/shop",
        "type": kind,
        "message": message,
        "uuid": uuid,
        "timestamp": "2026-01-02T03:04:05.678Z",
    } | more


def thinking(text: str = THINKING, signature: str = "c2ln") -> list[dict[str, Any]]:
    """Return the content of a line with thinking."""
    return [{"type": "thinking", "thinking": text, "signature": signature}]


def says(text: str = ANSWER) -> list[dict[str, Any]]:
    """Return the content of a line that answers."""
    return [{"type": "text", "text": text}]


def calls(name: str = "Bash", **given: Any) -> list[dict[str, Any]]:
    """Return the content of a line that calls a tool."""
    return [{"type": "tool_use", "id": "t1", "name": name, "input": given}]


def session(number: int = 1, *, prompt: str = PROMPT, text: str = THINKING) -> list[dict[str, Any]]:
    """Return a prompt and a response of three lines, with the result of a tool between them."""
    message = f"msg_{number}"
    return [
        line("user", f"u{number}", prompt),
        line("assistant", f"a{number}", thinking(text), parent=f"u{number}", message=message),
        line("assistant", f"b{number}", calls(command="ls"), parent=f"a{number}", message=message),
        line("user", f"c{number}", [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}], parent=f"b{number}"),
        line("assistant", f"d{number}", says(), parent=f"c{number}", message=message),
    ]


def encoded(lines: list[Any]) -> bytes:
    """Return lines as a file holds them; bytes stay unchanged."""
    return b"".join(
        one if isinstance(one, bytes) else json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in lines
    )


def write(file: Path, lines: list[Any]) -> Path:
    """Write a transcript and return its file."""
    file.write_bytes(encoded(lines))
    return file
