"""The verbs about the ledger itself: creating and finding one, agents, keys, views, and the report of `deed doctor`."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import inside
import pytest
from calling import Deed, Place, emit_finding, start_session
from faults import some_of

from deedbook.consumers.interfaces.cli.app import App
from deedbook.ledger.format.identity import open_key, read_key_file, write_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Fresh = Callable[[str], str]

PASSPHRASE = "correct horse"


def descriptor(text: str) -> int:
    """Return a descriptor from which a passphrase can be read."""
    read, write = os.pipe()
    os.write(write, text.encode("utf-8", "surrogatepass") + b"\n")
    os.close(write)
    return read


@pytest.fixture
def passphrase() -> Iterator[Callable[..., int]]:
    """Makes descriptors for ``--passphrase-fd`` and closes them."""
    made: list[int] = []

    def make(text: str = PASSPHRASE) -> int:
        made.append(descriptor(text))
        return made[-1]

    yield make
    for one in made:
        os.close(one)


def test_first_steps_work_in_an_empty_folder_without_any_server(tmp_path: Path) -> None:
    for arguments in (
        ["init", "--unprotected"],
        ["agent", "add", "a", "--role", "agent"],
        ["emit", "session.started", "--stream", "session/s1", "--as", "a", "--data", "{}"],
        ["emit", "finding.logged", "--stream", "session/s1", "--as", "a", "--data", '{"finding":"x"}'],
        ["log"],
    ):
        said = inside.deed(*arguments, cwd=tmp_path)
        assert (said.code, said.err) == (0, "signed by root\n" if arguments[0] == "agent" else "")
    assert "finding.logged" in inside.deed("show", 3, cwd=tmp_path).out
    verified = json.loads(inside.deed("verify", "--json", cwd=tmp_path).out)["data"]
    assert (verified["ok"], verified["size"], verified["signatures"]) == (True, 4, 4)


def test_init_twice_is_refused_and_changes_nothing(alone: Deed) -> None:
    before = {path: path.read_bytes() for path in sorted((alone.home / "keys").iterdir())}
    alone.refuses("LEDGER_EXISTS", "init")
    assert {path: path.read_bytes() for path in sorted((alone.home / "keys").iterdir())} == before
    assert alone.size() == 1


def test_init_keeps_the_folder_private_and_out_of_git(alone: Deed) -> None:
    assert (alone.home / ".gitignore").read_text() == "*\n"
    assert stat.S_IMODE(alone.home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (alone.home / "keys").iterdir()} == {0o600}


def test_init_prints_the_fingerprint_that_verify_takes(nowhere: Deed) -> None:
    made = nowhere.data("init", "--unprotected", "--origin", "example.org/team")
    assert made["origin"] == "example.org/team"
    assert nowhere.data("verify", "--root", made["root_fingerprint"])["trust"] == "anchored"
    assert nowhere.data("verify")["trust"] == "anchored"  # `init` has pinned it for this user
    nowhere.refuses_verification("verify", "--root", "0" * 64)
    for no_fingerprint in ("", "0" * 31, "g" * 64, "0" * 65, "root"):
        assert "fingerprint" in nowhere.refuses("USAGE", "verify", "--root", no_fingerprint)["message"]
    head = nowhere.data("verify")["tree_head"]
    assert f"tree head {head}" in nowhere("verify")
    report = nowhere.refuses_verification("verify", "--root", head)
    assert f"tree head; the fingerprint of the root key is {made['root_fingerprint']}" in str(report)


def test_init_seals_the_root_key_with_a_passphrase(nowhere: Deed, passphrase: Callable[..., int]) -> None:
    error = nowhere.refuses("USAGE", "init")
    assert "--passphrase-fd" in error["message"]
    assert "--unprotected" in error["message"]
    assert "deed init --trial" in error["message"]
    nowhere("init", "--passphrase-fd", passphrase())
    assert nowhere("verify").splitlines()[1] == "gate: closed"
    nowhere.refuses("KEY_LOCKED", "agent", "add", "a")
    nowhere("agent", "add", "a", "--passphrase-fd", passphrase(), "--unprotected")
    nowhere("agent", "add", "rita", "--role", "human", "--passphrase-fd", passphrase(f"hers alone\n{PASSPHRASE}"))
    nowhere("key", "delegate", "--as", "a")
    assert nowhere.run("key", "delegate", "--as", "rita", "--passphrase-fd", passphrase("\udc00")).code == 2
    assert nowhere.run("key", "delegate", "--as", "rita", "--passphrase-fd", passphrase("hers alone")).code == 0


@pytest.mark.parametrize("role", ["human", "reviewer", "admin"])
def test_key_that_approves_without_a_passphrase_is_refused_off_a_terminal(alone: Deed, role: str) -> None:
    assert "each verdict says so" in alone.refuses("USAGE", "agent", "add", "rita", "--role", role)["message"]
    assert alone.size() == 1


def test_trial_is_made_in_one_step_and_says_so_for_ever(nowhere: Deed, passphrase: Callable[..., int]) -> None:
    nowhere("init", "--trial")
    agents = {agent["name"]: agent["roles"] for agent in nowhere.data("agent", "list")["agents"]}
    assert agents["alex"] == ["human", "reviewer"]
    assert (agents["claude-code"], agents["kuro"]) == (["agent"], ["agent"])
    parties = ("--as", "kuro", "--to", "claude-code", "--reviewer", "alex")
    nowhere("handoff", "create", "t", *parties, "--title", "T")
    assert "gate: open (trial)" in nowhere("handoff", "approve", "t", "--as", "alex", *nowhere.as_read("t"))
    for name in ("alex", "root"):
        nowhere("key", "rotate", "--as", name, "--passphrase-fd", passphrase())
    assert nowhere("verify").splitlines()[1] == "gate: open (trial)"
    assert "gate: open (trial): it stays open, so for real work begin another ledger" in nowhere.run("doctor").out


def test_gate_closes_when_the_last_key_gets_a_passphrase(alone: Deed, passphrase: Callable[..., int]) -> None:
    alone("agent", "add", "rita", "--role", "human", "--unprotected")
    for name in ("root", "rita"):  # without a terminal
        said = alone.run("key", "rotate", "--as", name)
        assert said.code == 2
        assert f"key rotate --as {name} --passphrase-fd 3 3<FILE" in said.err
    alone("key", "rotate", "--as", "root", "--unprotected")
    assert "gate: open (the keys of rita and root have no passphrase)" in alone("verify")
    for name in ("root", "rita"):
        alone("key", "rotate", "--as", name, "--passphrase-fd", passphrase())
    assert alone("verify").splitlines()[1] == f"gate: closed since entry {alone.size() - 1}"
    alone.refuses("USAGE", "key", "rotate", "--as", "rita", "--unprotected")


def test_doctor_finds_the_open_copy_of_a_key_that_was_sealed(alone: Deed, passphrase: Callable[..., int]) -> None:
    alone("agent", "add", "rita", "--role", "human", "--passphrase-fd", passphrase())
    file = alone.home / "keys" / "rita.key"
    key = open_key(file, PASSPHRASE)
    sealed = read_key_file(file)
    file.unlink()
    write_key(file, key, ledger=sealed.ledger, name="rita")
    said = alone.run("doctor")
    assert said.code != 0
    assert "but the key file of rita has no passphrase here" in said.out


def test_human_without_a_passphrase_is_refused_off_a_terminal(alone: Deed) -> None:
    error = alone.refuses("USAGE", "agent", "add", "rita", "--role", "human")
    assert "--passphrase-fd" in error["message"]
    assert "--unprotected" in error["message"]
    assert not (alone.home / "keys" / "rita.key").exists()


def test_sealed_key_signs_only_with_its_passphrase(alone: Deed, passphrase: Callable[..., int]) -> None:
    alone("agent", "add", "rita", "--role", "human", "--role", "reviewer", "--passphrase-fd", passphrase())
    alone("agent", "add", "a")
    alone("agent", "add", "b")
    alone("handoff", "create", "h1", "--as", "a", "--to", "b", "--title", "t", "--reviewer", "rita")
    alone.refuses("KEY_LOCKED", "handoff", "approve", "h1", "--as", "rita", *alone.as_read("h1"))
    said = alone.run(
        "handoff", "approve", "h1", "--as", "rita", *alone.as_read("h1"), "--passphrase-fd", passphrase("wrong")
    )
    assert said.err.startswith("KEY_LOCKED: ")
    assert "approved" in alone(
        "handoff", "approve", "h1", "--as", "rita", *alone.as_read("h1"), "--passphrase-fd", passphrase()
    )


def test_unreadable_passphrase_descriptor_is_a_usage_error(alone: Deed) -> None:
    alone.refuses("USAGE", "agent", "add", "rita", "--role", "human", "--passphrase-fd", "987")


@pytest.mark.served
def test_agent_of_all_day_does_not_register_agents_where_root_can(
    deed: Deed, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEDBOOK_AGENT", "a")
    added = deed.data("agent", "add", fresh("dave"))
    assert deed.data("show", added["index"])["author"] == "root"
    monkeypatch.setenv("DEEDBOOK_AGENT", "ada")
    added = deed.data("agent", "add", fresh("dave"))
    assert deed.data("show", added["index"])["author"] == "ada"
    assert deed.data("show", deed.data("agent", "remove", added["name"])["index"])["author"] == "ada"


def test_verbs_say_that_root_signed_unasked(alone: Deed, monkeypatch: pytest.MonkeyPatch) -> None:
    alone("agent", "add", "claude")
    monkeypatch.setenv("DEEDBOOK_AGENT", "claude")
    for words in (("agent", "add", "bob"), ("agent", "grant-role", "bob", "service"), ("agent", "remove", "bob")):
        assert "signed by root\n" in alone.run(*words).err, words
    assert "signed by" not in alone.run("agent", "add", "carl", "--as", "root").err
    assert "signed by" not in alone.run("decide", "Use LMDB").err
    refused = alone.run("agent", "add", "carl")
    assert (refused.code, "signed by" in refused.err) == (4, False)


def test_redaction_without_a_human_names_root(alone: Deed) -> None:
    alone("agent", "add", "claude")
    alone("decide", "Use the password swordfish", "--as", "claude")
    words = ("redact", alone.size() - 1, "--reason", "A slip", "--yes", "--as", "claude")
    said = alone.run(*words)
    assert said.code == 5
    assert "claude needs the role human (no agent has it); root erases alone: `--as root`" in said.err


def test_no_passphrase_is_asked_for_an_agent_that_will_not_be(alone: Deed, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object, **__: object) -> None:
        raise AssertionError

    alone("agent", "add", "a")
    monkeypatch.setattr(App, "read_passphrase", asked)
    alone.refuses("AGENT_EXISTS", "agent", "add", "a", "--role", "human")
    error = alone.refuses("NOT_AUTHORIZED", "agent", "add", "rita", "--role", "human", "--as", "a")
    assert "--as root" in error["message"]
    (alone.home / "keys" / "root.key").unlink()
    monkeypatch.setenv("DEEDBOOK_AGENT", "a")
    error = alone.refuses("NOT_AUTHORIZED", "agent", "add", "rita", "--role", "human")
    assert "--as root" in error["message"]


def test_ledger_is_found_in_a_parent_folder_and_by_the_environment(
    nowhere: Deed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere("init", "--unprotected")
    ledger = nowhere.data("show", 0)["ledger"]
    home = Path.cwd() / ".deedbook"
    below = Path.cwd() / "deep" / "down"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert nowhere.data("show", 0)["ledger"] == ledger
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEEDBOOK_HOME", str(home))
    assert nowhere.data("show", 0)["ledger"] == ledger


def test_new_ledger_is_made_where_the_environment_says(
    nowhere: Deed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DEEDBOOK_HOME", str(tmp_path / "elsewhere"))
    assert nowhere.data("init", "--unprotected")["home"] == str(tmp_path / "elsewhere")
    assert not (Path.cwd() / ".deedbook").exists()
    assert nowhere.data("show", 0)["author"] == "root"


def test_views_are_rebuilt_to_the_same_digests(alone: Deed) -> None:
    alone("agent", "add", "a")
    emit_finding(alone, start_session(alone, "s1"))
    before = alone.data("project")
    assert before["position"] == 4
    assert alone.data("project", "--rebuild") == before
    assert alone.data("project", "--view", "agents", "--rebuild")["digests"].keys() == {"agents"}
    alone.refuses("NOT_FOUND", "project", "--view", "nothing")


def test_doctor_finds_a_sound_ledger_in_order(alone: Deed, passphrase: Callable[..., int]) -> None:
    checks = {one["name"]: one for one in alone.data("doctor")["checks"]}
    assert all(one["ok"] for one in checks.values())
    assert checks["gate"]["found"].startswith("open")
    assert "root" in checks["gate"]["found"]


def test_doctor_finds_a_copy_that_was_written_to_as_well(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a")
    shutil.copytree(alone.home, tmp_path / "copied" / ".deedbook")
    copied = Deed(alone._capsys, Place(tmp_path / "copied" / ".deedbook"))
    copied("trust", "--yes")
    for deed in (copied, alone):
        deed("emit", "session.started", "--stream", f"session/{deed.home.parent.name}", "--as", "a", "--data", "{}")
    for deed, other in ((alone, copied), (copied, alone)):
        (line,) = [line for line in deed.run("doctor").out.splitlines() if "WRONG trust store" in line]
        assert f"{deed.home} and {other.home} hold the same ledger" in line
        assert "Write to only one of them" in line


def test_doctor_says_which_extras_are_not_there(alone: Deed, monkeypatch: pytest.MonkeyPatch) -> None:
    extras = {"mcp", "rs_bpe"}
    for module in ("doctor", "harness"):
        monkeypatch.setattr(
            f"deedbook.consumers.interfaces.cli.commands.{module}.find_spec",
            lambda name: None if name in extras else find_spec(name),
        )
    checks = {one["name"]: one for one in alone.data("doctor")["checks"]}
    cannot = f"The MCP server cannot start: run {sys.executable} -m pip install 'deedbook[mcp]'"
    assert checks["mcp"]["found"] == cannot
    assert alone.run("setup", "codex", "--check").out.endswith(f"\n{cannot}\n")
    assert "deedbook[tokens]" in checks["tokens"]["found"]


@pytest.mark.parametrize("package", some_of(["ledger", "projections", "consumers"], "ledger"))
def test_a_folder_that_bears_the_name_of_a_part_of_ours_changes_nothing(package: str, tmp_path: Path) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    command = [sys.executable, "-m", "deedbook", "doctor"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "imported" not in ended.stdout + ended.stderr
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)


def test_doctor_names_what_is_wrong_and_the_command_that_mends_it(alone: Deed) -> None:
    (alone.home / "keys" / "node.key").chmod(0o644)
    said = alone.run("doctor")
    assert said.code == 7
    assert "WRONG keys: others can read node.key" in said.out
    assert "chmod 600" in said.out
    assert alone.run("doctor", "--json").code == 7


def test_session_key_signs_until_it_is_revoked(alone: Deed) -> None:
    alone("agent", "add", "a")
    stream = start_session(alone, "s1")
    delegated = alone.data("key", "delegate", "--as", "a", "--ttl", "1h", "--kind", "finding.*")
    signed = emit_finding(alone, stream)
    assert alone.data("show", signed["index"])["key"] == delegated["key"]
    listed = {one["key"]: one["state"] for one in alone.data("key", "list", "--agent", "a")["items"]}
    assert listed[delegated["key"]] == "valid"
    alone("key", "revoke", delegated["key"][:16], "--as", "a", "--reason", "lost")
    listed = {one["key"]: one["state"] for one in alone.data("key", "list", "--agent", "a")["items"]}
    assert listed[delegated["key"]] == "revoked"
    data = ["--stream", stream, "--as", "a", "--data", '{"finding":"x"}']
    error = alone.refuses("KEY_REVOKED", "emit", "finding.logged", *data)
    assert error["recoverable"] is False


def test_session_key_that_does_not_cover_a_kind_is_not_used(alone: Deed) -> None:
    alone("agent", "add", "a")
    identity = alone.data("agent", "show", "a")["key"]
    alone("key", "delegate", "--as", "a", "--kind", "reasoning.*")
    stream = start_session(alone, "s1")
    assert alone.data("show", emit_finding(alone, stream)["index"])["key"] == identity


def test_printed_commands_name_a_folder_that_would_not_be_found(nowhere: Deed) -> None:
    nowhere("init", "--trial", "--home", "n2")
    parties = ("--as", "kuro", "--to", "claude-code", "--reviewer", "alex", "--title", "T", "--session", "none")
    command = "deed --home n2 handoff show --as alex x"
    assert f"next, for alex: {command}\n" in nowhere("--home", "n2", "handoff", "create", "x", *parties)
    assert f"          {command}\n" in nowhere("next", "--as", "alex", "--home", "n2")
    why = nowhere.document("handoff", "why", "x", "--home", "n2")
    assert (why["next"], why["data"]["next"]) == (command, [command])
    claim = ("handoff", "claim", "x", "--as", "claude-code", "--home")
    assert nowhere.refuses("NOT_APPROVED", *claim, "n2")["message"].endswith(f"\n  next, for alex: {command}")
    assert "Next: deed --home n2 checkpoint" in nowhere("key", "rotate", "--checkpoint", "--home", "n2")
    Path(".deedbook").symlink_to("n2")
    refused = nowhere.refuses("NOT_APPROVED", *claim, "n2")
    assert refused["details"]["next"] == ["deed handoff show --as alex x"]
