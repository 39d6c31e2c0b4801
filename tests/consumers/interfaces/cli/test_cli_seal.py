"""`deed seal`, `--seal`, `--unseal` and `deed erase`, beyond the answers on ``transcripts/sealing.md``."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from building import trusted
from calling import Deed, Place, Said, with_passphrase
from erasing import files_with
from forked_deed import run_deed
from note_repository import one_of_each, repository
from soft_token import LABEL, make_soft_token
from test_cli_notes import git, make_repository

from deedbook.consumers.interfaces.cli.commands import seals
from deedbook.ledger.seal.sealed_blob import message_size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

CLEAR = ("Carol moved to Bergen", "Ring Carol at 0171 234", "Carol agreed in writing", "Carol is quite deaf")


@pytest.fixture
def own(populated: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> Deed:
    """A ledger of this test's own."""
    return Deed(capsys, Place(populated("sealed")))


def seal_everything(deed: Deed) -> None:
    """Seal a finding, and a handoff with notes of the session's records."""
    deed("seal", "create", "carol", "--as", "a")
    deed("session", "start", "s", "--as", "a", "--task", "Call customers")
    deed("session", "finding", "s", CLEAR[0], "--seal", "carol", "--as", "a")
    deed(
        *("handoff", "create", "h", "--as", "a", "--to", "b", "--reviewer", "rita", "--title", "Call back"),
        *("--body", CLEAR[1], "--criterion", CLEAR[2], "--trap", CLEAR[3], "--seal", "carol"),
    )


def test_no_file_of_the_ledger_has_the_clear_text(own: Deed, tmp_path: Path) -> None:
    project = own.home.parent
    seal_everything(own)
    own("session", "finding", "s", "Bergen is a town", "--as", "a")
    own("search", "Carol", "--as", "a")
    own("session", "end", "s", "--as", "a", "--summary", "Called")
    own("handoff", "render", "h", "--as", "a", "--out", project / "h.md")
    own("report", "show", "s", "--as", "a")
    own("handoff", "show", "h", "--unseal", "--as", "b")
    own("session", "show", "s", "--unseal", "--as", "b")
    own("log", "--unseal", "--as", "b")
    own("export", project / "bundle.tar")
    own("backup", project / "backup.tar")
    for text in CLEAR:
        assert files_with(project, text) == []
    assert len(files_with(project, "Bergen is a town")) > 2  # the search does find text that is not sealed


def test_an_amendment_seals_what_is_new_and_keeps_what_was_sealed(own: Deed) -> None:
    seal_everything(own)
    before = own.data("handoff", "show", "h", "--as", "a")
    own("handoff", "amend", "h", "--as", "a", "--tried", "Wrote Carol a letter", "--seal", "carol")
    after = own.data("handoff", "show", "h", "--as", "a")
    assert after["notes"]["traps"] == before["notes"]["traps"]
    assert after["task"] == before["task"]
    assert after["notes"]["tried"][0].startswith("sealed:carol:")
    assert files_with(own.home, "Wrote Carol a letter") == []
    assert "Wrote Carol a letter" in own("handoff", "show", "h", "--unseal", "--as", "b")


def test_the_notes_of_a_session_are_not_sealed_twice(own: Deed) -> None:
    seal_everything(own)
    (found,) = own.data("handoff", "show", "h", "--unseal", "--as", "b")["notes"]["found"]
    assert found == CLEAR[0]


def test_a_kept_artifact_is_sealed_with_its_handoff(own: Deed, tmp_path: Path) -> None:
    own("seal", "create", "carol", "--as", "a")
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Carol")
    own(
        *("handoff", "create", "h", "--as", "a", "--to", "b", "--reviewer", "rita", "--title", "Call back"),
        *("--artifact", letter, "--seal", "carol"),
    )
    (artifact,) = own.data("handoff", "show", "h", "--as", "a")["notes"]["artifacts"]
    assert files_with(own.home, "Dear Carol") == []
    ref = artifact.partition("kept: ")[2].removesuffix(")")
    own("blob", "get", ref, "-o", tmp_path / "stored", "--as", "a")
    assert (tmp_path / "stored").read_bytes().startswith(b"DEEDSEAL")


