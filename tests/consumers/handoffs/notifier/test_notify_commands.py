"""`deed notify`: channels are shown without secrets and tried on demand; failed deliveries can be sent again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from forked_deed import DeedProcess, run_deed
from webhook_receiver import KEY, SECRET, VARIABLE, Receiver, Reply

from deedbook.consumers.handoffs.notifier.store import STORE_FILE
from deedbook.consumers.interfaces.cli.program import run
from deedbook.ledger.errors import CODES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from building import Ledger

    Call = Callable[..., dict[str, Any]]

wait_max_s = 30.0


def trusted_now(ledger: Ledger) -> None:
    """Trust the folder of an open ledger as it is now."""
    ledger.write_keys()


@pytest.fixture
def desktop(ledger: Ledger, receiver: Receiver, tmp_path: Path) -> Path:
    """A ledger whose notifications go to the receiver and into a file; returns that file."""
    said = tmp_path / "said"
    ledger.write_keys()
    (ledger.home.path / "config.toml").write_text(
        f"""
        map_size_bytes = {256 * 1024**2}

        [[notify]]
        name = "hook"
        agents = ["rita"]
        webhook = "{receiver.url}"
        secret_variable = "{VARIABLE}"

        [[notify]]
        name = "desktop"
        agents = ["*"]
        command = 'echo "$DEEDBOOK_TITLE" >> {said}'
        """,
        "utf-8",
    )
    trusted_now(ledger)
    return said


@pytest.fixture
def call(ledger: Ledger, desktop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call a verb of `deed notify` with --json; returns its data, or the error, with the exit code under ``code``."""
    for name in ("DEEDBOOK_HOME", "DEEDBOOK_SERVER", "DEEDBOOK_AGENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VARIABLE, SECRET)

    def said(*words: str) -> dict[str, Any]:
        arguments = ["--home", str(ledger.home.path), "notify", *words, "--json"]
        if words[0] == "run":  # this process has the log open already
            done = run_deed(*arguments, timeout=wait_max_s)
            code, out, err = done.returncode, done.stdout, done.stderr
        else:
            code = run(arguments)
            out, err = capsys.readouterr()
        assert SECRET not in out + err
        assert "path-is-secret" not in out + err
        document = json.loads(out)
        found: dict[str, Any] = document.get("data") or document["error"]
        return found | {"exit": code}

    return said


def test_list_shows_channels_without_secrets_and_makes_no_store(call: Call, ledger: Ledger) -> None:
    shown = call("list")
    assert [(one["number"], one["name"], one["target"].split(":")[0]) for one in shown["channels"]] == [
        (1, "hook", "http"),
        (2, "desktop", "a command"),
    ]
    assert [one["is_ready"] for one in shown["channels"]] == [True, True]
    assert (shown["open"], shown["pending"], shown["dead"]) == ([], [], [])
    assert not (ledger.home.path / STORE_FILE).exists()


def test_list_tells_of_a_secret_that_is_not_there(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    assert [one["is_ready"] for one in call("list")["channels"]] == [False, True]
    refused = call("test")
    assert (refused["code"], refused["exit"]) == ("INVALID_FIELD", CODES["INVALID_FIELD"].exit)
    assert VARIABLE in refused["message"]


def test_test_sends_one_signed_notification_to_each_channel(call: Call, receiver: Receiver, desktop: Path) -> None:
    sent = call("test")
    assert [(one["name"], one["is_delivered"]) for one in sent["channels"]] == [("hook", True), ("desktop", True)]
    (got,) = receiver.received
    assert got.is_signed_with(KEY)
    assert got.document["type"] == "deedbook.test"
    assert desktop.read_text("utf-8") == "Deedbook: test\n"


@pytest.mark.parametrize("channel", ["1", "hook"])
def test_test_of_one_channel_says_what_came_back(call: Call, receiver: Receiver, channel: str) -> None:
    receiver.script = [Reply(401)]
    failed = call("test", "--channel", channel)
    assert failed["channels"] == [
        {"number": 1, "name": "hook", "is_delivered": False, "said": "the receiver answered 401"}
    ]
    assert failed["exit"] == 7


def test_unknown_channel_is_not_found(call: Call) -> None:
    assert call("test", "--channel", "3")["code"] == "NOT_FOUND"


def test_wrong_table_is_refused_by_every_verb(call: Call, ledger: Ledger) -> None:
    (ledger.home.path / "config.toml").write_text("[[notify]]\nagents = []\n", "utf-8")
    trusted_now(ledger)
    for words in (["list"], ["test"], ["run", "--once"]):
        assert call(*words)["code"] == "INVALID_FIELD"


def test_without_channels_there_is_nothing_to_run(call: Call, ledger: Ledger) -> None:
    (ledger.home.path / "config.toml").unlink()
    assert call("run", "--once")["code"] == "USAGE"
    assert call("test")["code"] == "USAGE"
    assert call("list")["channels"] == []


def test_dead_letters_are_listed_and_sent_again(call: Call, ledger: Ledger, receiver: Receiver) -> None:
    call("run", "--once")
    ledger.hand_over("h1")
    receiver.script = [Reply(404)]
    call("run", "--once")
    shown = call("list")
    (letter,) = shown["dead"]
    assert (letter["channel"], letter["error"], letter["next_ms"]) == ("hook", "the receiver answered 404", None)
    assert [(one["agent"], one["action"], one["id"]) for one in shown["open"]] == [("rita", "approve", "h1")]
    assert call("retry", letter["id"])["retried"] == 1
    assert [one["id"] for one in call("list")["pending"]] == [letter["id"]]
    call("run", "--once")
    assert receiver.ids == [letter["id"]] * 2
    assert call("list")["dead"] == []


@pytest.mark.parametrize("words", [[], ["abc", "--all"]])
def test_retry_takes_an_id_or_all(call: Call, words: list[str]) -> None:
    assert call("retry", *words)["code"] == "USAGE"


def test_retry_of_nothing(call: Call) -> None:
    assert call("retry", "--all")["retried"] == 0
    assert call("retry", "abc")["code"] == "NOT_FOUND"


def test_tables_are_readable(
    call: Call, ledger: Ledger, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    call("run", "--once")
    ledger.hand_over("h1", title="Fix \u202e[31m login")
    receiver.script = [Reply(404)]
    call("run", "--once")
    assert run(["--home", str(ledger.home.path), "notify", "list"]) == 0
    out = capsys.readouterr().out
    for words in ("Channels", "Open waits (1)", "Pending (0)", "Dead letters (1)", "answered 404", "desktop"):
        assert words in out
    assert "\u202e" not in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_notifies_until_it_is_told_to_stop(
    call: Call, ledger: Ledger, receiver: Receiver, number: signal.Signals
) -> None:
    call("run", "--once")
    pipe = subprocess.PIPE
    arguments = ("--home", ledger.home.path, "notify", "run", "--json")
    with DeedProcess(*arguments, stdout=pipe, stderr=pipe, text=True) as child:
        try:
            assert child.stdout
            assert json.loads(child.stdout.readline())["data"] == {"channels": ["hook", "desktop"]}
            ledger.hand_over("h1")
            deadline = time.monotonic() + wait_max_s
            while not receiver.received and time.monotonic() < deadline:
                time.sleep(0.02)
            child.send_signal(number)
            out, err = child.communicate(timeout=wait_max_s)
        finally:
            if child.poll() is None:
                os.kill(child.pid, signal.SIGKILL)
    assert (child.returncode, out, err) == (0, "", "")
    assert [one.document["data"]["subject"] for one in receiver.received] == ["h1"]
