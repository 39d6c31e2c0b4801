"""Tree-of-thoughts searches through the tools: a call starts one, a thread runs it, later calls ask for its state.

A search runs for minutes, so the call that starts it returns the task's id as soon as the task is in the ledger. If
this server ends first, the agents stop; the entry with ``resume``, or `deed tot resume`, continues the search. If no
program reads the problem and no model is configured, the calling agent thinks: a call's answer is a question, and the
next call answers it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from deedbook.consumers.interfaces.mcp.answers import shorten_list, time_text
from deedbook.consumers.interfaces.mcp.entries import FamilyEntry, Recorded
from deedbook.consumers.interfaces.mcp.fence import Own
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.consumers.sdk.text import json_text, shorten
from deedbook.consumers.sdk.tokens import cut_to_tokens
from deedbook.consumers.thoughts.dialogue import AgentQuestion, Dialogue
from deedbook.consumers.thoughts.logs import entries_of
from deedbook.consumers.thoughts.run import new_task_id, outcome, read_task, resume_task, run_task
from deedbook.consumers.thoughts.settings import TaskOptions
from deedbook.consumers.thoughts.task import Task
from deedbook.consumers.thoughts.thinkers.calling_agent import AGENT
from deedbook.consumers.thoughts.thinkers.registry import has_thinker
from deedbook.consumers.thoughts.views.answers import ShownFailure, ShownVerification
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.home.trust import actions_of
from deedbook.projections.answers.answer import Answer, Untrusted

_log: Final = logging.getLogger(__name__)

searches_max: Final = 4
begin_wait_s: Final = 60.0
lines_max: Final = 8
line_chars_max: Final = 200
_texts: Final = {"problem": 100, "answer": 400, "message": 100}
_lists: Final = {"reasoning_trace": 300, "validation_errors": 100, "alternative_solutions": 100, "timeline": 300}
"""The most tokens of each of these in an answer."""
_NAME: Final = "thoughts of "


class Thoughts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tree-of-thoughts search for ``problem`` (minutes), or the state of the search ``ref``.

    Without a program or model that can think about the problem, you think: answer each ``question``.
    """

    problem: Annotated[str, msgspec.Meta(description="The problem.")] = ""
    task_type: Annotated[
        str,
        msgspec.Meta(description="math_reasoning, creative_writing, planning, debugging or architecture_design."),
    ] = "math_reasoning"
    ref: Annotated[str, msgspec.Meta(description="The task_id of a search.")] = ""
    criteria: list[str] = []
    question: Annotated[str, msgspec.Meta(description="The id of what you answer.")] = ""
    answer: dict[str, Any] | None = None
    best_path: Annotated[bool, msgspec.Meta(description="With resume: it is the answer.")] = False
    resume: Annotated[bool, msgspec.Meta(description="Continue a paused search.")] = False
    after: Annotated[int, msgspec.Meta(ge=0, description="Only later log lines.")] = 0


class AskedQuestion(Answer, frozen=True, kw_only=True):
    """A question of a search to the calling agent, whose data ``about`` is JSON."""

    id: str
    text: Own
    about: Untrusted


class SearchReport(Recorded, frozen=True, kw_only=True):
    """The state of a search, and its result."""

    problem: Untrusted
    answer: Untrusted
    message: Untrusted
    reasoning_trace: list[Untrusted]
    validation_errors: list[Untrusted]
    alternative_solutions: list[Untrusted]
    timeline: list[Untrusted]
    verification: ShownVerification
    error: ShownFailure
    question: AskedQuestion


