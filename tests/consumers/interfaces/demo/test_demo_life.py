"""The demo's events: a ledger played from data at its own times, in which an auditor finds nothing wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from story_pages import live_copy

from deedbook.consumers.auditor.verify import verify_log
from deedbook.consumers.interfaces.demo import life
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.home.config import Settings
from deedbook.ledger.lifecycle.authority import to_ms

HOUR_MS: Final = 3_600_000


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A ledger that the story was played in."""
    with Ledger(settings=Settings(home=live_copy(tmp_path_factory, "life").home)) as ledger:
        yield ledger


def test_past_begins_long_ago_and_ends_now(lived: Ledger) -> None:
    times = [event.accepted_ms for event in lived.events()]
    assert times == sorted(times)
    assert 29 * HOUR_MS < times[-1] - times[0] < 31 * HOUR_MS
    assert times[-1] <= time.time_ns() // 1_000_000


def test_events_say_the_time_at_which_they_were_accepted(lived: Ledger) -> None:
    events = [event for event in lived.events() if event.author in {"alex", "gemini", "compressor", "validator"}]
    assert [event.index for event in events if to_ms(event.at) != event.accepted_ms] == []


def test_auditor_finds_a_stolen_key_and_no_fault(lived: Ledger) -> None:
    report = verify_log(lived.client, views=lived.settings)
    assert (report.problems, report.ok) == ([], False)
    assert report.outcome == "SUSPECT_KEY"


def test_handoffs_stand_in_every_state(lived: Ledger) -> None:
    listed = lived.ask("handoffs.list", limit=50)["items"]
    assert len(listed) >= 15
    assert {one["status"] for one in listed} == {
        "pending",
        "approved",
        "in_progress",
        "blocked",
        "completed",
        "verified",
        "rejected",
        "cancelled",
        "superseded",
    }


def test_human_has_something_of_every_sort_to_decide(lived: Ledger) -> None:
    items = lived.ask("handoffs.next", agent="alex")["items"]
    assert {one["action"] for one in items} == {"approve", "verify", "waive", "unblock", "review"}


def test_reasonings_were_briefed_and_validated_when_they_were_concluded(lived: Ledger) -> None:
    fetched = lived.ask("reasoning.show", id="auth-rotation")
    verdicts = lived.ask("validations.list", id=fetched["ref"])["items"]
    assert [one["author"] for one in verdicts] == ["validator"]
    assert any(check["status"] == "line_changed" for check in verdicts[0]["data"]["evidence"])
    assert lived.ask("briefs.best", id=fetched["ref"], level="standard")["tokens"] > 0


def test_six_agents_found_the_answer(lived: Ledger) -> None:
    assert [one["status"] for one in lived.ask("tot.list")["items"]] == ["solved"]


def test_mistake_in_the_story_is_no_event(lived: Ledger, tmp_path: Path) -> None:
    story = life.Life(lived.settings, tmp_path, {})
    with pytest.raises(ValueError, match="@versoin"):
        story._resolved({"version": ["@versoin"]}, {"on": "handoff/x"})