def test_a_secret_may_be_sealed(own: Deed) -> None:
    own("seal", "create", "carol", "--as", "a")
    own("session", "start", "s", "--as", "a")
    secret = "password = 'kX9#mQ2$vL7pRz4W'"
    own.refuses("SECRET_DETECTED", "session", "finding", "s", secret, "--as", "a")
    own("session", "finding", "s", secret, "--seal", "carol", "--as", "a")
    assert secret in own("session", "show", "s", "--unseal", "--as", "a")


def test_wrong_reference_of_one_agent_leaves_the_texts_of_others_open(own: Deed) -> None:
    seal_everything(own)
    reference = re.findall(r"sealed:carol:blake3:[0-9a-f]{64}/0", own("log", "--json", "--as", "a"))[0]
    own("session", "start", "wrong", "--as", "b")
    for wrong in (reference.replace("/0", "/77"), reference.replace("carol", "dave")):
        data = json.dumps({"finding": wrong, "impact": 0.5})
        own("emit", "finding.logged", "--stream", "session/wrong", "--data", data, "--as", "b")
    shown = own("log", "--unseal", "--as", "a")
    assert CLEAR[0] in shown
    assert "[sealed for carol, but damaged or wrongly named]" in shown
    assert "[sealed for dave, but damaged or wrongly named]" in shown
    own("search", "customers", "--unseal", "--as", "a")
    own.refuses("VERIFICATION_FAILED", "session", "show", "wrong", "--unseal", "--as", "a")


@pytest.mark.served
def test_a_sealed_blob_comes_back(deed: Deed, tmp_path: Path) -> None:
    subject = f"carol-{os.urandom(4).hex()}"
    deed("seal", "create", subject, "--as", "a")
    file, out = tmp_path / "file", tmp_path / "out"
    file.write_bytes(os.urandom(2 * message_size_bytes + 5))
    stored = deed.data("blob", "put", file, "--seal", subject, "--as", "a")
    assert (stored["size"], stored["subject"]) == (file.stat().st_size, subject)
    deed("blob", "get", stored["ref"], "--unseal", "-o", out, "--as", "b")
    assert out.read_bytes() == file.read_bytes()
    deed.refuses("FILE_EXISTS", "blob", "get", stored["ref"], "--unseal", "-o", out, "--as", "b")
    deed("blob", "get", stored["ref"], "-o", tmp_path / "sealed", "--as", "b")
    assert (tmp_path / "sealed").read_bytes().startswith(b"DEEDSEAL")
    plain = deed("blob", "put", file, "--as", "a").strip()
    deed.refuses("INVALID_FORMAT", "blob", "get", plain, "--unseal", "-o", tmp_path / "plain", "--as", "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "out", "sealed"]


def test_a_damaged_or_cut_blob_leaves_no_file(own: Deed, tmp_path: Path) -> None:
    own("seal", "create", "carol", "--as", "a")
    file, out = tmp_path / "file", tmp_path / "out"
    file.write_bytes(os.urandom(2 * message_size_bytes))
    for name, damage in (
        ("cut", lambda content: content[: -message_size_bytes // 2]),
        ("changed", lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]),
    ):
        ref = own("blob", "put", file, "--seal", "carol", "--as", "a").strip()
        (stored,) = [path for path in own.home.glob("blobs/**/*") if path.name == ref.removeprefix("blake3:")]
        stored.chmod(0o600)
        stored.write_bytes(damage(stored.read_bytes()))
        said = own.run("blob", "get", ref, "--unseal", "-o", out, "--as", "a")
        assert said.err.startswith(("VERIFICATION_FAILED", "CORRUPTED")), (name, said.err)
        assert not out.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_reader_gets_the_key_from_another_and_loses_it_by_the_erasure(
    own: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decisions_of_test: Path
) -> None:
    seal_everything(own)
    exported = tmp_path / "carol.sealed"
    own.refuses("KEY_LOCKED", "seal", "export", "carol", "--to", exported, "--as", "a")
    with_passphrase("open sesame", own, "seal", "export", "carol", "--to", exported, "--as", "a")
    assert decisions_of_test.joinpath("deedbook/seals").is_dir()
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path / "reader"))
        trusted(own.home)
        own.refuses("SUBJECT_KEY_MISSING", "session", "show", "s", "--unseal", "--as", "b")
        own.refuses("SUBJECT_KEY_MISSING", "handoff", "show", "h", "--unseal", "--as", "b")
        assert own.run("seal", "import", exported, "--as", "b").err.startswith("KEY_LOCKED")
        assert with_passphrase("wrong", own.run, "seal", "import", exported).err.startswith("KEY_LOCKED")
        with_passphrase("open sesame", own, "seal", "import", exported, "--as", "b")
        assert CLEAR[0] in own("session", "show", "s", "--unseal", "--as", "b")
    own("erase", "carol", "--reason", "She asked for it", "--yes", "--as", "rita")
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path / "reader"))
        shows_erased(own.run("session", "show", "s", "--unseal", "--as", "b"))
        size = own.size()
        assert own.data("erase", "carol", "--as", "b")["key_destroyed"]
        assert not own.data("erase", "carol", "--as", "b")["key_destroyed"]
        refused = with_passphrase("open sesame", own.run, "seal", "import", exported, "--as", "b")
        assert refused.err.startswith("SUBJECT_ERASED: carol was erased on"), refused
        assert own.data("seal", "list", "--as", "b")["subjects"][0]["key_id"] is None
        assert own.size() == size


