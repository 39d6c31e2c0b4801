"""Briefs and reports as resources: the same texts that tools give, for clients that attach them to a conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.types import Resource

from consumers.doors.mcp.answers import compact, error_dict
from consumers.doors.mcp.tool_ledger import ToolLedger
from consumers.reasoning.compressor.transfer import receive_brief
from consumers.sdk.tokens import cut_to_chars
from consumers.sessions.resume import whole
from ledger.errors import BatonError
from projections.briefs.prompt import TransferLevel

listed_max: Final = 5
_title_chars: Final = 80
MARKDOWN: Final = "text/markdown"
TEXT: Final = "text/plain"


def add_resources(server: MCPServer[Any], ledger: ToolLedger) -> None:
    """Add the templates of both sorts to a server."""

    @server.resource(
        "baton://brief/{ref}",
        name="brief",
        title="Reasoning brief",
        description="The standard brief of a reasoning, by its id or ref, as a prompt.",
        mime_type=TEXT,
    )
    def brief(ref: str) -> str:
        return _read(lambda: receive_brief(ledger.client.view, ref, TransferLevel.STANDARD).prompt.prompt)

    @server.resource(
        "baton://report/{session_id}",
        name="report",
        title="Handoff report",
        description="The whole report of a session, as Markdown.",
        mime_type=MARKDOWN,
    )
    def report(session_id: str) -> str:
        return _read(lambda: report_of(ledger, session_id))


def report_of(ledger: ToolLedger, session_id: str) -> str:
    """Return the Markdown of a session's latest report, its long texts whole.

    Raises:
        Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``.
    """
    fields = ledger.ask("reports.show", id=session_id)["report"]
    markdown: str = whole(fields, ledger.client.get_blob)["markdown"]
    return markdown


def latest(ledger: ToolLedger) -> list[Resource]:
    """Return the latest briefs and reports, each with what it is about."""
    reasonings = ledger.ask("reasoning.list", status="concluded", limit=listed_max)["reasonings"]
    reports = ledger.ask("reports.list", limit=listed_max)["reports"]
    return [
        *(_resource("brief", one["id"], one["task"], one["author"], TEXT) for one in reasonings),
        *(_resource("report", one["session_id"], one["task_summary"], one["ai_id"], MARKDOWN) for one in reports),
    ]


def _resource(sort: str, name: str, about: str, by: str, mime_type: str) -> Resource:
    return Resource(
        uri=f"baton://{sort}/{quote(name, safe='')}",
        name=f"{sort} {name}",
        title=cut_to_chars(" ".join(about.split()), _title_chars),
        description=f"By {by}.",
        mime_type=mime_type,
    )


def _read(read: Callable[[], str]) -> str:
    try:
        return read()
    except BatonError as error:
        kind = ResourceNotFoundError if error.code == "NOT_FOUND" else ResourceError
        raise kind(compact(error_dict(error))) from error
