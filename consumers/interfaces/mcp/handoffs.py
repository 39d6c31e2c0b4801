"""The tools of handoffs: what waits, each with the call that goes on with it, and every act on one.

The gate decides who may do what; this surface adds only that a review is signed here by an agent that has the role of
a reviewer, and never by a human's key (``tool_ledger``).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from shlex import quote
from typing import Annotated, Any, Final, Literal, ParamSpec, TypeVar, get_args

from msgspec.structs import replace
from pydantic import Field, StrictBool

from deedbook.consumers.handoffs.content import creation, events_of, of_version, place_of, query_for
from deedbook.consumers.handoffs.operations import (
    ACTS,
    OF_WHAT_WAS_READ,
    REVIEWS,
    Argument,
    Form,
    ToolVerb,
    with_commands,
)
from deedbook.consumers.handoffs.receiver import later, missing, uncommitted
from deedbook.consumers.interfaces.mcp import answers
from deedbook.consumers.interfaces.mcp.reports import NUMBER, Id, PageSize, Said
from deedbook.consumers.interfaces.mcp.tool_ledger import Tools, roles_of
from deedbook.consumers.reasoning.citations import Citations, next_tokens_max
from deedbook.consumers.sdk.quotation import is_plain, untrusted_text
from deedbook.consumers.sdk.tokens import cut_to_tokens
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.forms import REF_PATTERN
from deedbook.projections.answers.checked import ask

P = ParamSpec("P")
R = TypeVar("R")
Action = Literal[ToolVerb, "why", "show"]
Label = Annotated[str, Field(min_length=1, max_length=200)]
Line = Annotated[str, Field(min_length=1, max_length=2_000)]
Lines = Annotated[list[Line], Field(max_length=100)]
Numbers = Annotated[list[Annotated[int, Field(ge=1, le=100_000), NUMBER]], Field(max_length=200)]

_why_tokens: Final = 80
_text_tokens: Final = 250
_rows_max: Final = 40
_TOLD: Final = ("reasoning_refs", "result_refs")
_GROUNDS: Final = ("result_reasoning", "reasoning")
_log_lines_max: Final = 8


_FORMS: Final[dict[Form, Any]] = {
    "text": Said,
    "texts": Lines,
    "names": Lines,
    "numbers": Numbers,
    "flag": StrictBool,
    "number": Annotated[int, Field(ge=1, le=43_200), NUMBER],
}
_TYPES: Final[dict[str, Any]] = {
    "title": Label,
    "to": Id,
    "reviewer": Id,
    "session": Id,
    "answers": Id,
    "proposal": Line,
    "version": Annotated[str, Field(max_length=80)],
    "reason": Said,
    "criterion_numbers": Numbers,
}


def _with_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return the tool of all acts with an argument for each that any of them takes, in place of ``**given``."""
    takers: dict[str, list[tuple[str, Argument]]] = {}
    for verb in get_args(ToolVerb):
        for one in ACTS[verb].arguments:
            takers.setdefault(one.name, []).append((verb, one))
    shown = inspect.signature(function, eval_str=True)
    *parameters, _ = shown.parameters.values()
    for name, taken in takers.items():
        _, one = taken[0]
        if one.is_of_terminal:
            continue
        type_ = Literal[one.choices] if one.choices else _TYPES.get(name, _FORMS[one.form])
        field = Field(description=f"{', '.join(verb for verb, _ in taken)}: {str(one.words).rstrip('.')}")
        # The SDK takes a text that looks like JSON for JSON, unless the type is that of a text alone.
        default, type_ = ("", type_) if type_ is Said else (None, type_ | None)
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=Annotated[type_, field]))
    function.__dict__["__signature__"] = shown.replace(parameters=parameters)
    return function


