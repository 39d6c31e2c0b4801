"""The report after POSTFLIGHT and `deed report generate`: made, made again, left to the sweep; what is refused."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest
from reported_sessions import AFTER, AS_A, CACHE, begin, finish

from deedbook.consumers.interfaces.cli.commands import session_report
from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    from calling import Deed
    from reported_sessions import Fresh


def test_report_that_fails_leaves_the_assessment_and_is_said(deed: Deed, fresh: Fresh) -> None:
    name = fresh("empty")
    deed("session", "start", name, *AS_A, "--task", "t")
    said = deed.run("session", "assess", name, "POSTFLIGHT", *AS_A, "--vector", "know=0.5")
    assert said.code == 0
    assert "warning: no report was made: INVALID_FIELD" in said.err
    assert f"deed report generate {name}" in said.err
    said = deed.run("session", "assess", name, "POSTFLIGHT", *AS_A, "--vector", "know=0.6", "--json")
    assert said.code == 0
    assert "warning: no report was made" in said.err
    report = json.loads(said.out)["data"]["report"]
    assert (report["status"], report["error"]["code"]) == ("failed", "INVALID_FIELD")
    assert len(deed.data("session", "show", name)["assessments"]) == 2
    assert "`deed report generate" in deed.refuses("NOT_FOUND", "report", "show", name)["message"]


def test_error_that_nobody_foresaw_in_the_report_leaves_the_assessment(
    alone: Deed, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone("agent", "add", "a")
    begin(alone, "one")
    monkeypatch.setattr(session_report, "publish_report", lambda *_: 1 / 0)
    report = finish(alone, "one")
    assert (report["error"]["code"], report["command"]) == ("UNEXPECTED", "deed session sweep")
    assert "ZeroDivisionError" in report["error"]["message"]
    assert [one["phase"] for one in alone.data("session", "show", "one")["assessments"]] == ["PREFLIGHT", "POSTFLIGHT"]


def test_file_for_the_report_that_is_not_there_is_refused_before_anything_is_signed(deed: Deed, fresh: Fresh) -> None:
    name = begin(deed, fresh("file"))
    assess = ["session", "assess", name, "POSTFLIGHT", *AS_A, "--vectors", AFTER, "--context"]
    deed.refuses("NOT_FOUND", *assess, "@no-such-file")
    assert len(deed.data("session", "show", name)["assessments"]) == 1


def test_report_that_failed_for_now_is_made_by_the_sweep(alone: Deed, monkeypatch: pytest.MonkeyPatch) -> None:
    alone("agent", "add", "a")
    begin(alone, "one")

    def fail(*_: object) -> None:
        raise Unavailable("STORE_FULL", "no room")

    with monkeypatch.context() as patched:
        patched.setattr(session_report, "publish_report", fail)
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


def test_sweep_ends_what_is_idle_and_lists_what_somebody_must_say(alone: Deed) -> None:
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


def test_no_report_leaves_it_to_the_sweep(alone: Deed) -> None:
    alone("agent", "add", "a")
    begin(alone, "one")
    assert finish(alone, "one", "--no-report") == {"status": "not_asked"}
    alone.refuses("NOT_FOUND", "report", "show", "one")
    assert len(alone.data("session", "sweep", *AS_A)["reported"]) == 1


def test_postflight_without_preflight_is_not_assessable(deed: Deed, fresh: Fresh) -> None:
    name = fresh("late")
    deed("session", "start", name, *AS_A, "--task", "t")
    made = finish(deed, name, "--finding", "f", "--task-summary", "t")
    report = deed.data("report", "show", name)["report"]
    assert (made["report_type"], report["calibration_status"]) == ("planning", "not_assessable")
    assert report["epistemic_deltas"] == {}


def test_generate_adds_a_version_and_the_same_again_adds_none(deed: Deed, fresh: Fresh) -> None:
    name = begin(deed, fresh("versions"))
    finish(deed, name)
    deed("session", "end", name, *AS_A)
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
    said = deed.run("report", "generate", name, *AS_A, *given)
    assert (said.code, "warning: only 1 of the recommended 3 to 5 findings" in said.err) == (0, True)
    made = deed.data("report", "generate", name, *AS_A, *given)
    assert made["is_repeat"] is True
    assert {"session_id", "report_id", "markdown", "storage_location", "token_count", "status"} <= made.keys()
    shown = deed.data("report", "show", name)
    first, second = shown["versions"]
    assert second["report_id"] == made["report_id"] == shown["report"]["report_id"]
    assert shown["report"]["key_findings"] == ["第一个发现"]
    older = deed.data("report", "show", name, "--version", first["report_id"])["report"]
    assert older["key_findings"] == [f"We learned how {name} evicts"]
    assert deed.data("report", "show", first["report_id"])["report"] == older
    said_of = deed("report", "show", name)
    assert f"version 2 of 2: {second['report_id']}" in said_of
    assert first["report_id"] in said_of
    assert deed("report", "show", name, "--markdown").rstrip("\n") == shown["report"]["markdown"].rstrip("\n")
    assert json.loads(deed("report", "show", name, "--compressed"))["findings"] == ["第一个发现"]


def test_report_of_what_is_unknown_or_anothers_is_refused(deed: Deed, fresh: Fresh) -> None:
    name = begin(deed, fresh("mine"))
    deed.refuses("NOT_AUTHORIZED", "report", "generate", name, "--as", "b")
    deed.refuses("NOT_FOUND", "report", "generate", "no-such-session", *AS_A)
    deed.refuses("NOT_FOUND", "report", "resume", "--session-id", "no-such-session")
    deed.refuses("NOT_FOUND", "report", "show", "no-such-session")
    finish(deed, name)
    deed.refuses("NOT_FOUND", "report", "show", name, "--version", "123456789abc")
    deed.refuses("INVALID_FIELD", "report", "generate", name, *AS_A, "--task-summary", " ")
    deed.refuses("INVALID_FIELD", "report", "generate", name, *AS_A, "--finding", " ")


@pytest.mark.served
def test_text_that_stands_in_a_blob_is_shown_whole(deed: Deed, fresh: Fresh) -> None:
    name, text = begin(deed, fresh("blob")), "缓存从不清除，因此总线会变慢。" * 1_000
    deed("report", "generate", name, *AS_A, "--finding", text)
    shown = deed.data("report", "show", name)["report"]
    assert (shown["key_findings"], shown["long_texts"]) == ([text], [])
    assert text in shown["markdown"]
    assert text in deed("report", "show", name, "--markdown")
    assert text in deed("report", "show", name)


def test_command_in_a_hint_runs_whatever_the_id(alone: Deed) -> None:
    name = "a session's id"
    for agent in ("a", "b"):
        alone("agent", "add", agent)
    alone("session", "start", name, *AS_A, "--task", CACHE)
    said = alone.run("session", "assess", name, "POSTFLIGHT", *AS_A, "--vectors", AFTER)
    command = shlex.split(said.err.rpartition(": deed ")[2])
    assert command[:4] == ["report", "generate", name, "--task-summary"]
    advice = alone.refuses("NOT_FOUND", "report", "show", name)["message"].split("`")[1]
    made = alone(*shlex.split(advice)[1:], *AS_A, "--finding", "The cache never evicts")
    assert "# Epistemic Handoff Report" in alone(*shlex.split(made.rpartition(": deed ")[2]))
    advice = alone.refuses("NOT_AUTHORIZED", "session", "finding", name, "t", "--as", "b")["message"].split("`")[1]
    alone(*shlex.split(advice)[1:])
