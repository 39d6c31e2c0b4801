"""`deed key rotate`, `key compromised`, `agent remove`: for people and programs, killed on the way, over the bus."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from calling import Deed, Place

from deedbook.ledger.format.identity import read_key_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Fresh = Callable[[str], str]

# Runs the command line, and kills itself with the Nth rename of a key file.
KILLED = """
import os, signal, sys
from deedbook.consumers.interfaces.cli.program import run
left = int(sys.argv[1])
def kill(name, arguments):
    global left
    if name == "os.rename" and "/keys/" in str(arguments[1]):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill)
sys.exit(run(sys.argv[2:]))
"""


@pytest.fixture
def mine(populated: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> Deed:
    """Verbs on a ledger for this test alone, with agents a and b, ada the admin and rita the human reviewer."""
    return Deed(capsys, Place(populated("mine")))


@pytest.fixture
def descriptor() -> Iterator[Callable[[str], int]]:
    """Makes descriptors for ``--passphrase-fd``."""
    made: list[int] = []

    def make(text: str) -> int:
        read, write = os.pipe()
        os.write(write, text.encode() + b"\n")
        os.close(write)
        made.append(read)
        return read

    yield make
    for one in made:
        os.close(one)


def key_names(mine: Deed) -> list[str]:
    return sorted(path.name for path in (mine.home / "keys").iterdir())


def test_rotation_replaces_both_files_and_the_old_key_signs_nothing(mine: Deed) -> None:
    path = mine.home / "keys" / "a.key"
    old, old_bus = path.read_bytes(), (mine.home / "keys" / "a.nkey").read_bytes()
    before = key_names(mine)
    mine("key", "delegate", "--as", "a")
    rotated = mine.data("key", "rotate", "--as", "a", "--reason", "a year old")
    assert (rotated["signed_by"], rotated["key"]) == ("a", read_key_file(path).public)
    assert key_names(mine) == before  # the session key ended with the key that delegated it
    assert (mine.home / "keys" / "a.nkey").read_bytes() != old_bus
    mine("session", "start", "--as", "a", "--task", "t", "s1")
    new = path.read_bytes()
    path.write_bytes(old)
    refused = mine.refuses("KEY_REVOKED", "session", "start", "--as", "a", "--task", "t", "s2")
    assert f"was replaced at entry {rotated['index']}" in refused["message"]
    path.write_bytes(new)
    states = {one["key"]: one["state"] for one in mine.data("key", "list", "--agent", "a")["items"]}
    assert sorted(states.values()) == ["replaced", "replaced", "valid"]
    assert f"replaced at {rotated['index']} by a" in mine("key", "list")


def test_sealed_key_keeps_its_passphrase_and_a_wrong_one_leaves_nothing(
    mine: Deed, descriptor: Callable[[str], int]
) -> None:
    mine("agent", "add", "c", "--passphrase-fd", descriptor("hers alone"))
    before = key_names(mine)
    mine.refuses("KEY_LOCKED", "key", "rotate", "--as", "c")
    assert mine.run("key", "rotate", "--as", "c", "--passphrase-fd", descriptor("wrong")).code == 5
    assert key_names(mine) == before
    mine("key", "rotate", "--as", "c", "--passphrase-fd", descriptor("hers alone"))
    assert read_key_file(mine.home / "keys" / "c.key").sealed is not None
    mine("session", "start", "--as", "c", "--task", "t", "s1", "--passphrase-fd", descriptor("hers alone"))


@pytest.mark.parametrize("renamed", [1, 2, 3, 4])
def test_killed_rotation_leaves_a_key_that_signs_and_is_finished_by_whoever_signs_next(
    mine: Deed, renamed: int
) -> None:
    # Renames 1 and 2 put the new files beside the old ones; then the ledger accepts; 3 and 4 replace the old files.
    command = [sys.executable, "-c", KILLED, str(renamed), "--home", str(mine.home), "key", "rotate", "--as", "a"]
    killed = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    is_accepted = mine.data("log", "--kind", "key.rotated")["total"] == 1
    assert is_accepted == (renamed > 2)
    mine("session", "start", "--as", "a", "--task", "t", "s1")
    if is_accepted:
        assert not [name for name in key_names(mine) if name.endswith(".new")]
    mine("key", "rotate", "--as", "a")
    mine("session", "start", "--as", "a", "--task", "t", "s2")
    assert not [name for name in key_names(mine) if name.endswith(".new")]
    assert mine.data("verify")["problems"] == []


def test_killed_rotation_of_the_checkpoint_key_leaves_one_that_signs(mine: Deed) -> None:
    command = [sys.executable, "-c", KILLED, "2", "--home", str(mine.home), "key", "rotate", "--checkpoint"]
    killed = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    mine("checkpoint")
    mine("key", "rotate", "--checkpoint")
    assert not [name for name in key_names(mine) if name.endswith(".new")]
    mine("export", str(mine.home / "a.tar"))
    mine("verify", "--bundle", str(mine.home / "a.tar"))


def test_root_is_replaced_and_its_fingerprint_stays(mine: Deed) -> None:
    first = mine.data("verify")["root_fingerprint"]
    assert first in mine("key", "rotate", "--as", "root", "--unprotected")
    mine("agent", "add", "c")
    mine("key", "rotate", "--checkpoint")
    assert mine.data("verify", "--root", first)["trust"] == "anchored"
    mine.refuses("USAGE", "key", "rotate", "--checkpoint", "--as", "a")
    mine("key", "rotate", "--as", "a", "--unprotected")  # as before: without a passphrase


def test_agent_whose_key_was_replaced_since_is_compromised_in_both(mine: Deed) -> None:
    mine("session", "start", "--as", "a", "--task", "hers or the thief's", "s1")
    stolen = mine.data("log", "--limit", "500")["items"][0]["index"]
    mine("key", "rotate", "--as", "a")
    mine("session", "start", "--as", "a", "--task", "under the new key", "s2")
    said = mine.data("key", "compromised", "a", "--since", str(stolen), "--as", "a")
    keys = {one["key"]: one["compromised_since"] for one in mine.data("key", "list", "--agent", "a")["items"]}
    assert keys == {said["key"]: stolen, said["earlier"][0]: stolen}
    assert all(mine("session", "show", one).startswith("COMPROMISED SIGNATURE") for one in ("s1", "s2"))


def test_key_that_a_thief_replaced_twice_is_named(mine: Deed) -> None:
    (stolen,) = (row["key"] for row in mine.data("key", "list", "--agent", "root")["items"])
    since = mine.data("log", "--limit", "1")["items"][0]["index"] + 1
    mine("key", "rotate", "--as", "b", "--lost")  # by the thief of root's key, who has now the key of b
    mine("key", "rotate", "--as", "b")
    mine("key", "rotate", "--as", "root", "--unprotected")
    mine("agent", "add", "c")  # registered with root's new key
    introduced = mine.data("key", "compromised", stolen, "--since", str(since))["introduced"]
    (present,) = (row["key"] for row in mine.data("key", "list", "--agent", "b")["items"] if row["state"] == "valid")
    assert [row["agent"] for row in introduced] == ["b", "root"]
    assert introduced[0]["key"] == present


def test_answers_to_reviews_by_a_stolen_key_are_named(mine: Deed) -> None:
    question = '{"question": "May it be acted on?", "rule": "low_confidence"}'
    mine("emit", "review.requested", "--stream", "review/q", "--as", "a", "--data", question)
    mine("emit", "review.answered", "--stream", "review/q", "--as", "rita", "--data", '{"verdict": "approved"}')
    since = mine.data("log", "--limit", "1")["items"][0]["index"]
    answer = mine.data("key", "compromised", "rita", "--since", str(since))
    assert [row["what"] for row in answer["decisions"]] == ["the answer to the review q"]


@pytest.mark.served
def test_keys_are_rotated_locally_and_through_a_server(deed: Deed, fresh: Fresh) -> None:
    deed("key", "rotate", "--as", "b")
    deed("session", "start", "--as", "b", "--task", "t", fresh("rotated"))
    if deed.is_remote:  # as after a kill once the ledger has accepted: the server knows only the new bus key
        keys = deed.home / "keys"
        old = {name: (keys / name).read_bytes() for name in ("b.key", "b.nkey")}
        deed("key", "rotate", "--as", "b")
        for name, content in old.items():
            (keys / name).rename(keys / f"{name}.new")
            (keys / name).write_bytes(content)
            (keys / name).chmod(0o600)
        deed("session", "start", "--as", "b", "--task", "t", fresh("rotated"))
        assert not list(keys.glob("*.new"))


def test_audits_after_a_theft_say_what_can_be_done(mine: Deed) -> None:
    mine("session", "start", "s1", "--as", "a", "--task", "t")
    mine("key", "compromised", "a", "--since", mine.size() - 1, "--reason", "phished")
    for verb in ("verify", "fsck"):
        said = mine.run(verb)
        assert said.code == 6, said
        assert "look at each entry that `deed log` marks as COMPROMISED" in said.err
    assert mine("verify", "--accept", "SUSPECT_KEY")


def test_new_passphrases_have_eight_characters_and_surplus_lines_are_refused(
    mine: Deed, descriptor: Callable[[str], int]
) -> None:
    before = mine.size()
    said = mine.run("agent", "add", "c", "--passphrase-fd", descriptor("a"))
    assert said.err.startswith("USAGE: a new passphrase has at least 8 characters, not 1"), said
    mine("agent", "add", "c", "--passphrase-fd", descriptor("hers alone"))
    said = mine.run("key", "rotate", "--as", "c", "--passphrase-fd", descriptor("hers alone\nanother one"))
    assert said.err.startswith("USAGE: --passphrase-fd has a line too many"), said
    assert "deed key rotate --as c --lost" in said.err
    assert mine.size() == before + 1


def test_reports_of_stolen_keys_check_names_and_the_first_entry(mine: Deed) -> None:
    error = mine.refuses("NOT_FOUND", "key", "compromised", "roott", "--since", 0)
    assert error["message"].endswith("did you mean root?")
    error = mine.refuses("NOT_FOUND", "key", "compromised", "a", "--since", 9999)
    assert error["message"] == f"there is no entry 9999: the last one is {mine.size() - 1}"


def test_entries_and_texts_are_redacted_and_subjects_erased(mine: Deed) -> None:
    erased = mine.refuses("SUBJECT_KEY_MISSING", "erase", 1, "--reason", "r", "--yes", "--as", "root")
    assert erased["message"].endswith("the text of an entry goes with `deed redact 1`")
    assert "--containing -" in mine.refuses("USAGE", "redact", "the secret text", "--reason", "r")["message"]
    assert mine.refuses("NOT_FOUND", "show", 99)["message"].endswith(f"the entries 0 to {mine.size() - 1}")
