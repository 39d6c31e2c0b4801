"""The server: eight tools, typed errors, compact answers, resources and instructions.

Tools are plain functions. The SDK runs each call in its own thread, so calls do not wait for each other, and a call
runs to its end even if its client cancels: the ledger has a submission completely or not at all. This class changes
only the form of the SDK's answers: compact JSON, and errors in the ledger's codes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, get_args
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

from deedbook.consumers.handoffs.operations import REVIEWS, ToolVerb
from deedbook.consumers.interfaces.followed_redactions import follow_redactions
from deedbook.consumers.interfaces.mcp.answers import check_arguments, error_dict, failed, fault_of
from deedbook.consumers.interfaces.mcp.entries import alone_types, of_families
from deedbook.consumers.interfaces.mcp.handoffs import OF_MOST, HandoffTools
from deedbook.consumers.interfaces.mcp.lookup import LookupTools
from deedbook.consumers.interfaces.mcp.record import RecordTool
from deedbook.consumers.interfaces.mcp.reports import ReportTools
from deedbook.consumers.interfaces.mcp.stdio import Answering
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.consumers.reasoning.compressor.transfer import receive_brief
from deedbook.consumers.sdk.quotation import is_plain
from deedbook.consumers.sdk.sealer import named
from deedbook.consumers.sessions.report_texts import whole
from deedbook.ledger.errors import DeedbookError, Refused, did_you_mean, near
from deedbook.projections.briefs.prompt import TransferLevel

_log: Final = logging.getLogger(__name__)

NAME: Final = "deedbook"
listed_max: Final = 5
MARKDOWN: Final = "text/markdown"
TEXT: Final = "text/plain"
_SIZES: Final = ("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum")
"""The bounds that schemas do not have. A call that exceeds one is refused with the reason."""

INSTRUCTIONS: Final = Path(__file__).with_name("instructions.md").read_text("utf-8")
"""The instructions for agents, sent when a client connects, with those of families after them."""


class ToolText(NamedTuple):
    """The published texts of a tool, and its hints: it only reads; a repeated call adds nothing."""

    title: str
    description: str
    reads: bool = True
    repeatable: bool = True


TEXTS: Final[dict[str, ToolText]] = {
    "generate_handoff_report": ToolText(
        "Make a handoff report",
        "Sign the report of a session, from which the next agent resumes. Call it at the end. Parts that"
        " you omit come from the session's records.",
        reads=False,
    ),
    "resume_previous_session": ToolText(
        "Resume from earlier sessions",
        "Read the last session's findings, dead ends, open questions and next steps. Call it first.",
    ),
    "query_handoff_reports": ToolText("Find handoff reports", "Find reports by agent, date and task."),
    "record_reasoning": ToolText(
        "Record work and reasoning",
        "Sign all entries together, or none. `task` starts a session or reasoning that does not exist. A"
        f" POSTFLIGHT assessment makes the session's report. Alone in a call: {', '.join(alone_types())}.",
        reads=False,
        repeatable=False,
    ),
    "fetch_reasoning": ToolText(
        "Read another agent's reasoning",
        "Get a brief of a reasoning, its measured fidelity, its evidence's state, and whether you may act on it.",
    ),
    "handoff_next": ToolText(
        "My queue of handoffs",
        "List the handoffs that wait for you, most urgent first, or all handoffs, each with its next call.",
    ),
    "handoff_act": ToolText(
        "Act on a handoff",
        f"Do an operation on a handoff, show it, or ask why it is not ready. Only its reviewing agent may"
        f" {', '.join(verb for verb in get_args(ToolVerb) if verb in REVIEWS)}; people do these in a terminal."
        f" Arguments without a verb are of {OF_MOST}.",
        reads=False,
        repeatable=False,
    ),
    "search": ToolText(
        "Search the ledger",
        "Find events by their text.",
    ),
}


class DeedbookServer(MCPServer[Any]):
    """The MCP server of one ledger."""

    def __init__(
        self, ledger: ToolLedger, *, auth: AuthSettings | None = None, token_verifier: TokenVerifier | None = None
    ) -> None:
        """Serve the tools for the ledger; over HTTP only clients with the token may call them."""
        # Each tool is a method with its name in TEXTS.
        groups = (ReportTools(ledger), RecordTool(ledger), LookupTools(ledger), HandoffTools(ledger))
        tools = [make_tool(getattr(group, name)) for name in TEXTS for group in groups if hasattr(group, name)]
        super().__init__(
            NAME,
            title="Deedbook",
            description="A signed, append-only ledger of what agents learn and hand over.",
            instructions=" ".join([INSTRUCTIONS.rstrip(), *(entry.words for entry in of_families().values())]),
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
        """Call a tool; return its answer, or its error with a ledger code."""
        try:
            if name not in self._arguments:
                rest = did_you_mean(near(name, self._arguments)) or f": the tools are {', '.join(self._arguments)}"
                raise Refused("NOT_FOUND", f"there is no tool {name[:80]!r}{rest}")
            await asyncio.to_thread(self._follow_redactions)  # an untrusted folder refuses every call
            check_arguments(name, self._arguments[name], arguments)
            return await super().call_tool(name, arguments, context)
        except DeedbookError as error:
            return self._refused(name, error)
        except ToolError as error:
            return self._refused(name, fault_of(error, name))

    def _follow_redactions(self) -> None:
        """Remove texts that somebody redacted elsewhere from the copies that belong to the ledger's folder."""
        for line in follow_redactions(self._ledger.client, self._ledger.settings).lines:
            _log.warning("%s", line)

    def _refused(self, name: str, error: DeedbookError) -> types.CallToolResult:
        _log.info("%s: %s: %s", name, error.code, error.message)
        return failed(error, lambda: self._ledger.origin)

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> NoReturn:
        """Refuse every prompt: this server has none, and the SDK would send an error without a code."""
        message = f"there is no prompt {name[:80]!r}: this server has only tools and resources"
        error = error_dict(Refused("NOT_FOUND", message))
        raise MCPError(code=types.INVALID_PARAMS, message=error["message"], data=error)

    async def run_stdio_async(self) -> None:
        """Serve over standard input and output; invalid lines are answered, too."""
        server = self._lowlevel_server
        async with stdio_server() as (reading, writing):
            await server.run(Answering(reading, writing), writing, server.create_initialization_options())

    async def list_resources(self) -> list[types.Resource]:
        """List the latest briefs and reports; the templates give access to all others."""
        try:
            listed = await asyncio.to_thread(latest, self._ledger)
        except DeedbookError as error:
            raise MCPError(code=types.INTERNAL_ERROR, message=error.message, data=error_dict(error)) from error
        return [*await super().list_resources(), *listed]


