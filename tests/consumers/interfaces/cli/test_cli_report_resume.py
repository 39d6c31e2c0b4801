"""`deed report resume`: a fresh process takes up what was reported, within its tokens."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from calling import call
from reported_sessions import AFTER, AS_A, CACHE, begin, finish

from deedbook.consumers.sessions.resumed_text import left_out_lines
from deedbook.projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from calling import Deed
    from reported_sessions import Fresh


@pytest.mark.served
def test_postflight_makes_the_report_that_a_fresh_process_resumes_from(deed: Deed, fresh: Fresh) -> None:
    label = fresh("agent")
    name = begin(deed, fresh("leak"), CACHE, "--ai-id", label)
    deed("session", "unknown", name, "How large it grows", *AS_A)
    deed("session", "dead-end", name, "Raise the limit", "--why", "It only fails later", *AS_A)
    deed("session", "tool", name, "grep", *AS_A)
    made = finish(deed, name, "--context", "Fix is on branch fix/cache", "--artifact", "src/cache.py")
    assert (made["status"], made["report_type"], made["session_id"]) == ("success", "complete", name)
    assert made["storage_location"].startswith("ledger:")
    deed("session", "end", name, *AS_A)
    place = ["--home", deed.home, *(["--server", deed.place.server] if deed.place and deed.place.server else [])]
    said = call(*place, "report", "resume", "--ai-id", label, "--detail-level", "detailed", "--json")
    data = json.loads(said.out)["data"]
    assert (data["total_sessions"], data["detail_level"]) == (1, "detailed")
    assert data["token_estimate"] <= 800
    (session,) = data["sessions"]
    assert session["task"] == CACHE
    assert session["epistemic_deltas"]["know"] == 0.4
    assert session["key_findings"] == [f"We learned how {name} evicts"]
    assert {gap["gap"] for gap in session["knowledge_gaps_filled"]} >= {"Domain knowledge", "Task uncertainty"}
    assert session["remaining_unknowns"] == ["How large it grows"]
    assert session["next_steps"][0] == "Find out: How large it grows"
    assert (session["investigation_tools"], session["artifacts_created"]) == (["grep"], ["src/cache.py"])
    assert "Raise the limit" in [one["approach"] for one in data["dead_ends"]]


def test_text_of_resume_gives_dead_ends_first_then_the_six_answers(alone: Deed) -> None:
    alone("agent", "add", "a")
    assert alone("report", "resume") == "No sessions found\n"
    begin(alone, "one")
    alone("session", "dead-end", "one", "Raise the limit", "--why", "It only fails later", *AS_A)
    alone.run("session", "assess", "one", "POSTFLIGHT", *AS_A, "--vectors", AFTER)
    said = alone("report", "resume")
    headings = ["Dead ends", "Session one", "Task", "Learned", "Next steps", "Context", "What changed", "Gaps filled"]
    places = [re.search(rf"^{heading}", said, re.MULTILINE) for heading in headings]
    starts = [found.start() for found in places if found is not None]
    assert len(starts) == len(places)
    assert starts == sorted(starts)
    assert "Raise the limit: It only fails later" in said
    assert "know +0.40" in said
    assert "KNOW: 0.50 → KNOW: 0.90 (+0.40)" in said
    assert "Still unknown" not in said  # nothing is said where there is nothing to say
    assert "--detail-level detailed or full has more" in said
    full = alone("report", "resume", "--detail-level", "full")
    assert "Full report\n# Epistemic Handoff Report" in full
    assert "PREFLIGHT: know 0.50" in full


def test_session_without_a_report_is_marked(alone: Deed) -> None:
    alone("agent", "add", "a")
    begin(alone, "crashed")
    assert "There is no report; this comes from the session's events." in alone("report", "resume")
    begin(alone, "two", "Water the plants")
    finish(alone, "two")
    data = alone.data("report", "resume", "--count", 2)
    assert [one["session_id"] for one in data["sessions"]] == ["two", "crashed"]
    assert data["sessions"][1]["no_report"] is True
    assert data["token_estimate"] <= 800
    one = alone.data("report", "resume", "--session-id", "cra", "--resume-mode", "session_id")
    assert [session["session_id"] for session in one["sessions"]] == ["crashed"]
    assert alone.data("report", "resume", "--ai-id", "nobody")["sessions"] == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--resume-mode", "last", "--session-id", "s"], "takes no session id"),
        (["--resume-mode", "last_n", "--session-id", "s"], "takes no session id"),
        (["--count", "6"], "--count"),
        (["--count", "0"], "--count"),
        (["--detail-level", "most"], "--detail-level"),
        (["--resume-mode", "first"], "--resume-mode"),
    ],
)
def test_options_of_resume_that_contradict_each_other_are_refused(deed: Deed, given: list[str], said: str) -> None:
    assert said in deed.refuses("USAGE", "report", "resume", *given)["message"]
    assert (
        "give session_id" in deed.refuses("INVALID_FIELD", "report", "resume", "--resume-mode", "session_id")["message"]
    )


def test_mode_last_with_a_count_is_last_n(alone: Deed) -> None:
    alone("agent", "add", "a")
    for name in ("one", "two", "three"):
        begin(alone, name)
    for given in (["--count", 2], ["--count", 2, "--resume-mode", "last"], ["--count", 2, "--resume-mode", "last_n"]):
        assert alone.data("report", "resume", *given)["total_sessions"] == 2
    assert alone.data("report", "resume", "--resume-mode", "last_n")["total_sessions"] == 1


def test_findings_of_ten_kilobytes_are_kept_and_resume_stays_small(deed: Deed, fresh: Fresh) -> None:
    label, name = fresh("agent"), fresh("long")
    begin(deed, name, CACHE, "--ai-id", label)
    texts = ["缓存从不清除，因此总线会变慢。" * 220, "the cache never evicts and so the bus slows down " * 210]
    made = finish(deed, name, "--finding", texts[0], "--finding", texts[1])
    assert made["status"] == "success"
    for level, tokens in (("summary", 400), ("detailed", 800), ("full", 1250)):
        said = deed.run("report", "resume", "--ai-id", label, "--detail-level", level, "--json").out
        assert count_tokens(json.dumps(json.loads(said)["data"], ensure_ascii=False, separators=(",", ":"))) <= tokens
        left_out = json.loads(said)["data"]["sessions"][0]["left_out"]
        assert "findings" in left_out["shortened"]
        text = deed("report", "resume", "--ai-id", label, "--detail-level", level)
        assert f"see: {left_out['see']}" in text


def test_what_was_left_out_is_said_with_the_command_that_shows_it() -> None:
    left_out = {"key_findings": 2, "shortened": ["task", "next_steps"], "see": "deed report show s"}
    assert left_out_lines(left_out) == [
        "key findings: 2; shortened: task, next steps",
        "see: deed report show s",
    ]
