"""The first text for an agent: `deed prime`, and the brief that a hook puts into a new session.

It has, in this order and within one budget of tokens: the acting agent and its session, the questions to it, the first
unread lines (they stay unread), dead ends and reasonings of similar tasks, the work that waits, the last session. A
section has only complete items. The list "Left out" counts the items that did not fit, with the command that shows
them. In an empty ledger it says what to do first. It never repeats another page but names the command that prints it:
the page for agents is in the harness's file, the last session in `report resume`, a handoff with its reasoning in
`handoff show`. So an agent that reads all these pages reads nothing twice.

Agents act on the work that waits, so it is checked against its signed entries (``projections.answers.checked``). The
rest comes from the views unchecked. Text that others wrote is in a marked block (``consumers.sdk.quotation``), each
line with its author and age. Our own words about it, with the command, are before the block.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deedbook.consumers.handoffs.operations import with_commands
from deedbook.consumers.handoffs.receiver import without_noted
from deedbook.consumers.handoffs.unread import COMMAND as UNREAD
from deedbook.consumers.handoffs.unread import line_of, more_of, peek
from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES
from deedbook.consumers.interfaces.hooks.page import agents_page, budget_min_tokens, budget_tokens
from deedbook.consumers.reasoning.citations import Citations, next_tokens_max
from deedbook.consumers.sdk.quotation import UNTRUSTED_NOTICE, Origin, age, is_plain, untrusted_block
from deedbook.consumers.sdk.text import counted, dead_end_text, sanitize_line
from deedbook.consumers.sessions.resume import resume, whose
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.location import present_folder
from deedbook.ledger.lifecycle.authority import NODE, ROOT
from deedbook.ledger.system.files import open_regular
from deedbook.projections.agents.compromised import compromised_sentences
from deedbook.projections.briefs.tokens import count_tokens, tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from deedbook.ledger.client.client import Ask

    Blobs = Callable[[str], bytes]

page_looked_at_max_bytes: Final = 1024**2

waiting_max: Final = 10
dead_ends_max: Final = 10
named_agents_max: Final = 12
_share_of: Final = {
    "questions to you": 0.5,
    "what is new": 0.3,
    "dead ends": 0.4,
    "related": 0.25,
    "what waits": 0.8,
}
"""The share of the remaining budget that a section may take when its turn comes."""

_rest_tokens: Final = 110
_RECORDED: Final = ("key_findings", "remaining_unknowns", "epistemic_deltas", "assessments", "investigation_tools")


class Primed(NamedTuple):
    """The text, its tokens and sections, and what was left out (``{"what", "command"}``)."""

    text: str
    tokens: int
    exact: bool
    tokenizer: str
    sections: list[str]
    left_out: list[dict[str, str]]


class _Item(NamedTuple):
    """A text about one thing: our own words, and the words of others."""

    own: str = ""
    others: str = ""


class _Section(NamedTuple):
    name: str
    heading: str
    items: Sequence[_Item]
    total: int
    command: str


def prime(
    view: Ask,
    get_blob: Blobs,
    origin: Origin,
    *,
    agent: str | None = None,
    session: str | None = None,
    task: str | None = None,
    budget: int = budget_tokens,
    folder: Path | None = None,
    home: Path | None = None,
) -> Primed:
    """Return the text for an agent at its start; ``session`` is its open session, if known.

    ``origin`` names the source of the words of others, ``folder`` is where a harness reads its page, ``home`` is the
    folder of the ledger, which stores the agent's position in the unread lines (None: leave out unread lines). Raises
    Refused: ``INVALID_FIELD`` for a budget under ``budget_min_tokens``. Unavailable: the ledger cannot be read.
    """
    if budget < budget_min_tokens:
        message = f"the budget must be at least {budget_min_tokens} tokens"
        raise Refused("INVALID_FIELD", message, field="budget")
    doubts: dict[str, None] = {}

    def ask(query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = view(query, arguments)
        doubts.update(dict.fromkeys(compromised_sentences(answer)))
        return answer

    now = datetime.now(UTC)
    waiting = _waiting(ask, agent)
    resumed = resume(ask, get_blob, detail_level="summary", agent=agent)
    dead_ends, known, named = _related(ask, task, waiting, session, now)
    if any(item["reasoning_refs"] for item in waiting["items"]):
        waiting = Citations(view, next_tokens_max, agent).waiting(waiting)
    packing = _Packing(budget, origin, folder or present_folder())
    packing.add(_acting(view, agent, session))
    if doubts:
        warning = "- A key was compromised: these events, and events that rely on them, may be forged."
        lines = [_Item(warning), *(_Item(others=f"- {sanitize_line(words)}.") for words in doubts)]
        packing.add(_Section("compromised", "Do not rely on this", lines, len(lines), "deed key list"))
    questions, rest = _questions(agent, waiting, now)
    if questions.items:
        packing.add(questions)
    if home is not None and agent is not None and (unread := peek(ask, home, agent))["items"]:
        packing.add(_unread(agent, unread, now))
    packing.add(dead_ends)
    if known.items:
        packing.add(known)
    if rest["total"] or not questions.items:
        packing.add(_what_waits(agent, rest, now))
    if last := _last_session(view, resumed, session, now, named):
        packing.add(last)
    return packing.finished()


class _Packing:
    """A text to which whole items are added within a budget."""

    def __init__(self, budget: int, origin: Origin, folder: Path) -> None:
        self._limit = budget - _rest_tokens
        self._origin = origin
        self._text = f"{_how_to(folder)}Below, text of others is between <others …> and </others>. {UNTRUSTED_NOTICE}\n"
        self._sections: list[str] = []
        self._left_out: list[dict[str, str]] = []

    def add(self, section: _Section) -> None:
        """Add as many items of a section as fit into its share of the remaining token budget."""
        used = count_tokens(self._text)
        limit = used + int((self._limit - used) * _share_of.get(section.name, 1.0))
        chosen: list[_Item] = []
        for item in section.items:
            if count_tokens(self._with(section.heading, [*chosen, item])) > limit:
                break
            chosen.append(item)
        if chosen:
            self._text = self._with(section.heading, chosen)
            self._sections.append(section.name)
        if missing := section.total - len(chosen):
            self._left_out.append({"what": f"{missing} of {section.name}", "command": section.command})

    def finished(self) -> Primed:
        """Return the text with the list of items that were left out."""
        text = self._text
        if self._left_out:
            lines = [_Item(f"- {entry['what']}: `{entry['command']}`") for entry in self._left_out]
            text = self._with("Left out", lines)
        used = tokenizer()
        return Primed(text, count_tokens(text), used.exact, used.name, self._sections, self._left_out)

    def _with(self, heading: str, items: Sequence[_Item]) -> str:
        own, others = ([words for words in both if words] for both in zip(*items, strict=True))
        quoted = [untrusted_block("\n".join(others), self._origin)] if others else []
        return "\n".join([self._text, f"### {heading}", *own, *quoted, ""])


def _acting(view: Ask, agent: str | None, session: str | None) -> _Section:
    """Return the acting agent and its session, or what must be done before an agent can act."""
    registered = [row["name"] for row in view("agents.list", {})["agents"] if row["name"] not in {NODE, ROOT}]
    if not registered:
        lines = ["- No agent is registered in this ledger yet. Begin with `deed agent add NAME --role agent`."]
    elif agent is None:
        named = ", ".join(registered[:named_agents_max])
        more = "" if len(registered) <= named_agents_max else f" and {len(registered) - named_agents_max} more"
        lines = [f"- No agent acts. Set DEEDBOOK_AGENT, or add `--as`, with one of {named}{more}."]
    elif agent not in registered:
        lines = [f"- {agent} is not registered. Run `deed agent add {agent} --role agent`."]
    else:
        lines = [f"- You act as {agent}.", _session_line(view, agent, session)]
    return _Section("you", "You", [_Item(line) for line in lines], len(lines), "deed agent list")


def _session_line(view: Ask, agent: str, session: str | None) -> str:
    page = view("sessions.list", {"author": agent, "status": "open", "limit": 1})
    if session is not None:
        advice = "start no other. If DEEDBOOK_SESSION is not set, name the session in each verb."
        return f"- Your open session is {session}: {advice}"
    if page["total"] == 0:
        return "- You have no open session."
    if page["total"] == 1:
        return f"- Your open session is {page['items'][0]['id']}."
    listed = f"`deed session list --agent {agent} --status open`"
    return f"- You have {page['total']} open sessions ({listed}): set DEEDBOOK_SESSION to one."


def _waiting(view: Ask, agent: str | None) -> dict[str, Any]:
    try:
        filters = {} if agent is None else {"agent": agent}
        return with_commands(view("handoffs.next", {"limit": waiting_max, **filters}))
    except Refused as refusal:
        if refusal.code != "AGENT_UNKNOWN":
            raise
        return {"items": [], "total": 0}


def _questions(agent: str | None, waiting: Mapping[str, Any], now: datetime) -> tuple[_Section, dict[str, Any]]:
    """Return the questions to the agent, which come first in its queue, and the rest of the queue."""
    asked = [row for row in waiting["items"] if row["action"] == "answer" and agent is not None]
    others = [row for row in waiting["items"] if row not in asked]
    items = _items_of(agent, asked, now)
    section = _Section("questions to you", "Questions to you: answer them first", items, len(items), _queue_of(agent))
    return section, {**waiting, "items": others, "total": waiting["total"] - len(asked)}


def _unread(agent: str, unread: Mapping[str, Any], now: datetime) -> _Section:
    command = f"{UNREAD} --as {agent}"
    lines = [f"- {age(row['accepted_ms'], now)}, {line_of(row)}" for row in unread["items"]]
    lines += more_of(unread)
    items = [_Item(f"- {counted(unread['total'], 'line')}: `{command}`", "\n".join(lines))]
    return _Section("what is new", "What is new for you", items, 1, command)


def _queue_of(agent: str | None) -> str:
    return "deed next" if agent is None else f"deed next --as {agent}"


def _what_waits(agent: str | None, waiting: Mapping[str, Any], now: datetime) -> _Section:
    whom, command = "" if agent is None else f" for {agent}", _queue_of(agent)
    items = _items_of(agent, waiting["items"], now)
    if not waiting["total"]:
        nothing = _Item(f"- `{command}` shows new work.")
        return _Section("what waits", f"Nothing waits{whom}", [nothing], 1, command)
    return _Section("what waits", f"What waits{whom}", items, waiting["total"], command)


def _items_of(agent: str | None, rows: Sequence[Mapping[str, Any]], now: datetime) -> list[_Item]:
    command, items = _queue_of(agent), []
    for number, row in enumerate(rows, 1):
        owner = f"{row['agent']}: " if agent is None else ""
        # An id may be a sentence; then it belongs to the words of others.
        sentence = f"{sanitize_line(row['title'])} ({sanitize_line(row['why'])})"
        work, next_command = row["id"], row["command"]
        if not is_plain(row["id"]):
            work, next_command, sentence = f"number {number}", command, f"{sanitize_line(row['id'])}: {sentence}"
        words = f"{number}. {row['author']}, {age(row['since_ms'], now)}: {sentence}"
        reasoning = " (with its reasoning)" if row["reasoning_refs"] else ""
        items.append(_Item(f"{number}. {owner}{row['action']} {work}{reasoning}: `{next_command}`", words))
    return items


def _related(
    view: Ask, task: str | None, waiting: Mapping[str, Any], present: str | None, now: datetime
) -> tuple[_Section, _Section, set[str]]:
    """Return dead ends of work similar to the task (default: to the waiting work), and earlier work on the task.

    The last part is the set of the sessions named as earlier work.
    """
    topic = task or next((row["title"] for row in waiting["items"] if row["kind"] == "handoff"), "")
    command = f"deed report similar {quote(sanitize_line(task))}" if task else "deed report resume --detail-level full"
    related: Mapping[str, Any] = {"dead_ends": [], "reasonings": [], "sessions": []}
    if topic.strip():
        related = view("search.related", {"task": topic, "limit": dead_ends_max, "session": present})
    lines: dict[str, str] = {}
    for row in without_noted(view, waiting["items"], related["dead_ends"]):
        line = sanitize_line(dead_end_text(row))
        lines.setdefault(line, f"- {said_by(row)}, {age(row['happened_ms'], now)}, {row['near']}: {line}")
    items = [_Item(others=line) for line in lines.values()]
    failed = _Section("dead ends", "Dead ends of similar tasks: do not try these again", items, len(items), command)
    rows = [*related["reasonings"], *related["sessions"]] if task else []
    known = [_known(row, now) for row in sorted(rows, key=lambda row: -row["score"])]
    sessions = {row["session_id"] for row in rows if "session_id" in row}
    reads = ["a session with `deed report resume --session-id ID`"] if sessions else []
    reads += ["a reasoning with `deed reasoning brief ID`"] if task and related["reasonings"] else []
    heading = f"Earlier work: read {', '.join(reads)}"
    return failed, _Section("related", heading, known, len(known), command), sessions


def _known(row: Mapping[str, Any], now: datetime) -> _Item:
    """Return the line of a session or reasoning."""
    if "session_id" in row:
        what, outcome, at_ms = f"session {row['session_id']}", row["outcome"], row["happened_ms"]
        otherwise = f"“{sanitize_line(row['excerpt'])}”"
    else:
        what, outcome, at_ms = f"reasoning {row['id']}", row["conclusion"] or row["status"], row["updated_ms"]
        otherwise = "(no task)"
    result = f" → {sanitize_line(outcome)}" if outcome else ""
    source = f"- {sanitize_line(what)}: {said_by(row)}, {age(at_ms, now)}, {row['near']}"
    about = sanitize_line(row["task"]) or otherwise
    return _Item(others=f"{source}: {about}{result}")


def said_by(row: Mapping[str, Any]) -> str:
    """Return who did some work. For imported work, this is the claimed author, and the importer who signed it."""
    if row.get("imported"):
        return f"{sanitize_line(row['ai_id']) or 'unknown'} (imported by {row['imported']['importer']})"
    return str(row["author"])


def _last_session(
    view: Ask, resumed: Mapping[str, Any], present: str | None, now: datetime, named: Collection[str]
) -> _Section | None:
    """Return the last session and the command that shows it; None if it is among those that were ``named`` before.

    The present session counts only if something was recorded in it.
    """
    command = "deed report resume"
    by = whose(view, resumed)
    for row in resumed["sessions"]:
        if row["session_id"] != present or any(row.get(field) for field in _RECORDED):
            name = row["session_id"]
            if name in named:
                return None
            own = f"- `{command} --session-id {name}` shows it." if is_plain(name) else f"- `{command}` shows it."
            words = f"{by[name][0]}, {age(row['timestamp'], now)}: {sanitize_line(row['task']) or '(no task)'}"
            return _Section("the last session", "The last session", [_Item(own, words)], 1, command)
    return _Section("the last session", "The last session", [_Item("- No session was recorded yet.")], 1, command)


def _how_to(folder: Path) -> str:
    """Return how to read the page for agents; nothing if a harness has it, so that nothing is repeated."""
    title = agents_page().partition("\n")[0]
    own = [harness.files(Path.home(), "user").page for harness in HARNESSES.values()]
    names = {harness.files(folder, "team").page.name for harness in HARNESSES.values()}
    for path in [*(parent / name for parent in (folder, *folder.parents) for name in names), *own]:
        try:
            with open_regular(path, follow=True) as descriptor:
                if title.encode() in os.read(descriptor, page_looked_at_max_bytes):
                    return ""
        except (OSError, Refused):
            continue
    advice = "`deed setup claude-code|codex|gemini` puts it where your harness reads it"
    return f"`deed prime --page` prints how to work with Deedbook; {advice}.\n"
