"""The tools that look something up: another agent's reasoning, and any text of the ledger.

A reasoning comes as a brief with its measured fidelity, or as the whole graph in pages. The graph's hash is recomputed
here before any of it is given. A page of it ends between words; the pages one after the other are the bytes that were
hashed, or with ``have`` the delta that was sent.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import Field

from deedbook.consumers.interfaces.mcp.answers import (
    Answer,
    Quoting,
    Words,
    filled_tokens_max,
    paged,
    quoted,
    shorten,
    tokens_of,
)
from deedbook.consumers.interfaces.mcp.reports import NUMBER, After, Id, PageSize, Since
from deedbook.consumers.interfaces.mcp.tool_ledger import Tools
from deedbook.consumers.reasoning.compressor.transfer import Received, describe, fetch, receive_brief
from deedbook.consumers.reasoning.snapshots.act import Action, Decision, act_on
from deedbook.consumers.sdk.batch import check_kinds
from deedbook.consumers.sdk.quotation import untrusted_text
from deedbook.consumers.sdk.text import json_text
from deedbook.consumers.sessions.query import parse_since
from deedbook.ledger.errors import Refused
from deedbook.projections.answers.checked import ask
from deedbook.projections.briefs.gates import check_level
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.briefs.tokens import count_tokens, greatest, tokenizer
from deedbook.projections.search.queries import Sort

_CURSOR: Final = re.compile(r"(sha256:[0-9a-f]{64})@([0-9]{1,9})\Z")
_BREAK: Final = re.compile(r"[\s,;，。；、]")
_chars_a_token_max: Final = 6
_problems_max: Final = 3
_dropped_steps_max: Final = 10
_page_tokens_min: Final = 500  # Beside the prompt of level full, which is under answer_tokens_max with it.


class Graph(Answer):
    """A page of the whole graph (or of the delta to it), whose hash was recomputed."""

    words: Words
    sent_as: Annotated[str, Field(description="full, or chain or squashed: a delta on `base`.")]
    base: str | None
    from_char: int
    chars: Annotated[int, Field(description="Characters of all pages together.")]


class FetchedReasoning(Quoting):
    """A brief, judged, and at level full the graph; with `have` the change alone."""

    reasoning_ref: str
    level: str
    words: Annotated[Words, Field(description="The brief; empty with `have`, and after a graph's first page.")]
    tokens: int
    exact: bool
    budget: int
    fidelity: float
    gate: Annotated[dict[str, Any], Field(description="Whether the level may be relied on, and which may.")]
    action: Annotated[
        Action,
        Field(description="act on the brief; act_on_full: on the graph, level full; else a human is asked first."),
    ]
    may_act: Annotated[bool, Field(description="False until a human, asked by record_reasoning, approved.")]
    reasons: Words
    verdict: Annotated[
        dict[str, Any], Field(description="Who validated this last, and how much of its evidence stood.")
    ]
    dropped: Annotated[dict[str, Any], Field(description="Sections, and the first of so many steps, not in the brief.")]
    published: bool
    rejected: Annotated[
        dict[str, Any] | None,
        Field(description="A published brief that does not hold, who signed it, and why: this one was made instead."),
    ]
    graph: Graph | None = None
    next: Annotated[str | None, Field(description="The cursor of the graph's next page; null on the last.")]


_excerpt_tokens = 200


class Hit(Answer):
    """One event whose text matches."""

    event_index: int
    event_id: str
    kind: str
    score: float | None = None
    near: Annotated[str | None, Field(description="How near a hit is that lacks some of the words.")] = None
    correction: Annotated[
        dict[str, Any] | None, Field(description="It no longer holds: who retracted or resolved it, and why.")
    ] = None
    words: Words
    shortened: list[str] | None = None


class Hits(Quoting):
    """What a search found, best first."""

    hits: list[Hit]
    total: int
    holds: Annotated[str, Field(description="all: hits hold all words; some: none does, these are the nearest.")]
    next: Annotated[int | None, Field(description="The cursor of the next page; null on the last.")]


class LookupTools(Tools):
    """The tools that look something up."""

    def fetch_reasoning(
        self,
        ref: Annotated[Id, Field(description="A reasoning's id or ref, or 12 or more digits of the ref.")],
        level: Annotated[
            Literal["minimal", "standard", "full"] | None,
            Field(
                description="At most 200 or 700 tokens, or the whole graph in pages; default: the lowest that holds."
            ),
        ] = None,
        budget: Annotated[int | None, Field(ge=1, le=100_000, description="Tokens of the prompt."), NUMBER] = None,
        have: Annotated[Id | None, Field(description="A version you have: only what changed since is sent.")] = None,
        cursor: Annotated[str, Field(max_length=100, description="The `next` of the page before.")] = "",
    ) -> FetchedReasoning:
        """Read what another agent reasoned, as briefly as may be relied on."""
        view = partial(ask, self._ledger.client)
        at, ref = read_cursor(cursor, ref)
        asked = TransferLevel.FULL if at is not None or have is not None else level and TransferLevel(level)
        # By its ref: a snapshot may bear any id, and is meant only where it is called one.
        subject = ref if ref.startswith("snapshot/") else fetch(view, ref).ref
        decide = partial(act_on, view, subject, asker=self._ledger.agent)
        decision = decide(level=asked or None)
        ref = decision.snapshot.reasoning_ref or ""
        if not ref:
            raise Refused("NOT_FOUND", f"{subject} holds no reasoning: `deed snapshot show` prints it", asked=subject)
        sent, gate = TransferLevel(decision.level), decision.gate
        found = receive_brief(view, ref, sent, budget=budget, memory=decision.graph)
        fidelity = found.brief.fidelity.value
        if budget is not None:  # decided by what is sent, which may be far less than the level's own
            decision = decide(level=sent, fidelity=fidelity)
            gate = check_level(sent, {**decision.snapshot.fidelities, sent: fidelity}, found.verdict)
        answer = fields_of(found, decision, with_prompt=not at and have is None) | {"others": self._ledger.others()}
        answer["gate"] = msgspec.to_builtins(gate)
        is_whole = fidelity == 1 and cursor == "" and have is None
        if sent is TransferLevel.FULL and not is_whole:  # else the graph stands in the prompt already
            self._add_graph(answer, found, have, at or 0)
        return FetchedReasoning.model_validate(answer)

    def _add_graph(self, answer: dict[str, Any], found: Received, have: str | None, at: int) -> None:
        view, ref = partial(ask, self._ledger.client), found.brief.reasoning_ref
        base = None if have is None else fetch(view, have).memory
        graph = fetch(view, ref, have=base)
        text = graph.canonical
        if graph.sent.base is not None:
            text = view("reasoning.fetch", {"ref": ref, "have": graph.sent.base})["payload"]
        if not 0 <= at <= len(text):
            raise Refused("INVALID_FIELD", "this cursor is not one that a page of this graph gave", field="cursor")
        head = {"sent_as": graph.sent.sent_as, "base": graph.sent.base, "from_char": at, "chars": len(text)}
        room = filled_tokens_max - tokens_of(answer | {"graph": head}) - 120
        page = page_of(text[at:], max(room, _page_tokens_min))
        answer["graph"] = {"words": untrusted_text(found.author, found.at_ms, page), **head}
        if at + len(page) < len(text):
            answer["next"] = f"{graph.ref}@{at + len(page)}"

    def search(
        self,
        text: Annotated[str, Field(min_length=1, max_length=1_000, description="Words to look for.")],
        sort: Annotated[list[Sort] | None, Field(max_length=8, description="Only streams of these sorts.")] = None,
        kind: Annotated[list[Id] | None, Field(max_length=8, description="Only these kinds: finding.logged …")] = None,
        author: Annotated[Id | None, Field(description="Only what this agent signed.")] = None,
        since: Since = None,
        limit: PageSize = 10,
        cursor: After = None,
    ) -> Hits:
        """Find events by their text, in any form of a word, or else the nearest: findings, steps, handoffs, reports."""
        check_kinds(kind or ())
        since_ms = None if since is None else parse_since(since, datetime.now(UTC))
        filters: dict[str, Any] = {"sort": sort, "kinds": kind, "author": author, "since_ms": since_ms}

        def page(rows: int) -> dict[str, Any]:
            return self._ledger.ask("search.find", text=text, limit=rows, after=cursor, **filters)

        found = page(limit)
        found["others"] = self._ledger.others()
        hits = [hit_of(shorten(one, ("excerpt",), _excerpt_tokens)) for one in found["hits"]]
        return Hits.model_validate(paged(found, hits, "hits", page))


def hit_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a search with what its author chose, name of the stream and text, as his words."""
    author, at_ms = row.pop("author"), row.pop("accepted_ms")
    if (done := row.get("correction")) is not None:
        done = shorten(done, ("words",), _excerpt_tokens)
        by, done_ms = done.pop("author"), done.pop("happened_ms")
        row["correction"] = done | {"words": untrusted_text(by, done_ms, done["words"])}
    return quoted(row, author, at_ms, "stream", "excerpt")


