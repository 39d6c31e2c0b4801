"""The tools that read: another agent's reasoning, and a search of all text in the ledger.

A reasoning is returned as a brief with its measured fidelity, or as the full graph in pages. The server recomputes the
graph's hash before it returns any page. A page ends between words. All pages together are exactly the hashed bytes, or
with ``have`` the delta.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from mcp.types import CallToolResult
from pydantic import BeforeValidator, Field

from deedbook.consumers.interfaces.mcp.answers import (
    filled_tokens_max,
    paged,
    share_of,
    shorten,
    time_text,
    tokens_of,
    without,
)
from deedbook.consumers.interfaces.mcp.arguments import as_list
from deedbook.consumers.interfaces.mcp.fence import Own
from deedbook.consumers.interfaces.mcp.reports import NUMBER, After, Id, PageSize, Routed, Since
from deedbook.consumers.interfaces.mcp.tool_ledger import Tools
from deedbook.consumers.reasoning.compressor.transfer import ReceivedBrief, described, fetch, receive_brief
from deedbook.consumers.reasoning.snapshots.act import Action, Decision, act_on
from deedbook.consumers.sdk.kinds import check_kinds
from deedbook.consumers.sdk.text import json_text
from deedbook.consumers.sdk.times import parse_since
from deedbook.consumers.sdk.tokens import cut_to_tokens
from deedbook.ledger.errors import Refused
from deedbook.projections.answers.answer import UNDATED_MS, Answer, Untrusted
from deedbook.projections.briefs.gates import check_level
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.briefs.tokens import count_tokens, greatest, tokenizer
from deedbook.projections.search.answers import SearchHit
from deedbook.projections.search.queries import StreamFamily

_CURSOR: Final = re.compile(r"(sha256:[0-9a-f]{64})@([0-9]{1,9})\Z")
_BREAK: Final = re.compile(r"[\s,;，。；、]")
_chars_a_token_max: Final = 6
_problems_max: Final = 3
_dropped_steps_max: Final = 10
_page_tokens_min: Final = 500  # together with the prompt of level full this stays under answer_tokens_max


class Graph(Answer, frozen=True, kw_only=True):
    """A page of the full graph, or of the delta from ``base`` to it. The server has verified the graph's hash.

    ``sent_as`` is full, or for a delta chain or squashed; ``chars`` counts the characters of all pages together.
    """

    payload: Untrusted


class ShownVerdict(Answer, frozen=True, kw_only=True):
    """The last validation."""

    text: Own


class FetchedReasoning(Answer, frozen=True, kw_only=True):
    """A brief (``prompt``, empty with `have` and on later pages of a graph) with its assessment, and maybe the graph.

    ``gate`` says whether this level is reliable enough, ``action`` and ``may_act`` whether to act on it, ``rejected``
    is a published brief that failed the check and that this one replaces. ``dropped`` lists what is not in the brief. A
    snapshot without reasoning has only the prompt, ``gate`` and what may be done.
    """

    reasoning_ref: str
    author: str
    at: str
    level: str
    prompt: Untrusted
    tokens: int
    exact: bool
    budget: int
    fidelity: float
    gate: dict[str, Any]
    action: Action
    may_act: bool
    reasons: list[Untrusted]
    verdict: ShownVerdict
    dropped: dict[str, Any]
    published: bool
    rejected: dict[str, Any] | None
    newer: int
    review: str
    graph: Graph
    next: Own


_excerpt_tokens = 200
_least_tokens = 15


class Hits(Answer, frozen=True, kw_only=True):
    """The hits of a search, best first. ``holds``: all words, or only some of them."""

    hits: list[SearchHit]
    shorter: Own


class LookupTools(Tools):
    """The tools that read."""

    def fetch_reasoning(
        self,
        ref: Annotated[
            Id,
            Field(description="Its id (audit-auth), ref (sha256:…), 12 digits of it, or snapshot/ID."),
        ],
        level: Annotated[
            Literal["minimal", "standard", "full"] | None,
            Field(
                description="minimal: 200 tokens; standard: 700; full: the graph in pages. Default: lowest reliable."
            ),
        ] = None,
        budget: Annotated[
            int | None, Field(ge=1, le=100_000, description="The most tokens for the brief, e.g. 300."), NUMBER
        ] = None,
        have: Annotated[
            Id | None, Field(description="The ref of a version that you have, to get only the changes.")
        ] = None,
        after: Annotated[str, Field(max_length=100, description="`next` of the last page.")] = "",
    ) -> CallToolResult:
        """Read another agent's reasoning, as briefly as is reliable."""
        view = self._ledger.query_with
        at, ref = read_cursor(after, ref)
        wanted = TransferLevel.FULL if at is not None or have is not None else level and TransferLevel(level)
        # Use the ref: a snapshot may have any id, so only the prefix snapshot/ selects a snapshot.
        is_snapshot = ref.startswith("snapshot/")
        subject = ref if is_snapshot else fetch(view, ref).ref
        decide = partial(act_on, view, subject, asker=self._ledger.agent)
        decision = decide(level=wanted or None)
        ref = decision.snapshot.reasoning_ref or ""
        if not ref:
            return self._answered(decided(decision), FetchedReasoning)
        sent, gate = TransferLevel(decision.level), decision.gate
        context = decision.snapshot.context_summary if is_snapshot else ""
        received = receive_brief(view, ref, sent, budget=budget, memory=decision.graph, context=context)
        fidelity = received.brief.fidelity.value
        if budget is not None:  # decide by the text that is sent, which may be much shorter than the level allows
            decision = decide(level=sent, fidelity=fidelity)
            gate = check_level(sent, {**decision.snapshot.fidelities, sent: fidelity}, received.verdict)
        answer = fields_of(received, decision, with_prompt=not at and have is None)
        answer["gate"] = msgspec.to_builtins(gate)
        is_whole = fidelity == 1 and after == "" and have is None
        if sent is TransferLevel.FULL and not is_whole:  # otherwise the prompt already contains the graph
            self._add_graph(answer, received, have, at or 0)
        return self._answered(answer, FetchedReasoning)

    def _add_graph(self, answer: dict[str, Any], received: ReceivedBrief, have: str | None, at: int) -> None:
        view, ref = self._ledger.query_with, received.brief.reasoning_ref
        base = None if have is None else fetch(view, have).memory
        graph = fetch(view, ref, have=base)
        text = graph.canonical
        if graph.sent.base is not None:
            text = view("reasoning.fetch", {"id": ref, "have": graph.sent.base})["payload"]
        if not 0 <= at <= len(text):
            raise Refused(
                "INVALID_FIELD",
                "the cursor is not from a page of this graph: leave it out to start from the first page",
                field="after",
            )
        head = {"sent_as": graph.sent.sent_as, "base": graph.sent.base, "from_char": at, "chars": len(text)}
        room = filled_tokens_max - tokens_of(answer | {"graph": head}) - 120
        page = page_of(text[at:], max(room, _page_tokens_min))
        answer["graph"] = {"payload": page, **head}
        if at + len(page) < len(text):
            answer["next"] = f"{graph.ref}@{at + len(page)}"

    def search(  # noqa: PLR0917 - clients rely on these names
        self,
        text: Annotated[
            str, Field(min_length=1, max_length=1_000, description="Words to search for, e.g. token expiry.")
        ],
        family: Annotated[
            Annotated[list[StreamFamily], Field(max_length=8)] | None,
            BeforeValidator(as_list),
            Field(description="Only streams of these families, e.g. handoff."),
        ] = None,
        kind: Annotated[
            Annotated[list[Id], Field(max_length=8)] | None,
            BeforeValidator(as_list),
            Field(description="Only these event kinds, e.g. finding.logged."),
        ] = None,
        author: Annotated[Id | None, Field(description="Only events that this agent signed.")] = None,
        tag: Routed = None,
        domain: Routed = None,
        since: Since = None,
        limit: PageSize = 10,
        after: After = None,
    ) -> CallToolResult:
        """Find events by text, in any form of a word: findings, steps, handoffs, reports.

        Without a match, return the nearest.
        """
        check_kinds(kind or ())
        since_ms = None if since is None else parse_since(since, datetime.now(UTC))
        filters: dict[str, Any] = {"family": family, "kinds": kind, "author": author, "since": since_ms}
        filters |= {"tag": tag, "domain": domain}

        def page(rows: int) -> dict[str, Any]:
            answer = self._ledger.ask("search.find", text=text, limit=rows, after=after, **filters)
            return {"hits": answer["items"]} | {name: answer[name] for name in ("total", "holds", "next")}

        answer = page(limit)
        share = share_of(len(answer["hits"]))
        hits = [hit_of(row, share) for row in answer["hits"]]
        return self._answered(paged(answer, hits, "hits", page), Hits)


