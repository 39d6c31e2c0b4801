"""The report after POSTFLIGHT and `deed report generate`: generated once or again, left to the sweep, refused."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from reported_sessions import AFTER, AS_A, CACHE, begin, finish

from deedbook.consumers.interfaces.cli.commands import session_report
from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    from calling import Deed
    from reported_sessions import Fresh


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


def test_no_report_leaves_it_to_the_sweep(alone: Deed) -> None:
    alone("agent", "add", "a")
    begin(alone, "one")
    assert finish(alone, "one", "--no-report") == {"status": "not_asked"}
    alone.refuses("NOT_FOUND", "report", "show", "one")
    assert len(alone.data("session", "sweep", *AS_A)["reported"]) == 1


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
