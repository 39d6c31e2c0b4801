"""``EnhancedEpistemicSnapshot``: the knowledge that one agent sends to the next, and how it becomes a prompt.

A prompt renders the brief that was made and measured for its level. If a snapshot has none, the prompt has the
snapshot's own fields only.

``derive_context`` writes the summary of a snapshot without one, from the session's events in order of importance. An
item is complete. Only an item that would take more than its share alone is cut at a word and marked. Items that do not
fit are counted, so the reader knows that there is more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import asdict, replace

from deedbook.ledger.events.brief import BlockSummaries, Brief, Fidelity, Layout, RefutedAssumption, Remark, Sizes, Tag
from deedbook.ledger.events.snapshot import SnapshotTaken
from deedbook.projections.briefs.embedding import Embedding, unpack
from deedbook.projections.briefs.fidelity import band_of
from deedbook.projections.briefs.prompt import (
    LEVEL_TOKENS,
    Prompt,
    TransferLevel,
    context_share_max,
    cut_to_tokens,
)
from deedbook.projections.briefs.prompt import to_context_prompt as brief_prompt
from deedbook.projections.briefs.rejection import RejectedBrief
from deedbook.projections.briefs.sentences import ENDS, FULL_REASONING, REASONING_BRIEF, TOP_ASSUMPTIONS
from deedbook.projections.briefs.text import one_line
from deedbook.projections.briefs.tokens import count_tokens, tokenizer
from deedbook.projections.snapshots.vectors import AssessedVectors

SNAPSHOT_TOKENS_MAX: Final = 900
CONTEXT_TOKENS_MAX: Final = 500

_item_tokens_max: Final = 120
_items_max: Final = 200
_rest_tokens: Final = 12
_NO_REF: Final = "sha256:" + "0" * 64
_LOSING: Final = frozenset({REASONING_BRIEF, TOP_ASSUMPTIONS, FULL_REASONING})


@dataclass(frozen=True)
class EnhancedEpistemicSnapshot:
    """An agent's knowledge at one time; ``briefs`` has the reasoning at each level that was made.

    ``rejected`` is set if the signed reasoning did not match its graph and was made again from the graph; ``refuted``
    are the assumptions that were refuted by now, if the reader looked them up.
    """

    snapshot_id: str
    session_id: str = ""
    vectors: Mapping[str, float] = field(default_factory=dict)
    context_summary: str = ""
    reasoning_brief: str = ""
    reasoning_tags: list[str] = field(default_factory=list)
    top_assumptions: list[str] = field(default_factory=list)
    reasoning_embedding: Embedding | None = None
    reasoning_ref: str | None = None
    reasoning_fidelity: float | None = None
    reasoning_size: dict[str, int] = field(default_factory=dict)
    conclusion: str = ""
    domain: str = ""
    evidence_refs: list[str] = field(default_factory=list)
    evidence_count: int = 0
    top_evidence_refs: list[str] = field(default_factory=list)
    level: TransferLevel | None = None
    context_source: str = "author"
    author: str = ""
    event_id: str = ""
    briefs: list[Brief] = field(default_factory=list)
    rejected: RejectedBrief | None = None
    refuted: list[RefutedAssumption] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "vectors", AssessedVectors(self.vectors))

    def to_context_prompt(self, level: TransferLevel) -> Prompt:
        """Return the prompt at a level."""
        return to_context_prompt(self, level)

    @property
    def fidelities(self) -> dict[TransferLevel, float]:
        """The measured fidelity of each level's prompt; levels that were not measured are absent."""
        measured = {TransferLevel(brief.level): brief.fidelity.value for brief in self.briefs}
        if not measured and self.level is not None and self.reasoning_fidelity is not None:
            measured[self.level] = self.reasoning_fidelity
        if measured.get(TransferLevel.MINIMAL) == 1.0:
            measured.setdefault(TransferLevel.STANDARD, 1.0)  # a level above a lossless level is lossless, too
        return measured

    def brief_at(self, level: TransferLevel) -> Brief:
        """Return the brief that a level's prompt shows, with its context restored."""
        own_level = TransferLevel.STANDARD if level is TransferLevel.FULL else level
        by_level = {TransferLevel(brief.level): brief for brief in self.briefs}
        brief = by_level.get(own_level) or (None if self.level is None else by_level.get(self.level))
        if brief is None:
            return _bare_brief(self)
        return replace(brief, context=self.context_summary, refuted=self.refuted or brief.refuted)


def snapshot_of(
    data: SnapshotTaken, *, snapshot_id: str, author: str = "", event_id: str = ""
) -> EnhancedEpistemicSnapshot:
    """Return the snapshot of an event. Raises Refused: ``INVALID_FIELD`` if its embedding is invalid."""
    values = asdict(data) | {
        "vectors": asdict(data.vectors),
        "reasoning_embedding": None if data.reasoning_embedding is None else unpack(data.reasoning_embedding),
        "reasoning_size": {} if data.reasoning_size is None else asdict(data.reasoning_size),
        "level": None if data.level is None else TransferLevel(data.level),
    }
    return EnhancedEpistemicSnapshot(snapshot_id=snapshot_id, author=author, event_id=event_id, **values)


