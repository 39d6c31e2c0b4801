"""Operations on a whole reasoning or a past entry: snapshot, validation, review, retraction and resolution."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from deedbook.consumers.handoffs.decision_drafts import drafts_of
from deedbook.consumers.interfaces.mcp.entries import Judgement, NewDecision, NewEvent
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.consumers.reasoning.snapshots.act import act_on
from deedbook.consumers.reasoning.snapshots.take import take_snapshot
from deedbook.consumers.reasoning.validator.publication import offer, validate_ref
from deedbook.consumers.reasoning.validator.trees import tree_of, work_tree
from deedbook.consumers.sdk.declared import check_declared, only_kind_on
from deedbook.consumers.sessions.operations import Resolution, Retraction
from deedbook.consumers.sessions.report import correct
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.forms import is_own

problems_max: Final = 5


def judged(
    author: Author, ledger: ToolLedger, entry: Judgement | Retraction | Resolution, session: str | None, task: str
) -> dict[str, Any]:
    """Take a snapshot, validate a reasoning, ask a human, or correct a session; return the fields of the answer."""
    view = ledger.query_with
    if not isinstance(entry, Judgement):
        done = correct(author, view, ledger.settings, entry, within=session)
        index = done["event_index"]
        answer = {name: done[name] for name in ("target", "warnings")}
        return {"session_id": done["id"], "first_index": index, "last_index": index} | answer
    if entry.type == "snapshot":
        snapshot = take_snapshot(author, view, session=session, reasoning=entry.ref, context=entry.context)
        return {"snapshot_id": snapshot.snapshot_id, "fidelity": snapshot.reasoning_fidelity}
    if entry.type == "validation":
        return _validated(author, view, entry.ref)
    decision = act_on(view, entry.ref, author=author, task=task)
    answer = {"action": decision.action, "may_act": decision.may_act}
    return answer | ({"review": decision.review.id, "answer": decision.review.verdict} if decision.review else {})


def decided(author: Author, ledger: ToolLedger, entry: NewDecision) -> dict[str, Any]:
    """Make a decision, which may replace others; return the fields of the answer."""
    made = msgspec.structs.asdict(entry)
    name, drafts = drafts_of(ledger.query_with, made.pop("text"), **made)
    accepted = author.emit(*drafts)
    return {"decision_id": name, "first_index": accepted[0].index, "last_index": accepted[-1].index}


def published(author: Author, ledger: ToolLedger, entry: NewEvent) -> dict[str, Any]:
    """Publish an event of a declared kind; return the fields of the answer. Raises Refused: it does not fit."""
    ask = ledger.query_with
    kind = entry.kind or only_kind_on(ask, entry.stream)
    if not is_own(kind):
        message = f"an entry of type event publishes a declared kind, not {kind}: its own type records it"
        raise Refused("INVALID_FIELD", message, field="kind")
    check_declared(ask, kind)
    (accepted,) = author.emit(Draft(kind=kind, stream=entry.stream, data=entry.data))
    return {"kind": kind, "first_index": accepted.index, "last_index": accepted.index}


def _validated(author: Author, view: Ask, ref: str) -> dict[str, Any]:
    """Validate against the server's work tree; the report is published if the author may do so."""
    tree = work_tree(Path.cwd())
    with tree_of(tree) as opened:
        done = validate_ref(view, ref, tree=opened, validator=author.name)
    report, counts = done.report, done.report.counts()
    answer = {"passed": report.passed, "references": counts.evidence, "stand": counts.evidence_ok}
    answer |= {"unlinked": counts.inferences_unlinked}
    problems = [issue.message for issue in report.issues[:problems_max]]
    return {**answer, "tree": report.tree.type, "problems": problems, **offer(author, view, done)}
