"""`deed search`: found locally and through a server, shown to people and to programs, page by page."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

import click
import pytest
from calling import Deed, call, emit_finding, start_session

if TYPE_CHECKING:
    from collections.abc import Callable

    Fresh = Callable[[str], str]


@pytest.mark.served
def test_what_was_written_is_found_by_its_words(deed: Deed, fresh: Fresh) -> None:
    name = fresh("leak")
    stream = start_session(deed, name)
    emitted = emit_finding(deed, stream, f"The pool of {name} leaks: 登录页面超时, JWT_SECRET in auth.py:42")
    for text in (f"{name} leaks", f'"pool of {name}"', f"{name} 登录", f"{name} 页", f"jwt_sec* {name}"):
        document = deed.document("search", text, "--author", "a", "--type", "session")
        (hit,) = document["data"]["items"]
        assert (hit["event_index"], hit["event_id"]) == (emitted["index"], emitted["id"])
        assert (document["kind"], document["data"]["total"], document["data"]["next"]) == ("hits", 1, None)
        assert f"pool of {name}" in hit["excerpt"]


def test_words_need_no_quotation_marks_of_the_shell(deed: Deed, fresh: Fresh) -> None:
    name = fresh("words")
    emit_finding(deed, start_session(deed, name), f"a closed {name} pool")
    assert deed.data("search", "pool", name, "--limit", 3)["total"] == 1


def test_text_for_people_says_where_and_what(alone: Deed) -> None:
    alone("agent", "add", "a")
    emit_finding(alone, start_session(alone, "one"), "the pool\nleaks \x1b[2J handles")
    place, excerpt = alone("search", "LEAKS").splitlines()
    assert place.split("  ")[0] == "3"
    assert place.split("  ")[2:] == ["a", "session/one", "finding.logged"]
    assert excerpt == "    the pool · leaks \ufffd[2J handles"


def test_what_was_taken_back_is_struck_with_who_did_it_and_why(alone: Deed) -> None:
    alone("agent", "add", "a")
    alone("session", "start", "one", "--as", "a", "--task", "look")
    for verb, text, *more in (
        ("finding", "The pool never closes"),
        ("finding", "The pool leaks"),
        ("unknown", "Who opens the pool"),
        ("dead-end", "Restart the pool", "--why", "it comes back"),
    ):
        alone("session", verb, text, *more, "--as", "a")
    shown = alone.data("session", "show", "one")
    first = {kind: shown[kind][0]["event_index"] for kind in ("findings", "unknowns", "dead_ends")}
    alone("session", "retract", first["findings"], "--reason", "It does,\nlate \x1b[2J", "--as", "a")
    alone("session", "resolve", first["unknowns"], "--with", "The janitor", "--as", "a")
    alone("session", "retract", first["dead_ends"], "--reason", "it works", "--as", "a")
    said = alone("search", "pool", "--type", "session")
    at = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ by a"
    for text, done in (
        ("The pool never closes", rf"retracted {at}: It does, late \ufffd\[2J"),
        ("Who opens the pool", rf"resolved {at}: The janitor"),
        ("Restart the pool.*it comes back", rf"retracted {at}: it works"),
    ):
        assert re.search(rf"^    ~~{text}~~\n      {done}$", said, re.MULTILINE), (said, text)
    assert "\n    The pool leaks\n" in said
    near = alone("search", "pool closes never zebra", "--type", "session")
    assert "~~The pool never closes~~\n      retracted " in near
    hits = {hit["event_index"]: hit for hit in alone.data("search", "pool")["items"]}
    done = {kind: hits[index]["correction"] for kind, index in first.items()}
    assert {kind: (one["kind"], one["author"], one["words"]) for kind, one in done.items()} == {
        "findings": ("finding.retracted", "a", "It does,\nlate \x1b[2J"),
        "unknowns": ("unknown.resolved", "a", "The janitor"),
        "dead_ends": ("dead_end.retracted", "a", "it works"),
    }
    assert hits[shown["findings"][1]["event_index"]]["correction"] is None


def test_a_match_is_emphasised_where_there_are_colours(alone: Deed, monkeypatch: pytest.MonkeyPatch) -> None:
    alone("agent", "add", "a")
    emit_finding(alone, start_session(alone, "one"), "the Pool and a pool, 登录页")
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    said = alone("search", "pool 登录")
    for shown in ("Pool", "pool", "登录"):
        assert click.style(shown, bold=True) in said
    assert click.unstyle(said).endswith("the Pool and a pool, 登录页\n")


def test_nothing_found_is_an_empty_list(alone: Deed) -> None:
    assert alone("search", "nothing") == "(none)\n"
    assert alone.data("search", "nothing") == {"items": [], "total": 0, "next": None, "holds": "some"}


def test_any_form_is_found_and_where_nothing_holds_all_words_the_nearest_is_shown(alone: Deed) -> None:
    alone("agent", "add", "a")
    stream = start_session(alone, "one")
    emit_finding(alone, stream, "tokens never expire")
    emit_finding(alone, stream, "the glossary lacks terms")
    assert "tokens never expire" in alone("search", "expir")
    assert alone.data("search", "expiration", "--kind", "finding.logged", "--since", "yesterday")["holds"] == "all"
    assert alone.data("search", "expiration", "--kind", "session.started")["items"] == []
    said = alone("search", "expiry of the glossary terms")
    assert said.startswith("Nothing holds all of that. The nearest:\n")
    assert "finding.logged  near (0." in said
    assert alone("search", "zebra") == "Nothing holds all of that. Nothing is similar.\n"
    far = alone("search", "zebra glossary")
    assert far.startswith("Nothing holds all of that. These hold a word of it:\n")
    assert "far (0." in far
    assert far.count("finding.logged") == 1


def test_next_gives_the_command_that_goes_on(deed: Deed, fresh: Fresh) -> None:
    name = fresh("page")
    stream = start_session(deed, name)
    indexes = [emit_finding(deed, stream, f"{name} {number}")["index"] for number in "123"]
    said = deed.run("search", "--json", "--type", "session", "--type", "tot", "--limit", 2, "--", f'--{name} "{name}"')
    document = json.loads(said.out)
    assert f"--after {document['data']['next']}" in document["next"]
    assert "continue with: deed search" in deed("search", "--limit", 2, name)
    seen = document["data"]["items"]
    program, verb, *following = shlex.split(document["next"])
    rest = json.loads(deed.run(verb, "--json", *following).out)
    assert program == "deed"
    assert "next" not in rest
    assert [hit["event_index"] for hit in seen + rest["data"]["items"]] == indexes[::-1]


def test_a_question_that_cannot_be_asked_is_refused(deed: Deed) -> None:
    deed.refuses("INVALID_FIELD", "search", "?!")
    deed.refuses("INVALID_FIELD", "search", "")
    deed.refuses("UNKNOWN_KIND", "search", "x", "--kind", "finding.lost")
    deed.refuses("INVALID_FIELD", "search", "x", "--since", "nonsense")
    deed.refuses("INVALID_FIELD", "search", "x" * 10_241)
    deed.refuses("INVALID_FORMAT", "search", "not\udcff text")
    deed.refuses("USAGE", "search")
    deed.refuses("USAGE", "search", "x", "--type", "recipe")
    deed.refuses("USAGE", "search", "x", "--limit", 201)
    deed.refuses("USAGE", "search", "x", "--after", -1)
    deed.refuses("INTEGER_OUT_OF_RANGE", "search", "x", "--after", 2**53)


def test_views_verify_after_a_search(alone: Deed) -> None:
    alone("agent", "add", "a")
    emit_finding(alone, start_session(alone, "one"), "the pool leaks")
    assert alone.data("search", "pool")["total"] == 1
    assert alone.data("verify", "--views")["ok"]
    assert "search" in alone.data("project", "--view", "search", "--rebuild")["digests"]
    assert alone.data("search", "pool")["total"] == 1


@pytest.mark.parametrize("alias", ["find", "grep"])
def test_verbs_agents_guess_search(alone: Deed, alias: str) -> None:
    assert alone(alias, "nothing") == "(none)\n"


def test_a_search_without_a_ledger_says_so(nowhere: Deed) -> None:
    nowhere.refuses("NO_LEDGER", "search", "pool")


def test_bytes_that_are_no_text_are_refused_and_no_traceback(alone: Deed) -> None:
    said = call("--home", alone.home, "search", b"\xff\xfe".decode("utf-8", "surrogateescape"))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("INVALID_FORMAT: ")