def to_context_prompt(
    snapshot: EnhancedEpistemicSnapshot, level: TransferLevel, budget: int | None = None, *, inline: str | None = None
) -> Prompt:
    """Return the prompt for the next agent, within the level's budget or the given one."""
    return _prompt(snapshot, level, LEVEL_TOKENS[level][1] if budget is None else budget, inline, context_share_max)


def render_snapshot(snapshot: EnhancedEpistemicSnapshot) -> Prompt:
    """Return the whole snapshot within ``SNAPSHOT_TOKENS_MAX``, at the highest level that needs no cut."""
    share = CONTEXT_TOKENS_MAX / SNAPSHOT_TOKENS_MAX
    for level in (TransferLevel.STANDARD, TransferLevel.MINIMAL):
        prompt = _prompt(snapshot, level, SNAPSHOT_TOKENS_MAX, None, share)
        if _LOSING.isdisjoint(prompt.dropped):
            break
    return prompt


def _prompt(
    snapshot: EnhancedEpistemicSnapshot, level: TransferLevel, budget: int, inline: str | None, share: float
) -> Prompt:
    # Without reasoning there is no fidelity to state and no graph to cite, as in MINIMAL.
    rendered = TransferLevel.MINIMAL if snapshot.reasoning_ref is None else level
    prompt = brief_prompt(snapshot.brief_at(level), rendered, budget, inline=inline, context_share=share)
    return replace(prompt, level=level.value)


def _bare_brief(snapshot: EnhancedEpistemicSnapshot) -> Brief:
    fidelity = 0.0 if snapshot.reasoning_fidelity is None else snapshot.reasoning_fidelity
    sizes: dict[str, Any] = {"compressed": 0, "full": 0} | snapshot.reasoning_size
    return Brief(
        reasoning_ref=snapshot.reasoning_ref or _NO_REF,
        level="minimal" if snapshot.level is None else snapshot.level.value,
        budget=SNAPSHOT_TOKENS_MAX,
        context=snapshot.context_summary,
        conclusion=snapshot.conclusion,
        reasoning_brief=snapshot.reasoning_brief,
        facts=[],
        remarks=[Remark("assumption_stated", None, text) for text in snapshot.top_assumptions],
        tags=[Tag(tag, "finding", None) for tag in snapshot.reasoning_tags],
        top_assumptions=snapshot.top_assumptions,
        top_evidence_refs=snapshot.top_evidence_refs,
        summaries=BlockSummaries("", "", "", 0, 0),
        sizes=Sizes(**sizes),
        fidelity=Fidelity(fidelity, band_of(fidelity), None, None, None, 1.0, [], {}),
        dropped_steps=[],
        layout=Layout(tags=True, top_evidence=True),
        compressor_name="none",
        compressor_version="1",
        tokenizer=tokenizer().name,
        exact=tokenizer().exact,
        refuted=snapshot.refuted,
    )


def derive_context(session: Mapping[str, Any] | None, *, task: str = "") -> str:
    """Return a summary of a session (the answer of ``sessions.show``) and of a reasoning's ``task``."""
    items = list(_items(session, task))
    sentences: list[str] = []
    left_out = 0
    for item in items[:_items_max]:
        text = cut_to_tokens(one_line(item), _item_tokens_max)
        sentence = text if text.endswith(ENDS) else f"{text}."
        if count_tokens(" ".join([*sentences, sentence])) <= CONTEXT_TOKENS_MAX - _rest_tokens:
            sentences.append(sentence)
        else:
            left_out += 1
    left_out += max(0, len(items) - _items_max)
    if left_out:
        sentences.append(f"And {left_out} more.")
    return " ".join(sentences)


def _items(session: Mapping[str, Any] | None, task: str) -> Iterator[str]:
    tasks = ["" if session is None else session["task"].strip(), task.strip()]
    for label, text in zip(("Task", "Reasoning about"), dict.fromkeys(filter(None, tasks)), strict=False):
        yield f"{label}: {text}"
    if session is None:
        return
    if session["summary"].strip():
        yield f"Result: {session['summary']}"
    for finding in sorted(session["findings"], key=_weight):
        evidence = f" [{finding['evidence'][0]}]" if finding["evidence"] else ""
        yield f"Found: {finding['finding']}{evidence}"
    for unknown in sorted(session["unknowns"], key=_weight):
        yield f"Open: {unknown['unknown']}"
    for dead_end in sorted(session["dead_ends"], key=_weight):
        yield f"Dead end: {dead_end['approach']} ({dead_end['why_failed']})"


def _weight(logged: Mapping[str, Any]) -> tuple[float, int]:
    """Return the sort key: highest impact first, then newest; an unknown impact weighs least."""
    impact = logged["impact"]
    return (1.0 if impact is None else -impact, -logged["event_index"])
