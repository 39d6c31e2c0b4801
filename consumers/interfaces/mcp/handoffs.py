"""The tools for handoffs: the queue, each item with its next call, and every operation on a handoff.

The gate decides which agent may do what. These tools add one rule: only an agent with the role of a reviewer signs
reviews here, never a human's key (``tool_ledger``).
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
    OF_WHAT_WAS_READ,
    OPERATIONS,
    REVIEWS,
    Argument,
    Form,
    ToolVerb,
    with_commands,
)
from deedbook.consumers.handoffs.receiver import later, missing
from deedbook.consumers.handoffs.worktree import uncommitted
from deedbook.consumers.interfaces.mcp import answers
from deedbook.consumers.interfaces.mcp.reports import NUMBER, Id, PageSize, Text
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
_REFS: Final = ("reasoning_refs", "result_refs")
_CITATIONS: Final = ("result_reasoning", "reasoning")
_log_lines_max: Final = 8


_FORMS: Final[dict[Form, Any]] = {
    "text": Text,
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
    "reason": Text,
    "criterion_numbers": Numbers,
}


def _with_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return the tool of all operations with every argument that any operation takes, in place of ``**args``."""
    takers: dict[str, list[tuple[str, Argument]]] = {}
    for verb in get_args(ToolVerb):
        for argument in OPERATIONS[verb].arguments:
            takers.setdefault(argument.name, []).append((verb, argument))
    signature = inspect.signature(function, eval_str=True)
    *parameters, _ = signature.parameters.values()
    for name, uses in takers.items():
        _, argument = uses[0]
        if argument.is_of_terminal:
            continue
        type_ = Literal[argument.choices] if argument.choices else _TYPES.get(name, _FORMS[argument.form])
        field = Field(description=f"{', '.join(verb for verb, _ in uses)}: {str(argument.words).rstrip('.')}")
        # The SDK parses a text that looks like JSON as JSON, unless the type is exactly a text.
        default, type_ = ("", type_) if type_ is Text else (None, type_ | None)
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=Annotated[type_, field]))
    function.__dict__["__signature__"] = signature.replace(parameters=parameters)
    return function


class Waiting(answers.Answer):
    """One item that waits for an agent or a person."""

    kind: str
    id: str
    action: str
    agent: str
    status: str
    sender: Annotated[str, Field(alias="from")]
    to: str
    since_index: int
    words: Annotated[answers.Words, Field(description="Its title, and why it waits.")]
    command: Annotated[str, Field(description="The next command, in a terminal.")]
    call: Annotated[
        dict[str, Any] | None,
        Field(
            description="The next tool call; null if a person must decide in a terminal. For an item to approve or "
            "verify the call is `show`: read it, then call that action with the `version` that you read."
        ),
    ]
    shortened: list[str] | None = None


class WaitingPage(answers.Quoting):
    """The waiting items, most urgent first."""

    agent: Annotated[str | None, Field(description="The agent of this queue; null for all agents.")]
    items: list[Waiting]
    total: int
    next: Annotated[str | None, Field(description="The cursor of the next page; null on the last.")]


class OperationResult(answers.Quoting):
    """The state of a handoff and the recorded events; with `show`, `words` also contains the text of the handoff."""

    id: str
    status: str
    version: str
    is_ready: bool
    events: list[dict[str, Any]]
    words: Annotated[
        answers.Words, Field(description="`why` it is ready or not, in one sentence; with show also the handoff.")
    ]
    left_out: list[str] | None = None
    warnings: Annotated[
        list[str] | None, Field(description="Information that others do not get, such as uncommitted files.")
    ] = None


