"""Events one by one: emitted, submitted, listed, followed, shown, and traced back to their causes."""

from __future__ import annotations

import base64
import io
import json
import signal
import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from calling import Deed, Running, emit_finding, start_session

from deedbook.ledger.client.author import Draft, draft_and_sign
from deedbook.ledger.events.session import FindingLogged
from deedbook.ledger.format.identity import open_key

if TYPE_CHECKING:
    from collections.abc import Callable

    Fresh = Callable[[str], str]


@pytest.mark.served
def test_emitted_event_is_shown_by_index_id_prefix_and_digest(deed: Deed, fresh: Fresh) -> None:
    accepted = emit_finding(deed, start_session(deed, fresh("show")), "shown")
    by_index = deed.data("show", accepted["index"])
    assert by_index["data"]["finding"] == "shown"
    assert by_index["id"] == accepted["id"]
    digits = accepted["id"].removeprefix("event:")
    for ref in (accepted["id"], digits, digits[:12], f"event:{digits[:12]}"):
        assert deed.data("show", ref) == by_index
    body = base64.standard_b64decode(deed.data("show", accepted["index"], "--dsse")["bodies"][0])
    assert deed.data("show", f"sha256:{sha256(body).hexdigest()}") == by_index
    listed = deed.data("log", "--after", accepted["index"] - 1, "--limit", 1)["items"][0]
    assert listed == {name: by_index[name] for name in listed}
    assert "shown" in deed("show", accepted["index"])


def lines(*documents: object) -> bytes:
    """Return JSON lines; bytes stay unchanged."""
    return b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in documents) + b"\n"


