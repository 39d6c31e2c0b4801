"""`deed VERB --bundle FILE`: an auditor who has only the file, or the folder that it unpacks to, reads it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from building import trusted
from bundles import members, unpacked
from calling import Deed, Place
from inside import deed as deed_at

if TYPE_CHECKING:
    from collections.abc import Callable

READING = (
    "log",
    "log --kind handoff.approved",
    "show 7",
    "why handoff/bus",
    "handoff show bus",
    "handoff show bus --history",
    "handoff why bus",
    "handoff list",
    "next --all",
    "reasoning show why-bus",
    "reasoning list",
    "session list",
    "review list",
    "agent list",
    "key list",
    "search NATS",
)


@pytest.fixture(scope="module")
def home(populated: Callable[[str], Path]) -> Path:
    """A ledger with a reasoning, an approved handoff that cites it and waits for its check, and one never approved."""
    home = populated("exported")

    def deed(*words: str) -> None:
        said = deed_at("--home", home, *words)
        assert said.code == 0, said

    deed("reasoning", "start", "why-bus", "--as", "a", "--task", "Which bus?")
    deed("reasoning", "step", "why-bus", "NATS is there", "--as", "a", "--type", "observation")
    deed("reasoning", "conclude", "why-bus", "--as", "a", "Use NATS")
    created = ("--to", "b", "--reviewer", "rita", "--as", "a")
    deed("handoff", "create", "bus", "--title", "Event bus", "--reasoning", "why-bus", *created)
    version = deed_at("--home", home, "handoff", "show", "bus", "--version").out.strip()
    deed("handoff", "approve", "bus", "--version", version, "--as", "rita")
    deed("handoff", "claim", "bus", "--as", "b")
    deed("handoff", "complete", "bus", "--summary", "done", "--as", "b")
    deed("handoff", "create", "never", "--title", "Never approved", *created)
    deed("session", "start", "s", "--task", "Look around", "--as", "b")
    return home


@pytest.fixture(scope="module")
def whole(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of that ledger."""
    path = tmp_path_factory.mktemp("whole") / "all.tar"
    assert deed_at("--home", home, "export", path).code == 0
    return path