def search_thoughts(ledger: ToolLedger, entry: Thoughts) -> dict[str, Any]:
    """Start or continue a search, and return its state. Raises Refused: ``INVALID_FIELD``."""
    if bool(entry.problem.strip()) == bool(entry.ref.strip()):
        raise Refused(
            "INVALID_FIELD", "set either problem, to start a search, or ref, to get its state", field="entries"
        )
    if entry.answer is not None and not entry.question:
        raise Refused("INVALID_FIELD", "set question, to the id of the question that you answer", field="question")
    question: AgentQuestion | None = None
    if not entry.ref:
        task_id = new_task_id()
        options = TaskOptions(entry.task_type, criteria=tuple(entry.criteria))
        if has_thinker(entry.problem, entry.task_type, actions_of(ledger.settings, ledger.client)):
            search = partial(run_task, ledger.settings, entry.problem, options, task_id=task_id)
            _play(ledger, task_id, search)
        else:
            question = _dialogue(ledger, task_id).begin(entry.problem, options)
    else:
        row = ledger.ask("tot.show", id=entry.ref.strip())
        task_id, is_open = row["id"], row["status"] in ("started", "searching")
        if row["thinker"].startswith(f"{AGENT}:") and (is_open or entry.answer is not None):
            dialogue = _dialogue(ledger, task_id)
            question = dialogue.ask() if entry.answer is None else dialogue.answer(entry.question, entry.answer)
        elif entry.resume and not _is_played(task_id):
            _play(ledger, task_id, partial(resume_task, ledger.settings, task_id, best_path=entry.best_path))
    asked = {} if question is None else {"question": question._asdict() | {"about": json_text(question.about)}}
    return _report(ledger, task_id, entry.after) | asked


def _dialogue(ledger: ToolLedger, task_id: str) -> Dialogue:
    return Dialogue(ledger.settings, ledger.client, ledger.author().name, task_id)


def _play(ledger: ToolLedger, task_id: str, play: Callable[..., Any]) -> None:
    """Run a task in a thread; return once it has recorded something, or raise the error that prevented it."""
    if sum(thread.name.startswith(_NAME) for thread in threading.enumerate()) >= searches_max:
        raise Refused("USAGE", f"{searches_max} searches are already running: wait until one ends", field="entries")
    started, failures, client = threading.Event(), list[DeedbookError](), ledger.client

    def run() -> None:
        try:
            play(progress=lambda _: started.set(), client=client)
        except DeedbookError as error:
            failures.append(error)
            _log.warning("%s: %s: %s", task_id, error.code, error.message)
        finally:
            started.set()

    threading.Thread(target=run, name=_NAME + task_id, daemon=True).start()
    started.wait(begin_wait_s)
    if failures:
        raise failures[0]


def _is_played(task_id: str) -> bool:
    return any(thread.name == _NAME + task_id for thread in threading.enumerate())


def _report(ledger: ToolLedger, task_id: str, after: int) -> dict[str, Any]:
    """Return the state of a task: its latest lines, and at the end the answer with its verification, or the error."""
    is_played, events, task = _is_played(task_id), read_task(ledger.client, task_id), Task(task_id)
    for event in events:
        task.apply(event)
    result, row = outcome(task), ledger.ask("tot.show", id=task_id)
    error, verification = result["error"] or {}, result["verification"] or {}
    language, later = events[0].data.language, [event for event in events if event.index > after]
    entries = ((event.index, entry) for event in later for entry in entries_of(event, language))
    lines = [(index, shorten(entry.msg, line_chars_max)) for index, entry in entries]
    lines = lines[:lines_max] if after else lines[-lines_max:]
    texts = result | {"problem": row["problem"], "message": error.get("message")}
    texts |= {"timeline": [line for _, line in lines], "validation_errors": verification.get("validation_errors")}
    report = {"task_id": task_id, "status": row["status"], "thinker": row["thinker"], "stats": row["stats"]}
    report |= {"author": events[0].author, "at": time_text(events[-1].accepted_ms)}
    report |= {name: cut_to_tokens(texts[name], tokens) for name, tokens in _texts.items() if texts[name]}
    for name, tokens in _lists.items():
        fitting, left_out = shorten_list(texts[name] or [], tokens)
        report |= ({name: fitting} if fitting else {}) | ({f"{name}_left_out": left_out} if left_out else {})
    # A line that did not fit comes in the next answer.
    report |= {"is_searched_here": is_played, "after": lines[len(report["timeline"]) - 1][0] if lines else after}
    if verification:
        report["confidence"] = result["confidence"]
        report["verification"] = {name: verification[name] for name in ("is_valid", "by")}
    report |= {"error": {name: value for name, value in error.items() if name != "message"}} if error else {}
    return report


ENTRY: Final = FamilyEntry(
    "thoughts",
    Thoughts,
    search_thoughts,
    "An entry of type thoughts starts a search for a hard problem.",
    SearchReport,
)
