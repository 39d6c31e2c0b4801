"""Clients that are not ours: the official SDK's, in this process or over stdio, and the MCP Inspector's command line.

The Inspector and the Node it needs are pinned in ``package.json`` and its lock; whoever asks for them first installs
them, once, under ``build/``.
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

import jsonschema
from mcp import Client, StdioServerParameters, stdio_client
from node_packages import install

from deedbook.consumers.interfaces.mcp.answers import answer_tokens_max
from deedbook.consumers.interfaces.mcp.server import DeedbookServer
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.errors import CODES
from deedbook.projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

HERE: Final = Path(__file__).parent
DEEDBOOK: Final = [sys.executable, "-m", "deedbook"]
call_max_s: Final = 60.0

# What an agent records of a session through the tools.
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
    """What a tool answered: its structured content, or its error."""

    data: dict[str, Any]
    error: dict[str, Any]

    @property
    def code(self) -> str:
        """The code of the error; empty when there is none."""
        return self.error.get("code", "")


class Caller:
    """Calls tools through an SDK client, and holds each answer against the rules all of them keep."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, tool: str, **arguments: Any) -> Called:
        """Call a tool; its answer is small and says the same twice, or it is an error with a code of ours."""
        result = await self.client.call_tool(tool, arguments)
        (content,) = result.content
        document = json.loads(content.text)
        assert count_tokens(content.text) <= answer_tokens_max
        if result.is_error:
            assert set(document) == {"code", "message", "recoverable", "details"}
            assert document["code"] in CODES
            return Called({}, document)
        assert document == result.structured_content
        return Called(document, {})


@contextlib.asynccontextmanager
async def calling(home: Path, agent: str | None = "alice", **options: Any) -> AsyncIterator[Caller]:
    """Call the tools of a server in this process, which signs as ``agent``."""
    with ToolLedger(agent, home=home, **options) as ledger:
        async with Client(DeedbookServer(ledger)) as client:
            yield Caller(client)


def call_tools(
    home: Path, work: Callable[[Caller], Awaitable[Any]], agent: str | None = "alice", **options: Any
) -> Any:
    """Run ``work`` with a caller of a server in this process, and return what it returns."""

    async def run() -> Any:
        async with calling(home, agent, **options) as call:
            return await work(call)

    return asyncio.run(run())


def parameters(home: Path, *options: str) -> StdioServerParameters:
    """Return how a client starts `deed mcp` over stdio."""
    return StdioServerParameters(
        command=DEEDBOOK[0], args=[*DEEDBOOK[1:], "mcp", "--home", str(home), *options], env=dict(os.environ)
    )


@contextlib.asynccontextmanager
async def over_stdio(home: Path, *options: str) -> AsyncIterator[Caller]:
    """Call the tools of a `deed mcp` process over its standard input and output."""
    async with Client(stdio_client(parameters(home, *options))) as client:
        yield Caller(client)


class HttpServer:
    """A `deed mcp --http` process."""

    def __init__(self, home: Path, *options: str) -> None:
        command = [*DEEDBOOK, "mcp", "--http", "--json", "--home", str(home), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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
        """Tell it to stop; return its exit code and what else it wrote."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=call_max_s)
        return self.process.returncode, out, err


class Inspector:
    """The command line of the MCP Inspector."""

    def __init__(self, modules: Path) -> None:
        self._command = [
            str(modules / "node" / "bin" / "node"),
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


def install_inspector() -> Inspector:
    """Return the Inspector, installed from its lock once."""
    return Inspector(install(HERE, "mcp-inspector") / "node_modules")


def check_answer(tools: dict[str, dict[str, Any]], name: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return the structured content of a result that keeps its output schema and the tokens of an answer."""
    assert not result.get("isError"), result
    jsonschema.Draft202012Validator(tools[name]["outputSchema"]).validate(result["structuredContent"])
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert count_tokens(json.dumps(result["structuredContent"])) <= answer_tokens_max
    found: dict[str, Any] = result["structuredContent"]
    return found


def kinds_in(home: Path) -> list[str]:
    """Return the kinds of all events of a ledger, in order."""
    with Ledger(home=home) as opened:
        return [one["kind"] for one in opened.client.view("catalog.find", {"limit": 500})["items"]]
