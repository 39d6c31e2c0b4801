"""The evidence on a page, looked up in the project when the page is requested; pages without evidence open no file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from deedbook.consumers.interfaces.dashboard.page import PageContext
from deedbook.consumers.reasoning.compressor.transfer import fetch, receive_brief
from deedbook.consumers.reasoning.explanation import explain_brief
from deedbook.consumers.reasoning.places import Places, places_in
from deedbook.consumers.reasoning.validator.trees import tree_of, work_tree
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events.reasoning import Counts
from deedbook.ledger.format.codec import convert
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.location import project_path, resolved
from deedbook.ledger.home.trust import actions_of
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.reasoning.delta import describe_change
from deedbook.projections.reasoning.memory import ReasoningMemory
from deedbook.projections.validations.answers import Outcome
from deedbook.projections.validations.queries import outcome_of

OpenPlaces: TypeAlias = Callable[[], Places]

validations_shown_max: Final = 20
reasonings_compared_max: Final = 8
doubts_max: Final = 16
"""The reasonings that a page with rows or buttons looks up for their marks."""

_IN_WORDS: Final = ("tasks", "criteria")
_CITATIONS: Final = ("reasoning", "result_reasoning")


@contextmanager
def project_places(context: PageContext) -> Iterator[OpenPlaces]:
    """Yield a function that opens the folder in which evidence is looked up, at its first call.

    It is the folder that ``config.toml`` names for validators, else the git work tree.
    """
    with ExitStack() as stack:
        yield cache(lambda: Places(context.view, stack.enter_context(tree_of(_tree_of(context.settings)))))


def _tree_of(settings: Settings) -> Path | None:
    home = resolved(settings.home)
    with suppress(DeedbookError):  # the settings of an untrusted folder are not used
        if (configured := actions_of(settings).validator_tree) is not None:
            return project_path(home, configured)
    return work_tree(project_path(home, ".")) or work_tree(Path.cwd())


def with_evidence(context: PageContext, handoff: Mapping[str, Any]) -> dict[str, Any]:
    """Return a handoff with its evidence: ``places`` of each task and criterion, ``looked`` of each reasoning."""
    with project_places(context) as places:
        in_words = {
            field: [{**row, "places": _cited_in(places, row["evidence"])} for row in handoff[field]]
            for field in _IN_WORDS
        }
        return {**handoff, **in_words, **{field: _looked(context, places, handoff[field]) for field in _CITATIONS}}


def with_places_of_findings(context: PageContext, findings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return findings of a session, each with ``places``: those that its evidence cites."""
    with project_places(context) as places:
        return [{**finding, "places": _cited_in(places, *finding["evidence"])} for finding in findings]