def hit_of(row: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Return a row of a search with its texts cut to its share of the tokens."""
    row = {name: value for name, value in row.items() if value is not None and value is not False and name != "matches"}
    happened_ms, is_import = row.pop("happened_ms"), row["kind"] == "record.imported"
    if is_import and happened_ms != UNDATED_MS:
        row["claimed_at"] = time_text(happened_ms)
    elif not is_import:  # it would repeat the kind and the author
        del row["type"], row["agent"]
    row["at"] = time_text(row.pop("accepted_ms"))
    if correction := row.pop("correction", None):
        correction["at"] = time_text(correction.pop("happened_ms"))
        row["correction"] = shorten(correction, ("words",), _least_tokens * 2)
    if row.get("title"):  # it is only a label of the thing
        row["title"] = cut_to_tokens(row["title"], _least_tokens)
    rest = max(tokens - tokens_of(without(row, "excerpt")), _least_tokens)
    return shorten(row, ("excerpt",), min(_excerpt_tokens, rest))


def decided(decision: Decision) -> dict[str, Any]:
    """Return the fields of the answer for a snapshot without reasoning."""
    prompt = decision.prompt
    answer = {name: getattr(prompt, name) for name in ("prompt", "tokens", "level", "budget")}
    answer |= {"exact": prompt.exact and tokenizer().exact, "author": decision.snapshot.author, "next": None}
    answer |= {"gate": msgspec.to_builtins(decision.gate), "reasons": decision.reasons}
    answer |= {"action": decision.action, "may_act": decision.may_act}
    return answer | ({"review": decision.review.id} if decision.review is not None else {})


def fields_of(received: ReceivedBrief, decision: Decision, *, with_prompt: bool) -> dict[str, Any]:
    """Return the fields of the answer for a brief; later pages do not repeat the prompt."""
    fields = described(received).to_dict()
    names = set(FetchedReasoning.__struct_fields__) - {"graph", "gate", "newer"}
    answer = {name: value for name, value in fields.items() if name in names}
    answer |= {"author": received.author, "at": time_text(received.at_ms)}
    steps = answer["dropped"]["steps"]  # all steps of a long graph would leave no room for the page of the graph
    answer["dropped"] |= {"steps": steps[:_dropped_steps_max], "steps_count": len(steps)}
    answer |= {"next": None, "exact": fields["exact"] and tokenizer().exact}
    answer["verdict"] = {"outcome": received.verdict.outcome, "text": received.verdict.text}
    answer["reasons"] = decision.reasons  # they may quote evidence or the answer of a human
    answer |= {"action": decision.action, "may_act": decision.may_act}
    answer |= {"newer": received.newer} if received.newer else {}
    answer |= {"review": decision.review.id} if decision.review is not None else {}
    if received.rejected is not None:
        answer["rejected"] |= {"problems": answer["rejected"]["problems"][:_problems_max]}
    return answer if with_prompt else answer | {"prompt": "", "tokens": 0}


def read_cursor(after: str, ref: str) -> tuple[int | None, str]:
    """Return the start of the next page and the version; None and ``ref`` without a cursor."""
    if not after:
        return None, ref
    match = _CURSOR.match(after)
    if match is None:
        raise Refused(
            "INVALID_FIELD",
            "the cursor is not from fetch_reasoning: leave it out to start from the first page",
            field="after",
        )
    return int(match[2]), match[1]


def page_of(text: str, tokens: int) -> str:
    """Return the beginning of ``text`` within ``tokens`` (as JSON), cut between words and at least one word long."""
    most = min(len(text), max(tokens, 1) * _chars_a_token_max)
    chars = greatest(1, most, lambda chars: count_tokens(json_text(text[:chars])) <= tokens)
    if chars >= len(text):
        return text
    ends = [match.end() for match in _BREAK.finditer(text, 0, chars)]
    if ends:
        return text[: ends[-1]]
    following = _BREAK.search(text, chars)
    return text if following is None else text[: following.end()]
