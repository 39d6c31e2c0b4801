"""`deed backup` and `restore`: a backup has every acknowledged event, and an unverified one is never put in place."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest
from building import refs_of
from bundles import unpacked
from calling import (
    Deed,
    Place,
    Running,
    Serving,
    call,
    emit_finding,
    environment,
    start_session,
    wait_until,
    with_passphrase,
)
from faults import times

from deedbook import Ledger
from deedbook.ledger.bundle import Bundle
from deedbook.ledger.bundle.archive import ending, header, padding
from deedbook.ledger.bundle.layout import member_names
from deedbook.ledger.client.author import Author
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.log.log import Log


@pytest.fixture
def full(alone: Deed) -> Deed:
    """A ledger with agent a, a session with a finding whose evidence is a blob, and settings."""
    alone("agent", "add", "a")
    stream = start_session(alone, "s")
    with LocalClient(Settings(home=alone.home)) as client:
        author = Author(client, "a", lambda _: open_key(Home(alone.home).key_file("a")))
        ref = author.put_blob(b"what the finding rests on" * 5000)
    finding = json.dumps({"finding": "it is so", "evidence": [ref]})
    alone("emit", "finding.logged", "--stream", stream, "--as", "a", "--data", finding)
    (alone.home / "config.toml").write_text('default_reviewer = "rita"\n')
    return alone


@pytest.fixture
def elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Deed:
    """Verbs on a folder that has no ledger yet."""
    return Deed(capsys, Place(tmp_path / "elsewhere" / ".deedbook"))


def head(home: Path) -> tuple[int, str]:
    """Return the size and root of the log in its folder."""
    with Log(home) as log, log.snapshot() as snapshot:
        return snapshot.size, snapshot.root().hex()


def test_backup_under_load_holds_all_that_was_acknowledged_before_it(
    full: Deed, elsewhere: Deed, tmp_path: Path
) -> None:
    acknowledged: list[str] = []
    is_done = threading.Event()

    def write(agent: str, place: Place) -> None:
        with Ledger("a", home=place.home, server=place.server) as ledger:
            while not is_done.wait(0.02):
                finding = f"{agent} {len(acknowledged)}"
                ledger.session("s").finding(finding)
                acknowledged.append(finding)

    with Serving(full.home) as serving:
        writers = [threading.Thread(target=write, args=(name, serving.place)) for name in "xy"]
        for writer in writers:
            writer.start()
        try:
            wait_until(lambda: len(acknowledged) >= 4, "writers write")
            before = list(acknowledged)
            said = call("--home", full.home, "backup", tmp_path / "ledger.tar", "--json")
        finally:
            is_done.set()
            for writer in writers:
                writer.join()
    assert said.code == 0, said
    restored = elsewhere.data("restore", tmp_path / "ledger.tar")
    answer = json.loads(said.out)["data"]
    assert (restored["size"], restored["tree_head"]) == (answer["size"], answer["tree_head"]) == head(elsewhere.home)
    assert elsewhere("verify", "--views").startswith("VALID: ")
    with Log(elsewhere.home) as log, log.snapshot() as snapshot:
        bodies = b"".join(snapshot.entries(0, limit=10**6, size_max_bytes=2**30))
    assert len(before) >= 4
    assert all(json.dumps(finding).encode() in bodies for finding in before)


def test_restored_ledger_has_blobs_and_settings_and_is_only_its_owners(
    full: Deed, elsewhere: Deed, tmp_path: Path
) -> None:
    made = full.data("backup", tmp_path / "ledger.tar")
    assert (made["blobs"], made["files"]) == (1, ["config.toml"])
    assert (tmp_path / "ledger.tar").stat().st_mode & 0o777 == 0o600
    assert full("verify", "--bundle", tmp_path / "ledger.tar").startswith("VALID: ")
    answer = elsewhere.data("restore", tmp_path / "ledger.tar")
    assert answer["files"] == ["config.toml"]
    assert (elsewhere.home / "config.toml").read_bytes() == (full.home / "config.toml").read_bytes()
    assert elsewhere("fsck").startswith("VALID: ")
    with LocalClient(Settings(home=full.home)) as before, LocalClient(Settings(home=elsewhere.home)) as after:
        assert set(refs_of(after.log.blobs)) == set(refs_of(before.log.blobs)) != set()
        (ref,) = refs_of(after.log.blobs)
        assert after.get_blob(ref) == before.get_blob(ref)
    assert elsewhere.home.stat().st_mode & 0o777 == 0o700
    assert not elsewhere.home.joinpath("keys").exists()
    assert sorted(path.name for path in elsewhere.home.iterdir() if path.name.startswith(".deedbook")) == []


def test_restore_into_a_named_folder_names_it_in_the_next_command(full: Deed, tmp_path: Path) -> None:
    full("backup", tmp_path / "ledger.tar")
    said = full("restore", tmp_path / "ledger.tar", "--home", tmp_path / "a rehearsal")
    assert said.splitlines()[-1] == f"Next: deed --home '{tmp_path / 'a rehearsal'}' verify --views"


def test_restored_settings_that_act_wait_for_trust_and_the_next_command_says_so(
    full: Deed, elsewhere: Deed, tmp_path: Path
) -> None:
    (full.home / "config.toml").write_text('nats_server = "tools/nats-server"\n')
    full("backup", tmp_path / "ledger.tar")
    restored = elsewhere.document("restore", tmp_path / "ledger.tar")
    assert restored["next"] == "deed trust"
    beside, waits, no_keys = restored["data"]["notes"]
    assert f"{full.home} holds this ledger, too: write to only one of the two" in beside
    assert "no keys are here" in no_keys
    assert "waits until you trust" in waits


def test_backup_says_how_many_blobs_it_leaves_out(full: Deed, tmp_path: Path) -> None:
    assert full.data("backup", tmp_path / "ledger.tar")["blobs_left_out"] == 0
    (tmp_path / "blob").write_bytes(b"nobody refers to it")
    full("blob", "put", tmp_path / "blob", "--as", "a")
    assert "no event refers to them: 1 blobs" in full("backup", tmp_path / "ledger.tar")


def test_program_in_a_backup_verifies_it_without_us(full: Deed, tmp_path: Path) -> None:
    full("backup", tmp_path / "ledger.tar")
    unpacked(tmp_path / "ledger.tar", tmp_path / "unpacked")
    command = [sys.executable, "verify.py", "."]
    said = subprocess.run(command, cwd=tmp_path / "unpacked", capture_output=True, text=True, check=False)
    assert said.returncode == 0, said
    (tmp_path / "unpacked" / "home" / "config.toml").write_text("nats_server = 'x'\n")
    said = subprocess.run(command, cwd=tmp_path / "unpacked", capture_output=True, text=True, check=False)
    assert said.returncode != 0


def test_keys_travel_only_under_a_passphrase_of_the_backup(full: Deed, elsewhere: Deed, tmp_path: Path) -> None:
    assert "root.key" in full.refuses("KEY_LOCKED", "backup", "--keys", tmp_path / "ledger.tar")["message"]
    assert not (tmp_path / "ledger.tar").exists()
    with_passphrase("open sesame", full, "backup", "--keys", tmp_path / "ledger.tar")
    seeds = [json.loads(path.read_bytes())["seed"] for path in full.home.glob("keys/*.key")]
    content = (tmp_path / "ledger.tar").read_bytes()
    assert not any(seed.encode() in content for seed in seeds)
    said = with_passphrase("wrong", elsewhere.run, "restore", tmp_path / "ledger.tar")
    assert said.err.startswith("KEY_LOCKED: ")
    assert not elsewhere.home.exists()
    without = elsewhere.document("restore", tmp_path / "ledger.tar")
    again = f"deed restore --replace {tmp_path / 'ledger.tar'} --home {elsewhere.home} --passphrase-fd"
    assert f"`{again} 3 3<FILE` adds those that are missing here" in without["data"]["notes"][-1]
    missing = elsewhere.refuses("KEY_FILE_MISSING", "session", "start", "s9", "--task", "t", "--as", "a")
    assert "from a backup that was made with --keys" in missing["message"]
    refused = with_passphrase("open sesame", elsewhere.run, "restore", tmp_path / "ledger.tar")
    assert refused.err.startswith("LEDGER_EXISTS: ")
    assert re.search(re.escape(again) + r" (\d+) \1<FILE`", refused.err)
    with_passphrase("open sesame", elsewhere, "restore", "--replace", tmp_path / "ledger.tar")
    for path in full.home.glob("keys/*.*key"):
        assert (elsewhere.home / "keys" / path.name).read_bytes() == path.read_bytes()
        assert (elsewhere.home / "keys" / path.name).stat().st_mode & 0o777 == 0o600
    emit_finding(elsewhere, "session/s")


def test_folder_of_backups_keeps_each_and_restores_the_newest(full: Deed, elsewhere: Deed, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    elsewhere.refuses("NOT_FOUND", "restore", folder)
    full("backup", folder)
    emit_finding(full, "session/s")
    full("backup", folder)
    assert len(list(folder.iterdir())) == 2
    assert elsewhere.data("restore", folder)["size"] == full.size()


def test_export_of_a_whole_log_can_be_restored_and_one_of_a_stream_cannot(
    full: Deed, elsewhere: Deed, tmp_path: Path
) -> None:
    full("export", tmp_path / "log.tar")
    full("export", tmp_path / "stream.tar", "--stream", "session/s")
    assert "alone" in elsewhere.refuses("INVALID_FORMAT", "restore", tmp_path / "stream.tar")["message"]
    elsewhere("restore", tmp_path / "log.tar")
    assert head(elsewhere.home) == head(full.home)


def test_restore_over_a_ledger_is_refused_unless_it_is_the_same_and_meant(full: Deed, tmp_path: Path) -> None:
    full("backup", tmp_path / "ledger.tar")
    old = head(full.home)
    emit_finding(full, "session/s")
    present = head(full.home)
    message = full.refuses("LEDGER_EXISTS", "restore", tmp_path / "ledger.tar")["message"]
    assert "without the last entry of this log" in message
    assert old[1] in message
    with Serving(full.home):
        full.refuses("STORE_IN_USE", "restore", tmp_path / "ledger.tar", "--replace")
    with Running("--home", full.home, "log", "--follow", "--json") as follower:
        follower.line()
        full.refuses("STORE_IN_USE", "restore", tmp_path / "ledger.tar", "--replace")
    present = head(full.home)
    deed, *printed = shlex.split(message.split("`")[1])  # the command as it is printed
    assert (deed, printed[:2]) == ("deed", ["restore", "--replace"])
    answer = full.data(*printed)
    assert head(full.home) == old
    assert answer["present_size"] == present[0]
    assert head(Path(answer["replaced"])) == present
    assert answer["notes"][0].startswith("the log stream holds ")
    full.refuses("HISTORY_CHANGED", "session", "list")
    full("recover", "--from-stream")
    assert head(full.home) == present
    assert full("verify", "--views").startswith("VALID: ")


def test_backup_of_another_ledger_replaces_nothing(full: Deed, elsewhere: Deed, tmp_path: Path) -> None:
    full("backup", tmp_path / "ledger.tar")
    elsewhere("init", "--unprotected")
    before = head(elsewhere.home)
    for more in ([], ["--replace"]):
        elsewhere.refuses("WRONG_LEDGER", "restore", tmp_path / "ledger.tar", *more)
    assert head(elsewhere.home) == before
    shutil.rmtree(elsewhere.home)
    elsewhere.refuses("WRONG_LEDGER", "restore", tmp_path / "ledger.tar", "--root", "ab" * 32)
    assert not elsewhere.home.exists()


def test_damaged_log_is_replaced_by_a_backup_of_its_own_ledger(full: Deed, tmp_path: Path) -> None:
    full("backup", tmp_path / "ledger.tar")
    before = head(full.home)
    (full.home / "log" / "data.mdb").write_bytes(b"\xff" * 16384)
    assert "a damaged log" in full.refuses("LEDGER_EXISTS", "restore", tmp_path / "ledger.tar")["message"]
    full("restore", tmp_path / "ledger.tar", "--replace")
    assert head(full.home) == before


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.999])
def test_backup_cut_short_leaves_nothing(full: Deed, elsewhere: Deed, tmp_path: Path, part: float) -> None:
    full("backup", tmp_path / "ledger.tar")
    content = (tmp_path / "ledger.tar").read_bytes()
    (tmp_path / "ledger.tar").write_bytes(content[: int(len(content) * part)])
    said = elsewhere.run("restore", tmp_path / "ledger.tar")
    assert said.code in {2, 6}, said
    assert not elsewhere.home.exists()


def test_flipped_byte_is_refused_or_of_no_account(full: Deed, elsewhere: Deed, tmp_path: Path) -> None:
    """Damage is refused, unless restore does not use that part: the second copy of a hash, or the program."""
    full("backup", tmp_path / "ledger.tar")
    content = (tmp_path / "ledger.tar").read_bytes()
    chance = random.Random(os.environ.get("DEEDBOOK_SEED"))
    refused = 0
    for _ in range(times(12, 40)):
        at = chance.randrange(len(content))
        (tmp_path / "ledger.tar").write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        said = elsewhere.run("restore", tmp_path / "ledger.tar")
        if said.code == 0:
            assert head(elsewhere.home) == head(full.home)
            assert (elsewhere.home / "config.toml").read_bytes() == (full.home / "config.toml").read_bytes()
            shutil.rmtree(elsewhere.home)
        else:
            assert said.code in {2, 6}, said
            assert not elsewhere.home.exists()
            refused += 1
    assert refused > 0


def test_entries_under_another_checkpoint_of_the_same_ledger_are_refused(
    full: Deed, elsewhere: Deed, tmp_path: Path
) -> None:
    full("backup", tmp_path / "old.tar")
    emit_finding(full, "session/s")
    full("backup", tmp_path / "new.tar")
    with Bundle(tmp_path / "old.tar") as old, Bundle(tmp_path / "new.tar") as new:
        forged = b""
        for name in member_names(old.manifest):
            content = (new if name == "checkpoint" else old).read(name)
            forged += header(name, len(content)) + content + padding(len(content))
    (tmp_path / "forged.tar").write_bytes(forged + ending(len(forged)))
    elsewhere.refuses("VERIFICATION_FAILED", "restore", tmp_path / "forged.tar")
    assert not elsewhere.home.exists()


@pytest.mark.parametrize("kind", ["traversal", "symlink", "device", "surplus"])
def test_hostile_archive_is_refused_and_touches_nothing(full: Deed, elsewhere: Deed, tmp_path: Path, kind: str) -> None:
    full("backup", tmp_path / "ledger.tar")
    hostile = tarfile.TarInfo({"traversal": "../out", "surplus": "home/authorized_keys"}.get(kind, "home/config.toml"))
    if kind == "symlink":
        hostile.type, hostile.linkname = tarfile.SYMTYPE, str(tmp_path / "out")
    elif kind == "device":
        hostile.type = tarfile.CHRTYPE
    out = io.BytesIO()
    with tarfile.open(tmp_path / "ledger.tar") as given, tarfile.open(fileobj=out, mode="w") as made:
        for member in given:
            if member.name == "home/config.toml":
                made.addfile(hostile)
            if member.name != hostile.name:
                made.addfile(member, given.extractfile(member))
    (tmp_path / "ledger.tar").write_bytes(out.getvalue())
    assert elsewhere.run("restore", tmp_path / "ledger.tar").code in {2, 6}
    assert not elsewhere.home.exists()
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "elsewhere" / "out").exists()


def test_pipe_in_the_place_of_a_backup_is_refused_at_once(elsewhere: Deed, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ledger.tar")
    elsewhere.refuses("INVALID_FORMAT", "restore", tmp_path / "ledger.tar")
    assert not elsewhere.home.exists()


def test_pipe_in_the_place_of_settings_holds_up_neither_backup_nor_restore(full: Deed, tmp_path: Path) -> None:
    chains = full.home / "chains.toml"
    chains.write_text("# none\n")
    full("backup", tmp_path / "ledger.tar")
    chains.unlink()
    os.mkfifo(chains)
    full.refuses("INVALID_FORMAT", "backup", tmp_path / "other.tar")
    assert "left as they were: chains.toml" in full("restore", tmp_path / "ledger.tar", "--replace")


def test_full_disk_leaves_no_half_backup(full: Deed, tmp_path: Path) -> None:
    full("backup", tmp_path / "ledger.tar")
    before = (tmp_path / "ledger.tar").read_bytes()
    program = f'ulimit -f 40; exec "{sys.executable}" -m deedbook "$@"'
    verb = ["--home", str(full.home), "backup", str(tmp_path / "ledger.tar")]
    said = subprocess.run(
        ["bash", "-c", program, "deed", *verb], env=environment(), capture_output=True, text=True, check=False
    )
    assert said.returncode == 7, said
    assert any(line.startswith("STORE_UNAVAILABLE:") for line in said.stderr.splitlines()), said  # after the progress
    assert (tmp_path / "ledger.tar").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["ledger.tar"]


def test_backup_and_restore_that_are_killed_leave_the_old_or_the_new(
    full: Deed, elsewhere: Deed, tmp_path: Path
) -> None:
    chance = random.Random(os.environ.get("DEEDBOOK_SEED"))
    full("backup", tmp_path / "ledger.tar")
    old = head(full.home)
    for number in range(30):
        emit_finding(full, "session/s", str(number))
    sizes = {old[0], full.size()}
    for _ in range(times(1, 4)):
        with Running("--home", full.home, "backup", tmp_path / "ledger.tar") as running:
            time.sleep(chance.uniform(0, 0.6))
            running.signal(9)
        shutil.rmtree(elsewhere.home, ignore_errors=True)
        assert elsewhere.data("restore", tmp_path / "ledger.tar")["size"] in sizes
        shutil.rmtree(elsewhere.home)
        with Running("--home", elsewhere.home, "restore", tmp_path / "ledger.tar") as running:
            time.sleep(chance.uniform(0, 0.6))
            running.signal(9)
        if not Home(elsewhere.home).is_local():
            elsewhere("restore", tmp_path / "ledger.tar")
        assert elsewhere("verify", "--views").startswith("VALID: ")
        full("backup", tmp_path / "ledger.tar")
        for leftover in tmp_path.glob(".deedbook-*"):
            leftover.unlink()


@pytest.mark.parametrize("verb", ["backup", "export"])
def test_file_of_something_else_is_not_replaced(full: Deed, tmp_path: Path, verb: str) -> None:
    (tmp_path / "x.txt").write_text("precious")
    error = full.refuses("FILE_EXISTS", verb, tmp_path / "x.txt")
    assert error["message"].endswith("x.txt exists and is no backup of this ledger: name another file, or a folder")
    assert (tmp_path / "x.txt").read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["x.txt"]


def test_backup_replaces_only_an_earlier_one_of_the_same_ledger(full: Deed, elsewhere: Deed, tmp_path: Path) -> None:
    full("backup", tmp_path / "ledger.tar")
    emit_finding(full, "session/s")
    full("backup", tmp_path / "ledger.tar")
    newer = (tmp_path / "ledger.tar").read_bytes()
    assert (
        "new file lacks"
        in full.refuses("FILE_EXISTS", "export", "--stream", "session/s", tmp_path / "ledger.tar")["message"]
    )
    elsewhere("init", "--unprotected")
    assert "of this ledger" in elsewhere.refuses("FILE_EXISTS", "backup", tmp_path / "ledger.tar")["message"]
    assert (tmp_path / "ledger.tar").read_bytes() == newer


def test_backup_without_keys_does_not_replace_one_with_keys(full: Deed, tmp_path: Path) -> None:
    with_passphrase("open sesame", full, "backup", "--keys", tmp_path / "ledger.tar")
    assert (
        "keys.sealed, which the new file lacks"
        in full.refuses("FILE_EXISTS", "backup", tmp_path / "ledger.tar")["message"]
    )


def test_backup_does_not_replace_one_of_another_history(full: Deed, tmp_path: Path) -> None:
    full("backup", tmp_path / "old.tar")
    emit_finding(full, "session/s")
    full("backup", tmp_path / "newer.tar")
    full("restore", tmp_path / "old.tar", "--replace")
    full("recover", "--accept-loss", "--yes")
    emit_finding(full, "session/s", "another finding")
    assert (
        "entries of this ledger that the new file lacks"
        in full.refuses("FILE_EXISTS", "backup", tmp_path / "newer.tar")["message"]
    )


def test_signed_file_replaces_only_one_of_its_stream(full: Deed, tmp_path: Path) -> None:
    for name in ("x.txt", "s.deed.json"):
        (tmp_path / name).write_text("precious")
    full.refuses("FILE_EXISTS", "export", "--stream", "session/s", "--text", tmp_path / "x.txt")
    full("export", "--stream", "session/s", "--text", tmp_path / "s.deed.json")
    full("export", "--stream", "session/s", "--text", tmp_path / "s.deed.json")
    assert (tmp_path / "x.txt").read_text() == "precious"
    full("export", "--stream", "session/s", "--text", tmp_path / "new.json")
    full("export", "--stream", "session/s", "--text", tmp_path / "new.json")
