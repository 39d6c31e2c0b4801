"""The tools for handoffs: the queue, each item with its next call, and every operation on a handoff.

The gate decides which agent may do what. These tools add one rule: only an agent with the role of a reviewer signs
reviews here, never a human's key (``tool_ledger``).
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final, Literal, ParamSpec, TypeVar, get_args

from mcp.types import CallToolResult
from msgspec.structs import replace
from pydantic import Field, WithJsonSchema

from deedbook.consumers.handoffs.composition import creation, events_of
from deedbook.consumers.handoffs.content import of_version, place_of, query_for
from deedbook.consumers.handoffs.decisions import standing, touched_paths
from deedbook.consumers.handoffs.files.mapping import lines_only_in_file
from deedbook.consumers.handoffs.operations import (
    NOTES,
    OF_WHAT_WAS_READ,
    OPERATIONS,
    QUESTIONS,
    REVIEWS,
    ToolVerb,
    with_commands,
)
from deedbook.consumers.handoffs.questions import answering, asking, emitted, settling
from deedbook.consumers.handoffs.receiver import (
    later,
    left_out_text,
    notices,
    notices_of_amendment,
    unsaid_at_completion,
)
from deedbook.consumers.handoffs.short_ids import by_whole_id
from deedbook.consumers.handoffs.unread import COMMAND, line_of, peek
from deedbook.consumers.handoffs.worktree import uncommitted, uncommitted_text
from deedbook.consumers.interfaces.mcp import answers
from deedbook.consumers.interfaces.mcp.arguments import schemas_of
from deedbook.consumers.interfaces.mcp.fence import Own
from deedbook.consumers.interfaces.mcp.reports import Id, PageSize, Routed
from deedbook.consumers.interfaces.mcp.tool_ledger import Tools
from deedbook.consumers.reasoning.citations import Citations, next_tokens_max
from deedbook.consumers.sdk.operations import Argument, check_values
from deedbook.consumers.sdk.quotation import is_plain
from deedbook.consumers.sdk.tokens import cut_to_tokens
from deedbook.consumers.sdk.tool_agents import roles_of
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.handoff import HandoffAmended
from deedbook.ledger.format.codec import converted
from deedbook.ledger.format.forms import REF_PATTERN
from deedbook.projections.answers.answer import Answer, Untrusted
from deedbook.projections.handoffs.answers import QueueItem, ShownHandoff

P = ParamSpec("P")
R = TypeVar("R")
Action = Literal[ToolVerb, "why", "show"]
Label = Annotated[str, Field(min_length=1, max_length=200)]

_why_tokens: Final = 80
_least_tokens: Final = 15
_text_tokens: Final = 250
_rows_max: Final = 40
_REFS: Final = ("reasoning_refs", "result_refs")
_CITATIONS: Final = ("result_reasoning", "reasoning")
_log_lines_max: Final = 8


_notes = "notes"
# Every argument of the tool costs each session tokens, so one argument holds all kinds of notes. Only ``artifacts`` is
# not in it: a completion has an argument of this name, so the tool has it anyway.
_IN_NOTES: Final = [name for name in NOTES if name != "artifacts"]
_AS_NOTES: Final = Argument(_notes, "--notes", "object", f"What only you know, as lists: {', '.join(_IN_NOTES)}")


def _of_tool(arguments: Sequence[Argument]) -> list[Argument]:
    others = [argument for argument in arguments if argument.name not in _IN_NOTES]
    return others if len(others) == len(arguments) else [*others, _AS_NOTES]


OF_MOST, SCHEMAS = schemas_of({verb: _of_tool(OPERATIONS[verb].arguments) for verb in get_args(ToolVerb)})


def _with_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return the tool for all operations, with every argument of any operation in place of ``**args``."""
    signature = inspect.signature(function, eval_str=True)
    *parameters, _ = signature.parameters.values()
    for argument, schema in SCHEMAS:
        # The SDK parses a text that looks like JSON as JSON, unless the type is exactly a text.
        form, default = WithJsonSchema(schema), "" if argument.form == "text" else None
        annotation = Annotated[Any, form] if default is None else Annotated[str, form]
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(argument.name, kind, default=default, annotation=annotation))
    function.__dict__["__signature__"] = signature.replace(parameters=parameters)
    return function


