"""What an agent reads first: `deed prime`, and the brief that a hook puts into a new session.

In this order, within one budget of tokens: who acts and in which session, dead ends and reasonings of similar tasks,
what waits, the last session. A section has only whole items, and no item is cut; what found no room is counted under
"Left out", with the command that shows it. A ledger with nothing in it says what to do first. What another page tells
is named with the command that prints it, and not told: the page for agents stands in the harness's file, the last
session in `report resume`, a handoff with its reasoning in `handoff show`. Who reads all of them reads nothing twice.

What waits is to be acted on, so it was checked against its signed entries (``projections.answers.checked``); the rest
is what somebody remembers, as the views have it. What others wrote stands in a marked block
(``consumers.sdk.quotation``), each line with its author and age; what to do about it, in our own words, stands before
the block.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deedbook.consumers.handoffs.operations import with_commands
from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES
from deedbook.consumers.reasoning.citations import Citations, next_tokens_max
from deedbook.consumers.sdk.quotation import UNTRUSTED_NOTICE, Origin, age, is_plain, untrusted_block
from deedbook.consumers.sdk.text import dead_end_text, sanitize_line
from deedbook.consumers.sessions.resume import resume, whose
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.home.location import present_folder
from deedbook.ledger.lifecycle.authority import NODE, ROOT
from deedbook.ledger.system.files import open_regular
from deedbook.projections.agents.suspects import suspect_words
from deedbook.projections.briefs.tokens import count_tokens, tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deedbook.ledger.client.client import Ask

    Blobs = Callable[[str], bytes]

budget_tokens: Final = 2000
budget_min_tokens: Final = 500
"""Less would not hold who acts and the list of what was left out."""
page_looked_at_max_bytes: Final = 1024**2

waiting_max: Final = 10
dead_ends_max: Final = 10
named_agents_max: Final = 12
_share_of: Final = {"dead ends": 0.4, "related": 0.25, "what waits": 0.8}
"""What a section may take of what is left when its turn comes."""

_rest_tokens: Final = 110
_RECORDED: Final = ("key_findings", "remaining_unknowns", "epistemic_deltas", "assessments", "investigation_tools")


class Primed(NamedTuple):
    """The text, what it costs, which sections it has, and what was left out (``{"what", "command"}``)."""

    text: str
    tokens: int
    exact: bool
    tokenizer: str
    sections: list[str]
    left_out: list[dict[str, str]]


class _Item(NamedTuple):
    """What is said of one thing: in our own words, and in those of others."""

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
) -> Primed:
    """Return what an agent should know at the start; ``session`` is the one that is open for it, if known.

    ``origin`` is where the words of others in it come from, ``folder`` where a harness reads its page. Raises Refused:
    ``INVALID_FIELD`` for a budget under ``budget_min_tokens``. Unavailable: the ledger cannot be read.
    """
    if budget < budget_min_tokens:
        message = f"a budget under {budget_min_tokens} tokens would not hold what must be said"
        raise Refused("INVALID_FIELD", message, field="budget")
    doubts: dict[str, None] = {}

    def ask(query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = view(query, arguments)
        doubts.update(dict.fromkeys(suspect_words(answer)))
        return answer

    now = datetime.now(UTC)
    waiting = _waiting(ask, agent)
    resumed = resume(ask, get_blob, detail_level="summary", agent=agent)
    dead_ends, known = _related(ask, task, waiting, session, now)
    if any(one["reasoning_refs"] for one in waiting["items"]):
        waiting = Citations(view, next_tokens_max, agent).waiting(waiting)
    packing = _Packing(budget, origin, folder or present_folder())
    packing.add(_acting(view, agent, session))
    if doubts:
        warning = "- A key was compromised: what is named here, and what rests on it, may be a thief's."
        lines = [_Item(warning), *(_Item(others=f"- {sanitize_line(words)}.") for words in doubts)]
        packing.add(_Section("suspect", "Do not rely on this", lines, len(lines), "deed key list"))
    packing.add(dead_ends)
    if known.items:
        packing.add(known)
    packing.add(_what_waits(agent, waiting, now))
    packing.add(_last_session(view, resumed, session, now))
    return packing.finished()


def page_alone(error: DeedbookError) -> str:
    """Return the brief where the ledger cannot be read: the page, and why there is no more (a message may quote)."""
    return f"{agents_page()}\nThe ledger cannot be read now ({error.code}): `deed doctor` says why.\n"


class _Packing:
    """A text that grows by whole items within a budget."""

    def __init__(self, budget: int, origin: Origin, folder: Path) -> None:
        self._limit = budget - _rest_tokens
        self._origin = origin
        self._text = f"{_how_to(folder)}What stands between <others …> and </others> below: {UNTRUSTED_NOTICE}\n"
        self._sections: list[str] = []
        self._left_out: list[dict[str, str]] = []

    def add(self, section: _Section) -> None:
        """Add as many items of a section as its share holds."""
        used = count_tokens(self._text)
        limit = used + int((self._limit - used) * _share_of.get(section.name, 1.0))
        kept: list[_Item] = []
        for item in section.items:
            if count_tokens(self._with(section.heading, [*kept, item])) > limit:
                break
            kept.append(item)
        if kept:
            self._text = self._with(section.heading, kept)
            self._sections.append(section.name)
        if missing := section.total - len(kept):
            self._left_out.append({"what": f"{missing} of {section.name}", "command": section.command})

    def finished(self) -> Primed:
        """Return the text with the list of what was left out."""
        text = self._text
        if self._left_out:
            lines = [_Item(f"- {one['what']}: `{one['command']}`") for one in self._left_out]
            text = self._with("Left out", lines)
        used = tokenizer()
        return Primed(text, count_tokens(text), used.exact, used.name, self._sections, self._left_out)

    def _with(self, heading: str, items: Sequence[_Item]) -> str:
        own, others = ([words for words in both if words] for both in zip(*items, strict=True))
        quoted = [untrusted_block("\n".join(others), self._origin)] if others else []
        return "\n".join([self._text, f"### {heading}", *own, *quoted, ""])


def _acting(view: Ask, agent: str | None, session: str | None) -> _Section:
    """Return who acts and in which session, and what must be done before anything can be."""
    registered = [one["name"] for one in view("agents.list", {})["agents"] if one["name"] not in {NODE, ROOT}]
    if not registered:
        lines = ["- Nobody is registered in this ledger yet: begin with `deed agent add NAME --role agent`."]
    elif agent is None:
        named = ", ".join(registered[:named_agents_max])
        more = "" if len(registered) <= named_agents_max else f" and {len(registered) - named_agents_max} more"
        lines = [f"- Nobody acts: set DEEDBOOK_AGENT, or add `--as`, to one of {named}{more}."]
    elif agent not in registered:
        lines = [f"- {agent} is not registered: `deed agent add {agent} --role agent`."]
    else:
        lines = [f"- You act as {agent}.", _session_line(view, agent, session)]
    return _Section("you", "You", [_Item(line) for line in lines], len(lines), "deed agent list")


def _session_line(view: Ask, agent: str, session: str | None) -> str:
    page = view("sessions.list", {"author": agent, "status": "open", "limit": 1})
    if session is not None:
        advice = "start no other. Where DEEDBOOK_SESSION is not set, name it in each verb."
        return f"- Your open session is {session}: {advice}"
    if page["total"] == 0:
        return "- You have no open session."
    if page["total"] == 1:
        return f"- Your open session is {page['sessions'][0]['id']}."
    listed = f"`deed session list --agent {agent} --status open`"
    return f"- You have {page['total']} open sessions ({listed}): set DEEDBOOK_SESSION to one."


def _waiting(view: Ask, agent: str | None) -> dict[str, Any]:
    try:
        whom = {} if agent is None else {"agent": agent}
        return with_commands(view("handoffs.next", {"limit": waiting_max, **whom}))
    except Refused as refusal:
        if refusal.code != "AGENT_UNKNOWN":
            raise
        return {"items": [], "total": 0}


def _what_waits(agent: str | None, waiting: Mapping[str, Any], now: datetime) -> _Section:
    whom = "" if agent is None else f" for {agent}"
    command = "deed next" if agent is None else f"deed next --as {agent}"
    items = []
    for number, one in enumerate(waiting["items"], 1):
        whose = f"{one['agent']}: " if agent is None else ""
        # An id may be a sentence, and is no part of ours then.
        sentence = f"{sanitize_line(one['title'])} ({sanitize_line(one['why'])})"
        what, way = one["id"], one["command"]
        if not is_plain(one["id"]):
            what, way, sentence = f"what stands under {number}", command, f"{sanitize_line(one['id'])}: {sentence}"
        words = f"{number}. {one['author']}, {age(one['since_ms'], now)}: {sentence}"
        behind = " (with its reasoning)" if one["reasoning_refs"] else ""
        items.append(_Item(f"{number}. {whose}{one['action']} {what}{behind}: `{way}`", words))
    if not items:
        nothing = _Item(f"- `{command}` shows it when something does.")
        return _Section("what waits", f"Nothing waits{whom}", [nothing], 1, command)
    return _Section("what waits", f"What waits{whom}", items, waiting["total"], command)


def _related(
    view: Ask, task: str | None, waiting: Mapping[str, Any], present: str | None, now: datetime
) -> tuple[_Section, _Section]:
    """Return what failed in work like the task that was given, else like what waits, and what is known of the task."""
    wanted = task or next((one["title"] for one in waiting["items"] if one["kind"] == "handoff"), "")
    command = f"deed report similar {quote(sanitize_line(task))}" if task else "deed report resume --detail-level full"
    related: Mapping[str, Any] = {"dead_ends": [], "reasonings": [], "sessions": []}
    if wanted.strip():
        related = view("search.related", {"task": wanted, "limit": dead_ends_max, "session_id": present})
    lines: dict[str, str] = {}
    for one in related["dead_ends"]:
        line = sanitize_line(dead_end_text(one))
        lines.setdefault(line, f"- {one['author']}, {age(one['happened_ms'], now)}: {line}")
    items = [_Item(others=line) for line in lines.values()]
    failed = _Section("dead ends", "Dead ends of similar tasks: do not try these again", items, len(items), command)
    known = (
        []
        if not task
        else [
            *(
                _known(f"reasoning {one['id']}", one["conclusion"] or one["status"], age(one["updated_ms"], now), one)
                for one in related["reasonings"]
            ),
            *(
                _known(f"session {one['session_id']}", one["outcome"], age(one["happened_ms"], now), one)
                for one in related["sessions"]
            ),
        ]
    )
    heading = "Worked on before: `deed reasoning brief ID` or `deed report resume --session-id ID` tells one"
    return failed, _Section("related", heading, known, len(known), command)


def _known(what: str, outcome: str, when: str, one: Mapping[str, Any]) -> _Item:
    came_of_it = f" → {sanitize_line(outcome)}" if outcome else ""
    place = f"- {sanitize_line(what)}: {one['author']}, {when}, {one['near']}"
    return _Item(others=f"{place}: {sanitize_line(one['task'])}{came_of_it}")


def _last_session(view: Ask, resumed: Mapping[str, Any], present: str | None, now: datetime) -> _Section:
    """Return which session was the last, and the command that tells it; the present one only if it holds something."""
    command = "deed report resume"
    by = whose(view, resumed)
    for one in resumed["sessions"]:
        if one["session_id"] != present or any(one.get(what) for what in _RECORDED):
            name = one["session_id"]
            own = f"- `{command} --session-id {name}` tells it." if is_plain(name) else f"- `{command}` tells it."
            words = f"{by[name][0]}, {age(one['timestamp'], now)}: {sanitize_line(one['task']) or '(no task was said)'}"
            return _Section("the last session", "The last session", [_Item(own, words)], 1, command)
    return _Section("the last session", "The last session", [_Item("- No session was recorded yet.")], 1, command)


def _how_to(folder: Path) -> str:
    """Return where the page for agents is read: nothing where a harness has it, for what it knows is not told again."""
    title = agents_page().partition("\n")[0]
    own = [one.files(Path.home(), "user").page for one in HARNESSES.values()]
    names = {one.files(folder, "team").page.name for one in HARNESSES.values()}
    for path in [*(place / name for place in (folder, *folder.parents) for name in names), *own]:
        try:
            with open_regular(path, follow=True) as descriptor:
                if title.encode() in os.read(descriptor, page_looked_at_max_bytes):
                    return ""
        except (OSError, Refused):
            continue
    advice = "`deed setup claude-code|codex|gemini` puts that where your harness reads it"
    return f"`deed prime --page` prints how to work with Deedbook; {advice}.\n"


def agents_page() -> str:
    """Return the page as markdown, ending in a newline."""
    # Not by importlib.resources, which costs a hook as much as half a Python start.
    return Path(__file__).with_name("agents_page.md").read_text("utf-8")