class Waiting(answers.Answer):
    """One thing that waits for somebody."""

    kind: str
    id: str
    action: str
    agent: str
    status: str
    sender: Annotated[str, Field(alias="from")]
    to: str
    since_index: int
    words: Annotated[answers.Words, Field(description="Its title, and why it waits since then.")]
    command: Annotated[str, Field(description="The command line that goes on with it.")]
    call: Annotated[
        dict[str, Any] | None,
        Field(
            description="The tool call that goes on with it; null where a person must decide in a terminal. "
            "What waits to be approved or verified is shown first: then call that action with the `version` you read."
        ),
    ]
    shortened: list[str] | None = None


class WaitingPage(answers.Quoting):
    """What waits, most urgent first."""

    agent: Annotated[str | None, Field(description="Whose queue this is; null for everybody's.")]
    items: list[Waiting]
    total: int
    next: Annotated[str | None, Field(description="The cursor of the next page; null on the last.")]


class ActDone(answers.Quoting):
    """Where a handoff stands now, and what the act recorded; `show` adds the handoff itself, its parties' words."""

    id: str
    status: str
    version: str
    is_ready: bool
    events: list[dict[str, Any]]
    words: Annotated[
        answers.Words, Field(description="`why` it is ready or not, in one sentence, and with show the handoff.")
    ]
    left_out: list[str] | None = None
    warnings: Annotated[list[str] | None, Field(description="What others are not told, or do not have.")] = None


