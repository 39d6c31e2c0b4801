"""Three tools: make a session's report, resume from sessions, find reports.

The log holds more than one agent's sessions, and what they said: without ``ai_id`` all agents are meant, and what is
not given of a report is taken from the session's events.
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
Said = Annotated[str, Field(max_length=40_000)]
Lines = Annotated[list[Annotated[str, Field(max_length=40_000)]], Field(max_length=200)]


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise PydanticCustomError("int_type", "this is no whole number")
    return value


NUMBER = BeforeValidator(_number)
"""Of an integer: JSON's 3.0 is one, and ``true`` and ``"3"`` are none, though pydantic takes them."""

PageSize = Annotated[int, Field(ge=1, le=100), NUMBER]
After = Annotated[int | None, Field(ge=0, le=json_integer_max, description="The `next` of the page before."), NUMBER]
Since = Annotated[
    Annotated[str, Field(max_length=100)] | None, Field(description='A date or time (UTC), or as "7 days ago".')
]

resumed_tries_max = 4
_slack_tokens = 8
_task_tokens = 160
_findings_tokens = 400
_head_tokens = 90
"""What a found report costs beside its task and findings."""

_least_tokens = 40


class ReportMade(answers.Answer):
    """The answer of ``generate_handoff_report``."""

    session_id: str
    report_id: Annotated[str, Field(description="The id of the signed event that holds the report.")]
    markdown: Annotated[str, Field(description="The report, in whole sections as far as an answer holds them.")]
    storage_location: str
    token_count: Annotated[int, Field(description="Tokens of the compressed report that others resume from.")]
    exact: bool
    status: str
    report_type: str
    event_index: int
    is_repeat: Annotated[bool, Field(description="The same report stood there already, and nothing was added.")]
    warnings: list[str]
    left_out: Annotated[list[str], Field(description="Sections left out; the resource has the whole.")] | None = None
    resource: str


class ResumedSession(answers.Answer):
    """What is to be read of one session; a level adds fields, and ``left_out`` names what found no room."""

    session_id: str
    ai_id: str
    timestamp: str
    epistemic_deltas: dict[str, float]
    calibration_status: str
    words: Annotated[
        answers.Words, Field(description="task, key_findings, remaining_unknowns, next_steps; more by level")
    ]
    no_report: bool | None = None
    left_out: dict[str, Any] | None = None


_OURS = frozenset({*ResumedSession.model_fields, "duration", "report_type", "report_id"})


class Resumed(answers.Quoting):
    """The answer of ``resume_previous_session``, with what failed before."""

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
    """One report as ``query_handoff_reports`` tells it."""

    session_id: str
    ai_id: str
    timestamp: str
    words: Annotated[answers.Words, Field(description="task, outcome, key_findings")]
    epistemic_growth: Annotated[float, Field(description="Change of overall confidence; 0 where not assessed.")]
    is_assessed: bool
    shortened: list[str] | None = None
    findings_left_out: int | None = None


class ReportsFound(answers.Quoting):
    """The answer of ``query_handoff_reports``."""

    reports: list[ReportFound]
    total_found: int
    next: Annotated[int | None, Field(description="The cursor of the next page; null on the last.")]


