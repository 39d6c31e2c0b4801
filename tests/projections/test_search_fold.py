"""The fold of search: the text that it stores for each event, and a decision for every kind."""

from __future__ import annotations

import pytest
from folding import facts, rows_of
from given import fact

from deedbook.consumers.thoughts import events as tot
from deedbook.ledger.events import KINDS, handoff, reasoning, review, session, snapshot
from deedbook.ledger.events.imported import MAPPED, RecordImported, mapped_types
from deedbook.ledger.format.forms import OWN
from deedbook.projections.handoffs.fold import LogRow
from deedbook.projections.search.fold import HANDLED, WordsRow
from deedbook.projections.search.fold import VIEW as SEARCH_VIEW
from deedbook.projections.search.queries import families_with_text
from deedbook.projections.search.texts import TEXTS_OF, first_words
from deedbook.projections.views.projection import Table

# Kinds that the search leaves out: they have no texts, or only texts that other events have, too.
SILENT = {
    *("tot.model_answered", "tot.paused", "tot.resumed"),
    *(kind for kind in KINDS if kind.partition(".")[0] in ("ledger", "agent", "role", "key", "checkpoint_key", "blob")),
    *(kind for kind in KINDS if kind.partition(".")[0] == "entry"),
    *("handoff.claimed", "handoff.task_checked", "handoff.ready", "reasoning.briefed", "reasoning.validated"),
    *("tot.decompose_task", "tot.decomposition_result", "tot.initialize_search", "tot.generate_thoughts"),
    *("tot.generated_thoughts", "tot.evaluate_thoughts", "tot.synthesize_solution", "tot.search_complete"),
    *("tot.nodes_marked", "tot.backtracked"),
}
NODE = tot.ThoughtNode(id="n1", depth=1, content="13 - 9 = 4", parent_id="root")
FIGURES = {"vectors": session.Vectors(know=0.5), "context_source": "author"}


def text_of(data, stream=None):
    """Return the text that the fold stores for an event; None if it stores none."""
    rows = rows_of(SEARCH_VIEW, "", [fact("bob", data, stream=stream)])
    return rows["search_texts"][0]["text"] if rows else None


def test_every_kind_is_searched_or_known_to_be_silent():
    assert HANDLED.isdisjoint(SILENT)
    assert KINDS.keys() | {OWN} == HANDLED | SILENT
    assert set(families_with_text()) == {"x" if kind == OWN else KINDS[kind].stream for kind in HANDLED}