class HandoffTools(Tools):
    """The tools of handoffs."""

    def _citations(self, tokens: int) -> Citations:
        return Citations(partial(ask, self._ledger.client), tokens, self._ledger.agent)

    def handoff_next(
        self,
        agent: Annotated[Id | None, Field(description="Whose queue; default: the acting agent's.")] = None,
        scope: Annotated[
            Literal["waiting", "all"], Field(description="all: every handoff, newest first, whoever it waits for.")
        ] = "waiting",
        limit: PageSize = 10,
        cursor: Annotated[str, Field(max_length=2_000, description="The `next` of the page before.")] = "",
    ) -> WaitingPage:
        """Show what waits, most urgent first, with the call that goes on with each."""
        if scope == "all":
            return self._listed(limit, cursor)
        whose = agent or self._ledger.agent

        def page(rows: int) -> dict[str, Any]:
            return self._ledger.ask("handoffs.next", agent=whose, limit=rows, after=cursor or None)

        found = self._citations(next_tokens_max).waiting(page(limit))
        people = {one.name for one in self._ledger.client.agents() if "human" in one.roles}
        calls = [None if one["agent"] in people else call_of(one) for one in found["items"]]
        items = [waiting(item, call) for item, call in zip(with_commands(found)["items"], calls, strict=True)]
        head = {"agent": whose, "others": self._ledger.others()}
        return WaitingPage.model_validate(answers.paged(found | head, items, "items", page))

    def _listed(self, limit: int, cursor: str) -> WaitingPage:
        if cursor and not cursor.isdecimal():
            raise Refused("INVALID_FIELD", "this cursor is not one that a page with scope all gave", field="cursor")

        def page(rows: int) -> dict[str, Any]:
            found = self._ledger.ask("handoffs.list", limit=rows, after=int(cursor) if cursor else None)
            return {"total": found["total"], "next": found["next"] and str(found["next"]), "rows": found["handoffs"]}

        found = page(limit) | {"agent": None, "others": self._ledger.others()}
        items = [listed(row) for row in found.pop("rows")]
        return WaitingPage.model_validate(answers.paged(found, items, "items", page))

    @_with_arguments
    def handoff_act(
        self,
        action: Action,
        id: Annotated[
            Id | None, Field(description="The handoff; with create: its new id (default: day, title).")
        ] = None,
        idempotency_key: Annotated[
            Label | None, Field(description="Makes a repeated call harmless: same key and content add nothing.")
        ] = None,
        **given: Any,
    ) -> ActDone:
        """Do one thing with a handoff."""
        given = {name: value for name, value in given.items() if value not in (None, "")}
        if action == "why" or action == "show":
            check_given(action, (), id, given)
            return self._answer(id or "", [], with_handoff=action == "show")
        check_given(action, ACTS[action].arguments, id, given)
        return self._act(action, id, given, idempotency_key)

    def _act(self, action: ToolVerb, id_: str | None, given: dict[str, Any], key: str | None) -> ActDone:
        ledger = self._ledger
        author = ledger.author()
        if action in REVIEWS and "reviewer" not in (roles_of(ledger.client, author.name) or ()):
            message = f"{author.name} is no reviewer: {action} is for the reviewer, who does it with `deed handoff`"
            raise Refused("NOT_AUTHORIZED", message, name=author.name)
        warnings: list[str] = []
        events: list[EventData]
        if action == "create":
            name, created = creation(partial(ask, ledger.client), author.name, ledger.settings, id_, given)
            shown, events, warnings = {"id": name}, [created], missing(created.notes, name)
        else:
            shown = ledger.ask(query_for(action), id=id_)
            name, events = shown["id"], events_of(action, shown, given, author)
            warnings = uncommitted(ledger.ask("handoffs.show", id=name)) if action == "complete" else []
        with of_version(ledger.client, name, given.get("version")):
            place = place_of(action, shown, given.get("version"))
            drafts = [Draft(stream=f"handoff/{name}", data=data) for data in events]
            if not drafts:  # ticked already
                return self._answer(name, [], with_handoff=False)
            if key is None:
                drafts[0] = replace(drafts[0], expect=place)
            else:  # what is sent again is not held against what it did at first
                drafts = [replace(draft, idem=f"{key}:{at}"[:200]) for at, draft in enumerate(drafts)]
            accepted = author.emit(*drafts)
        rows = [{"event_index": one.index, "event_id": one.id, "is_repeat": one.is_repeat} for one in accepted]
        return self._answer(name, rows, with_handoff=False, warnings=warnings)

    def _answer(
        self, id_: str, events: list[dict[str, Any]], *, with_handoff: bool, warnings: list[str] | None = None
    ) -> ActDone:
        shown = self._ledger.ask("handoffs.show", id=id_)
        # An act says what is known of each reasoning, so that who named a wrong one hears it; `show` has the briefs.
        tokens = next_tokens_max if with_handoff else 0
        shown = as_citations(self._citations(tokens).shown(shown))
        answer: dict[str, Any] = {name: shown[name] for name in ("id", "status", "version", "is_ready")}
        answer |= {name: shown[name] for name in ("suspect",) if name in shown}
        answer |= {of: found for of in _GROUNDS if (found := shown.pop(of, None))}
        answer |= {"events": []} | ({"warnings": warnings} if warnings else {})
        text: dict[str, Any] = {"why": cut_to_tokens(shown["why"]["sentence"], _text_tokens)}
        parties = dict.fromkeys(filter(None, (shown["importer"] or shown["from"], shown["to"], shown["reviewer"])))
        answer |= {
            "others": self._ledger.others(),
            "words": untrusted_text(", ".join(parties), shown["updated_ms"], text),
        }
        kept = answers.fitting(events, answer)
        answer["events"] = events[:kept]
        if kept < len(events):
            answer["left_out"] = [f"{len(events) - kept} events"]
        if with_handoff:
            whole = handoff_within(shown, answer)
            text["handoff"] = whole.pop("handoff")
            answer |= whole
        return ActDone.model_validate(answer)


def check_given(action: Action, arguments: tuple[Argument, ...], id_: str | None, given: dict[str, Any]) -> None:
    """Refuse a call that lacks what its act needs, or gives what it does not take, and so means something else."""
    takes = [one.name for one in sorted(arguments, key=lambda one: not one.is_needed)]
    needed = [one for one in arguments if one.is_needed or (action in OF_WHAT_WAS_READ and one.name == "version")]
    missing = [one.name for one in needed if one.name not in given]
    if id_ is None and action != "create":
        missing.insert(0, "id")
    if missing:
        read = ": the one that you read, as `show` tells it" if "version" in missing else ""
        raise Refused("USAGE", f"{action} needs {' and '.join(missing)}{read}", fields=missing)
    alien = sorted(set(given) - set(takes))
    if alien:
        raise Refused("USAGE", f"{action} takes no {alien[0]}: it takes {', '.join(['id', *takes])}", fields=alien)
    if "version" in given and not re.match(REF_PATTERN, given["version"]):
        raise Refused("USAGE", "version is a whole one, sha256:…, as `show` tells it", field="version")


