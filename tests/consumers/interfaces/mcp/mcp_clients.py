"""Clients of other projects: the official SDK's, in this process or over stdio, and the MCP Inspector's command line.

The Inspector and the Node it needs are pinned in ``package.json`` and its lock. The first test that needs them installs
them under ``build/``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from forked_deed import DeedProcess, deed_command
from mcp import Client, StdioServerParameters, stdio_client
from node_packages import install

from deedbook.consumers.interfaces.mcp.answers import answer_tokens_max
from deedbook.consumers.interfaces.mcp.server import DeedbookServer
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.consumers.sdk.quotation import UNTRUSTED_NOTICE
from deedbook.consumers.sdk.text import json_text
from deedbook.ledger.errors import CODES
from deedbook.projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

HERE: Final = Path(__file__).parent
DEEDBOOK: Final = [sys.executable, "-m", "deedbook"]
call_max_s: Final = 60.0

# Entries that an agent records in a session through the tools.
BEFORE = {"type": "assessment", "phase": "PREFLIGHT", "vectors": {"know": 0.5, "UNCERTAINTY": 0.6}}
AFTER = {"type": "assessment", "phase": "POSTFLIGHT", "vectors": {"know": 0.9, "uncertainty": 0.2}}
REASONED = [
    {"type": "finding", "finding": "The pool is never closed", "evidence": ["pool.py:3"], "impact": 0.8},
    {"type": "unknown", "unknown": "Who opened it first"},
    {"type": "dead_end", "approach": "collecting garbage", "why_failed": "the pool is referenced"},
    {"type": "tool", "tool": "tracemalloc"},
    {"type": "observation", "content": "The pool grows by 3 MB a second", "evidence": ["pool.py:3"]},
    {"type": "assumption", "content": "The load is that of production", "validation_method": "compare the logs"},
    {"type": "inference", "content": "Nobody closes the pool", "rests_on": [1, 2], "confidence": 0.9},
    {"type": "conclusion", "content": "Close the pool at shutdown", "rests_on": [3], "confidence": 0.9},
]


class Called(NamedTuple):
    """The answer of a tool: its structured content, or its error."""

    data: dict[str, Any]
    error: dict[str, Any]

    @property
    def code(self) -> str:
        """The code of the error; empty when there is none."""
        return self.error.get("code", "")


class Caller:
    """Calls tools through an SDK client, and checks each answer against the rules of all tools."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, tool: str, **arguments: Any) -> Called:
        """Call a tool; its answer is small and has the same content twice, or it is an error with one of our codes."""
        result = await self.client.call_tool(tool, arguments)
        answer = read_answer([content.text for content in result.content], result.structured_content)
        assert count_tokens(json_text(answer)) <= max(answer_tokens_max, (arguments.get("limit") or 0) * 250)
        if result.is_error:
            assert answer.keys() - {"others"} == {"code", "message", "recoverable", "details"}
            assert answer["code"] in CODES
            return Called({}, answer)
        return Called(answer, {})


def read_answer(texts: list[str], answer: dict[str, Any]) -> dict[str, Any]:
    """Return a structured answer, after checking that the texts have the same content and fence all untrusted texts."""
    own, *blocks = texts
    whole = {name: value for name, value in answer.items() if name != "others"}
    if "others" in answer:
        (block,) = blocks
        notice, label, untrusted, end = block.split("\n")
        assert notice == answer["others"]["words"] == UNTRUSTED_NOTICE
        assert label == '<others root="{root}" gate="{gate}">'.format(**answer["others"])
        assert "<" not in untrusted
        assert end == "</others>"
        for pointer in answer["others"]["fields"]:
            assert resolve_pointer(answer, pointer), pointer
    else:
        assert not blocks
        untrusted = "{}"
    assert merged(json.loads(own), json.loads(untrusted)) == whole
    return answer


