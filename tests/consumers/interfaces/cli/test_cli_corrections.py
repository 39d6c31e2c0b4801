"""`deed session retract` and `resolve`: what a session learned and no longer believes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from calling import Deed

AS_A = ("--as", "a")


def recorded(deed: Deed, name: str) -> dict[str, int]:
    """Record a session of a with its report; return the entries of what can be corrected."""
    deed("session", "start", name, *AS_A, "--task", f"Find the leak of {name}")
    for verb, text in (
        ("finding", "The pool never closes"),
        ("finding", "A handle is 4 KB"),
        ("unknown", "Who opens it"),
    ):
        deed("session", verb, name, f"{text} in {name}", *AS_A)
    deed("session", "dead-end", name, f"Restart {name}", "--why", "it comes back", "--argued", *AS_A)
    deed("session", "assess", name, "POSTFLIGHT", *AS_A, "--vector", "know=0.9")
    deed("session", "end", name, *AS_A)
    shown = deed.data("session", "show", name)
    return {kind: shown[kind][0]["event_index"] for kind in ("findings", "unknowns", "dead_ends")}


def resumed(deed: Deed, name: str) -> dict[str, Any]:
    """Return what is taken up of the session."""
    answer: dict[str, Any] = deed.data("report", "resume", "--session-id", name, "--detail-level", "detailed")
    return answer["sessions"][0] | {"dead_ends": answer["dead_ends"]}


@pytest.mark.served
def test_what_was_taken_back_is_struck_where_it_stood_and_gone_where_others_go_on(deed: Deed, fresh: Any) -> None:
    name = fresh("belief")
    entries = recorded(deed, name)
    assert resumed(deed, name)["dead_ends"][0]["basis"] == "argued"
    assert "(argued, not tried)" in deed("report", "resume", "--session-id", name)
    said = deed("session", "retract", entries["findings"], "--reason", "It does, late", *AS_A)
    assert f"{name}: entry {entries['findings']} retracted" in said
    deed("session", "resolve", entries["unknowns"], "--with", "The janitor", *AS_A)
    deed("session", "retract", entries["dead_ends"], "--reason", "it works", "--as", "ada")
    taken = resumed(deed, name)
    assert (taken["key_findings"], taken["remaining_unknowns"]) == ([f"A handle is 4 KB in {name}"], [])
    assert name not in str(taken["dead_ends"])
    shown = deed("session", "show", name)
    assert "by a: It does, late" in shown
    assert "by ada: it works" in shown
    report = deed("report", "show", name)
    assert "**Corrected:** 1 finding retracted, 1 dead end retracted, 1 unknown resolved" in report
    assert f"~~The pool never closes in {name}~~" in report
    assert f"~~Restart {name} (it comes back)~~" in report
    versions = deed.data("report", "show", name)["versions"]
    assert len(versions) == 1
    deed("report", "generate", name, *AS_A)
    assert f"A handle is 4 KB in {name}" in deed("report", "show", name)
    assert len(deed.data("report", "show", name)["versions"]) == 2
    similar = deed.data("session", "start", fresh("again"), *AS_A, "--task", f"Find the leak of {name}")["dead_ends"]
    assert name not in str(similar)


def test_what_cannot_be_corrected_so_is_refused_with_the_way(deed: Deed, fresh: Any) -> None:
    name = fresh("refused")
    entries = recorded(deed, name)
    finding, unknown = entries["findings"], entries["unknowns"]
    error = deed.refuses("NOT_AUTHORIZED", "session", "retract", finding, "--reason", "x", "--as", "b")
    assert "record what you know in a session of your own" in error["message"]
    error = deed.refuses("USAGE", "session", "retract", unknown, "--reason", "x", *AS_A)
    assert f"deed session resolve {unknown} --with TEXT" in error["message"]
    error = deed.refuses("USAGE", "session", "resolve", finding, "--with", "x", *AS_A)
    assert f"deed session retract {finding} --reason TEXT" in error["message"]
    assert "not a finding" in deed.refuses("USAGE", "session", "retract", 0, "--reason", "x", *AS_A)["message"]
    deed.refuses("USAGE", "session", "retract", finding, "--reason", " ", *AS_A)
    deed.refuses("NOT_FOUND", "session", "retract", 10**9, "--reason", "x", *AS_A)
    deed("session", "retract", finding, "--reason", "x", *AS_A)
    error = deed.refuses("TRANSITION_NOT_ALLOWED", "session", "retract", finding, "--reason", "y", *AS_A)
    assert f"entry {finding} is already retracted by a" in error["message"]


def test_a_correction_may_name_the_session_and_the_list_counts_what_still_holds(deed: Deed, fresh: Any) -> None:
    name = fresh("counted")
    entries = recorded(deed, name)
    of_it, not_of_it = ("--session", name), ("--session", fresh("other"))
    error = deed.refuses("USAGE", "session", "retract", entries["findings"], "--reason", "no", *not_of_it, *AS_A)
    assert f"is in session/{name}" in error["message"]
    deed("session", "retract", entries["findings"], "--reason", "no", *of_it, *AS_A)
    deed("session", "retract", entries["dead_ends"], "--reason", "no", *AS_A)
    deed("session", "resolve", entries["unknowns"], "--with", "the pool", *of_it, *AS_A)
    (row,) = [one for one in deed.data("session", "list")["sessions"] if one["id"] == name]
    assert (row["findings"], row["unknowns"], row["dead_ends"]) == (1, 0, 0)


def test_what_is_blank_is_no_finding(deed: Deed, fresh: Any) -> None:
    deed("session", "start", name := fresh("blank"), *AS_A)
    for text in ("   ", "\u00a0\u200b\t", "\u3000\n"):
        error = deed.refuses("INVALID_FIELD", "session", "finding", name, text, *AS_A)
        assert error["message"] == "the text is blank: write something at $.data.finding"
    deed("session", "finding", name, " . ", *AS_A)
    error = deed.refuses("INVALID_FORMAT", "session", "finding", name, "half \ud800 of it", *AS_A)
    assert "$.data.finding contains a lone surrogate" in error["message"]
    deed("session", "end", name, *AS_A)