@pytest.fixture(scope="module")
def part(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of its approved handoff alone."""
    path = tmp_path_factory.mktemp("part") / "bus.tar"
    assert deed_at("--home", home, "export", path, "--stream", "handoff/bus").code == 0
    return path


def without_source(value: Any) -> Any:
    """Return an answer without the fields that depend on its source or that only the ledger's folder has."""
    if isinstance(value, dict):
        left_out = {"as_of", "gate", "next", "command"}
        return {name: without_source(part) for name, part in value.items() if name not in left_out}
    return [without_source(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("verb", READING)
def test_a_bundle_answers_as_its_ledger(
    nowhere: Deed, home: Path, whole: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    ledger = Deed(capsys, Place(home))
    read = nowhere.document(*verb.split(), "--bundle", whole)
    assert without_source(read["data"]) == without_source(ledger.data(*verb.split()))
    assert (read["bundle"]["outcome"], read["bundle"]["ok"]) == ("VALID", True)
    assert nowhere(*verb.split(), "--bundle", whole)


def test_bundle_in_a_file_that_seems_to_be_something_else_is_said_to_be_one(alone: Deed, tmp_path: Path) -> None:
    said = alone.run("export", tmp_path / "notes.md").err
    assert f"warning: {tmp_path / 'notes.md'} is a tar archive, whatever its name says" in said
    assert "warning" not in alone.run("export", tmp_path / "log.tar").err


def test_an_unpacked_bundle_is_read_too(nowhere: Deed, whole: Path, tmp_path: Path) -> None:
    folder = unpacked(whole, tmp_path / "unpacked")
    assert nowhere("handoff", "why", "bus", "--bundle", folder) == nowhere("handoff", "why", "bus", "--bundle", whole)


def test_the_verdict_comes_before_the_answer(nowhere: Deed, whole: Path) -> None:
    said = nowhere.run("handoff", "why", "bus", "--bundle", whole)
    assert said.err.startswith(f"{whole}: VALID: ")
    assert "self-asserted" in said.err
    assert "bus is completed" in said.out


def test_nothing_is_left_behind(nowhere: Deed, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "TMPDIR", "XDG_STATE_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    nowhere("handoff", "show", "bus", "--bundle", whole)
    left = {path for name in ("HOME", "TMPDIR", "XDG_STATE_HOME", "empty") for path in (tmp_path / name).rglob("*")}
    assert not left


def test_a_bundle_of_one_stream_says_what_it_lacks(nowhere: Deed, part: Path) -> None:
    said = nowhere.run("handoff", "show", "bus", "--bundle", part)
    assert said.code == 0
    assert "of the 14 entries of the log: handoff/bus, agents and keys" in said.err
    assert "Event bus" in said.out
    assert nowhere.document("log", "--bundle", part)["bundle"]["left_out"] in said.err
    assert "not in this ledger" in nowhere("why", "handoff/bus", "--bundle", part)
    absent = nowhere.refuses_programs("NOT_FOUND", "show", 5, "--bundle", part)
    assert "is not in this bundle, which has handoff/bus" in absent["message"]
    nowhere.refuses_programs("NOT_FOUND", "handoff", "show", "never", "--bundle", part)


def test_a_bundle_shows_an_earlier_state(nowhere: Deed, whole: Path, part: Path) -> None:
    created = nowhere.data("log", "--kind", "handoff.created", "--bundle", whole)["items"][-1]["index"]
    then = nowhere.data("handoff", "show", "bus", "--bundle", whole, "--as-of", created)
    assert then["status"] == "pending"
    nowhere.refuses_programs("USAGE", "handoff", "show", "bus", "--bundle", part, "--as-of", created)


def test_a_wrong_bundle_is_not_shown(nowhere: Deed, whole: Path, tmp_path: Path) -> None:
    wrong = shutil.copy(whole, tmp_path / "wrong.tar")
    offset, _ = next(place for name, place in members(whole).items() if name.startswith("tile/entries/"))
    content = bytearray(Path(wrong).read_bytes())
    content[offset + 200] ^= 1
    Path(wrong).write_bytes(content)
    refused = nowhere.refuses("VERIFICATION_FAILED", "log", "--bundle", wrong)
    assert refused["details"]["outcome"] == "INVALID"
    assert "It is not shown" in refused["message"]


def test_a_partial_bundle_is_shown_with_its_verdict(nowhere: Deed, part: Path, tmp_path: Path) -> None:
    folder = unpacked(part, tmp_path / "unpacked")
    lost = max(folder.glob("entries/*.entry"))
    lost.unlink()
    said = nowhere.run("handoff", "show", "bus", "--bundle", folder)
    assert said.code == 0
    assert f"{folder}: PARTIAL: " in said.err
    assert lost.name in said.err
    assert "[in_progress → b]" in said.out
    document = nowhere.document("handoff", "show", "bus", "--bundle", folder)
    assert (document["bundle"]["outcome"], document["bundle"]["ok"]) == ("PARTIAL", False)
    assert any(lost.name in missing for missing in document["bundle"]["missing"])


def test_a_compromised_key_is_said_first(
    nowhere: Deed, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Deed(capsys, Place(trusted(shutil.copytree(home, tmp_path / ".deedbook"))))
    approved = ledger.data("log", "--kind", "handoff.approved")["items"][0]
    ledger("key", "compromised", approved["key"], "--since", approved["index"], "--as", "root")
    ledger("export", tmp_path / "suspect.tar")
    said = nowhere.run("handoff", "show", "bus", "--bundle", tmp_path / "suspect.tar")
    assert "SUSPECT_KEY" in said.err.splitlines()[0]
    assert nowhere.document("log", "--bundle", tmp_path / "suspect.tar")["bundle"]["outcome"] == "SUSPECT_KEY"


@pytest.mark.parametrize("verb", ["handoff claim bus", "session start", "export out.tar", "log --follow", "doctor"])
def test_a_verb_that_needs_a_ledger_refuses_a_bundle(nowhere: Deed, whole: Path, verb: str) -> None:
    assert "a bundle can only be read" in nowhere.refuses("USAGE", *verb.split(), "--bundle", whole)["message"]


def test_a_file_that_is_no_bundle_is_refused(nowhere: Deed, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    nowhere.refuses("INVALID_FORMAT", "log", "--bundle", tmp_path / "text")
    nowhere.refuses("INVALID_FORMAT", "log", "--bundle", tmp_path)
    nowhere.refuses("NOT_FOUND", "log", "--bundle", tmp_path / "none")


def test_help_names_the_option_where_it_is_taken(nowhere: Deed) -> None:
    for words, is_taken in ((("handoff", "claim"), False), (("handoff", "show"), True), (("verify",), True)):
        assert ("--bundle" in nowhere.run(*words, "--help").out) == is_taken
