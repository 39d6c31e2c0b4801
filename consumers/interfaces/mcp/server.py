"""The server: eight tools under published schemas, typed errors, compact answers, resources, instructions.

Tools are plain functions; the SDK runs each call of one in a thread of its own, so calls do not wait for one another,
and what was begun is finished there even when its client has cancelled: a submission is in the ledger whole or not at
all. What this class changes of the SDK's is the form of an answer: compact, and errors in the ledger's codes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import quote

from mcp import types
from mcp.server import MCPServer
from mcp.server.auth.provider import TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from deedbook.consumers.interfaces.mcp.answers import check_arguments, error_dict, failed, fault_of, plain
from deedbook.consumers.interfaces.mcp.handoffs import HandoffTools
from deedbook.consumers.interfaces.mcp.lookup import LookupTools
from deedbook.consumers.interfaces.mcp.record import RecordTool
from deedbook.consumers.interfaces.mcp.reports import ReportTools
from deedbook.consumers.interfaces.mcp.stdio import Answering
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.consumers.reasoning.compressor.transfer import receive_brief
from deedbook.consumers.sdk.text import json_text
from deedbook.consumers.sessions.resume import whole
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.projections.answers.checked import ask
from deedbook.projections.briefs.prompt import TransferLevel

_log: Final = logging.getLogger(__name__)

NAME: Final = "deedbook"
listed_max: Final = 5
MARKDOWN: Final = "text/markdown"
TEXT: Final = "text/plain"

INSTRUCTIONS: Final = Path(__file__).with_name("instructions.md").read_text("utf-8")
"""What an agent is told of these tools when it connects."""


class ToolText(NamedTuple):
    """How a tool is announced: its title, what it is for, whether it only reads, whether repeating it adds nothing."""

    title: str
    description: str
    reads: bool = True
    repeatable: bool = True


TEXTS: Final[dict[str, ToolText]] = {
    "generate_handoff_report": ToolText(
        "Make a handoff report",
        "Sign the report of a session so that the next agent resumes from it. Use it at the end of the work; what you"
        " leave out is taken from what the session recorded. Making the same report again adds nothing.",
        reads=False,
    ),
    "resume_previous_session": ToolText(
        "Resume from earlier sessions",
        "Read what the last session learned, what failed, what is open and what is next. Use it when you start.",
    ),
    "query_handoff_reports": ToolText(
        "Find handoff reports",
        "Find reports by agent, date and task pattern: what did minimax work on last week?",
    ),
    "record_reasoning": ToolText(
        "Record work and reasoning",
        "Record assessments, findings, unknowns, dead ends and tools of a session, and steps of a reasoning, signed and"
        " all together or not at all. With `task`, a session or reasoning that does not exist is started; the answer"
        " names it. An assessment of phase POSTFLIGHT makes the session's report. An entry of type thoughts has six"
        " agents search a hard problem while you work.",
        reads=False,
        repeatable=False,
    ),
    "fetch_reasoning": ToolText(
        "Read another agent's reasoning",
        "Get a brief of a reasoning with its measured fidelity, how its evidence stands and whether you may act on it;"
        " level full gives the whole graph, its hash recomputed, in pages.",
    ),
    "handoff_next": ToolText(
        "What waits for me",
        "List the handoffs that wait for you, most urgent first, or all there are, each with the call that goes on.",
    ),
    "handoff_act": ToolText(
        "Act on a handoff",
        "Create a handoff, claim it, check tasks and criteria, log, block, unblock, release, complete, amend or cancel"
        " it; ask why it is not ready, or show it. Approve, reject, waive, verify and request_changes are for an agent"
        " that is its reviewer; a person does them in a terminal.",
        reads=False,
        repeatable=False,
    ),
    "search": ToolText(
        "Search the ledger",
        "Find events by words: findings, reasoning steps, handoffs, reports.",
    ),
}


class DeedbookServer(MCPServer[Any]):
    """The MCP server of one ledger."""

    def __init__(
        self, ledger: ToolLedger, *, auth: AuthSettings | None = None, token_verifier: TokenVerifier | None = None
    ) -> None:
        """Serve the tools at the ledger; over HTTP only to who has the token."""
        # Each is a tool's method by its name in TEXTS.
        boxes = (ReportTools(ledger), RecordTool(ledger), LookupTools(ledger), HandoffTools(ledger))
        tools = [make_tool(getattr(box, name)) for name in TEXTS for box in boxes if hasattr(box, name)]
        super().__init__(
            NAME,
            title="Deedbook",
            description="A signed, append-only ledger of what agents learn and hand over.",
            instructions=INSTRUCTIONS,
            version=version("deedbook"),
            tools=tools,
            auth=auth,
            token_verifier=token_verifier,
            log_level="WARNING",
        )
        self._ledger = ledger
        self._arguments = {tool.name: list(tool.parameters["properties"]) for tool in tools}
        _add_resources(self, ledger)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Call a tool: its answer as structured data and compact JSON, or its error in the ledger's codes."""
        try:
            if name not in self._arguments:
                raise Refused("NOT_FOUND", f"there is no tool {name[:80]!r}: there are {', '.join(self._arguments)}")
            await asyncio.to_thread(getattr, self._ledger, "client")  # in a folder that is not trusted each is refused
            check_arguments(name, self._arguments[name], arguments)
            result = await super().call_tool(name, arguments, context)
        except DeedbookError as error:
            return _refused(name, error)
        except ToolError as error:
            return _refused(name, fault_of(error, name))
        if isinstance(result, types.CallToolResult):
            answer = plain(result.structured_content)
            content = types.TextContent(type="text", text=json_text(answer))
            return result.model_copy(update={"content": [content], "structured_content": answer})
        return result

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> NoReturn:
        """Refuse every prompt: there is none, and the SDK would answer with an error that has no code."""
        message = f"there is no prompt {name[:80]!r}: this server has tools and resources"
        error = error_dict(Refused("NOT_FOUND", message))
        raise MCPError(code=types.INVALID_PARAMS, message=error["message"], data=error)

    async def run_stdio_async(self) -> None:
        """Serve over standard input and output; each line that is no message is answered, too."""
        server = self._lowlevel_server
        async with stdio_server() as (reading, writing):
            await server.run(Answering(reading, writing), writing, server.create_initialization_options())

    async def list_resources(self) -> list[types.Resource]:
        """List the latest briefs and reports: the templates name every other."""
        try:
            listed = await asyncio.to_thread(latest, self._ledger)
        except DeedbookError as error:
            raise MCPError(code=types.INTERNAL_ERROR, message=error.message, data=error_dict(error)) from error
        return [*await super().list_resources(), *listed]