class CitedReasoning(Answer, frozen=True, kw_only=True):
    """A reasoning that a handoff cites: our line on it, and its brief (``prompt``) by its author."""

    said: Own
    prompt: Untrusted


class Waiting(QueueItem, frozen=True, kw_only=True, rename={"sender": "from", "receiver": "to"}):
    """An item of a queue, with the ``call`` of the next step, or the ``command`` if a person must decide."""

    reasoning: list[CitedReasoning]
    command: Own


class UnreadLines(Answer, frozen=True, kw_only=True):
    """The number of unread lines of others, the first of them, and the command that shows them once."""

    lines: list[Untrusted]
    command: Own


class ItemPage(Answer, frozen=True, kw_only=True):
    """A page of items, most urgent first; the first page begins with the unread lines."""

    unread: UnreadLines
    items: list[Waiting]
    shorter: Own


class DecisionInTokens(Answer, frozen=True, kw_only=True):
    """A decision in force for the files of a handoff."""

    id: str
    author: str
    contract: bool
    text: Untrusted
    paths: list[Untrusted]


class HandoffInTokens(ShownHandoff, frozen=True, kw_only=True, rename={"sender": "from", "receiver": "to"}):
    """A handoff within the token limit: its notes as one list, its log as lines, and the rest of its file."""

    only_in_file: list[Untrusted]
    decisions: list[DecisionInTokens]
    notes: list[dict[str, Untrusted]]  # type: ignore[assignment]  # the type only says which texts are untrusted
    log: list[Untrusted]  # type: ignore[assignment]


class OperationResult(Answer, frozen=True, kw_only=True):
    """The state of a handoff, ``why`` it is ready or not, and the recorded events; with `show`, the handoff.

    ``warnings`` name files that the sender named.
    """

    why: Untrusted
    reasoning: list[CitedReasoning]
    result_reasoning: list[CitedReasoning]
    handoff: HandoffInTokens
    left_out: list[Own]
    warnings: list[Untrusted]


class QuestionResult(Answer, frozen=True, kw_only=True):
    """A question that is about no handoff, and the recorded event."""

    question: Untrusted
    answer: Untrusted


