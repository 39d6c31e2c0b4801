"""A line on standard input that is no message: its sender gets an answer and does not wait for ever."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from forked_deed import DeedProcess

from deedbook.consumers.interfaces.mcp.stdio import line_size_max_bytes
from deedbook.ledger.errors import CODES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CALL = '"method":"tools/call","params":{"name":"search","arguments":{"text":%s}}'


@pytest.fixture(scope="module")
def process(shared_home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server on stdio, spoken to by hand."""
    pipe = subprocess.PIPE
    with DeedProcess("mcp", "--home", shared_home, "--as", "alice", stdin=pipe, stdout=pipe, stderr=pipe) as running:
        said = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "hand", "version": "1"}}
        begun = ask(running, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": said}).encode())
        assert begun["result"]["serverInfo"]["name"] == "deedbook"
        yield running
        assert running.stdin is not None
        assert running.stderr is not None
        running.stdin.close()
        assert (running.wait(60), running.stderr.read()) == (0, b"the tools sign as alice\n")


def ask(process: subprocess.Popen[bytes], line: bytes) -> dict[str, Any]:
    """Send a line and a request after it; return the first answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + b'\n{"jsonrpc":"2.0","id":"after","method":"ping"}\n')
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    after = answer if answer.get("id") == "after" else json.loads(process.stdout.readline())
    assert after["id"] == "after"
    return answer


LINES: list[tuple[str, bytes, int | str | None, int, str]] = [
    ("no json", b"hello", None, -32700, "INVALID_FORMAT"),
    ("no utf-8", b"\xff\xfe", None, -32700, "INVALID_FORMAT"),
    ("batch", b'[{"jsonrpc":"2.0","id":2,"method":"ping"}]', None, -32600, "INVALID_FORMAT"),
    ("number", b"5", None, -32600, "INVALID_FORMAT"),
    ("no version", b'{"id":77,"method":"ping"}', 77, -32600, "INVALID_FORMAT"),
    ("flag as id", b'{"id":true,"method":"ping"}', None, -32600, "INVALID_FORMAT"),
    ("list of params", b'{"jsonrpc":"2.0","id":"p","method":"tools/call","params":[1]}', "p", -32600, "INVALID_FORMAT"),
    (
        "half a surrogate pair",
        b'{"jsonrpc":"2.0",' + (CALL % '"\\ud800"').encode() + b',"id":3}',
        3,
        -32700,
        "INVALID_FORMAT",
    ),
    ("half a pair as id", b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', None, -32700, "INVALID_FORMAT"),
    (
        "too deep",
        b'{"jsonrpc":"2.0","id":4,' + (CALL % ("[" * 3000 + "]" * 3000)).encode() + b"}",
        4,
        -32700,
        "INVALID_FORMAT",
    ),
    (
        "too long",
        b'{"jsonrpc":"2.0","id":5,' + (CALL % f'"{"x" * line_size_max_bytes}"').encode() + b"}",
        5,
        -32700,
        "TOO_LARGE",
    ),
    (
        "too long, and only a nested id",
        b'{"params":{"id":6,"text":"' + b"x" * line_size_max_bytes + b'"},"id":7,"method":"ping","jsonrpc":"2.0"}',
        None,
        -32700,
        "TOO_LARGE",
    ),
    (
        "too long an integer",
        b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}',
        None,
        -32700,
        "INVALID_FORMAT",
    ),
    ("an answer that is none", b'{"jsonrpc":"2.0","id":8}', None, -32600, "INVALID_FORMAT"),
]


@pytest.mark.parametrize(("line", "name", "number", "code"), [one[1:] for one in LINES], ids=[one[0] for one in LINES])
def test_line_that_is_no_message_is_answered_by_its_id(
    process: subprocess.Popen[bytes], line: bytes, name: int | str | None, number: int, code: str
) -> None:
    answer = ask(process, line)
    assert (answer["id"], answer["error"]["code"]) == (name, number)
    error = answer["error"]["data"]
    assert (error["code"], error["recoverable"]) == (code, CODES[code].recoverable)


def test_empty_lines_are_passed_over(process: subprocess.Popen[bytes]) -> None:
    assert ask(process, b'\n \r\n{"jsonrpc":"2.0","id":9,"method":"ping"}') == {"jsonrpc": "2.0", "id": 9, "result": {}}


def test_prompt_is_refused_as_there_is_none(process: subprocess.Popen[bytes]) -> None:
    answer = ask(process, b'{"jsonrpc":"2.0","id":10,"method":"prompts/get","params":{"name":"x"}}')
    assert (answer["error"]["code"], answer["error"]["data"]["code"]) == (-32602, "NOT_FOUND")