def make_tool(function: Callable[..., Any]) -> Tool:
    """Return the tool that a function is, with its annotations, refusing arguments it does not name."""
    name, text = function.__name__, TEXTS[function.__name__]
    annotations = types.ToolAnnotations(
        title=text.title,
        read_only_hint=text.reads,
        idempotent_hint=text.repeatable,
        open_world_hint=False,
        destructive_hint=False,  # events are added, and none is ever changed
    )
    tool = Tool.from_function(
        function,
        name=name,
        title=text.title,
        description=text.description,
        structured_output=True,
        annotations=annotations,
    )
    tool.parameters["additionalProperties"] = False
    slim(tool.parameters)
    slim(tool.fn_metadata.output_schema)
    return tool


def slim(schema: Any) -> None:
    """Take out of a schema what each session would pay for: titles that repeat names, null for what is optional."""
    if isinstance(schema, list):
        for part in schema:
            slim(part)
    elif isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        if "default" in schema and schema["default"] is None and {"type": "null"} in schema.get("anyOf", []):
            left = [part for part in schema.pop("anyOf") if part != {"type": "null"}]
            del schema["default"]
            schema.update(left[0] | schema if len(left) == 1 else {"anyOf": left})
        for part in schema.values():
            slim(part)


def _refused(name: str, error: DeedbookError) -> types.CallToolResult:
    _log.info("%s: %s: %s", name, error.code, error.message)
    return failed(error)


def _add_resources(server: DeedbookServer, ledger: ToolLedger) -> None:
    """Add the templates of briefs and reports: the same texts that tools give, for clients that attach them."""

    @server.resource(
        "deedbook://brief/{ref}",
        name="brief",
        title="Reasoning brief",
        mime_type=TEXT,
        description="The standard brief of a reasoning, by its id or ref, as a prompt.",
    )
    def brief(ref: str) -> str:
        with _answered():
            found = receive_brief(partial(ask, ledger.client), ref, TransferLevel.STANDARD)
            return ledger.quote(found.author, found.at_ms, found.prompt.prompt)

    @server.resource(
        "deedbook://report/{session_id}",
        name="report",
        title="Handoff report",
        mime_type=MARKDOWN,
        description="The whole report of a session, as Markdown.",
    )
    def report(session_id: str) -> str:
        with _answered():
            return report_of(ledger, session_id)


def report_of(ledger: ToolLedger, session_id: str) -> str:
    """Return the Markdown of a session's latest report, its long texts whole, as its author's words."""
    fields = ledger.ask("reports.show", id=session_id)["report"]
    return ledger.quote(fields["author"], fields["timestamp"], whole(fields, ledger.client.get_blob)["markdown"])


def latest(ledger: ToolLedger) -> list[types.Resource]:
    """Return the latest briefs and reports, each with whose it is."""
    reasonings = ledger.ask("reasoning.list", status="concluded", limit=listed_max)["reasonings"]
    reports = ledger.ask("reports.list", limit=listed_max)["reports"]
    return [
        *(_resource("brief", one["id"], one["author"], TEXT) for one in reasonings),
        *(_resource("report", one["session_id"], one["author"], MARKDOWN) for one in reports),
    ]


def _resource(sort: str, id_: str, by: str, mime_type: str) -> types.Resource:
    # Listed is no word of others, what it is about neither: a list has no place for the marks around them.
    name = quote(id_, safe="")
    return types.Resource(
        uri=f"deedbook://{sort}/{name}",
        name=f"{sort} {name}",
        description=f"By {by}.",
        mime_type=mime_type,
    )


@contextlib.contextmanager
def _answered() -> Iterator[None]:
    """Answer in the ledger's codes what is refused within the block."""
    try:
        yield
    except DeedbookError as error:
        kind = ResourceNotFoundError if error.code == "NOT_FOUND" else ResourceError
        raise kind(json_text(error_dict(error))) from error