class HandoffTools(Tools):
    """The tools for handoffs."""

    def _citations(self, tokens: int) -> Citations:
        return Citations(self._ledger.query_with, tokens, self._ledger.agent)

    def handoff_next(  # noqa: PLR0917 - clients rely on these names
        self,
        agent: Annotated[Id | None, Field(description="Whose queue; default: yours.")] = None,
        scope: Annotated[
            Literal["waiting", "all"],
            Field(description="all: every handoff, newest first."),
        ] = "waiting",
        tag: Routed = None,
        domain: Routed = None,
        limit: PageSize = 10,
        after: Annotated[str, Field(max_length=2_000, description="`next` of the last page.")] = "",
    ) -> CallToolResult:
        """List the waiting items, questions to you first, each with its next call; and the unread lines."""
        if scope == "all":
            if tag or domain:
                raise Refused("USAGE", "tag and domain choose among what waits: leave scope out", field="scope")
            return self._listed(limit, after)
        whose = agent or self._ledger.agent

        def page(rows: int) -> dict[str, Any]:
            filters = {"tag": tag, "domain": domain}
            return self._ledger.ask("handoffs.next", agent=whose, limit=rows, after=after or None, **filters)

        answer = self._unread(whose, after) | self._citations(next_tokens_max).waiting(page(limit))
        people = {agent.name for agent in self._ledger.client.agents() if "human" in agent.roles}
        calls = [None if item["agent"] in people else call_of(item) for item in answer["items"]]
        share = answers.share_of(len(calls))
        rows = zip(with_commands(answer)["items"], calls, strict=True)
        items = [waiting_item(item, call, share) for item, call in rows]
        return self._answered(answers.paged(answer | {"agent": whose}, items, "items", page), ItemPage)

    def _unread(self, agent: str | None, after: str) -> dict[str, Any]:
        if agent is None or after:
            return {}
        unread = peek(self._ledger.query_with, self._ledger.settings.home, agent)
        lines = [line_of(item) for item in unread["items"]]
        answer = {"total": unread["total"], "lines": lines, "command": f"{COMMAND} --as {agent}"}
        return {"unread": answer} if lines else {}

    def _listed(self, limit: int, after: str) -> CallToolResult:
        if after and not after.isdecimal():
            raise Refused(
                "INVALID_FIELD",
                "the cursor is not from a page with scope all: leave it out to start from the first page",
                field="after",
            )

        def page(rows: int) -> dict[str, Any]:
            answer = self._ledger.ask("handoffs.list", limit=rows, after=int(after) if after else None)
            return answer | {"next": answer["next"] and str(answer["next"])}

        answer = page(limit) | {"agent": None}
        share = answers.share_of(len(answer["items"]))
        items = [listed_item(row, share) for row in answer["items"]]
        return self._answered(answers.paged(answer, items, "items", page), ItemPage)

    @_with_arguments
    def handoff_act(
        self,
        action: Action,
        id: Annotated[  # noqa: A002 - the name in every interface
            Id | None,
            Field(description="create: a new id (default: date and title). ask: none, if about no handoff."),
        ] = None,
        idempotency_key: Annotated[
            Label | None,
            Field(description="A repeated call with this key adds nothing."),
        ] = None,
        **args: Any,
    ) -> CallToolResult:
        """Do one operation on a handoff."""
        args |= converted(args.pop(_notes, None) or {}, dict[str, Any], _notes)
        args = {name: value for name, value in args.items() if value not in (None, "")}
        if action == "why" or action == "show":  # noqa: PLR1714 - mypy narrows by it
            check_arguments(action, (), id, args)
            return self._answer(id or "", [], with_handoff=action == "show")
        if action in QUESTIONS and (drafts := self._question(action, id, args)) is not None:
            return self._settled(drafts, idempotency_key)
        check_arguments(action, OPERATIONS[action].arguments, id, args)
        args = check_values(OPERATIONS[action].arguments, args)
        return self._operate(action, id, args, idempotency_key)

    def _question(self, action: ToolVerb, id_: str | None, args: dict[str, Any]) -> list[Draft] | None:
        """Return the event for a question that is about no handoff; None if the call is about a handoff."""
        takes = {"ask": {"to", "text", "about"}, "answer": {"text"}, "settle": {"comment"}}[action]
        if set(args) - takes or (id_ is None) != (action == "ask") or not args.keys() >= takes - {"about", "comment"}:
            return None
        view, author = self._ledger.query_with, self._ledger.author()
        if id_ is None:
            return [asking(view, args["to"], args["text"], [args["about"]] if "about" in args else ())]
        try:
            if action == "answer":
                return answering(view, author, id_, args["text"])
            return settling(view, author, [id_], args.get("comment", ""))
        except Refused as refusal:
            if refusal.code != "NOT_FOUND":
                raise
            return None  # the text may name a handoff; the call does not name its question

    def _settled(self, drafts: list[Draft], key: str | None) -> CallToolResult:
        drafts = [replace(draft, idem=key) for draft in drafts]
        answer = emitted(self._ledger.query_with, self._ledger.author(), drafts)
        (question,), (event,) = answer["questions"], answer["accepted"]
        events = [{"event_index": event.index, "event_id": event.id, "is_repeat": event.is_repeat}]
        return self._answered(question | {"events": events}, QuestionResult)

    def _operate(self, action: ToolVerb, id_: str | None, args: dict[str, Any], key: str | None) -> CallToolResult:
        ledger = self._ledger
        author = ledger.author()
        if action in REVIEWS and "reviewer" not in (roles_of(ledger.client, author.name) or ()):
            message = f"{author.name} is not a reviewer: the reviewer does {action} with `deed handoff`"
            raise Refused("NOT_AUTHORIZED", message, name=author.name)
        warnings: list[str] = []
        events: list[EventData]
        if action == "create":
            name, created, added = creation(ledger.query_with, author.name, ledger.settings, id_, args)
            row, events, warnings = {"id": name}, [created], notices(created, name, author.name)
            warnings += filter(None, [left_out_text(added.left_out), added.warning])
        else:
            row = by_whole_id(ledger.ask(query_for(action), id=id_), "handoff", id_ or "")
            name = row["id"]
            with _naming(name):
                events = events_of(action, row, args, author)
            for event in events:
                warnings += notices_of_amendment(event, name, args) if isinstance(event, HandoffAmended) else []
            if action == "complete":
                shown = ledger.ask("handoffs.show", id=name)
                files = uncommitted(ledger.client, shown, args.get("artifacts") or ())
                warnings = [uncommitted_text(files)] if files else []
                warnings += unsaid_at_completion(shown, args.get("summary"))
        with _naming(name), of_version(ledger.client, name, args.get("version")):
            place = place_of(action, row, args.get("version"))
            drafts = [Draft(stream=f"handoff/{name}", data=data) for data in events]
            if not drafts:  # all checks have passed
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
    ) -> CallToolResult:
        row = self._ledger.ask("handoffs.show", id=id_)
        if with_handoff:
            row["only_in_file"] = lines_only_in_file(row, self._ledger.get_blob)
            about = standing(self._ledger.query_with, touched_paths(row["notes"]))["items"]
            names = DecisionInTokens.__struct_fields__
            row["decisions"] = [{name: decision[name] for name in names} for decision in about]
        # An operation describes each cited reasoning, so that an agent notices a wrong ref; `show` has the briefs.
        tokens = next_tokens_max if with_handoff else 0
        row = as_citations(self._citations(tokens).shown(row))
        answer: dict[str, Any] = {name: row[name] for name in ("id", "status", "version", "result", "is_ready")}
        answer |= {name: row[name] for name in ("compromised", "redacted") if name in row}
        answer |= {name: cited for name in _CITATIONS if (cited := row.pop(name, None))}
        answer |= {"why": cut_to_tokens(row["why"]["sentence"], _text_tokens)}
        answer |= {"events": []} | ({"warnings": warnings} if warnings else {})
        count = answers.fitting(events, answer)
        answer["events"] = events[:count]
        if count < len(events):
            answer["left_out"] = [f"{len(events) - count} events"]
        return self._answered(answer | (handoff_in_tokens(row, answer) if with_handoff else {}), OperationResult)


