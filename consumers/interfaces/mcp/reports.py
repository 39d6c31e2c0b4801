"""Three tools: make a session's report, resume from earlier sessions, find reports.

The log contains the sessions of all agents: without ``ai_id`` a tool considers all of them. Parts of a report that the
caller omits are taken from the session's events.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote

from mcp.types import CallToolResult
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from deedbook.consumers.interfaces.mcp import answers
from deedbook.consumers.interfaces.mcp.arguments import as_list
from deedbook.consumers.interfaces.mcp.fence import Own
from deedbook.consumers.interfaces.mcp.tool_ledger import Tools
from deedbook.consumers.sdk.text import json_text
from deedbook.consumers.sdk.tokens import Budget
from deedbook.consumers.sessions.copies import with_copies
from deedbook.consumers.sessions.generator import inputs_of
from deedbook.consumers.sessions.packer import LEVELS
from deedbook.consumers.sessions.query import mode_of, query_reports
from deedbook.consumers.sessions.report import publish_report
from deedbook.consumers.sessions.resume import resume, whose
from deedbook.ledger.limits import json_integer_max
from deedbook.projections.answers.answer import Answer, Untrusted
from deedbook.projections.briefs.tokens import count_tokens, most_tokens
from deedbook.projections.reports.report import ListedReport
from deedbook.projections.search.answers import RelatedDeadEnd

Id = Annotated[str, Field(min_length=1, max_length=400)]
Text = Annotated[str, Field(max_length=40_000)]
Lines = Annotated[list[Annotated[str, Field(max_length=40_000)]], Field(max_length=200), BeforeValidator(as_list)]


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise PydanticCustomError("int_type", "this is not a whole number")
    return value


NUMBER = BeforeValidator(_number)
"""Validates an integer: JSON's 3.0 is one; ``true`` and ``"3"`` are not, although pydantic accepts them."""

PageSize = Annotated[int, Field(ge=1, le=100), NUMBER]
Routed = Annotated[str, Field(min_length=1, max_length=200)] | None
After = Annotated[int | None, Field(ge=0, le=json_integer_max, description="`next` of the last page."), NUMBER]
Since = Annotated[
    Annotated[str, Field(max_length=100)] | None,
    Field(description="2026-02-12, 2026-02-12T09:30Z or 7 days ago."),
]

resumed_tries_max = 4
_slack_tokens = 8
_task_tokens = 160
_findings_tokens = 400
_least_tokens = 40


class ReportMade(Answer, frozen=True, kw_only=True):
    """A report that was signed; ``left_out`` are the sections that ``resource`` has and ``markdown`` has not.

    ``token_count`` is of the compressed report that other sessions resume from. ``is_repeat``: nothing was added.
    """

    session_id: str
    report_id: str
    markdown: Untrusted
    storage_location: Own
    token_count: int
    exact: bool
    status: str
    report_type: str
    event_index: int
    is_repeat: bool
    warnings: list[Own]
    resource: Own
    left_out: list[Untrusted]


class ResumedSession(ListedReport, frozen=True, kw_only=True):
    """An earlier session; a higher level adds fields, and ``left_out`` names the parts that did not fit."""

    next_steps: list[Untrusted]
    duration: Own


class Resumed(Answer, frozen=True, kw_only=True):
    """The last sessions, and approaches that failed before."""

    sessions: list[ResumedSession]
    dead_ends: list[RelatedDeadEnd]
    tokenizer: Own
    message: Own


class ReportsFound(Answer, frozen=True, kw_only=True):
    """A page of reports; ``next`` is the cursor of the next page."""

    reports: list[ListedReport]
    shorter: Own


