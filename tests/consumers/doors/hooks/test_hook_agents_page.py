"""The page for agents is short, stands wherever it is promised, and leads from nothing to a finished handoff."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from harness_place import Place

from consumers.doors.hooks.prime import agents_page

README = Path(__file__).parents[4] / "consumers" / "doors" / "README.md"
SAID = {"WORK": "Move the parser to the new grammar", "TEXT": "the old grammar takes tabs", "REVIEWER": "rita"}


def commands(part: str) -> list[str]:
    """Return the commands of one part of the page, in its order."""
    text = agents_page().split(f"\n{part}\n")[1] if part else agents_page().split("\nStart\n")[0]
    text = re.split(r"\n(?:Start|During|End)\n", text)[0]
    return [one for one in re.findall(r"`([^`]+)`", text) if one.startswith("baton ")]


def follow(place: Place, agent: str, command: str, **meant: str) -> str:
    """Run a command of the page as an agent, with what its capital words stand for."""
    words = [(SAID | meant).get(word, word) for word in shlex.split(command)[1:]]
    return place.baton(*words, BATON_AGENT=agent)


def test_the_page_has_under_300_tokens() -> None:
    bpe = pytest.importorskip("rs_bpe.bpe")
    assert bpe.openai.cl100k_base().count(agents_page()) < 300
    assert bpe.openai.o200k_base().count(agents_page()) < 300


def test_the_readme_has_the_page_word_for_word() -> None:
    found = re.search(r"<!-- agents-page -->\n(.*?)<!-- /?agents-page -->", README.read_text("utf-8"), re.DOTALL)
    assert found is not None, "README.md has no <!-- agents-page --> … <!-- /agents-page -->"
    assert found[1].strip() == agents_page().strip()


def test_an_empty_repository_comes_to_a_finished_handoff_by_the_page_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    init, add_agent, add_reviewer = commands("")
    follow(place, "", init)
    for name in ("ann", "ben"):
        follow(place, "", add_agent, NAME=name)
    follow(place, "", add_reviewer)

    _start(place, "ann", None)
    for command in commands("During"):
        if "handoff" not in command:
            follow(place, "ann", command, RID="first")
    report, *_, hand_on = commands("End")
    follow(place, "ann", report)
    follow(place, "ann", hand_on, NAME="ben")
    handoff = place.data("handoff", "list")["handoffs"][0]["id"]
    _let_reviewer_act(place)

    _start(place, "ben", handoff)
    for command in commands("During"):
        follow(place, "ben", command, ID=handoff, RID="second")
    for command in commands("End"):
        follow(place, "ben", command, ID=handoff, NAME="ann", WORK="Look through the new parser")
    _let_reviewer_act(place)

    assert place.data("handoff", "show", handoff)["status"] in {"completed", "verified"}
    back = [one for one in place.data("handoff", "list")["handoffs"] if one["id"] != handoff]
    assert [(one["from"], one["to"]) for one in back] == [("ben", "ann")]
    sessions = place.data("session", "list")["sessions"]
    assert {one["author"] for one in sessions} == {"ann", "ben"}
    assert place.data("report", "query")["total_found"] == 2
    assert place.baton("verify")


def _start(place: Place, agent: str, handoff: str | None) -> None:
    printed: dict[str, str] = {}
    for command in commands("Start"):
        if handoff is None and "ID" in command.split():
            continue
        printed[command] = follow(place, agent, command, ID=handoff or "")
    first = next(text for command, text in printed.items() if command.startswith("baton prime"))
    assert first.startswith(agents_page())
    if handoff is not None:
        assert f"baton handoff claim --as ben {handoff}" in first
        assert "the old grammar takes tabs" in first  # the dead end of the first agent


def _let_reviewer_act(place: Place) -> None:
    """The reviewer reads what waits and runs what `baton next` says, once for all; a terminal would show it and ask."""
    items: list[dict[str, Any]] = place.data("next", "--as", "rita")["items"]
    assert items
    for item in items:
        read = place.data("handoff", "show", item["id"])["version"]
        place.baton(*shlex.split(item["command"])[1:], "--version", read)