class HandoffTools(Tools):
    """The tools for handoffs."""

    def _citations(self, tokens: int) -> Citations:
        return Citations(partial(ask, self._ledger.client), tokens, self._ledger.agent)

    def handoff_next(
        self,
        agent: Annotated[
            Id | None, Field(description="The agent whose queue to list, e.g. minimax; default: you.")
        ] = None,
        scope: Annotated[
            Literal["waiting", "all"],
            Field(description="waiting: items that wait for `agent`; all: every handoff, newest first."),
        ] = "waiting",
        limit: PageSize = 10,
        after: Annotated[str, Field(max_length=2_000, description="The `next` of the previous page.")] = "",
    ) -> WaitingPage:
        """List the waiting items, most urgent first, each with its next call."""
        if scope == "all":
            return self._listed(limit, after)
        whose = agent or self._ledger.agent

        def page(rows: int) -> dict[str, Any]:
            return self._ledger.ask("handoffs.next", agent=whose, limit=rows, after=after or None)

        answer = self._citations(next_tokens_max).waiting(page(limit))
        people = {agent.name for agent in self._ledger.client.agents() if "human" in agent.roles}
        calls = [None if item["agent"] in people else call_of(item) for item in answer["items"]]
        items = [waiting_item(item, call) for item, call in zip(with_commands(answer)["items"], calls, strict=True)]
        head = {"agent": whose, "others": self._ledger.others()}
        return WaitingPage.model_validate(answers.paged(answer | head, items, "items", page))

    def _listed(self, limit: int, after: str) -> WaitingPage:
        if after and not after.isdecimal():
            raise Refused(
                "INVALID_FIELD",
                "the cursor is not from a page with scope all: leave it out to start from the first page",
                field="after",
            )

        def page(rows: int) -> dict[str, Any]:
            answer = self._ledger.ask("handoffs.list", limit=rows, after=int(after) if after else None)
            return {
                "total": answer["total"],
                "next": answer["next"] and str(answer["next"]),
                "rows": answer["items"],
            }

        answer = page(limit) | {"agent": None, "others": self._ledger.others()}
        items = [listed_item(row) for row in answer.pop("rows")]
        return WaitingPage.model_validate(answers.paged(answer, items, "items", page))

    @_with_arguments
    def handoff_act(
        self,
        action: Action,
        id: Annotated[  # noqa: A002 - the name in every interface
            Id | None,
            Field(description="The handoff's id; for create a new id, e.g. fix-login (default: date and title)."),
        ] = None,
        idempotency_key: Annotated[
            Label | None,
            Field(description="A text of your choice; repeating a call with the same key and content adds nothing."),
        ] = None,
        **args: Any,
    ) -> OperationResult:
        """Do one operation on a handoff."""
        args = {name: value for name, value in args.items() if value not in (None, "")}
        if action == "why" or action == "show":  # noqa: PLR1714 - mypy narrows by it
            check_arguments(action, (), id, args)
            return self._answer(id or "", [], with_handoff=action == "show")
        check_arguments(action, OPERATIONS[action].arguments, id, args)
        return self._operate(action, id, args, idempotency_key)

    def _operate(self, action: ToolVerb, id_: str | None, args: dict[str, Any], key: str | None) -> OperationResult:
        ledger = self._ledger
        author = ledger.author()
        if action in REVIEWS and "reviewer" not in (roles_of(ledger.client, author.name) or ()):
            message = f"{author.name} is not a reviewer: the reviewer does {action} with `deed handoff`"
            raise Refused("NOT_AUTHORIZED", message, name=author.name)
        warnings: list[str] = []
        events: list[EventData]
        if action == "create":
            name, created = creation(partial(ask, ledger.client), author.name, ledger.settings, id_, args)
            row, events, warnings = {"id": name}, [created], missing(created.notes, name)
        else:
            row = ledger.ask(query_for(action), id=id_)
            name, events = row["id"], events_of(action, row, args, author)
            warnings = uncommitted(ledger.ask("handoffs.show", id=name)) if action == "complete" else []
        with of_version(ledger.client, name, args.get("version")):
            place = place_of(action, row, args.get("version"))
            drafts = [Draft(stream=f"handoff/{name}", data=data) for data in events]
            if not drafts:  # everything is checked already
                return self._answer(name, [], with_handoff=False)
            if key is None:
                drafts[0] = replace(drafts[0], expect=place)
            else:  # a repeated call must not fail because the first one changed the stream
                drafts = [replace(draft, idem=f"{key}:{at}"[:200]) for at, draft in enumerate(drafts)]
            accepted = author.emit(*drafts)
        rows = [{"event_index": event.index, "event_id": event.id, "is_repeat": event.is_repeat} for event in accepted]
        return self._answer(name, rows, with_handoff=False, warnings=warnings)

    def _answer(
        self, id_: str, events: list[dict[str, Any]], *, with_handoff: bool, warnings: list[str] | None = None
    ) -> OperationResult:
        row = self._ledger.ask("handoffs.show", id=id_)
        # An operation describes each cited reasoning, so that an agent notices a wrong ref; `show` has the briefs.
        tokens = next_tokens_max if with_handoff else 0
        row = as_citations(self._citations(tokens).shown(row))
        answer: dict[str, Any] = {name: row[name] for name in ("id", "status", "version", "is_ready")}
        answer |= {name: row[name] for name in ("compromised",) if name in row}
        answer |= {name: cited for name in _CITATIONS if (cited := row.pop(name, None))}
        answer |= {"events": []} | ({"warnings": warnings} if warnings else {})
        text: dict[str, Any] = {"why": cut_to_tokens(row["why"]["sentence"], _text_tokens)}
        parties = dict.fromkeys(filter(None, (row["importer"] or row["from"], row["to"], row["reviewer"])))
        answer |= {
            "others": self._ledger.others(),
            "words": untrusted_text(", ".join(parties), row["updated_ms"], text),
        }
        count = answers.fitting(events, answer)
        answer["events"] = events[:count]
        if count < len(events):
            answer["left_out"] = [f"{len(events) - count} events"]
        if with_handoff:
            whole = handoff_in_tokens(row, answer)
            text["handoff"] = whole.pop("handoff")
            answer |= whole
        return OperationResult.model_validate(answer)