@contextlib.contextmanager
def _naming(id_: str) -> Iterator[None]:
    """Add the whole id to the details of a refusal if the id may be a sentence: the message may have only a part."""
    try:
        yield
    except Refused as refusal:
        if not is_plain(id_):
            refusal.details.setdefault("id", id_)
        raise


def check_arguments(action: Action, arguments: tuple[Argument, ...], id_: str | None, args: dict[str, Any]) -> None:
    """Refuse a call that lacks a needed argument, or has one that its operation does not take."""
    takes = [argument.name for argument in sorted(arguments, key=lambda argument: not argument.is_needed)]
    read = OF_WHAT_WAS_READ.get(action)
    needed = [argument for argument in arguments if argument.is_needed or argument.name == read]
    missing = [argument.name for argument in needed if argument.name not in args]
    if id_ is None and action != "create":
        missing.insert(0, "id")
    if missing:
        advice = f": call show and send the {read} that you read" if read in missing else ""
        raise Refused("USAGE", f"{action} needs {' and '.join(missing)}{advice}", fields=missing)
    for name in sorted(set(args) - set(takes)):
        alike = near(name, takes)
        rest = did_you_mean(alike) or f": it takes {', '.join(['id', *takes])}"
        raise Refused("UNKNOWN_FIELD", f"{action} has no argument {name}{rest}", field=name, near=alike)
    for name in ("version", "result"):
        if name in args and not re.match(REF_PATTERN, args[name]):
            raise Refused("USAGE", f"{name} must be complete, sha256:…, as `show` returns it", field=name)


