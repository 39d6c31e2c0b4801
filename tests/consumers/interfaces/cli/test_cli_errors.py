"""Errors on the command line: the code, the exit code, the output that has it, and that nothing was appended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import inside
import pytest
from bad_inputs import BAD_DATA, BAD_INPUTS, REPRESENTATIVES
from building import Ledger, body_fields
from calling import Deed, Place, Serving, call, environment
from forked_deed import DeedProcess

from deedbook.consumers.interfaces.cli.app import App
from deedbook.consumers.interfaces.cli.program import run, stopped_by_user
from deedbook.ledger.errors import CODES, Exit
from deedbook.ledger.home.home import new_bus_key
from deedbook.ledger.lifecycle.authority import NODE, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from building import Actors


@pytest.fixture(scope="module")
def arranged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Actors, Path]:
    """A ledger in which each bad input is bad only for its own reason, and the actors who sign."""
    home = tmp_path_factory.mktemp("bad") / ".deedbook"
    with Ledger(home) as made:
        for arrange in {bad.arrange for bad in BAD_INPUTS.values()}:
            arrange(made)
        made.write_keys()
        for name in (ROOT, NODE):
            new_bus_key(made.home.nkey_file(name))
    return made, home


@pytest.fixture(scope="module", params=["local", "server"])
def bad_place(request: pytest.FixtureRequest, arranged: tuple[Actors, Path]) -> Iterator[Place]:
    """The arranged ledger, in its folder and behind a server."""
    if request.param == "local":
        yield Place(arranged[1])
        return
    with Serving(arranged[1]) as serving:
        yield serving.place


@pytest.fixture
def asked(bad_place: Place, capsys: pytest.CaptureFixture[str]) -> Deed:
    """Verbs on the arranged ledger."""
    return Deed(capsys, bad_place)


@pytest.mark.parametrize("name", sorted(REPRESENTATIVES))
def test_bad_submission_is_refused_with_its_own_code(
    asked: Deed, arranged: tuple[Actors, Path], tmp_path: Path, name: str
) -> None:
    bad = BAD_INPUTS[name]
    file = tmp_path / "submission"
    file.write_bytes(bad.build(arranged[0]))
    before = asked.data("checkpoint")["checkpoint"].splitlines()[1:3]
    asked.refuses(bad.code, "submit", file)
    assert asked.data("checkpoint")["checkpoint"].splitlines()[1:3] == before


@pytest.mark.parametrize("name", sorted({bad.code: name for name, bad in BAD_DATA.items()}.values()))
def test_bad_data_is_refused_with_the_same_code(alone_asked: Deed, tmp_path: Path, name: str) -> None:
    bad = BAD_DATA[name]
    file = tmp_path / "data"
    file.write_bytes(bad.data)
    before = alone_asked.data("checkpoint")
    alone_asked.refuses(bad.code, "emit", bad.kind, "--stream", bad.stream, "--as", "alice", "--data", f"@{file}")
    assert alone_asked.data("checkpoint")["checkpoint"].splitlines()[1:3] == before["checkpoint"].splitlines()[1:3]


@pytest.fixture
def alone_asked(arranged: tuple[Actors, Path], capsys: pytest.CaptureFixture[str]) -> Deed:
    """Verbs on the arranged ledger, locally."""
    return Deed(capsys, Place(arranged[1]))


def test_every_line_of_a_refused_batch_is_named(
    alone_asked: Deed, arranged: tuple[Actors, Path], tmp_path: Path
) -> None:
    actors = arranged[0]
    head = {"ledger": actors.id, "at": actors.clock.text()}
    findings: list[dict[str, object]] = [{"finding": "good"}, {"finding": ""}, {"finding": "good"}, {"mood": 1}]
    bodies = [json.dumps(body_fields("finding.logged", "session/s1", data, **head)).encode() for data in findings]
    file = tmp_path / "batch"
    file.write_bytes(actors.sign_bytes("alice", *bodies).encode())
    said = alone_asked.run("submit", file)
    assert said.code == 2
    assert "event 2: INVALID_FIELD" in said.err
    assert "event 4: " in said.err
    assert "event 1: " not in said.err


def test_no_ledger_says_how_to_make_one(nowhere: Deed) -> None:
    error = nowhere.refuses("NO_LEDGER", "log")
    assert "`deed init`" in error["message"]
    nowhere.refuses("NO_LEDGER", "log", "--home", "not-there")
    assert nowhere.run("log").code == 7
    assert "deed init" in nowhere.run("doctor").out
    remote = nowhere.refuses("NO_LEDGER", "log", "--server", "nats://127.0.0.1:1", "--as", "a")["message"]
    assert ("`deed join CODE`" in remote, "`deed init`" in remote) == (
        True,
        False,
    )  # `deed init` would create another ledger than the server's


def test_missing_key_file_says_where_it_was_looked_for(alone: Deed) -> None:
    data = ["emit", "session.started", "--stream", "session/s", "--data", "{}"]
    error = alone.refuses("KEY_FILE_MISSING", *data, "--as", "bob")
    assert str(alone.home / "keys" / "bob.key") in error["message"]
    assert "register" in error["message"]
    assert alone.run(*data, "--as", "bob").code == 3


def test_key_file_that_others_can_read_is_refused_with_the_command_that_mends_it(alone: Deed) -> None:
    alone("agent", "add", "a")
    key = alone.home / "keys" / "a.key"
    key.chmod(0o640)
    error = alone.refuses(
        "KEY_FILE_MODE", "emit", "session.started", "--stream", "session/s", "--data", "{}", "--as", "a"
    )
    assert f"chmod 600 {key}" in error["message"]
    assert alone.size() == 2


def test_key_file_of_something_else_is_refused(alone: Deed) -> None:
    alone("agent", "add", "a")
    (alone.home / "keys" / "a.key").write_text("garbage")
    alone.refuses("INVALID_FORMAT", "emit", "session.started", "--stream", "session/s", "--data", "{}", "--as", "a")


def test_broken_json_in_a_file_names_the_file(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a")
    (tmp_path / "bad.json").write_text('{"task":')
    words = ("emit", "session.started", "--stream", "session/s", "--as", "a", "--data")
    error = alone.refuses("INVALID_FORMAT", *words, f"@{tmp_path / 'bad.json'}")
    assert error["message"].startswith(f"{tmp_path / 'bad.json'}: this is not JSON")
    assert "in single quotes" in alone.refuses("INVALID_FORMAT", *words, '{"task":')["message"]


def test_key_of_another_ledger_is_refused(alone: Deed, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert inside.deed("--home", other, "init", "--unprotected").code == 0
    assert inside.deed("--home", other, "agent", "add", "a").code == 0
    shutil.copy(other / "keys" / "a.key", alone.home / "keys" / "eve.key")
    alone.refuses("KEY_UNKNOWN", "emit", "session.started", "--stream", "session/s", "--data", "{}", "--as", "eve")


def test_somebody_must_sign(alone: Deed) -> None:
    error = alone.refuses("USAGE", "emit", "session.started", "--stream", "session/s", "--data", "{}")
    assert "--as NAME" in error["message"]
    alone("agent", "add", "b")
    alone("agent", "add", "a")
    error = alone.refuses("USAGE", "emit", "session.started", "--stream", "session/s", "--data", "{}")
    assert "add --as with one of a, b, or set DEEDBOOK_AGENT" in error["message"]
    error = alone.refuses("KEY_FILE_MISSING", "session", "start", "--as", "me")
    assert error["message"].endswith("(here are the keys of a, b)")
    alone.refuses("INVALID_FIELD", "log", "--as", "No Name")
    assert alone.refuses("INVALID_FIELD", "log", "--as", "Alex")["message"].endswith("did you mean alex?")


def test_folder_without_a_ledger_is_named_before_an_agent_is_asked_for(nowhere: Deed, tmp_path: Path) -> None:
    for verb in (["handoff", "create", "--title", "T", "--to", "b"], ["ask", "b", "text"], ["session", "start"]):
        nowhere.refuses("NO_LEDGER", *verb, "--home", tmp_path / "empty")


def test_full_map_is_refused_and_can_be_raised(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a")
    alone("emit", "session.started", "--stream", "session/s", "--data", "{}", "--as", "a")
    config = alone.home / "config.toml"
    config.write_text("map_size_bytes = 1048576\n")
    data = tmp_path / "data"
    data.write_text(json.dumps({"finding": "x" * 40_000}))
    finding = ["emit", "finding.logged", "--stream", "session/s", "--as", "a", "--data", f"@{data}"]
    for _ in range(30):
        said = alone.run(*finding)
        if said.code:
            break
    error = alone.refuses("STORE_FULL", *finding)
    assert "map_size_bytes" in error["message"]
    assert "config.toml" in error["message"]
    size = alone.size()
    assert alone.data("verify")["size"] == size
    assert alone.run("doctor").code == 7
    config.write_text("map_size_bytes = 8388608\n")
    alone(*finding)
    assert alone.size() == size + 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("= = =", "INVALID_FORMAT"),
        ("map_size = 1", "UNKNOWN_FIELD"),
        ("map_size_bytes = 1", "INVALID_FIELD"),
        ('default_reviewer = "No Name"', "INVALID_FIELD"),
    ],
)
def test_broken_configuration_is_named_by_its_file(alone: Deed, text: str, code: str) -> None:
    (alone.home / "config.toml").write_text(text)
    error = alone.refuses(code, "log")
    assert str(alone.home / "config.toml") in error["message"]


def test_file_that_cannot_be_read_is_named(alone: Deed, tmp_path: Path) -> None:
    emit = ["emit", "session.started", "--stream", "session/s", "--as", "a", "--data"]
    alone("agent", "add", "a")
    assert "nothing" in alone.refuses("NOT_FOUND", *emit, f"@{tmp_path}/nothing")["message"]
    alone.refuses("NOT_FOUND", *emit, f"@{tmp_path}")
    alone.refuses("NOT_FOUND", "submit", tmp_path)
    alone.refuses("NOT_FOUND", "verify", "--bundle", tmp_path / "nothing")
    file = tmp_path / "no-bundle"
    file.write_bytes(b"\0" * 1024)
    assert alone.run("verify", "--bundle", file).code in (2, 6)
    alone.refuses("STORE_UNAVAILABLE", "export", tmp_path / "no" / "folder.tar")


def test_damaged_log_is_no_traceback(alone: Deed) -> None:
    alone("agent", "add", "a")
    (alone.home / "log" / "data.mdb").write_bytes(b"garbage" * 5000)
    said = alone.run("log")
    assert said.code in (6, 7)
    assert "UNEXPECTED" not in said.err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["handof"], "did you mean `deed handoff`?"),
        (["handoff", "clam"], "did you mean `deed handoff claim`?"),
        (["claim"], "did you mean `deed handoff claim --as NAME ID`?"),
        (["close", "x"], "did you mean `deed settle QUESTION` or `deed handoff complete ID` or "),
        (["append", "--bad"], "No such option"),
        (["search", "-dash"], "No such option"),
        (["nonsense"], "there is no verb 'nonsense' (see `deed --help`)"),
        (["emit", "finding.logged"], "--stream"),
        (["log", "--limit", "0"], "--limit"),
        (["log", "--limit", "many"], "--limit"),
        (["log", "--after", "-2"], "--after"),
        (["show"], "INDEX|REF"),
        (["show", "1", "2"], "too many words (2): it takes INDEX|REF, and options: "),
        (["handoff", "check", "x", "y"], "it takes ID, and options: --task, --criterion, "),
        (["fsck", "a"], "it takes no argument, and options: "),
        (["agent", "add", "x", "--role", "king"], "king"),
        (["serve", "--port", "99999"], "--port"),
    ],
)
def test_wrong_call_is_a_usage_error_that_says_what_is_right(nowhere: Deed, arguments: list[str], hint: str) -> None:
    error = nowhere.refuses("USAGE", *arguments)
    assert hint in error["message"]
    assert nowhere.run(*arguments).code == 2


@pytest.mark.parametrize("before", [(), ("log",), ("log", "--limit"), ("init", "--trial=")], ids=str)
def test_wrong_call_does_not_repeat_a_secret(nowhere: Deed, before: tuple[str, ...]) -> None:
    body = "b3BlbnNzaC1rZXktdjEA" * 4
    for secret in (
        "ghp_" + "a1B2" * 9,
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n",
    ):
        words = (*before[:-1], before[-1] + secret) if before[:1] == ("init",) else (*before, secret)
        error = nowhere.refuses("USAGE", *words)
        assert secret[:8] not in error["message"]
        assert body not in error["message"]
    error = nowhere.refuses("USAGE", *before, "x" * 5000)
    assert len(error["message"]) < 300


def test_folder_above_the_ledger_is_told_which_is_meant(alone: Deed, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(alone.home.parent)
    if alone.home.name != ".deedbook":
        alone.home.rename(alone.home.parent / ".deedbook")
    monkeypatch.setattr(alone, "place", place)
    for verb in ("log", "fsck"):
        error = alone.refuses("NO_LEDGER", verb)
        assert f"did you mean {place.home / '.deedbook'}?" in error["message"]


def test_unknown_kind_lists_those_there_are(alone: Deed) -> None:
    error = alone.refuses("UNKNOWN_KIND", "emit", "finding.loged", "--stream", "s", "--data", "{}", "--as", "a")
    assert "finding.logged" in error["message"]
    for family in ("questions", "question.*", "question"):
        message = alone.refuses("UNKNOWN_KIND", "log", "--kind", family)["message"]
        assert message.endswith("The kinds are: question.answered, question.asked, question.settled")


def test_without_a_verb_the_help_is_printed_where_errors_go(nowhere: Deed) -> None:
    for arguments in ([], ["handoff"]):
        said = nowhere.run(*arguments)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith("Usage: deed")
        nowhere_said = nowhere.run(*arguments, "--json")
        assert nowhere_said.code == 2
        assert json.loads(nowhere_said.out)["error"]["code"] == "USAGE"


def test_verbs_of_the_folder_refuse_a_server(alone: Deed) -> None:
    for verb in (["fsck"], ["project"], ["verify", "--views"], ["serve"]):
        assert "without --server" in alone.refuses("USAGE", *verb, "--server", "nats://127.0.0.1:1")["message"]


def test_server_that_is_not_there_is_unavailable(alone: Deed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.ledger.bus.connection.connect_timeout_s", 0.3)
    said = alone.run("log", "--server", "nats://127.0.0.1:1")
    assert (said.code, said.out) == (7, "")
    assert said.err.startswith("BUS_UNAVAILABLE: ")
    assert "nats://127.0.0.1:1: start `deed serve` there (or the tunnel to it)" in said.err
    assert said.err.rstrip().endswith("Nothing was done: repeat the call when it answers")
    words = "handoff create --title T --to a --as root --spool --server nats://127.0.0.1:1"
    said = alone.run(*words.split())
    assert said.code == 7
    assert "--spool stores only reports" in said.err


def test_unforeseen_error_is_said_so_and_its_traceback_is_for_who_asks(
    alone: Deed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(App, "ledger", lambda _: 1 / 0)
    error = alone.refuses("UNEXPECTED", "log")
    assert "ZeroDivisionError" in error["message"]
    monkeypatch.setenv("DEEDBOOK_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run(["--home", str(alone.home), "log"])


def test_damaged_module_is_not_called_stopped_by_the_user(
    alone: Deed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def truncated(_: App) -> None:  # as an import of a module that a full disk has truncated
        raise EOFError("marshal data too short")

    monkeypatch.setattr(App, "ledger", truncated)
    assert run(["--home", str(alone.home), "log"]) == 1
    assert "UNEXPECTED: EOFError: marshal data too short" in capsys.readouterr().err


def test_every_error_has_an_exit_code_of_the_contract() -> None:
    assert {int(code.exit) for code in CODES.values()} == set(range(1, 10))
    assert stopped_by_user not in {int(code.exit) for code in CODES.values()}


@pytest.mark.parametrize("arguments", [["log"], ["log", "--follow"], ["log", "--json"], ["--help"]])
def test_reader_that_goes_away_is_no_error(alone: Deed, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "deedbook", "--home", str(alone.home), *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    if "--follow" in arguments:
        assert call("--home", alone.home, "agent", "add", "a").code == 0
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait(60) == 0


@pytest.mark.parametrize("closed", [["stdout"], ["stderr"], ["stdout", "stderr"]], ids="+".join)
@pytest.mark.parametrize("option", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("verb", ["verify", "check-files", "doctor"])
def test_bad_verdict_has_its_exit_code_although_nobody_reads_it(
    alone: Deed, tmp_path: Path, verb: str, option: list[str], closed: list[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "x.md").write_text("# Handoff: x\n")
    bundle = tmp_path / "log.tar"
    alone("export", bundle)
    bundle.write_bytes(bundle.read_bytes().replace(b'"author":"root"', b'"author":"boot"', 1))
    arguments, code = {
        "verify": (["verify", "--bundle", str(bundle)], Exit.UNVERIFIED),
        "check-files": (["handoff", "check-files", str(tmp_path / "docs"), "--root", "ab" * 32], Exit.UNVERIFIED),
        "doctor": (["doctor", "--home", str(tmp_path)], Exit.UNAVAILABLE),
    }[verb]
    reading, writing = os.pipe()
    os.close(reading)
    streams: dict[str, int] = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL) | dict.fromkeys(closed, writing)
    with DeedProcess(*arguments, *option, env=environment(), **streams) as process:
        os.close(writing)
        assert process.wait(60) == code


@pytest.mark.parametrize("option", [[], ["--json"]], ids=["text", "json"])
def test_output_that_no_disk_takes_is_no_traceback(alone: Deed, option: list[str]) -> None:
    command = [sys.executable, "-m", "deedbook", "--home", str(alone.home), "log", *option]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment(), text=True, check=False)
    assert done.returncode == CODES["STORE_UNAVAILABLE"].exit
    assert done.stderr.startswith("STORE_UNAVAILABLE: [Errno 28] No space left on device: ")
    assert done.stderr.count("\n") == 1