def make_tool(function: Callable[..., Any]) -> Tool:
    """Return the tool of a function, with annotations; it refuses unknown arguments."""
    name, text = function.__name__, TEXTS[function.__name__]
    annotations = types.ToolAnnotations(read_only_hint=text.reads, open_world_hint=False)
    if not text.reads:  # events are only added, never changed
        annotations.destructive_hint, annotations.idempotent_hint = False, text.repeatable
    tool = Tool.from_function(
        function,
        name=name,
        title=text.title,
        description=text.description,
        annotations=annotations,
    )
    tool.parameters = slim(tool.parameters)
    return tool


def slim(schema: Any) -> Any:
    """Return a schema without parts that waste tokens: titles, null for optional fields, bounds of sizes."""
    if isinstance(schema, list):
        return [slim(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    rest = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
    schema = rest[0] | schema if len(rest) == 1 else schema
    dropped = {"anyOf"} if len(rest) == 1 else set()
    dropped |= {name for name in _SIZES if name in schema}
    dropped |= {"title"} if isinstance(schema.get("title"), str) else set()
    dropped |= {"default"} if schema.get("default") in (None, "") else set()
    dropped |= {"type"} if "enum" in schema else set()
    return {name: slim(part) for name, part in schema.items() if name not in dropped}


def _add_resources(server: DeedbookServer, ledger: ToolLedger) -> None:
    """Add the resource templates for briefs and reports: the same texts as from tools, for clients that attach them."""

    @server.resource(
        "deedbook://brief/{ref}",
        name="brief",
        title="Reasoning brief",
        mime_type=TEXT,
        description="The standard brief of a reasoning, by its id (audit-auth) or ref (sha256:…), as a prompt.",
    )
    def brief(ref: str) -> str:
        with _answered(ledger):
            received = receive_brief(ledger.query_with, ref, TransferLevel.STANDARD)
            prompt = named({"prompt": received.prompt.prompt}, ledger.query_with)["prompt"]
            return ledger.quote(received.author, received.at_ms, prompt)

    @server.resource(
        "deedbook://report/{session_id}",
        name="report",
        title="Handoff report",
        mime_type=MARKDOWN,
        description="The full report of a session, as Markdown.",
    )
    def report(session_id: str) -> str:
        with _answered(ledger):
            return report_of(ledger, session_id)


def report_of(ledger: ToolLedger, session_id: str) -> str:
    """Return the Markdown of a session's latest report with full texts, marked as untrusted text of the author."""
    fields = ledger.ask("reports.show", id=session_id)["report"]
    report = named(whole(fields, ledger.client.get_blob), ledger.query_with)
    return ledger.quote(fields["author"], fields["timestamp"], report["markdown"])


def latest(ledger: ToolLedger) -> list[types.Resource]:
    """Return the latest briefs and reports, each with its author, without ids that may be sentences."""
    reasonings = ledger.ask("reasoning.list", status="concluded", limit=listed_max)["items"]
    reports = ledger.ask("reports.list", limit=listed_max)["reports"]
    return [
        *(_resource("brief", row["id"], row["author"], TEXT) for row in reasonings if is_plain(row["id"])),
        *(
            _resource("report", row["session_id"], row["author"], MARKDOWN)
            for row in reports
            if is_plain(row["session_id"])
        ),
    ]


def _resource(kind: str, id_: str, by: str, mime_type: str) -> types.Resource:
    # A list cannot mark untrusted text, so it contains none: no titles, no tasks, and no ids of several words.
    name = quote(id_, safe="")
    return types.Resource(
        uri=f"deedbook://{kind}/{name}",
        name=f"{kind} {name}",
        description=f"By {by}.",
        mime_type=mime_type,
    )


@contextlib.contextmanager
def _answered(ledger: ToolLedger) -> Iterator[None]:
    """Turn refusals within the block into resource errors with ledger codes."""
    try:
        yield
    except DeedbookError as error:
        kind = ResourceNotFoundError if error.code == "NOT_FOUND" else ResourceError
        texts = failed(error, lambda: ledger.origin).content
        raise kind("\n".join(part.text for part in texts if isinstance(part, types.TextContent))) from error
