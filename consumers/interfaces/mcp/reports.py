"""Three tools: make a session's report, resume from earlier sessions, find reports.

The log contains the sessions of all agents: without ``ai_id`` a tool considers all of them. Parts of a report that the
caller omits are taken from the session's events.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from deedbook.consumers.interfaces.mcp import answers
from deedbook.consumers.interfaces.mcp.tool_ledger import Tools
from deedbook.consumers.sdk.quotation import is_plain, untrusted_text
from deedbook.consumers.sdk.text import json_text
from deedbook.consumers.sdk.tokens import Budget
from deedbook.consumers.sessions.copies import with_copies
from deedbook.consumers.sessions.generator import inputs_of
from deedbook.consumers.sessions.packer import LEVELS
from deedbook.consumers.sessions.query import mode_of, query_reports
from deedbook.consumers.sessions.report import publish_report
from deedbook.consumers.sessions.resume import resume, whose
from deedbook.ledger.limits import json_integer_max
from deedbook.projections.briefs.tokens import count_tokens, most_tokens, strictest

Id = Annotated[str, Field(min_length=1, max_length=400)]
Text = Annotated[str, Field(max_length=40_000)]
Lines = Annotated[list[Annotated[str, Field(max_length=40_000)]], Field(max_length=200)]


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise PydanticCustomError("int_type", "this is not a whole number")
    return value


NUMBER = BeforeValidator(_number)
"""Validates an integer: JSON's 3.0 is one; ``true`` and ``"3"`` are not, although pydantic accepts them."""

PageSize = Annotated[int, Field(ge=1, le=100), NUMBER]
After = Annotated[int | None, Field(ge=0, le=json_integer_max, description="The `next` of the previous page."), NUMBER]
Since = Annotated[
    Annotated[str, Field(max_length=100)] | None,
    Field(description='A date or time (UTC) as 2026-02-12 or 2026-02-12T09:30Z, or "7 days ago".'),
]

resumed_tries_max = 4
_slack_tokens = 8
_task_tokens = 160
_findings_tokens = 400
_head_tokens = 90
"""The tokens of a found report without its task and findings."""

_least_tokens = 40


class ReportMade(answers.Answer):
    """The answer of ``generate_handoff_report``."""

    session_id: str
    report_id: Annotated[str, Field(description="The id of the signed event that holds the report.")]
    markdown: Annotated[str, Field(description="The report; whole sections as far as they fit.")]
    storage_location: str
    token_count: Annotated[int, Field(description="Tokens of the compressed report that other sessions resume from.")]
    exact: bool
    status: str
    report_type: str
    event_index: int
    is_repeat: Annotated[bool, Field(description="true: this report existed already; nothing was added.")]
    warnings: list[str]
    left_out: Annotated[list[str], Field(description="Sections left out; `resource` has the full report.")] | None = (
        None
    )
    resource: str


class ResumedSession(answers.Answer):
    """One earlier session; a higher level adds fields, and ``left_out`` names the parts that did not fit."""

    session_id: str
    ai_id: str
    timestamp: str
    epistemic_deltas: dict[str, float]
    calibration_status: str
    words: Annotated[
        answers.Words, Field(description="task, key_findings, remaining_unknowns, next_steps; more at higher levels")
    ]
    no_report: bool | None = None
    left_out: dict[str, Any] | None = None


_OURS = frozenset({*ResumedSession.model_fields, "duration", "report_type", "report_id"})


class Resumed(answers.Quoting):
    """The answer of ``resume_previous_session``, with approaches that failed before."""

    sessions: list[ResumedSession]
    total_sessions: int
    token_estimate: int
    tokens_exact: bool
    tokenizer: str
    detail_level: str
    dead_ends: Annotated[list[answers.Words], Field(description="Approaches that failed: do not try them again.")]
    dead_ends_left_out: int | None = None
    message: str | None = None


class ReportFound(answers.Answer):
    """One report in an answer of ``query_handoff_reports``."""

    session_id: str
    ai_id: str
    timestamp: str
    words: Annotated[answers.Words, Field(description="task, outcome, key_findings")]
    epistemic_growth: Annotated[float, Field(description="Change of overall confidence; 0 if not assessed.")]
    is_assessed: bool
    shortened: list[str] | None = None
    findings_left_out: int | None = None


class ReportsFound(answers.Quoting):
    """The answer of ``query_handoff_reports``."""

    reports: list[ReportFound]
    total_found: int
    next: Annotated[int | None, Field(description="The cursor of the next page; null on the last.")]