def waiting_item(item: dict[str, Any], call: dict[str, Any] | None, tokens: int) -> dict[str, Any]:
    """Return an item of ``handoffs.next`` for the answer, with its texts cut to its share of the tokens."""
    answer = as_citations(answers.without(item, "command", "since_ms", "version", "reviewer", "is_imported"))
    answer |= {"call": call} if call else {"command": item["command"] if is_plain(item["id"]) else "deed next"}
    answer |= {"at": answers.time_text(item["since_ms"])}
    rest = tokens - answers.tokens_of(answers.without(answer, "why", "title", *_CITATIONS))
    return answers.shorten(answer, ("why", "title"), min(_why_tokens, max(rest // 2, _least_tokens)))


def listed_item(row: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Return a row of ``handoffs.list`` as an item; its next call is ``show``."""
    item = {name: row[name] for name in ("id", "status", "from", "to", "title")} | {"agent": row["to"]}
    item |= {"kind": "handoff", "action": "show", "command": ""}
    item |= {"author": row["importer"] or row["from"], "why": row["reason"]}
    item |= {"since_index": row["updated_index"], "since_ms": row["updated_ms"]}
    return waiting_item(item, call_of(item | {"act": "show", "arguments": {}}), tokens)


def as_citations(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer whose cited reasonings have our summary line and the brief by their author."""
    answer = answers.without(answer, *_REFS)
    for of in _CITATIONS:
        if cited := answer.pop(of, None):
            answer[of] = [_citation(row) for row in cited]
    return answer


def _citation(row: dict[str, Any]) -> dict[str, Any]:
    citation = {name: row[name] for name in ("reasoning_ref", "said", "action")}
    if row["prompt"]:
        citation |= {"author": row["author"], "at": answers.time_text(row["at_ms"]), "prompt": row["prompt"]}
    return citation


def call_of(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return the tool call for an item's next step; None if a person must answer in a terminal."""
    if item["kind"] == "review":
        return None
    # The agent must read before it judges: the call that judges needs the version or result that `show` returns.
    action = "show" if item["act"] in OF_WHAT_WAS_READ else item["act"]
    return {"tool": "handoff_act", "arguments": {"action": action, "id": item["id"], **item["arguments"]}}


def handoff_in_tokens(handoff: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return a handoff within the token limit: texts cut between words, the newest log lines, and ``left_out``."""
    notes = handoff["notes"] | {"later": later(handoff)}
    handoff = handoff | {"notes": [{"of": of, "text": text} for of, texts in notes.items() for text in texts]}
    separate = {"why", "log", "template", "tasks", "criteria", "questions", "notes", "only_in_file", "decisions"}
    whole = {name: value for name, value in handoff.items() if name not in separate and value is not None}
    fields = answers.shorten(whole, ("task", "context", "summary", "reason"), _text_tokens)
    left_out = [f"the rest of {name}" for name in fields.pop("shortened", [])]
    if handoff["template"] is not None and handoff["only_in_file"] is None:
        left_out.append(f"the file of this version, {handoff['template']}: it is not here, or is none")
    handoff = handoff | {"only_in_file": handoff["only_in_file"] or []}
    fields |= {
        "notes": [],
        "decisions": [],
        "tasks": [],
        "criteria": [],
        "questions": [],
        "only_in_file": [],
        "log": [],
    }
    for name, rows in (
        ("notes", handoff["notes"]),  # first, because the receiver cannot learn these from anywhere else
        ("decisions", handoff["decisions"]),
        ("questions", handoff["questions"]),
        ("criteria", handoff["criteria"]),
        ("tasks", handoff["tasks"]),
        ("only_in_file", handoff["only_in_file"]),
        ("log", [line["line"] for line in reversed(handoff["log"])][:_log_lines_max]),
    ):
        fitting_rows: list[Any] = []
        for row in rows[:_rows_max]:
            small = row if isinstance(row, str) else answers.shorten(row, ("text", "answer"), _why_tokens)
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