def given_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Put some bytes into standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_lines_of_standard_input_are_one_batch_under_one_signature(
    deed: Deed, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = f"session/{fresh('batch')}"
    started = {"stream": stream, "kind": "session.started", "data": {"task": "t"}, "idem": stream}
    found = {"stream": stream, "kind": "finding.logged", "data": {"finding": "f"}, "corr": "c", "expect": 1}
    given_stdin(monkeypatch, lines(started, b"", found))
    accepted = deed.data("emit", "-", "--as", "a")["accepted"]
    assert accepted[1]["index"] == accepted[0]["index"] + 1
    first, second = (deed.data("show", one["index"]) for one in accepted)
    assert (first["batch"], second["batch"]) == ({"index": 0, "size": 2}, {"index": 1, "size": 2})
    assert first["sig"] == second["sig"]
    assert (first["stream_version"], second["stream_version"]) == (1, 2)
    assert first["authority_version"] == second["authority_version"] >= 1
    assert second["corr"] == "c"


def test_a_batch_with_one_wrong_line_leaves_nothing_and_names_the_line(
    deed: Deed, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = f"session/{fresh('batch')}"
    good = {"stream": stream, "kind": "session.started", "data": {}}
    size = deed.written()
    for wrong, code, line in (
        (b"{", "INVALID_FORMAT", 2),
        (b'{"a": 1, "a": 2}', "DUPLICATE_KEY", 2),
        (b"[]", "INVALID_FIELD", 2),
        (good | {"kind": "nothing.done"}, "UNKNOWN_KIND", 2),
        (good | {"more": 1}, "UNKNOWN_FIELD", 2),
        ({"stream": stream, "data": {}}, "INVALID_FIELD", 2),
        (b"\xff", "INVALID_FORMAT", 2),
        (good | {"data": {"task": "\ud800"}}, "INVALID_FORMAT", 2),
        (good, "PARTIAL_RETRY", None),
        (good | {"data": {"task": "again"}}, "TRANSITION_NOT_ALLOWED", None),
        ({"stream": stream, "kind": "finding.logged", "data": {"findings": "f"}}, "UNKNOWN_FIELD", None),
    ):
        given_stdin(monkeypatch, lines(good, wrong))
        said = deed.run("emit", "-", "--as", "a", "--json")
        error = json.loads(said.out)["error"]
        assert (error["code"], error["details"].get("line")) == (code, line), error
    for content, code in (
        (b"\n \n", "USAGE"),
        (lines(*[good] * 257), "TOO_LARGE"),
        (lines(b"[" * 99), "NESTING_TOO_DEEP"),
        (b" " * 8_000_000, "TOO_LARGE"),
    ):
        given_stdin(monkeypatch, content)
        assert json.loads(deed.run("emit", "-", "--as", "a", "--json").out)["error"]["code"] == code
    assert deed.written() == size
    deed.refuses("USAGE", "emit", "-", "--stream", stream, "--as", "a")
    deed.refuses("USAGE", "emit", "session.started", "--data", "{}", "--as", "a")


@pytest.mark.served
def test_dsse_of_an_event_can_be_submitted_again_elsewhere(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    accepted = emit_finding(deed, start_session(deed, fresh("dsse")))
    envelope = deed("show", accepted["index"], "--dsse")
    assert json.loads(envelope)["payloadType"] == "application/vnd.deedbook.batch.v1"
    file = tmp_path / "event.json"
    file.write_text(envelope)
    again = deed.data("submit", file)["accepted"]
    assert [(one["index"], one["id"], one["is_repeat"]) for one in again] == [(accepted["index"], accepted["id"], True)]


def test_submission_signed_elsewhere_is_appended(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a")
    stream = start_session(alone, "s1")
    ledger = alone.data("show", 0)["ledger"]
    key = open_key(alone.home / "keys" / "a.key")
    drafts = [Draft(stream=stream, data=FindingLogged(finding=f"number {number}")) for number in range(3)]
    file = tmp_path / "submission.msgpack"
    file.write_bytes(draft_and_sign(drafts, key, ledger=ledger, author="a").encode())
    accepted = alone.data("submit", file)["accepted"]
    assert [one["index"] for one in accepted] == [3, 4, 5]
    assert alone.data("show", 4)["batch"] == {"index": 1, "size": 3}
    assert [one["is_repeat"] for one in alone.data("submit", file)["accepted"]] == [True, True, True]
    alone.refuses("NOT_FOUND", "submit", tmp_path / "nothing")


def test_one_event_of_a_batch_is_exported_with_its_path(alone: Deed, tmp_path: Path) -> None:
    test_submission_signed_elsewhere_is_appended(alone, tmp_path)
    file = tmp_path / "one.json"
    file.write_text(alone("show", 4, "--dsse"))
    envelope = json.loads(file.read_text())
    size = int.from_bytes(base64.b64decode(envelope["payload"])[:8], "big")
    assert (envelope["index"], size, len(envelope["path"])) == (1, 3, 2)


@pytest.mark.served
def test_log_pages_on_with_the_command_it_prints(deed: Deed, fresh: Fresh) -> None:
    stream = start_session(deed, fresh("pages"))
    wanted = [emit_finding(deed, stream, f"number {number}")["index"] for number in range(5)]
    for order, shown in (([], wanted[::-1]), (["--reverse"], wanted), (["--after", wanted[0]], wanted[1:])):
        arguments = ["log", "--stream", stream, "--kind", "finding.logged", "--author", "a", "--limit", "2", *order]
        seen: list[int] = []
        while arguments:
            document = deed.document(*arguments)
            assert document["data"]["total"] == 5
            seen += [one["index"] for one in document["data"]["items"]]
            arguments = document.get("next", "").split()[1:]
        assert seen == shown
    deed.refuses("USAGE", "log", "--before", 3, "--reverse")


@pytest.mark.served
def test_followed_log_prints_one_document_a_line_until_it_is_interrupted(deed: Deed, fresh: Fresh) -> None:
    stream = start_session(deed, fresh("follow"))
    assert deed.place is not None
    server = ["--server", deed.place.server, "--as", "a"] if deed.place.server else []
    with Running("--home", deed.home, *server, "log", "--stream", stream, "--follow", "--json") as following:
        assert json.loads(following.line())["kind"] == "session.started"
        for number in range(2):
            index = emit_finding(deed, stream, f"number {number}")["index"]
            event = json.loads(following.line())
            assert (event["index"], event["data"]["finding"]) == (index, f"number {number}")
        said = following.signal(signal.SIGINT)
    assert said.out == ""
    assert "Traceback" not in said.err
    assert said.code == 130


@pytest.mark.parametrize(("options", "count"), [(["--limit", "2"], 2), (["--limit", "2", "--reverse"], 3)])
def test_followed_log_begins_with_what_the_log_shows(deed: Deed, fresh: Fresh, options: list[str], count: int) -> None:
    stream = start_session(deed, fresh("tail"))
    indexes = [emit_finding(deed, stream, f"number {number}")["index"] for number in range(2)]
    chosen = ["--author", "a", "--stream", stream, *options]
    with Running("--home", deed.home, "log", *chosen, "--follow", "--json") as following:
        assert [json.loads(following.line())["index"] for _ in range(count)][-2:] == indexes
        index = emit_finding(deed, stream, "what comes")["index"]
        assert json.loads(following.line())["index"] == index
        following.signal(signal.SIGINT)


def test_data_comes_from_the_argument_a_file_or_standard_input(
    deed: Deed, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = start_session(deed, fresh("data"))
    file = tmp_path / "data.json"
    file.write_text('{"finding":"从文件"}', "utf-8")
    index = deed.data("emit", "finding.logged", "--stream", stream, "--as", "a", "--data", f"@{file}")["index"]
    assert deed.data("show", index)["data"]["finding"] == "从文件"
    monkeypatch.setattr("sys.stdin", file.open())
    index = deed.data("emit", "finding.logged", "--stream", stream, "--as", "a", "--data", "-")["index"]
    assert deed.data("show", index)["data"]["finding"] == "从文件"
    sys.stdin.close()


def test_acting_agent_comes_from_the_environment(deed: Deed, fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEDBOOK_AGENT", "b")
    stream = f"session/{fresh('environment')}"
    index = deed.data("emit", "session.started", "--stream", stream, "--data", "{}")["index"]
    assert deed.data("show", index)["author"] == "b"
    deed(
        "emit",
        "finding.logged",
        "--stream",
        start_session(deed, fresh("environment")),
        "--as",
        "a",
        "--data",
        '{"finding":"x"}',
    )


def test_log_shows_the_beginning_of_each_text(alone: Deed) -> None:
    alone("agent", "add", "kuro")
    alone("session", "start", "s1", "--as", "kuro", "--task", "Find the leak")
    alone("session", "finding", "The buffer holds\n3 items", "--as", "kuro")
    said = alone("log").splitlines()
    assert said[0].split()[-1] == "text"
    assert said[1].endswith("The buffer holds 3 items")
    assert said[2].endswith("Find the leak")


def test_a_page_as_json_says_on_stderr_that_there_is_more(alone: Deed) -> None:
    alone("agent", "add", "a")
    stream = start_session(alone, "long")
    for number in range(20):
        emit_finding(alone, stream, f"a rare finding {number}")
    assert alone.run("log", "--stream", stream, "--json").err == ""
    assert alone.run("search", "rare finding", "--json").err == ""
    emit_finding(alone, stream, "a rare finding once more")
    said = alone.run("search", "rare finding", "--json")
    following = json.loads(said.out)["next"]
    assert said.err == f"a page of 21 rows; continue with: {following} --json\n"
    assert alone.run("search", "rare finding", "--limit", 20, "--json").err == ""  # the caller asked for a page