class ReportTools(Tools):
    """The tools of handoff reports."""

    def generate_handoff_report(  # noqa: PLR0917 - clients rely on these names
        self,
        session_id: Annotated[Id, Field(description="The session, or an unambiguous beginning of its id.")],
        task_summary: Annotated[Said | None, Field(description="What was accomplished, in 2 or 3 sentences.")] = None,
        key_findings: Annotated[Lines | None, Field(description="What was learned, 3 to 5 points.")] = None,
        remaining_unknowns: Annotated[Lines | None, Field(description="What is still unclear.")] = None,
        next_session_context: Annotated[Said | None, Field(description="What the next session must know.")] = None,
        artifacts_created: Annotated[Lines | None, Field(description="Files, commits or pages made.")] = None,
    ) -> ReportMade:
        """Sign the report of a session and keep it where the project keeps reports."""
        ledger = self._ledger
        given = inputs_of(task_summary, key_findings, remaining_unknowns, next_session_context, artifacts_created)
        made = publish_report(ledger.author(), ledger.client.view, session_id, given)
        made = with_copies(ledger.client.view, ledger.settings, made)
        return fit_report(made)

    def resume_previous_session(
        self,
        ai_id: Annotated[
            Id | None, Field(description="Whose sessions, by label or agent name; default: yours, else all.")
        ] = None,
        resume_mode: Annotated[
            Literal["last", "last_n", "session_id"] | None,
            Field(description="Default: what the rest means."),
        ] = None,
        session_id: Annotated[Id | None, Field(description="Which session, by its id.")] = None,
        count: Annotated[int | None, Field(ge=1, le=5, description="How many of the last sessions."), NUMBER] = None,
        detail_level: Annotated[
            Literal["summary", "detailed", "full"], Field(description="At most 400, 800 or 1,250 tokens a session.")
        ] = "summary",
    ) -> Resumed:
        """Read what the last session, or several, learned and left open."""
        agent, less = self._ledger.settings.agent, 0
        asked = (ai_id, mode_of(resume_mode, session_id, count), session_id, count or 1, detail_level)
        for _ in range(resumed_tries_max):
            found = self._resumed(*asked, agent=agent, less=less)
            over = most_tokens(json_text(found)) - LEVELS[detail_level] * max(1, len(found["sessions"]))
            if over <= 0 or not strictest().exact:
                break
            less += over + _slack_tokens  # whose words they are costs the more the more there are
        return Resumed.model_validate(found | {"token_estimate": most_tokens(json_text(found))})

    def _resumed(self, *asked: Any, agent: str | None, less: int) -> dict[str, Any]:
        client = self._ledger.client
        found = resume(client.view, client.get_blob, *asked, agent=agent, less=less)
        by = whose(client.view, found)
        found["sessions"] = [
            labelled(one, by[one["session_id"]][0], *(one.keys() - _OURS)) for one in found["sessions"]
        ]
        found["dead_ends"] = [untrusted_text(*by[one.get("session", "")], one) for one in found["dead_ends"]]
        found["others"] = self._ledger.others()
        return found

    def query_handoff_reports(
        self,
        ai_id: Annotated[Id | None, Field(description="Only this agent's, as minimax.")] = None,
        since: Since = None,
        task_pattern: Annotated[
            Annotated[str, Field(max_length=1_000)] | None,
            Field(description="A regular expression (RE2, ignoring case) that the task or the outcome matches."),
        ] = None,
        limit: PageSize = 10,
        cursor: After = None,
    ) -> ReportsFound:
        """Find reports by agent, date and task."""

        def page(rows: int) -> dict[str, Any]:
            return query_reports(self._ledger.client.view, datetime.now(UTC), ai_id, since, task_pattern, rows, cursor)

        found = page(limit)
        found["others"] = self._ledger.others()
        share = answers.filled_tokens_max // max(1, len(found["reports"])) - _head_tokens
        reports = [fit_found(one, max(share, _least_tokens)) for one in found["reports"]]
        return ReportsFound.model_validate(answers.paged(found, reports, "reports", page))


def fit_report(made: dict[str, Any]) -> ReportMade:
    """Return what a published report came to, its Markdown in whole sections within an answer's tokens."""
    names = set(ReportMade.model_fields) - {"left_out", "resource"}
    answer = {name: value for name, value in made.items() if name in names}
    answer["resource"] = f"deedbook://report/{made['session_id']}"
    answer["warnings"] = made["warnings"][:10]
    head, *sections = made["markdown"].split("\n## ")
    left_out: list[str] = []
    answer["markdown"] = ""
    budget = Budget(answers.filled_tokens_max - answers.tokens_of(answer) - 4 * len(sections))
    for text in (head, *(f"\n## {one}" for one in sections)):
        if budget.take(count_tokens(text) + text.count("\n")):  # a line break costs more in JSON
            answer["markdown"] += text
        else:
            left_out.append(text.partition("\n\n")[0].strip("\n# ")[:80])
    return ReportMade.model_validate(answer | ({"left_out": left_out} if left_out else {}))


def fit_found(report: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Return a found report with its task and findings within their share of an answer."""
    found = answers.shorten(report, ("task", "outcome"), min(_task_tokens, tokens // 4))
    findings, left_out = answers.shorten_list(found["key_findings"], min(_findings_tokens, tokens // 2))
    found |= {"key_findings": findings} | ({"findings_left_out": left_out} if left_out else {})
    return labelled(found, found.pop("author"), "task", "outcome", "key_findings", "imported")


def labelled(item: dict[str, Any], author: str, *names: str) -> dict[str, Any]:
    """Return a session or report with these texts as its author's words, and so the label of its agent if it is one."""
    names = names if is_plain(item["ai_id"]) else (*names, "ai_id")
    return {"ai_id": author} | answers.quoted(item, author, item["timestamp"], *names)