def check_arguments(action: Action, arguments: tuple[Argument, ...], id_: str | None, args: dict[str, Any]) -> None:
    """Refuse a call that lacks a needed argument, or has one that its operation does not take."""
    takes = [argument.name for argument in sorted(arguments, key=lambda argument: not argument.is_needed)]
    needed = [
        argument
        for argument in arguments
        if argument.is_needed or (action in OF_WHAT_WAS_READ and argument.name == "version")
    ]
    missing = [argument.name for argument in needed if argument.name not in args]
    if id_ is None and action != "create":
        missing.insert(0, "id")
    if missing:
        advice = ": call show and send the version that you read" if "version" in missing else ""
        raise Refused("USAGE", f"{action} needs {' and '.join(missing)}{advice}", fields=missing)
    unknown = sorted(set(args) - set(takes))
    if unknown:
        raise Refused(
            "USAGE", f"{action} has no argument {unknown[0]}: it takes {', '.join(['id', *takes])}", fields=unknown
        )
    if "version" in args and not re.match(REF_PATTERN, args["version"]):
        raise Refused("USAGE", "version must be complete, sha256:…, as `show` returns it", field="version")


def waiting_item(item: dict[str, Any], call: dict[str, Any] | None) -> dict[str, Any]:
    """Return an item of ``handoffs.next`` for the answer, with its texts as ``words`` of its author."""
    answer = answers.shorten(item, ("why", "title"), _why_tokens) | {"call": call}
    if not is_plain(item["id"]):
        answer["command"] = "deed next"
    if not is_plain(item["from"]):  # the name is a claim of an imported file
        answer["from"] = item["author"]
    author, at_ms = answer.pop("author"), answer.pop("since_ms")
    return answers.quoted(as_citations(answer), author, at_ms, "title", "why")


def listed_item(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of ``handoffs.list`` as an item; its next call is ``show``."""
    item = {name: row[name] for name in ("id", "status", "from", "to", "title")} | {"agent": row["to"]}
    item |= {"kind": "handoff", "action": "show", "command": f"deed handoff show {quote(row['id'])}"}
    item |= {"author": row["importer"] or row["from"], "why": row["reason"]}
    item |= {"since_index": row["updated_index"], "since_ms": row["updated_ms"]}
    return waiting_item(item, call_of(item | {"act": "show", "arguments": {}}))


def as_citations(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer whose cited reasonings have our line on each, and the brief as the author's ``words``."""
    for of in [name for name in _CITATIONS if answer.get(name)]:
        answer[of] = [
            {name: citation[name] for name in ("reasoning_ref", "said", "action")}
            | (
                {"words": untrusted_text(citation["author"], citation["at_ms"], citation["prompt"])}
                if citation["prompt"]
                else {}
            )
            for citation in answer[of]
        ]
    return {name: value for name, value in answer.items() if name not in _REFS and (value or name not in _CITATIONS)}


def call_of(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return the tool call for an item's next step; None if a person must answer in a terminal."""
    if item["kind"] != "handoff":
        return None
    # Read before judging: the call that judges needs the version that `show` returns.
    action = "show" if item["act"] in OF_WHAT_WAS_READ else item["act"]
    return {"tool": "handoff_act", "arguments": {"action": action, "id": item["id"], **item["arguments"]}}


def handoff_in_tokens(handoff: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return a handoff within the token limit: texts cut between words, the newest log lines, and ``left_out``."""
    notes = handoff["notes"] | {"later": later(handoff)}
    handoff = handoff | {"notes": [{"of": of, "text": text} for of, texts in notes.items() for text in texts]}
    separate = {"why", "log", "template", "tasks", "criteria", "notes"}
    whole = {name: value for name, value in handoff.items() if name not in separate and value is not None}
    fields = answers.shorten(whole, ("task", "context", "summary", "reason"), _text_tokens)
    left_out = [f"the rest of {name}" for name in fields.pop("shortened", [])]
    fields |= {"notes": [], "tasks": [], "criteria": [], "log": []}
    for name, rows in (
        ("notes", handoff["notes"]),  # first, because the receiver cannot find these out alone
        ("criteria", handoff["criteria"]),
        ("tasks", handoff["tasks"]),
        ("log", [line["line"] for line in reversed(handoff["log"])][:_log_lines_max]),
    ):
        fitting_rows: list[Any] = []
        for row in rows[:_rows_max]:
            small = row if isinstance(row, str) else answers.shorten(row, ("text",), _why_tokens)
            if (
                answers.tokens_of(answer | {"handoff": fields | {name: [*fitting_rows, small]}})
                > answers.filled_tokens_max
            ):
                break
            fitting_rows.append(small)
        fields[name] = fitting_rows[::-1] if name == "log" else fitting_rows
        if len(fitting_rows) < len(handoff[name]):
            left_out.append(f"{len(handoff[name]) - len(fitting_rows)} of {len(handoff[name])} {name}")
    for name in ("dependents", "answered_by", "depends_on", "artifacts"):
        if answers.tokens_of(answer | {"handoff": fields}) > answers.filled_tokens_max and fields.get(name):
            left_out.append(name)
            fields[name] = []
    return {"handoff": fields} | ({"left_out": left_out} if left_out else {})