def test_a_bundle_has_ciphertext_and_a_key_only_on_request(
    own: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal_everything(own)
    plain, with_key = tmp_path / "plain.tar", tmp_path / "with-key.tar"
    own("export", plain, "--as", "a")
    own.refuses_programs("KEY_LOCKED", "export", with_key, "--with-key", "carol", "--as", "a")
    with_passphrase("open sesame", own, "export", with_key, "--with-key", "carol", "--as", "a")
    folder = tmp_path / "unpacked"
    shutil.unpack_archive(with_key, folder)
    assert re.search(r"^VALID: ", judged(folder), re.MULTILINE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "reader"))
    trusted(own.home)
    shown = ("session", "show", "s", "--unseal", "--bundle", with_key)
    reader = Deed(own._capsys, None)
    assert "SUBJECT_KEY_MISSING: " in reader.run(*shown).err
    own.refuses("NOT_FOUND", "seal", "import", plain)
    with_passphrase("open sesame", own, "seal", "import", with_key)
    assert CLEAR[0] in reader(*shown)


def judged(folder: Path) -> str:
    """Return the output of verify.py in an unpacked bundle."""
    command = [sys.executable, folder / "verify.py", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_another_key_of_the_same_name_opens_nothing(own: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seal_everything(own)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "reader"))
    trusted(own.home)
    own("seal", "create", "carol", "--as", "b")
    own.refuses("SUBJECT_KEY_WRONG", "session", "show", "s", "--unseal", "--as", "b")


def test_an_old_backup_does_not_bring_back_what_was_erased(own: Deed, tmp_path: Path) -> None:
    seal_everything(own)
    shutil.copytree(own.home.parent, tmp_path / "old")
    own("backup", tmp_path / "old.tar")
    own("erase", "carol", "--reason", "She asked for it", "--yes", "--as", "rita")
    old = Deed(own._capsys, Place(trusted(tmp_path / "old/.deedbook")))
    old.refuses("SUBJECT_KEY_MISSING", "session", "show", "s", "--unseal", "--as", "a")
    restored = Deed(own._capsys, Place(tmp_path / "new/.deedbook"))
    restored("restore", tmp_path / "old.tar", "--replace")
    trusted(restored.home)
    restored.refuses("SUBJECT_KEY_MISSING", "session", "show", "s", "--unseal")
    assert "[sealed for carol]" in restored("session", "show", "s")
    bundle = Deed(own._capsys, None)
    said = bundle.run("session", "show", "s", "--unseal", "--bundle", tmp_path / "old.tar")
    assert "SUBJECT_KEY_MISSING: " in said.err


