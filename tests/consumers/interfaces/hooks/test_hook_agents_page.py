"""The page for agents is short, is in every promised location, and leads from nothing to a finished handoff."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from harness_place import Place

from deedbook.consumers.interfaces.hooks.page import agents_page

README = Path(__file__).parents[4] / "consumers" / "interfaces" / "README.md"
SAID = {"WORK": "Move the parser to the new grammar", "TEXT": "done", "NAME": "ben", "REVIEWER": "rita", "ID": "expire"}
HEREDOC = re.compile(r"- <<'END'\n(.*?)\nEND\n", re.DOTALL)


def inline(part: str) -> list[str]:
    """Return the commands in the lines of the page that begin with a text."""
    lines = [line for line in agents_page().split("\n") if line.startswith(part)]
    return [one for line in lines for one in re.findall(r"`(deed [^`]+)`", line)]


def example(number: int, place: Place) -> list[list[str]]:
    """Return the words of each command of a worked example, as a shell reads them; its standard input is a file."""
    block: str = re.findall(r"```sh\n(.*?)```", agents_page(), re.DOTALL)[number]
    for count, text in enumerate(HEREDOC.findall(block)):
        (place.project / f"file{count}").write_text(re.sub(r"REVIEWER|NAME", lambda word: SAID[word[0]], text) + "\n")
        block = HEREDOC.sub(f"file{count}\n", block, count=1)
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]


def follow(place: Place, agent: str, command: str | list[str], **meant: str) -> str:
    """Run a command of the page as an agent, with its capital words replaced by ``meant``."""
    words = shlex.split(command) if isinstance(command, str) else command
    return place.deed(*((SAID | meant).get(word, word) for word in words[1:]), DEEDBOOK_AGENT=agent)


def test_the_page_has_at_most_450_tokens() -> None:
    """The page has a worked example of 150 tokens: in a trial without it, agents called help in 17 of 70 calls."""
    bpe = pytest.importorskip("rs_bpe.bpe")
    assert bpe.openai.cl100k_base().count(agents_page()) <= 450
    assert bpe.openai.o200k_base().count(agents_page()) <= 450


def test_the_readme_has_the_page_word_for_word() -> None:
    found = re.search(r"<!-- agents-page -->\n(.*?)<!-- /?agents-page -->", README.read_text("utf-8"), re.DOTALL)
    assert found is not None, "README.md has no <!-- agents-page --> … <!-- /agents-page -->"
    assert found[1].strip() == agents_page().strip()


def test_an_empty_repository_comes_to_a_finished_handoff_by_the_page_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.project / "src").mkdir()
    (place.project / "src" / "auth.py").write_text(
        "TTL = 3600\nCACHE = {}\n\n\ndef check(token):\n    entry = CACHE\n    return entry\n"
    )
    place.run("git", "init", "-q", ".")
    (init,) = inline("Set DEEDBOOK_AGENT")
    follow(place, "", f"{init} --unprotected --name rita")  # a person is asked for a passphrase and a name instead
    for name in ("ann", "ben"):
        place.deed("agent", "add", name)
    for command in inline("Begin"):
        follow(place, "ann", command)
    for words in example(0, place):
        printed = follow(place, "ann", words)
        assert "warning" not in printed, printed
    _let_reviewer_act(place)

    (next_,) = [one for one in inline("Continue") if one == "deed next"]
    assert "deed handoff claim --as ben expire" in follow(place, "ben", next_)
    shown = follow(place, "ben", inline("Continue")[1]) + follow(place, "ben", example(1, place)[0])
    for told in (
        "tested by: python -m unittest",
        "found: TTL is never read (src/auth.py:1:TTL)",
        "trap: tests stop the clock",
        "tried: Clear CACHE hourly: one per worker",
        "not known: Who fills CACHE?",
        "CONCLUSION: Compare age and TTL",
    ):
        assert told in shown
    for words in example(1, place)[1:]:
        printed = follow(place, "ben", words)
    assert "criterion 2 is open" in printed
    (waiver,) = place.data("next", "--as", "rita")["items"]
    place.deed(*shlex.split(waiver["command"])[1:])
    (complete,) = inline("All met")
    follow(place, "ben", complete)
    _let_reviewer_act(place)
    handoff = place.data("handoff", "show", "expire")
    assert (handoff["status"], [task["done"] for task in handoff["tasks"]]) == ("verified", [True])

    assert place.data("report", "query")["total_found"] == 1
    assert place.deed("verify")


def test_prime_names_the_page_until_a_harness_has_it_and_never_tells_it_again(tmp_path: Path) -> None:
    place = Place(tmp_path).with_ledger("ann")
    told = place.deed("prime", "--as", "ann")
    assert told.startswith("`deed prime --page` prints how to work with Deedbook; `deed setup ")
    assert place.deed("prime", "--page") == agents_page()
    (place.project / "AGENTS.md").write_text(f"# Ours\n\n{agents_page()}")
    assert "deed prime --page" not in place.deed("prime", "--as", "ann")


def _let_reviewer_act(place: Place) -> None:
    """Let the reviewer read the waiting items, and run the command at the end of each."""
    items: list[dict[str, Any]] = place.data("next", "--as", "rita")["items"]
    assert items
    for item in items:
        shown = place.deed(*shlex.split(item["command"])[1:])
        place.deed(*shlex.split(shown.splitlines()[-1].removeprefix("next: "))[1:])
