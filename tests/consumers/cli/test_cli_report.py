"""`baton report` and the report after POSTFLIGHT: made, taken up again, found and compared; what is refused."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from calling import call

from consumers.cli import report_making
from consumers.cli.report_text import left_out_lines
from ledger.errors import Unavailable
from projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from calling import Baton

    Fresh = Callable[[str], str]

AS_A = ("--as", "a")
BEFORE = '{"know": 0.5, "do": 0.8, "uncertainty": 0.6}'
AFTER = '{"know": 0.9, "do": 0.9, "uncertainty": 0.2}'
CACHE = "Find the leak in the cache of the event bus"


def begin(baton: Baton, name: str, task: str = CACHE, *more: object) -> str:
    """Start a session of a with a PREFLIGHT and a finding; return its id."""
    baton("session", "start", name, *AS_A, "--task", task, *more)
    baton("session", "assess", name, "PREFLIGHT", *AS_A, "--vectors", BEFORE)
    baton("session", "finding", name, f"We learned how {name} evicts", *AS_A)
    return name


def finish(baton: Baton, name: str, *more: object) -> dict[str, Any]:
    """Record the POSTFLIGHT of a session; return the answer about its report."""
    said = baton.run("session", "assess", name, "POSTFLIGHT", *AS_A, "--vectors", AFTER, *more, "--json")
    assert said.code == 0, said.out
    report: dict[str, Any] = json.loads(said.out)["data"]["report"]
    return report


def test_postflight_makes_the_report_that_a_fresh_process_resumes_from(baton: Baton, fresh: Fresh) -> None:
    label = fresh("agent")
    name = begin(baton, fresh("leak"), CACHE, "--ai-id", label)
    baton("session", "unknown", name, "How large it grows", *AS_A)
    baton("session", "dead-end", name, "Raise the limit", "--why", "It only fails later", *AS_A)
    baton("session", "tool", name, "grep", *AS_A)
    made = finish(baton, name, "--context", "Fix is on branch fix/cache", "--artifact", "src/cache.py")
    assert (made["status"], made["report_type"], made["session_id"]) == ("success", "complete", name)
    assert made["storage_location"].startswith("ledger:")
    baton("session", "end", name, *AS_A)
    place = ["--home", baton.home, *(["--server", baton.place.server] if baton.place and baton.place.server else [])]
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
    assert session["next_steps"][0] == "Address 1 remaining unknowns"
    assert (session["investigation_tools"], session["artifacts_created"]) == (["grep"], ["src/cache.py"])
    assert "Raise the limit" in [one["approach"] for one in data["dead_ends"]]


def test_text_of_resume_gives_dead_ends_first_then_the_six_answers(alone: Baton) -> None:
    alone("agent", "add", "a")
    assert alone("report", "resume") == "No sessions found\n"
    begin(alone, "one")
    alone("session", "dead-end", "one", "Raise the limit", "--why", "It only fails later", *AS_A)
    alone.run("session", "assess", "one", "POSTFLIGHT", *AS_A, "--vectors", AFTER)
    said = alone("report", "resume")
    headings = ["Dead ends", "Session one", "Task", "What changed", "What was learned", "Gaps filled", "Still unknown"]
    places = [re.search(rf"^{heading}", said, re.MULTILINE) for heading in [*headings, "Next steps"]]
    starts = [found.start() for found in places if found is not None]
    assert len(starts) == len(places)
    assert starts == sorted(starts)
    assert "Raise the limit: It only fails later" in said
    assert "know +0.40" in said
    assert "KNOW: 0.50 → KNOW: 0.90 (+0.40)" in said
    assert "Still unknown\n  (none)\n" in said
    assert "--detail-level detailed adds tools" in said
    full = alone("report", "resume", "--detail-level", "full")
    assert "Full report\n# Epistemic Handoff Report" in full
    assert "PREFLIGHT: know 0.50" in full


def test_session_without_a_report_is_marked(alone: Baton) -> None:
    alone("agent", "add", "a")
    begin(alone, "crashed")
    assert "There is no report: this is taken from the session's events." in alone("report", "resume")
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
        (["--resume-mode", "session_id"], "needs --session-id"),
        (["--resume-mode", "last", "--session-id", "s"], "--session-id goes with"),
        (["--resume-mode", "last_n", "--session-id", "s"], "--session-id goes with"),
        (["--count", "6"], "--count"),
        (["--count", "0"], "--count"),
        (["--detail-level", "most"], "--detail-level"),
        (["--resume-mode", "first"], "--resume-mode"),
    ],
)
def test_options_of_resume_that_contradict_each_other_are_refused(baton: Baton, given: list[str], said: str) -> None:
    assert said in baton.refuses("USAGE", "report", "resume", *given)["message"]


def test_mode_last_with_a_count_is_last_n(alone: Baton) -> None:
    alone("agent", "add", "a")
    for name in ("one", "two", "three"):
        begin(alone, name)
    for given in (["--count", 2], ["--count", 2, "--resume-mode", "last"], ["--count", 2, "--resume-mode", "last_n"]):
        assert alone.data("report", "resume", *given)["total_sessions"] == 2
    assert alone.data("report", "resume", "--resume-mode", "last_n")["total_sessions"] == 1


def test_report_that_fails_leaves_the_assessment_and_is_said(baton: Baton, fresh: Fresh) -> None:
    name = fresh("empty")
    baton("session", "start", name, *AS_A, "--task", "t")
    said = baton.run("session", "assess", name, "POSTFLIGHT", *AS_A, "--vector", "know=0.5")
    assert said.code == 0
    assert "warning: no report was made: INVALID_FIELD" in said.err
    assert f"baton report generate {name}" in said.err
    said = baton.run("session", "assess", name, "POSTFLIGHT", *AS_A, "--vector", "know=0.6", "--json")
    assert said.code == 0
    assert "warning: no report was made" in said.err
    report = json.loads(said.out)["data"]["report"]
    assert (report["status"], report["error"]["code"]) == ("failed", "INVALID_FIELD")
    assert len(baton.data("session", "show", name)["assessments"]) == 2
    assert "`baton report generate" in baton.refuses("NOT_FOUND", "report", "show", name)["message"]


def test_error_that_nobody_foresaw_in_the_report_leaves_the_assessment(
    alone: Baton, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone("agent", "add", "a")
    begin(alone, "one")
    monkeypatch.setattr(report_making, "publish_report", lambda *_: 1 / 0)
    report = finish(alone, "one")
    assert (report["error"]["code"], report["command"]) == ("UNEXPECTED", "baton session sweep")
    assert "ZeroDivisionError" in report["error"]["message"]
    assert [one["phase"] for one in alone.data("session", "show", "one")["assessments"]] == ["PREFLIGHT", "POSTFLIGHT"]


def test_file_for_the_report_that_is_not_there_is_refused_before_anything_is_signed(baton: Baton, fresh: Fresh) -> None:
    name = begin(baton, fresh("file"))
    assess = ["session", "assess", name, "POSTFLIGHT", *AS_A, "--vectors", AFTER, "--context"]
    baton.refuses("NOT_FOUND", *assess, "@no-such-file")
    assert len(baton.data("session", "show", name)["assessments"]) == 1


def test_report_that_failed_for_now_is_made_by_the_sweep(alone: Baton, monkeypatch: pytest.MonkeyPatch) -> None:
    alone("agent", "add", "a")
    begin(alone, "one")

    def fail(*_: object) -> None:
        raise Unavailable("STORE_FULL", "no room")

    with monkeypatch.context() as patched:
        patched.setattr(report_making, "publish_report", fail)
        assert finish(alone, "one")["error"]["code"] == "STORE_FULL"
        said = alone.run("session", "sweep", *AS_A)
        assert said.code == 7
        assert "not made: report of one: STORE_FULL: no room" in said.out
    dry = alone.data("session", "sweep", "--dry-run", "--older-than", "0", *AS_A)
    assert (dry["ended"], [one["session_id"] for one in dry["reported"]], dry["dry_run"]) == (["one"], ["one"], True)
    swept = alone.data("session", "sweep", *AS_A)
    assert (swept["ended"], [one["session_id"] for one in swept["reported"]]) == ([], ["one"])
    assert alone.data("report", "show", "one")["report"]["report_type"] == "complete"
    size = alone.size()
    again = alone.data("session", "sweep", *AS_A)
    assert (again["ended"], again["reported"], again["unmade"], alone.size()) == ([], [], [], size)


def test_sweep_ends_what_is_idle_and_lists_what_somebody_must_say(alone: Baton) -> None:
    alone("agent", "add", "a")
    begin(alone, "checked")
    alone("session", "assess", "checked", "CHECK", *AS_A, "--vector", "know=0.7")
    alone("session", "start", "silent", *AS_A)
    alone("session", "assess", "silent", "CHECK", *AS_A, "--vector", "know=0.7")
    assert alone.data("session", "sweep", *AS_A)["ended"] == []
    swept = alone.data("session", "sweep", "--older-than", "0", *AS_A)
    assert sorted(swept["ended"]) == ["checked", "silent"]
    assert [one["session_id"] for one in swept["reported"]] == ["checked"]
    (unmade,) = swept["unmade"]
    assert (unmade["session_id"], unmade["error"]["code"]) == ("silent", "INVALID_FIELD")
    shown = alone.data("report", "show", "checked")["report"]
    assert (shown["report_type"], shown["task_summary"]) == ("investigation", CACHE)
    assert alone.data("session", "show", "silent")["summary"] == "never closed: swept"
    said = alone.run("session", "sweep", *AS_A)
    assert said.code == 0
    assert unmade["command"] in said.out
    made = alone.data("report", "resume", "--session-id", "silent")["sessions"][0]
    assert made["task"] == ""
    assert alone.data("report", "resume", "--session-id", "checked")["sessions"][0]["task"] == CACHE
    alone.refuses("USAGE", "session", "sweep", "--older-than", "long", *AS_A)


def test_no_report_leaves_it_to_the_sweep(alone: Baton) -> None:
    alone("agent", "add", "a")
    begin(alone, "one")
    assert finish(alone, "one", "--no-report") == {"status": "not_asked"}
    alone.refuses("NOT_FOUND", "report", "show", "one")
    assert len(alone.data("session", "sweep", *AS_A)["reported"]) == 1


def test_postflight_without_preflight_is_not_assessable(baton: Baton, fresh: Fresh) -> None:
    name = fresh("late")
    baton("session", "start", name, *AS_A, "--task", "t")
    made = finish(baton, name, "--finding", "f", "--task-summary", "t")
    report = baton.data("report", "show", name)["report"]
    assert (made["report_type"], report["calibration_status"]) == ("planning", "not_assessable")
    assert report["epistemic_deltas"] == {}


def test_generate_adds_a_version_and_the_same_again_adds_none(baton: Baton, fresh: Fresh) -> None:
    name = begin(baton, fresh("versions"))
    finish(baton, name)
    baton("session", "end", name, *AS_A)
    given = [
        "--finding",
        "第一个发现",
        "--unknown",
        "u",
        "--context",
        "下一步",
        "--task-summary",
        "T",
        "--artifact",
        "x",
    ]
    said = baton.run("report", "generate", name, *AS_A, *given)
    assert (said.code, "warning: 1 of 3 to 5 findings" in said.err) == (0, True)
    made = baton.data("report", "generate", name, *AS_A, *given)
    assert made["is_repeat"] is True
    assert {"session_id", "report_id", "markdown", "storage_location", "token_count", "status"} <= made.keys()
    shown = baton.data("report", "show", name)
    first, second = shown["versions"]
    assert second["report_id"] == made["report_id"] == shown["report"]["report_id"]
    assert shown["report"]["key_findings"] == ["第一个发现"]
    older = baton.data("report", "show", name, "--version", first["report_id"])["report"]
    assert older["key_findings"] == [f"We learned how {name} evicts"]
    assert baton.data("report", "show", first["report_id"])["report"] == older
    said_of = baton("report", "show", name)
    assert f"version 2 of 2: {second['report_id']}" in said_of
    assert first["report_id"] in said_of
    assert baton("report", "show", name, "--markdown").rstrip("\n") == shown["report"]["markdown"].rstrip("\n")
    assert json.loads(baton("report", "show", name, "--compressed"))["findings"] == ["第一个发现"]


def test_report_of_what_is_unknown_or_anothers_is_refused(baton: Baton, fresh: Fresh) -> None:
    name = begin(baton, fresh("mine"))
    baton.refuses("NOT_AUTHORIZED", "report", "generate", name, "--as", "b")
    baton.refuses("NOT_FOUND", "report", "generate", "no-such-session", *AS_A)
    baton.refuses("NOT_FOUND", "report", "resume", "--session-id", "no-such-session")
    baton.refuses("NOT_FOUND", "report", "show", "no-such-session")
    finish(baton, name)
    baton.refuses("NOT_FOUND", "report", "show", name, "--version", "123456789abc")
    baton.refuses("INVALID_FIELD", "report", "generate", name, *AS_A, "--task-summary", " ")
    baton.refuses("INVALID_FIELD", "report", "generate", name, *AS_A, "--finding", " ")


def test_findings_of_ten_kilobytes_are_kept_and_resume_stays_small(baton: Baton, fresh: Fresh) -> None:
    label, name = fresh("agent"), fresh("long")
    begin(baton, name, CACHE, "--ai-id", label)
    texts = ["缓存从不清除，因此总线会变慢。" * 220, "the cache never evicts and so the bus slows down " * 210]
    made = finish(baton, name, "--finding", texts[0], "--finding", texts[1])
    assert made["status"] == "success"
    for level, tokens in (("summary", 400), ("detailed", 800), ("full", 1250)):
        said = baton.run("report", "resume", "--ai-id", label, "--detail-level", level, "--json").out
        assert count_tokens(json.dumps(json.loads(said)["data"], ensure_ascii=False, separators=(",", ":"))) <= tokens
        left_out = json.loads(said)["data"]["sessions"][0]["left_out"]
        assert "findings" in left_out["shortened"]
        text = baton("report", "resume", "--ai-id", label, "--detail-level", level)
        assert f"to be had with: {left_out['see']}" in text


def test_text_that_stands_in_a_blob_is_shown_whole(baton: Baton, fresh: Fresh) -> None:
    name, text = begin(baton, fresh("blob")), "缓存从不清除，因此总线会变慢。" * 1_000
    baton("report", "generate", name, *AS_A, "--finding", text)
    shown = baton.data("report", "show", name)["report"]
    assert (shown["key_findings"], shown["long_texts"]) == ([text], [])
    assert text in shown["markdown"]
    assert text in baton("report", "show", name, "--markdown")
    assert text in baton("report", "show", name)


def test_command_in_a_hint_runs_whatever_the_id(alone: Baton) -> None:
    name = "a session's id"
    for agent in ("a", "b"):
        alone("agent", "add", agent)
    alone("session", "start", name, *AS_A, "--task", CACHE)
    said = alone.run("session", "assess", name, "POSTFLIGHT", *AS_A, "--vectors", AFTER)
    command = shlex.split(said.err.rpartition(": baton ")[2])
    assert command[:4] == ["report", "generate", name, "--task-summary"]
    advice = alone.refuses("NOT_FOUND", "report", "show", name)["message"].split("`")[1]
    made = alone(*shlex.split(advice)[1:], *AS_A, "--finding", "The cache never evicts")
    assert "# Epistemic Handoff Report" in alone(*shlex.split(made.rpartition(": baton ")[2]))
    advice = alone.refuses("NOT_AUTHORIZED", "session", "finding", name, "t", "--as", "b")["message"].split("`")[1]
    alone(*shlex.split(advice)[1:])


@pytest.mark.parametrize("verb", [["session", "list"], ["report", "query"]])
def test_cursor_that_no_page_has_and_text_that_is_none_are_refused(baton: Baton, verb: list[str]) -> None:
    baton.refuses("INTEGER_OUT_OF_RANGE", *verb, "--cursor", 10**30)
    baton.refuses("INVALID_FORMAT", *verb, "--ai-id", "not\udcff text")


def test_query_finds_by_agent_time_and_pattern_and_pages(baton: Baton, fresh: Fresh) -> None:
    label = fresh("agent")
    names = [begin(baton, fresh("q"), f"Validate part {n} of it", "--ai-id", label) for n in range(3)]
    for name in names:
        finish(baton, name)
    begin(baton, fresh("q"), "Water the plants", "--ai-id", label)
    query = ["report", "query", "--ai-id", label, "--since", "7 days ago", "--task-pattern", "VALIDATE part|nothing"]
    first = baton.document(*query, "--limit", 2)
    assert (first["data"]["total_found"], len(first["data"]["reports"])) == (3, 2)
    assert first["data"]["reports"][0].keys() >= {"session_id", "ai_id", "timestamp", "task", "key_findings"}
    assert first["data"]["reports"][0]["epistemic_growth"] == pytest.approx(0.3)
    rest = baton.document(*shlex.split(first["next"])[1:])
    assert [one["session_id"] for one in rest["data"]["reports"]] == names[:1]
    assert "next" not in rest
    said = baton(*query, "--limit", 2)
    assert "growth +0.30" in said
    assert f"3 in all; go on with: {first['next']}" in said
    assert baton("report", "query", "--ai-id", label, "--since", "2999-01-01") == "(none)\n"
    assert baton.data("report", "query", "--ai-id", label, "--task-pattern", "water")["total_found"] == 0


@pytest.mark.parametrize("since", ["no time", "", "in 3 days", "2026-13-01", "x" * 1000])
def test_since_that_is_no_time_is_refused(baton: Baton, since: str) -> None:
    for verb in ("query", "overlap", "calibration"):
        assert "7 days ago" in baton.refuses("INVALID_FIELD", "report", verb, "--since", since)["message"]


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)b", "(?<!a)b", "(", "a{1001}", "((a{100}){100}){100}"])
def test_pattern_that_re2_does_not_take_is_refused(baton: Baton, pattern: str) -> None:
    baton.refuses("PATTERN_NOT_SUPPORTED", "report", "query", "--task-pattern", pattern)


def test_pattern_that_explodes_elsewhere_is_answered(baton: Baton, fresh: Fresh) -> None:
    label, name = fresh("agent"), fresh("bomb")
    begin(baton, name, "a" * 5000 + "!", "--ai-id", label)
    finish(baton, name)
    found = baton.data("report", "query", "--ai-id", label, "--task-pattern", "^(a+)+$")
    assert found["total_found"] == 0
    assert baton.data("report", "query", "--ai-id", label, "--task-pattern", "^(a+)+!$")["total_found"] == 1


def test_similar_overlap_and_calibration_are_told(alone: Baton) -> None:
    alone("agent", "add", "a")
    for name, task in (("one", CACHE), ("two", f"{CACHE} again"), ("three", "Water the plants")):
        begin(alone, name, task)
        finish(alone, name)
    found = alone.data("report", "similar", "leak in the cache of the bus")
    assert {one["session_id"] for one in found["reports"]} == {"one", "two"}
    assert "which knows spellings, not meanings" in alone("report", "similar", "leak in the cache of the bus")
    assert alone("report", "similar", "unrelated words here").startswith("(none)\n")
    pairs = alone.data("report", "overlap")["overlaps"]
    assert {one["session_id"] for one in pairs[0]["sessions"]} == {"one", "two"}
    assert "nearest findings" in alone("report", "overlap", "--since", "yesterday")
    (agent,) = alone.data("report", "calibration", "--ai-id", "a")["agents"]
    assert (agent["total"], agent["counts"]["well_calibrated"]) == (3, 3)
    said = alone("report", "calibration")
    assert "3 reports: well calibrated 3" in said
    assert "+0.40      +0.40" in said
    assert alone("report", "calibration", "--ai-id", "nobody") == "(none)\n"


def test_start_names_what_failed_in_similar_sessions(alone: Baton) -> None:
    alone("agent", "add", "a")
    begin(alone, "one")
    alone("session", "dead-end", "one", "Raise the limit", "--why", "It only fails later", *AS_A)
    finish(alone, "one")
    said = alone("session", "start", "two", *AS_A, "--task", f"{CACHE} for good")
    assert said.startswith("two\n")
    assert "Dead ends of similar tasks\n  - Raise the limit: It only fails later  [one]" in said
    data = alone.data("session", "start", "three", *AS_A, "--task", f"{CACHE} again")
    assert [one["approach"] for one in data["dead_ends"]] == ["Raise the limit"]
    assert alone.data("session", "start", "four", *AS_A, "--task", "Water the plants")["dead_ends"] == []


def test_what_was_left_out_is_said_with_the_command_that_shows_it() -> None:
    left_out = {"key_findings": 2, "shortened": ["task", "next_steps"], "see": "baton report show s"}
    assert left_out_lines(left_out) == [
        "key findings: 2; shortened: task, next steps",
        "to be had with: baton report show s",
    ]