def test_files_notes_and_answers_say_that_sealed_texts_were_erased(own: Deed) -> None:
    project = make_repository(own.home.parent)
    for name in ("docs/handoffs", "docs/sessions/handoffs"):
        (project / name).mkdir(parents=True)
    file, watch = project / "docs/handoffs/h.md", ("handoff", "watch", project / "docs/handoffs", "--as", "a", "--once")
    seal_everything(own)
    own("session", "end", "s", "--as", "a", "--summary", "Called")
    own.run(*watch)
    before = file.read_text()
    assert "sealed:carol:" in before
    own("erase", "carol", "--reason", "She asked for it", "--yes", "--as", "rita")
    said = re.compile(r"erased on \d{4}-\d\d-\d\d by rita: She asked for it")
    lines = [line for line in file.read_text().splitlines() if "sealed:carol:" in line]
    assert len(lines) == 4
    assert all(said.search(line) for line in lines)
    notes = git(project, "for-each-ref", "--format=%(refname)", "refs/notes").split()
    reports = [*(project / "docs/sessions/handoffs").rglob("s.*")]
    assert (len(notes), len(reports)) == (2, 2)
    for text in (
        *(git(project, "notes", "--ref", ref, "show", "HEAD") for ref in notes),
        *map(Path.read_text, reports),
    ):
        assert said.search(text)
        assert "sealed:carol:" not in text
    size, marked = own.size(), file.read_text()
    own(*watch)  # the watcher does not take its marks for edits
    own("notes", "sync")
    assert (own.size(), file.read_text()) == (size, marked)
    assert own("handoff", "render", "h", "--as", "b") == marked
    for verb in (("session", "show", "s"), ("handoff", "show", "h"), ("report", "show", "s"), ("log",)):
        assert said.search(own(*verb, "--as", "b")), verb


def test_an_erasure_that_was_interrupted_is_finished_by_the_next(
    own: Deed, monkeypatch: pytest.MonkeyPatch, decisions_of_test: Path
) -> None:
    seal_everything(own)
    (key,) = decisions_of_test.glob("deedbook/seals/*/carol.key")
    content = key.read_bytes()
    own("erase", "carol", "--reason", "She asked for it", "--yes", "--as", "rita")
    for left in (
        content,
        os.urandom(len(content)),
        b"",
    ):  # as after a crash between the signature and the deletion of the key
        key.touch(mode=0o600)
        key.write_bytes(left)
        shows_erased(own.run("session", "show", "s", "--unseal", "--as", "a"))
        assert own.data("erase", "carol", "--as", "a")["key_destroyed"]
        assert not key.exists()


def shows_erased(said: Said) -> None:
    """Check that an answer with --unseal says that its texts are erased, and contains none of them."""
    assert (said.code, "[erased on " in said.out) == (0, True), said
    assert "warning: carol was erased on" in said.err
    assert not any(text in said.out + said.err for text in CLEAR)


def test_entries_beside_an_erased_text_are_listed_with_unseal(own: Deed) -> None:
    seal_everything(own)
    own("erase", "carol", "--reason", "She asked for it", "--yes", "--as", "rita")
    for words in (
        ("log", "--kind", "finding.logged"),
        ("search", "asked", "--kind", "finding.logged"),
        ("show", "session/s"),
    ):
        said = own.run(*words, "--unseal", "--as", "a")
        assert said.code == 0, (words, said)
    shows_erased(own.run("log", "--unseal", "--as", "a"))
    (row,) = own.data("log", "--unseal", "--kind", "finding.logged", "--as", "a")["sealed"]
    assert row["erased"]["by"] == "rita"


def test_an_untrusted_folder_opens_nothing_but_says_what_is_sealed(
    own: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal_everything(own)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "stranger"))
    assert "[sealed for carol]" in own("session", "show", "s")
    own.refuses("NOT_TRUSTED", "session", "show", "s", "--unseal")