class ReportTools(Tools):
    """The tools for handoff reports."""

    def generate_handoff_report(  # noqa: PLR0917 - clients rely on these names
        self,
        session_id: Annotated[Id, Field(description="The session's id, or an unambiguous beginning of it.")],
        task_summary: Annotated[Text | None, Field(description="The results, in 2 or 3 sentences.")] = None,
        key_findings: Annotated[
            Lines | None, Field(description="3 to 5 things that you learned, one text each.")
        ] = None,
        remaining_unknowns: Annotated[Lines | None, Field(description="Open questions, one text each.")] = None,
        next_session_context: Annotated[Text | None, Field(description="Facts that the next session needs.")] = None,
        artifacts_created: Annotated[
            Lines | None, Field(description='Files, commits or pages, e.g. ["src/auth.py"].')
        ] = None,
    ) -> ReportMade:
        """Sign the report of a session and store it where the project stores reports."""
        ledger = self._ledger
        inputs = inputs_of(task_summary, key_findings, remaining_unknowns, next_session_context, artifacts_created)
        report = publish_report(ledger.author(), ledger.client.view, session_id, inputs)
        report = with_copies(ledger.client.view, ledger.settings, report)
        return fit_report(report)

    def resume_previous_session(
        self,
        ai_id: Annotated[
            Id | None, Field(description="The agent's label or name, e.g. minimax; default: you, else all.")
        ] = None,
        resume_mode: Annotated[
            Literal["last", "last_n", "session_id"] | None,
            Field(description="Default: chosen by the other arguments."),
        ] = None,
        session_id: Annotated[Id | None, Field(description="The id of the session, for mode session_id.")] = None,
        count: Annotated[
            int | None, Field(ge=1, le=5, description="The number of last sessions, for mode last_n."), NUMBER
        ] = None,
        detail_level: Annotated[
            Literal["summary", "detailed", "full"], Field(description="At most 400, 800 or 1,250 tokens per session.")
        ] = "summary",
    ) -> Resumed:
        """Read the findings and open questions of the last sessions."""
        agent, less = self._ledger.settings.agent, 0
        args = (ai_id, mode_of(resume_mode, session_id, count), session_id, count or 1, detail_level)
        for _ in range(resumed_tries_max):
            answer = self._resumed(*args, agent=agent, less=less)
            over = most_tokens(json_text(answer)) - LEVELS[detail_level] * max(1, len(answer["sessions"]))
            if over <= 0 or not strictest().exact:
                break
            less += over + _slack_tokens  # naming the authors takes tokens, too
        return Resumed.model_validate(answer | {"token_estimate": most_tokens(json_text(answer))})

    def _resumed(self, *args: Any, agent: str | None, less: int) -> dict[str, Any]:
        client = self._ledger.client
        answer = resume(client.view, client.get_blob, *args, agent=agent, less=less)
        by = whose(client.view, answer)
        answer["sessions"] = [
            labelled(row, by[row["session_id"]][0], *(row.keys() - _OURS)) for row in answer["sessions"]
        ]
        answer["dead_ends"] = [untrusted_text(*by[row.get("session", "")], row) for row in answer["dead_ends"]]
        answer["others"] = self._ledger.others()
        return answer

    def query_handoff_reports(
        self,
        ai_id: Annotated[Id | None, Field(description="Only reports of this agent, e.g. minimax.")] = None,
        since: Since = None,
        task_pattern: Annotated[
            Annotated[str, Field(max_length=1_000)] | None,
            Field(description="A regular expression (RE2, case-insensitive) for task or outcome, e.g. auth|login."),
        ] = None,
        limit: PageSize = 10,
        after: After = None,
    ) -> ReportsFound:
        """Find reports by agent, date and task."""

        def page(rows: int) -> dict[str, Any]:
            return query_reports(self._ledger.client.view, datetime.now(UTC), ai_id, since, task_pattern, rows, after)

        answer = page(limit)
        answer["others"] = self._ledger.others()
        share = answers.filled_tokens_max // max(1, len(answer["reports"])) - _head_tokens
        reports = [fit_found(row, max(share, _least_tokens)) for row in answer["reports"]]
        return ReportsFound.model_validate(answers.paged(answer, reports, "reports", page))


def fit_report(report: dict[str, Any]) -> ReportMade:
    """Return the answer for a published report, with as many whole sections of its Markdown as fit."""
    names = set(ReportMade.model_fields) - {"left_out", "resource"}
    answer = {name: value for name, value in report.items() if name in names}
    answer["resource"] = f"deedbook://report/{report['session_id']}"
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
    return ReportMade.model_validate(answer | ({"left_out": left_out} if left_out else {}))


def fit_found(report: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Return a found report with task and findings cut to their share of the answer."""
    row = answers.shorten(report, ("task", "outcome"), min(_task_tokens, tokens // 4))
    findings, left_out = answers.shorten_list(row["key_findings"], min(_findings_tokens, tokens // 2))
    row |= {"key_findings": findings} | ({"findings_left_out": left_out} if left_out else {})
    return labelled(row, row.pop("author"), "task", "outcome", "key_findings", "imported")


def labelled(item: dict[str, Any], author: str, *names: str) -> dict[str, Any]:
    """Return a session or report with these texts as ``words`` of the author, and the label unless it is plain."""
    names = names if is_plain(item["ai_id"]) else (*names, "ai_id")
    return {"ai_id": author} | answers.quoted(item, author, item["timestamp"], *names)