def waiting(item: dict[str, Any], call: dict[str, Any] | None) -> dict[str, Any]:
    """Return an item of ``handoffs.next`` as it is told, its texts as the words of who sent it."""
    told = answers.shorten(item, ("why", "title"), _why_tokens) | {"call": call}
    if not is_plain(item["id"]):
        told["command"] = "deed next"
    if not is_plain(item["from"]):  # what an imported file says of itself
        told["from"] = item["author"]
    author, at_ms = told.pop("author"), told.pop("since_ms")
    return answers.quoted(as_citations(told), author, at_ms, "title", "why")


def listed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of ``handoffs.list`` as an item: what goes on with it is to read it."""
    item = {name: row[name] for name in ("id", "status", "from", "to", "title")} | {"agent": row["to"]}
    item |= {"kind": "handoff", "action": "show", "command": f"deed handoff show {quote(row['id'])}"}
    item |= {"author": row["importer"] or row["from"], "why": row["reason"]}
    item |= {"since_index": row["updated_index"], "since_ms": row["updated_ms"]}
    return waiting(item, call_of(item | {"act": "show", "arguments": {}}))


def as_citations(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer whose reasonings are as they are told: our line on each, and its brief as its author's words."""
    for of in [name for name in _GROUNDS if answer.get(name)]:
        answer[of] = [
            {name: one[name] for name in ("reasoning_ref", "said", "action")}
            | ({"words": untrusted_text(one["author"], one["at_ms"], one["prompt"])} if one["prompt"] else {})
            for one in answer[of]
        ]
    return {name: value for name, value in answer.items() if name not in _TOLD and (value or name not in _GROUNDS)}


def call_of(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return the tool call that does an item's act; None for what a person answers in a terminal."""
    if item["kind"] != "handoff":
        return None
    # What is judged is read first: the version that `show` tells then goes into the call that judges it.
    action = "show" if item["act"] in OF_WHAT_WAS_READ else item["act"]
    return {"tool": "handoff_act", "arguments": {"action": action, "id": item["id"], **item["arguments"]}}


def handoff_within(shown: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return a handoff within an answer's tokens: texts cut at words, the newest of its log, and what was left out."""
    notes = shown["notes"] | {"later": later(shown)}
    shown = shown | {"notes": [{"of": of, "text": text} for of, texts in notes.items() for text in texts]}
    listed = {"why", "log", "template", "tasks", "criteria", "notes"}
    whole = {name: value for name, value in shown.items() if name not in listed and value is not None}
    told = answers.shorten(whole, ("task", "context", "summary", "reason"), _text_tokens)
    left_out = [f"the rest of {name}" for name in told.pop("shortened", [])]
    told |= {"notes": [], "tasks": [], "criteria": [], "log": []}
    for name, rows in (
        ("notes", shown["notes"]),  # first: what the receiver cannot find out by himself
        ("criteria", shown["criteria"]),
        ("tasks", shown["tasks"]),
        ("log", [line["line"] for line in reversed(shown["log"])][:_log_lines_max]),
    ):
        kept: list[Any] = []
        for row in rows[:_rows_max]:
            small = row if isinstance(row, str) else answers.shorten(row, ("text",), _why_tokens)
            if answers.tokens_of(answer | {"handoff": told | {name: [*kept, small]}}) > answers.filled_tokens_max:
                break
            kept.append(small)
        told[name] = kept[::-1] if name == "log" else kept
        if len(kept) < len(shown[name]):
            left_out.append(f"{len(shown[name]) - len(kept)} of {len(shown[name])} {name}")
    for name in ("dependents", "answered_by", "depends_on", "artifacts"):
        if answers.tokens_of(answer | {"handoff": told}) > answers.filled_tokens_max and told.get(name):
            left_out.append(name)
            told[name] = []
    return {"handoff": told} | ({"left_out": left_out} if left_out else {})