def test_keys_in_a_token(own: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call is a new process, because the library of a token reads its settings once in a process."""
    token = make_soft_token(tmp_path / "token")
    config = f'[seal]\nkeys = "token"\nmodule = "{token.module}"\ntoken = "{LABEL}"\npin_file = "{token.pin_file}"\n'
    (own.home / "config.toml").write_text(config)
    trusted(own.home)

    def deed(*words: object) -> subprocess.CompletedProcess[str]:
        return run_deed("--home", own.home, *words, env=os.environ | token.environment, timeout=60)

    for words in (
        ("seal", "create", "carol", "--as", "a"),
        ("session", "start", "s", "--as", "a"),
        ("session", "finding", "s", CLEAR[0], "--seal", "carol", "--as", "a"),
    ):
        assert deed(*words).returncode == 0
    assert CLEAR[0] in deed("session", "show", "s", "--unseal", "--as", "a").stdout
    assert files_with(own.home, CLEAR[0]) == []
    assert deed("seal", "export", "carol", "--to", tmp_path / "key", "--as", "a").stderr.startswith("SUBJECT_KEY_FIXED")
    shutil.copytree(tmp_path / "token", tmp_path / "before")
    assert deed("erase", "carol", "--reason", "She asked", "--yes", "--as", "rita").returncode == 0
    shown = deed("session", "show", "s", "--unseal", "--as", "a")
    shows_erased(Said(shown.returncode, shown.stdout, shown.stderr))


def test_a_person_is_asked_before_an_erasure(own: Deed, monkeypatch: pytest.MonkeyPatch) -> None:
    seal_everything(own)
    asked: list[str] = []

    def confirm(question: str, **_: Any) -> bool:
        asked.append(question)
        raise seals.click.Abort

    monkeypatch.setattr(seals.App, "has_terminal", True)
    monkeypatch.setattr(seals.click, "confirm", confirm)
    assert own.run("erase", "carol", "--reason", "x", "--as", "rita").code != 0
    assert asked == ["Erase all that is sealed for carol, for ever?"]
    assert CLEAR[0] in own("session", "show", "s", "--unseal", "--as", "a")


NOTE: Final = "# Handoff: Call Carol\n\n## Meta\n- Status: open\n- From: a\n- To: b\n\n## Task\nRing her in Bergen\n"


def import_sealed(deed: Deed, verb: tuple[str, ...], source: Path) -> dict[str, Any]:
    """Import sealed, twice; return the first answer."""
    done: dict[str, Any] = deed.data(*verb, source, "--seal", "carol", "--as", "a")
    again = deed.data(*verb, source, "--seal", "carol", "--as", "a")
    assert (again["read"], again["added"], again["lost"]) == (done["read"], 0, 0)
    return done


def test_imported_originals_are_sealed(own: Deed, tmp_path: Path) -> None:
    own("seal", "create", "carol", "--as", "a")
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "call-carol.md").write_text(NOTE)
    (folder / "with-secret.md").write_text(NOTE + "password = 'kX9#mQ2$vL7pRz4W'\n")
    done = import_sealed(own, ("handoff", "import"), folder)
    assert (done["read"], done["added"], done["subject"]) == (2, 2, "carol")
    records = own.data("import", "list", "--as", "a")["items"]
    assert {(record["source"], record["mapped_kind"], record["reason"]) for record in records} == {
        (name, None, "sealed for carol") for name in ("call-carol.md", "with-secret.md")
    }
    for text in ("Bergen", "Call Carol", "kX9#mQ2"):
        assert files_with(own.home, text) == []
    entry = next(record["event_index"] for record in records if record["source"] == "call-carol.md")
    ref = own.data("show", entry, "--as", "a")["data"]["original"]
    own("blob", "get", ref, "--unseal", "-o", tmp_path / "out", "--as", "a")
    assert (tmp_path / "out").read_text() == NOTE


def test_notes_and_transcripts_are_imported_sealed(own: Deed, tmp_path: Path) -> None:
    own("seal", "create", "carol", "--as", "a")
    notes = repository(tmp_path / "r", one_of_each("5d1f0a52-sealed"))
    done = import_sealed(own, ("import", "empirica", "--git"), notes)
    assert done["added"] == done["read"] > 5
    transcript = tmp_path / "t.txt"
    transcript.write_text("<thinking>Carol is in Bergen, so I ring her there.</thinking>\nI ring Carol.\n")
    done = import_sealed(own, ("import", "thinking"), transcript)
    assert done["added"] == done["read"] == 1
    assert own.data("reasoning", "list", "--as", "a")["items"] == []
    for text in ("Bergen", "ring Carol"):
        assert files_with(own.home, text) == []