def with_places(context: PageContext, citations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return citations, each with ``looked``: the answer of ``Places.of_graph`` (None: it cannot be read)."""
    with project_places(context) as places:
        return _looked(context, places, citations)


def _cited_in(places: OpenPlaces, *texts: str) -> list[dict[str, Any]]:
    return places().of_text(*texts) if any(map(places_in, texts)) else []


def _looked(context: PageContext, places: OpenPlaces, citations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for citation in citations:
        checked: dict[str, Any] = {"looked": None}
        if citation["measured"]:
            ref = citation["reasoning_ref"]
            memory = fetch(context.view, ref).memory
            checked = {"looked": _looked_up(context, places, ref, memory), **_brief_of(context, ref, memory)}
        rows.append({**citation, **checked})
    return rows


def _looked_up(context: PageContext, places: OpenPlaces, ref: str, memory: ReasoningMemory) -> dict[str, Any]:
    return places().of_graph(memory, [] if places().folder else validations_of(context, ref)[1])


def _brief_of(context: PageContext, ref: str, memory: ReasoningMemory) -> dict[str, Any]:
    """Return the fidelity of the brief that the page of a reasoning shows first, and the number of steps left out."""
    explained = explain_brief(receive_brief(context.view, ref, TransferLevel.STANDARD, memory=memory))
    left_out = sum(not step["in_text"] for step in explained["steps"])
    return {"measured": explained["measured"], "left_out": left_out}


def with_doubts(context: PageContext, items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return items, each with ``doubts``: what ``doubts_of`` gives for its ``reasoning_refs``.

    Only the reasonings of items that wait for the human are looked up, and at most ``doubts_max`` of them.
    """
    own = [ref for item in items if item["agent"] == context.human for ref in item["reasoning_refs"]]
    found = doubts_of(context, own)
    return [{**item, "doubts": [found[ref] for ref in item["reasoning_refs"] if ref in found]} for item in items]


def doubts_of(context: PageContext, refs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the ``verdict`` on each reasoning and the ``counts`` of its places, without those that cannot be read."""
    found: dict[str, dict[str, Any]] = {}
    with project_places(context) as places:
        for ref in list(dict.fromkeys(refs))[:doubts_max]:
            with suppress(DeedbookError):  # not in this ledger, or not readable: the opened form says so
                verdict = context.ask("validations.latest", id=ref)
                looked = _looked_up(context, places, ref, fetch(context.view, ref).memory)
                outcome = {name: verdict[name] for name in ("outcome", "refuted")}
                found[ref] = {"verdict": outcome, "looked": {"counts": looked["counts"]}}
    return found


def validations_of(context: PageContext, ref: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Return the newest validation reports of a version, those of them that count, and the version's authors."""
    origins = context.ask("reasoning.existing", ids=context.ask("reasoning.origins", id=ref)["ids"])["reasonings"]
    owners = sorted({origin["author"] for origin in origins.values()})
    reports = [
        report | {"outcome": _outcome_of(report)}
        for report in context.ask("validations.list", id=ref, limit=validations_shown_max)["items"]
    ]
    return reports, [report for report in reports if report["author"] not in owners], owners


def _outcome_of(report: Mapping[str, Any]) -> Outcome:
    counts = convert(report["data"]["counts"], Counts)
    return outcome_of(counts, passed=report["passed"], is_compromised="compromised" in report)


def with_reasonings(context: PageContext, changes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return changes of `handoffs.versions`, each with ``reasonings``: the changes in the reasonings that it names.

    A reasoning has the refs ``before`` and ``after`` (None: it was not, or is no longer, cited), its present ``task``
    and ``conclusion``, and ``delta`` as ``describe_change`` gives it (None: there are no two graphs to compare here).
    """
    return [
        {**change, "reasonings": _reasonings(context, change["lines"]) if change["field"] == "reasoning_refs" else []}
        for change in changes
    ]


def _reasonings(context: PageContext, lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    before = [line["was"] or line["text"] for line in lines if line["mark"] in ("removed", "changed")]
    after = [line["text"] for line in lines if line["mark"] in ("added", "changed")]
    shown = [*before[:reasonings_compared_max], *after[:reasonings_compared_max]]
    ids = {ref: set(context.ask("reasoning.origins", id=ref)["ids"]) for ref in shown}
    pairs: list[tuple[str | None, str | None]] = []
    for ref in after:
        former = next((old for old in before if ids.get(old, set()) & ids.get(ref, set())), None)
        pairs.append((former, ref))
        before = [old for old in before if old != former]
    memories = {ref: _memory(context, ref) for ref in shown}
    return [_reasoning(old, new, memories) for old, new in (*pairs, *((old, None) for old in before))]


def _memory(context: PageContext, ref: str) -> ReasoningMemory | None:
    with suppress(DeedbookError):  # not in this ledger, or not readable: the page shows the ref alone
        return fetch(context.view, ref).memory
    return None


def _reasoning(old: str | None, new: str | None, memories: Mapping[str, ReasoningMemory | None]) -> dict[str, Any]:
    base, target = (ref and memories.get(ref) for ref in (old, new))
    latest = target or base
    return {
        "before": old,
        "after": new,
        "task": latest.task if latest else "",
        "conclusion": latest.conclusion if latest else "",
        "delta": describe_change(base, target) if base and target else None,
    }
