"""Given what another tool recorded, the session or reasoning it makes: its importer's, and only imports."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from event_examples import EXAMPLES
from given import fact, fold
from given import refusal as code_of

from deedbook.ledger.events import reasoning, session
from deedbook.ledger.events.body import read_as
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.lifecycle import reasoning as reasoning_life
from deedbook.ledger.lifecycle import session as session_life
from deedbook.ledger.lifecycle.machine import OwnedState

STEP: dict[str, Any] = {"step_number": 1, "type": "observation", "content": "It leaks."}


def record(mapped_kind: str, mapped: dict[str, Any], author: str = "scribe", stream: str = "session/s") -> Any:
    """Return the event with which somebody imports something."""
    data = RecordImported(
        original="sha256:" + "1" * 64, source="n", format="note", mapped_kind=mapped_kind, mapped=mapped
    )
    return fact(author, data, stream=stream)


def refused(transition: Any, *events: Any) -> str:
    """Return the code with which the last event is refused after the others."""
    return code_of(transition, fold(transition, *events[:-1]) if events[:-1] else None, events[-1]).code


def finding(author: str = "scribe") -> Any:
    """Return an imported finding."""
    return record("finding.logged", {"finding": "It leaks."}, author)


def own(data: EventData, author: str = "scribe", stream: str = "session/s") -> Any:
    """Return an event of an agent's own."""
    return fact(author, data, stream=stream)


def test_first_import_begins_the_session_and_its_importer_adds_more() -> None:
    state = fold(session_life.MACHINE.decide, finding(), finding(), record("session.started", {"task": "t"}))
    assert state == OwnedState("scribe", "imported")


@pytest.mark.parametrize(
    "data",
    [
        session.SessionStarted(task="t"),
        session.FindingLogged(finding="mine"),
        session.AssessmentRecorded(phase="POSTFLIGHT", vectors=session.Vectors(know=0.9)),
        session.SessionEnded(),
    ],
)
def test_nobody_speaks_in_an_imported_session(data: EventData) -> None:
    assert refused(session_life.MACHINE.decide, finding(), own(data, "scribe")) == "TRANSITION_NOT_ALLOWED"
    not_owner = "TRANSITION_NOT_ALLOWED" if isinstance(data, session.SessionStarted) else "NOT_AUTHORIZED"
    assert refused(session_life.MACHINE.decide, finding(), own(data, "bob")) == not_owner


def test_another_importer_is_refused() -> None:
    assert refused(session_life.MACHINE.decide, finding(), finding("bob")) == "NOT_AUTHORIZED"


def test_nothing_is_imported_into_a_session_of_this_ledger() -> None:
    started = own(session.SessionStarted(task="t"))
    assert refused(session_life.MACHINE.decide, started, finding()) == "TRANSITION_NOT_ALLOWED"


def graph(kind: str, mapped: dict[str, Any], author: str = "scribe") -> Any:
    """Return the event with which a part of a reasoning is imported."""
    return record(kind, mapped, author, "reasoning/r")


STARTED = graph("reasoning.started", {"task": "t"})
EXTENDED = graph("reasoning.extended", {"steps": [STEP]})


def test_imported_reasoning_obeys_the_rules_of_every_reasoning() -> None:
    concluded = graph("reasoning.concluded", {"conclusion": "So."})
    state = fold(reasoning_life.MACHINE.decide, STARTED, EXTENDED, concluded)
    assert state == reasoning_life.ReasoningState("scribe", "imported", frozenset({1}))
    assert refused(reasoning_life.MACHINE.decide, EXTENDED) == "NOT_FOUND"
    assert refused(reasoning_life.MACHINE.decide, STARTED, EXTENDED, EXTENDED) == "STEP_CONFLICT"
    assert refused(reasoning_life.MACHINE.decide, STARTED, STARTED) == "TRANSITION_NOT_ALLOWED"
    assert refused(reasoning_life.MACHINE.decide, STARTED, graph("reasoning.extended", {"steps": [STEP]}, "bob")) == (
        "NOT_AUTHORIZED"
    )


def test_nobody_goes_on_with_imported_reasoning_and_nothing_is_imported_into_an_agents_own() -> None:
    more = own(reasoning.ReasoningConcluded(conclusion="So."), stream="reasoning/r")
    assert refused(reasoning_life.MACHINE.decide, STARTED, EXTENDED, more) == "TRANSITION_NOT_ALLOWED"
    begun = own(reasoning.ReasoningStarted(task="t"), stream="reasoning/r")
    assert refused(reasoning_life.MACHINE.decide, begun, EXTENDED) == "TRANSITION_NOT_ALLOWED"


def test_imported_reasoning_is_briefed_like_any_other() -> None:
    data = msgspec.convert(EXAMPLES["reasoning.briefed"], reasoning.ReasoningBriefed)
    briefed = own(data, "compressor", "reasoning/r")
    state = fold(reasoning_life.MACHINE.decide, STARTED, EXTENDED, briefed)
    assert state is not None
    assert state.status == "imported"


def test_folds_read_a_record_as_what_it_stands_for() -> None:
    assert read_as(finding()).data == session.FindingLogged(finding="It leaks.")
    kept = fact("scribe", RecordImported(original="sha256:" + "1" * 64, source="n", format="f"), stream="record/1")
    assert read_as(kept) is kept