class ReportTools(Tools):
    """The tools for handoff reports."""

    def generate_handoff_report(  # noqa: PLR0917 - clients rely on these names
        self,
        session_id: Annotated[Id, Field(description="Its id, or the beginning of it.")],
        task_summary: Annotated[Text | None, Field(description="The results, in 2 or 3 sentences.")] = None,
        key_findings: Annotated[
            Lines | None, Field(description="3 to 5 things that you learned, one text each.")
        ] = None,
        remaining_unknowns: Annotated[Lines | None, Field(description="Open questions, one text each.")] = None,
        next_session_context: Annotated[Text | None, Field(description="Facts that the next session needs.")] = None,
        artifacts_created: Annotated[
            Lines | None, Field(description="Files, commits or pages, e.g. src/auth.py.")
        ] = None,
    ) -> CallToolResult:
        """Sign the report of a session and store it where the project stores reports."""
        ledger = self._ledger
        inputs = inputs_of(task_summary, key_findings, remaining_unknowns, next_session_context, artifacts_created)
        report = publish_report(ledger.author(), ledger.client.view, session_id, inputs)
        report = with_copies(ledger.client.view, ledger.settings, report)
        return self._answered(fit_report(report), ReportMade)

    def resume_previous_session(
        self,
        ai_id: Annotated[
            Id | None, Field(description="The agent's label or name, e.g. minimax; default: you, else all.")
        ] = None,
        resume_mode: Annotated[
            Literal["last", "last_n", "session_id"] | None,
            Field(description="Default: as the other arguments say."),
        ] = None,
        session_id: Annotated[Id | None, Field(description="For mode session_id.")] = None,
        count: Annotated[int | None, Field(ge=1, le=5, description="For mode last_n."), NUMBER] = None,
        detail_level: Annotated[
            Literal["summary", "detailed", "full"], Field(description="At most 400, 800 or 1,250 tokens per session.")
        ] = "summary",
    ) -> CallToolResult:
        """Read the findings and open questions of the last sessions."""
        agent, less = self._ledger.settings.agent, 0
        args = (ai_id, mode_of(resume_mode, session_id, count), session_id, count or 1, detail_level)
        for _ in range(resumed_tries_max):
            answer = self._resumed(*args, agent=agent, less=less)
            over = most_tokens(json_text(answer)) - LEVELS[detail_level] * max(1, len(answer["sessions"]))
            if over <= 0:
                break
            less += over + _slack_tokens  # naming the authors takes tokens, too
        # The fence is not counted: it would take a third of a summary.
        return self._answered(answer | {"token_estimate": most_tokens(json_text(answer))}, Resumed)

    def _resumed(self, *args: Any, agent: str | None, less: int) -> dict[str, Any]:
        client = self._ledger.client
        answer = resume(client.view, client.get_blob, *args, agent=agent, less=less)
        by = whose(client.view, answer)
        answer["sessions"] = [row | {"author": by[row["session_id"]][0]} for row in answer["sessions"]]
        answer["dead_ends"] = [row | {"author": by[row.get("session", "")][0]} for row in answer["dead_ends"]]
        return answer

    def query_handoff_reports(
        self,
        ai_id: Annotated[Id | None, Field(description="Only reports of this agent, e.g. minimax.")] = None,
        since: Since = None,
        task_pattern: Annotated[
            Annotated[str, Field(max_length=1_000)] | None,
            Field(description="An RE2 pattern for task, outcome or findings, e.g. auth|login."),
        ] = None,
        limit: PageSize = 10,
        after: After = None,
    ) -> CallToolResult:
        """Find reports by agent, date and task."""

        def page(rows: int) -> dict[str, Any]:
            return query_reports(self._ledger.client.view, datetime.now(UTC), ai_id, since, task_pattern, rows, after)

        answer = page(limit)
        share = answers.share_of(len(answer["reports"]))
        reports = [fit_found(row, share) for row in answer["reports"]]
        return self._answered(answers.paged(answer, reports, "reports", page), ReportsFound)


def fit_report(report: dict[str, Any]) -> dict[str, Any]:
    """Return the answer for a published report, with as many whole sections of its Markdown as fit."""
    answer = {name: value for name, value in report.items() if name in ReportMade.__struct_fields__}
    answer["resource"] = f"deedbook://report/{quote(report['session_id'], safe='')}"
    answer["warnings"] = report["warnings"][:10]
    head, *sections = report["markdown"].split("\n## ")
    left_out: list[str] = []
    answer["markdown"] = ""
    budget = Budget(answers.filled_tokens_max - answers.tokens_of(answer) - 4 * len(sections))
    for text in (head, *(f"\n## {section}" for section in sections)):
        if budget.take(count_tokens(text) + text.count("\n")):  # a line break costs more in JSON
            answer["markdown"] += text
        else:
            left_out.append(text.partition("\n\n")[0].strip("\n# ")[:80])
    return answer | ({"left_out": left_out} if left_out else {})


def fit_found(report: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Return a found report with task and findings cut to their share of the answer.

    The mark of an imported report keeps only the importer and the format, because its source has more tokens than two
    findings.
    """
    mark = report["imported"] and {name: report["imported"][name] for name in ("importer", "format")}
    findings, report = report["key_findings"], report | {"key_findings": [], "imported": mark}
    tokens = max(tokens - answers.tokens_of(answers.without(report, "task", "outcome")), _least_tokens)
    row = answers.shorten(report, ("task", "outcome"), min(_task_tokens, tokens // 4))
    findings, left_out = answers.shorten_list(findings, min(_findings_tokens, tokens // 2))
    return row | {"key_findings": findings} | ({"findings_left_out": left_out} if left_out else {})