def test_whatever_can_be_imported_is_searched():
    assert {mapped_types(kind)[0] for kind in MAPPED} <= TEXTS_OF.keys()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (handoff.HandoffRejected(reason="too big"), "too big"),
        (handoff.HandoffCompleted(summary=" done ", artifacts=["src/a.py"]), "done\nsrc/a.py"),
        (handoff.HandoffChangesRequested(result="sha256:" + "0" * 64, reasons=["one", "two"]), "one\ntwo"),
        (handoff.HandoffCriterionWaived(position=0, reason="not now"), "not now"),
        (session.FindingLogged(finding="it leaks", evidence=["a.py:3"], topic="pool"), "it leaks\npool\na.py:3"),
        (session.DeadEndLogged(approach="restart", why_failed="comes back"), "restart\ncomes back"),
        (session.AssessmentRecorded(phase="CHECK", vectors=session.Vectors(), reasoning="nearly"), "nearly"),
        (reasoning.ReasoningStarted(task="Is it safe?", domain="security"), "Is it safe?\nsecurity"),
        (reasoning.AssumptionSettled(step=2, holds=False, how="refuted", evidence=["a.py:1"]), "refuted\na.py:1"),
        (reasoning.ReasoningConcluded(conclusion="It is.", known_limitations=["one host"]), "It is.\none host"),
        (snapshot.SnapshotTaken(**FIGURES, context_summary="seen", top_evidence_refs=["a.py:1"]), "seen\na.py:1"),
        (review.ReviewRequested(question="Go on?", rule="high_impact", reasons=["risk"]), "Go on?\nrisk"),
        (review.ReviewAnswered(verdict="approved", comment="yes"), "yes"),
        (tot.TotNodesAdded(nodes=[NODE]), "13 - 9 = 4"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_text_of_an_event(data, text):
    assert text_of(data) == text


def test_all_of_a_step_is_text():
    step = reasoning.Step(
        step_number=1,
        type="observation",
        content="content",
        evidence=["a.py:1"],
        premises=["premise"],
        alternatives_considered=["alternative"],
        assumptions=["assumption"],
        validation_method="method",
        conclusion="conclusion",
    )
    text = text_of(reasoning.ReasoningExtended(steps=[step]))
    assert text.split("\n") == ["content", "conclusion", "a.py:1", "premise", "alternative", "assumption", "method"]


def test_all_of_a_report_is_text():
    data = session.ReportGenerated(
        report_type="complete",
        ai_id="x",
        task_summary="task",
        key_findings=["finding"],
        recommended_next_steps=["step"],
        calibration_status="well_calibrated",
        accomplished=["accomplished"],
        knowledge_gaps_filled=[session.FilledGap(gap="gap", before="before", after="after")],
        remaining_unknowns=["unknown"],
        next_session_context="context",
        artifacts_created=["a.py"],
    )
    words = "task finding accomplished unknown step gap before after context a.py"
    assert text_of(data).split("\n") == words.split()


def test_a_handoff_is_found_by_its_id_title_task_lists_and_context():
    data = handoff.HandoffCreated(title="Title", to="bob", task="task", tasks=["t"], criteria=["c"], context="context")
    assert text_of(data, "handoff/2026-02-12-phase") == "2026-02-12-phase\nTitle\ntask\nt\nc\ncontext"
    amended = handoff.HandoffAmended(title="Title", to="bob", reason="wider")
    assert text_of(amended, "handoff/2026-02-12-phase") == "Title\nwider"


def test_an_imported_record_is_found_by_what_it_maps_to_and_whom_it_claims():
    data = RecordImported(
        original="blake3:" + "1" * 64,
        source="handoffs/old.md",
        format="handoff/v2",
        mapped_kind="handoff.created",
        mapped={"title": "An old title"},
        claimed_author="gemini",
    )
    assert text_of(data, "handoff/old") == "old\nAn old title\ngemini\nhandoffs/old.md"
    aside = RecordImported(original="blake3:" + "1" * 64, source="notes/x", format="unknown", reason="not JSON")
    assert text_of(aside, "record/x") == "not JSON\nnotes/x"


def test_an_event_without_words_has_no_row():
    events = facts("session/s", ("bob", session.SessionStarted()), ("bob", session.SessionEnded(summary=" \n")))
    assert rows_of(SEARCH_VIEW, "", events) == {}


def test_words_of_two_fields_are_never_side_by_side():
    rows = rows_of(SEARCH_VIEW, "", [fact("bob", session.DeadEndLogged(approach="a b", why_failed="c"))])
    assert rows["search_words"] == [{"event_index": 0, "words": "a b ¶ c"}]


@pytest.mark.parametrize("more", [{"indexes": (("words",),)}, {"owner": "event_index"}, {"row": LogRow}])
def test_a_full_text_table_that_is_more_than_an_index_is_refused(more):
    fields = {"row": WordsRow} | more
    with pytest.raises(ValueError, match="full-text table"):
        Table("search_words", primary_key=("event_index",), is_full_text=True, **fields)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (session.FindingLogged(finding="The buffer\nholds 3 items", evidence=["a.py:1"]), "The buffer holds 3 items"),
        (session.FindingLogged(finding="word " * 100), f"{'word ' * 15}word…"),
        (handoff.HandoffApproved(version=f"sha256:{'0' * 64}"), ""),
        (session.SessionEnded(summary=""), ""),
    ],
)
def test_beginning_of_a_text_is_on_one_line_and_says_that_it_was_cut(data, words):
    assert first_words(data) == words