def fields_of(found: Received, decision: Decision, *, with_prompt: bool) -> dict[str, Any]:
    """Return the fields of the answer for a brief; pages after the first repeat no prompt."""
    described = describe(found)
    names = set(FetchedReasoning.model_fields) - {"graph", "gate", "next", "words", "others", "reasons"}
    answer = {name: value for name, value in described.items() if name in names}
    steps = answer["dropped"]["steps"]  # of a long graph they would leave its page no room
    answer["dropped"] |= {"steps": steps[:_dropped_steps_max], "steps_count": len(steps)}
    answer |= {"next": None, "exact": described["exact"] and tokenizer().exact}
    answer["verdict"] = {"outcome": found.verdict.outcome, "text": found.verdict.text}
    # What speaks for and against it may quote evidence, and what a human has answered are his words.
    answer["reasons"] = untrusted_text(found.author, found.at_ms, decision.reasons)
    answer |= {"action": decision.action, "may_act": decision.may_act}
    answer |= {"newer": found.newer} if found.newer else {}
    answer |= {"review": decision.review.id} if decision.review is not None else {}
    if found.rejected is not None:
        answer["rejected"] |= {"problems": answer["rejected"]["problems"][:_problems_max]}
    prompt = described["prompt"] if with_prompt else ""
    return (
        answer | {"words": untrusted_text(found.author, found.at_ms, prompt)} | ({} if with_prompt else {"tokens": 0})
    )


def read_cursor(cursor: str, ref: str) -> tuple[int | None, str]:
    """Return where the next page begins and of which version; None and ``ref`` without a cursor."""
    if not cursor:
        return None, ref
    found = _CURSOR.match(cursor)
    if found is None:
        raise Refused("INVALID_FIELD", "this cursor is not one that fetch_reasoning gave", field="cursor")
    return int(found[2]), found[1]


def page_of(text: str, tokens: int) -> str:
    """Return a beginning of ``text`` within ``tokens`` (in JSON) that ends between words, at least one word long."""
    most = min(len(text), max(tokens, 1) * _chars_a_token_max)
    chars = greatest(1, most, lambda chars: count_tokens(json_text(text[:chars])) <= tokens)
    if chars >= len(text):
        return text
    ends = [one.end() for one in _BREAK.finditer(text, 0, chars)]
    if ends:
        return text[: ends[-1]]
    following = _BREAK.search(text, chars)
    return text if following is None else text[: following.end()]