def resolve_pointer(document: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer."""
    for name in pointer.split("/")[1:]:
        part = name.replace("~1", "/").replace("~0", "~")
        document = document[int(part) if isinstance(document, list) else part]
    return document


def merged(own: Any, untrusted: Any) -> Any:
    """Return an answer from its two parts. Two values of one key are both objects, or lists of the same length."""
    if isinstance(own, dict) and isinstance(untrusted, dict):
        names = [*own, *(name for name in untrusted if name not in own)]
        return {
            name: merged(own[name], untrusted[name])
            if name in own and name in untrusted
            else own.get(name, untrusted.get(name))
            for name in names
        }
    if untrusted == {}:
        return own
    if own == {}:
        return untrusted
    return [merged(*pair) for pair in zip(own, untrusted, strict=True)]


@contextlib.asynccontextmanager
async def calling(home: Path, agent: str | None = "alice", **options: Any) -> AsyncIterator[Caller]:
    """Call the tools of a server in this process, which signs as ``agent``."""
    with ToolLedger(agent, home=home, **options) as ledger:
        async with Client(DeedbookServer(ledger)) as client:
            yield Caller(client)


def call_tools(
    home: Path, work: Callable[[Caller], Awaitable[Any]], agent: str | None = "alice", **options: Any
) -> Any:
    """Run ``work`` with a caller of a server in this process, and return its result."""

    async def run() -> Any:
        async with calling(home, agent, **options) as call:
            return await work(call)

    return asyncio.run(run())


def parameters(home: Path, *options: str) -> StdioServerParameters:
    """Return how a client starts `deed mcp` over stdio."""
    program, *arguments = deed_command()
    return StdioServerParameters(
        command=program, args=[*arguments, "mcp", "--home", str(home), *options], env=dict(os.environ)
    )


@contextlib.asynccontextmanager
async def over_stdio(home: Path, *options: str) -> AsyncIterator[Caller]:
    """Call the tools of a `deed mcp` process over its standard input and output."""
    async with Client(stdio_client(parameters(home, *options))) as client:
        yield Caller(client)


class HttpServer:
    """A `deed mcp --http` process."""

    def __init__(self, home: Path, *options: str) -> None:
        pipe = subprocess.PIPE
        self.process = DeedProcess(
            "mcp", "--http", "--json", "--home", home, *options, stdout=pipe, stderr=pipe, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.said: dict[str, Any] = json.loads(line)["data"]
        self.url: str = self.said["url"]
        self.token_file = Path(self.said["token_file"])
        self.token = self.token_file.read_text("ascii").strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.stop()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send it a signal to stop; return its exit code and the rest of its output."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=call_max_s)
        return self.process.returncode, out, err


class Inspector:
    """The command line of the MCP Inspector, and the client in TypeScript."""

    def __init__(self, folder: Path) -> None:
        modules, self._folder = folder / "node_modules", folder
        self._node = str(modules / "node" / "bin" / "node")
        self._command = [
            self._node,
            str(modules / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"),
            "--cli",
        ]

    def __call__(self, target: list[str], method: str, *options: str, **arguments: str) -> dict[str, Any]:
        """Call a method of a server, with the arguments of a tool, and return its result."""
        given = [word for name, value in arguments.items() for word in ("--tool-arg", f"{name}={value}")]
        command = [*self._command, *target, "--method", method, *options, *given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=call_max_s, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def typescript(self, server: HttpServer, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        """Return the tools of a server and its answers to calls, as the client in TypeScript sees them."""
        command = [self._node, str(self._folder / "client.ts"), server.url, server.token, json.dumps(calls)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=call_max_s, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def install_inspector() -> Inspector:
    """Return the Inspector, installed from its lock once."""
    return Inspector(install(HERE, "mcp-inspector"))


def check_answer(result: dict[str, Any]) -> dict[str, Any]:
    """Return the structured content of a result. The text has the same content, within an answer's token limit."""
    assert not result.get("isError"), result
    answer = read_answer([content["text"] for content in result["content"]], result["structuredContent"])
    assert count_tokens(json_text(answer)) <= answer_tokens_max
    return answer


def kinds_in(home: Path) -> list[str]:
    """Return the kinds of all events of a ledger, in order."""
    with Ledger(home=home) as opened:
        return [one["kind"] for one in opened.client.view("catalog.find", {"limit": 500})["items"]]
