"""The server: eight tools under published schemas, typed errors, compact answers, resources, instructions.

Tools are plain functions; the SDK runs each call of one in a thread of its own, so calls do not wait for one another,
and what was begun is finished there even when its client has cancelled: a submission is in the ledger whole or not at
all. What this class changes of the SDK's is how an answer is told: compact, and errors in the ledger's codes.
"""

from __future__ import annotations

import asyncio
import logging
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, TextContent, ToolAnnotations

from consumers.doors.mcp.faults import check_arguments, failed, fault_of, told
from consumers.doors.mcp.fetching import Fetching
from consumers.doors.mcp.handing import Handing
from consumers.doors.mcp.instructions import INSTRUCTIONS
from consumers.doors.mcp.recording import Recording
from consumers.doors.mcp.reporting import Reporting
from consumers.doors.mcp.resources import add_resources, latest
from consumers.doors.mcp.searching import Searching
from consumers.doors.mcp.sizing import compact
from consumers.doors.mcp.unreadable import Answering
from ledger.errors import BatonError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.auth.provider import TokenVerifier
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.mcpserver import Context
    from mcp.types import InputRequiredResult, Resource

    from consumers.doors.mcp.desk import Desk

_log: Final = logging.getLogger(__name__)

NAME: Final = "baton"


class Told(NamedTuple):
    """How a tool is announced: its title, what it is for, whether it only reads, whether repeating it adds nothing."""

    title: str
    description: str
    reads: bool
    repeatable: bool


TOLD: Final[dict[str, Told]] = {
    "generate_handoff_report": Told(
        "Make a handoff report",
        "Sign the report of a session so that the next agent resumes from it. Use it at the end of the work; what you"
        " leave out is taken from what the session recorded. Making the same report again adds nothing.",
        reads=False,
        repeatable=True,
    ),
    "resume_previous_session": Told(
        "Resume from earlier sessions",
        "Read what the last session learned, what failed, what is open and what is next. Use it when you start.",
        reads=True,
        repeatable=True,
    ),
    "query_handoff_reports": Told(
        "Find handoff reports",
        "Find reports by agent, date and task pattern: what did minimax work on last week?",
        reads=True,
        repeatable=True,
    ),
    "record_reasoning": Told(
        "Record work and reasoning",
        "Record assessments, findings, unknowns, dead ends and tools of a session, and steps of a reasoning, signed and"
        " all together or not at all. A session or reasoning that does not exist is started; the answer names it. An"
        " assessment of phase POSTFLIGHT makes the session's report.",
        reads=False,
        repeatable=False,
    ),
    "fetch_reasoning": Told(
        "Read another agent's reasoning",
        "Get a brief of a reasoning with its measured fidelity and whether that may be relied on; level full gives the"
        " whole graph, its hash recomputed, in pages.",
        reads=True,
        repeatable=True,
    ),
    "handoff_next": Told(
        "What waits for me",
        "List the handoffs that wait for you, most urgent first, each with the tool call that goes on with it.",
        reads=True,
        repeatable=True,
    ),
    "handoff_act": Told(
        "Act on a handoff",
        "Create a handoff, claim it, check tasks and criteria, log, block, unblock, release, complete, amend or cancel"
        " it; ask why it is not ready, or show it. Approve, reject, waive, verify and request_changes are for an agent"
        " that is its reviewer; a person does them in a terminal.",
        reads=False,
        repeatable=False,
    ),
    "search": Told(
        "Search the ledger",
        "Find events by words: findings, reasoning steps, handoffs, reports.",
        reads=True,
        repeatable=True,
    ),
}


class BatonServer(MCPServer[Any]):
    """The MCP server of one desk."""

    def __init__(
        self, desk: Desk, *, auth: AuthSettings | None = None, token_verifier: TokenVerifier | None = None
    ) -> None:
        """Serve the tools at ``desk``; over HTTP only to who has the token."""
        functions = (
            Reporting(desk).generate_handoff_report,
            Reporting(desk).resume_previous_session,
            Reporting(desk).query_handoff_reports,
            Recording(desk).record_reasoning,
            Fetching(desk).fetch_reasoning,
            Handing(desk).handoff_next,
            Handing(desk).handoff_act,
            Searching(desk).search,
        )
        tools = [make_tool(function) for function in functions]
        super().__init__(
            NAME,
            title="Baton",
            description="A signed, append-only ledger of what agents learn and hand over.",
            instructions=INSTRUCTIONS,
            version=version("baton-ledger"),
            tools=tools,
            auth=auth,
            token_verifier=token_verifier,
            log_level="WARNING",
        )
        self._desk = desk
        self._arguments = {tool.name: list(tool.parameters["properties"]) for tool in tools}
        add_resources(self, desk)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool: its answer as structured data and compact JSON, or its error in the ledger's codes."""
        try:
            if name not in self._arguments:
                tools = ", ".join(self._arguments)
                raise Refused("NOT_FOUND", f"there is no tool {name[:80]!r}: there are {tools}")
            check_arguments(name, self._arguments[name], arguments)
            result = await super().call_tool(name, arguments, context)
        except BatonError as error:
            return _refused(name, error)
        except ToolError as error:
            return _refused(name, fault_of(error, name))
        if isinstance(result, CallToolResult):
            content = TextContent(type="text", text=compact(result.structured_content))
            return result.model_copy(update={"content": [content]})
        return result

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> NoReturn:
        """Refuse every prompt: there is none, and the SDK would answer with an error that has no code."""
        error = told(Refused("NOT_FOUND", f"there is no prompt {name[:80]!r}: this server has tools and resources"))
        raise MCPError(code=INVALID_PARAMS, message=error["message"], data=error)

    async def run_stdio_async(self) -> None:
        """Serve over standard input and output; each line that is no message is answered, too."""
        server = self._lowlevel_server
        async with stdio_server() as (reading, writing):
            await server.run(Answering(reading, writing), writing, server.create_initialization_options())

    async def list_resources(self) -> list[Resource]:
        """List the latest briefs and reports: the templates name every other.

        Raises:
            MCPError: the ledger cannot be read now.
        """
        try:
            listed = await asyncio.to_thread(latest, self._desk)
        except BatonError as error:
            raise MCPError(code=INTERNAL_ERROR, message=error.message, data=told(error)) from error
        return [*await super().list_resources(), *listed]


def make_server(
    desk: Desk, *, auth: AuthSettings | None = None, token_verifier: TokenVerifier | None = None
) -> BatonServer:
    """Return the MCP server that works at ``desk``."""
    return BatonServer(desk, auth=auth, token_verifier=token_verifier)


def make_tool(function: Callable[..., Any]) -> Tool:
    """Return the tool that a function is, with its annotations, refusing arguments it does not name."""
    name = function.__name__
    told = TOLD[name]
    tool = Tool.from_function(
        function,
        name=name,
        title=told.title,
        description=told.description,
        structured_output=True,
        annotations=ToolAnnotations(
            title=told.title,
            read_only_hint=told.reads,
            destructive_hint=False,  # events are added, and none is ever changed
            idempotent_hint=told.repeatable,
            open_world_hint=False,
        ),
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


def _refused(name: str, error: BatonError) -> CallToolResult:
    _log.info("%s: %s: %s", name, error.code, error.message)
    return failed(error)
