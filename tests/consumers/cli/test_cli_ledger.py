"""The ledger's own verbs: making one, agents and keys, events in and out, proofs, bundles, views."""

from __future__ import annotations

import base64
import json
import os
import signal
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from calling import Baton, Running, call
from nacl.pwhash import argon2id

from ledger.author import Draft, draft_and_sign
from ledger.checkpoint import CheckpointVerifier, verify_checkpoint
from ledger.client import read_event
from ledger.events.session import FindingLogged
from ledger.identity import open_key
from ledger.merkle import leaf_hash
from ledger.receipt import Receipt

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
def passphrase(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Makes descriptors for ``--passphrase-fd`` and closes them; keys are sealed with the least work there is."""
    monkeypatch.setattr(argon2id, "OPSLIMIT_MODERATE", argon2id.OPSLIMIT_MIN)
    monkeypatch.setattr(argon2id, "MEMLIMIT_MODERATE", argon2id.MEMLIMIT_MIN)
    made: list[int] = []

    def make(text: str = PASSPHRASE) -> int:
        made.append(descriptor(text))
        return made[-1]

    yield make
    for one in made:
        os.close(one)


def start(baton: Baton, name: str, agent: str = "a") -> str:
    """Start a session and return its stream."""
    stream = f"session/{name}"
    baton("emit", "session.started", "--stream", stream, "--as", agent, "--data", "{}")
    return stream


def emit(baton: Baton, stream: str, finding: str = "it is so", *more: object) -> dict[str, Any]:
    """Emit a finding and return what was answered."""
    data = json.dumps({"finding": finding})
    answer: dict[str, Any] = baton.data(
        "emit", "finding.logged", "--stream", stream, "--as", "a", "--data", data, *more
    )
    return answer


def test_first_steps_work_in_an_empty_folder_without_any_server(tmp_path: Path) -> None:
    for arguments in (
        ["init"],
        ["agent", "add", "a", "--role", "agent"],
        ["emit", "session.started", "--stream", "session/s1", "--as", "a", "--data", "{}"],
        ["emit", "finding.logged", "--stream", "session/s1", "--as", "a", "--data", '{"finding":"x"}'],
        ["log"],
    ):
        said = call(*arguments, cwd=tmp_path)
        assert (said.code, said.err) == (0, "")
    assert "finding.logged" in call("show", 3, cwd=tmp_path).out
    verified = json.loads(call("verify", "--json", cwd=tmp_path).out)["data"]
    assert (verified["ok"], verified["size"], verified["signatures"]) == (True, 4, 4)


def test_init_twice_is_refused_and_changes_nothing(alone: Baton) -> None:
    before = {path: path.read_bytes() for path in sorted((alone.home / "keys").iterdir())}
    alone.refuses("LEDGER_EXISTS", "init")
    assert {path: path.read_bytes() for path in sorted((alone.home / "keys").iterdir())} == before
    assert alone.size() == 1


def test_init_keeps_the_folder_private_and_out_of_git(alone: Baton) -> None:
    assert (alone.home / ".gitignore").read_text() == "*\n"
    assert stat.S_IMODE(alone.home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (alone.home / "keys").iterdir()} == {0o600}


def test_init_prints_the_fingerprint_that_verify_takes(nowhere: Baton) -> None:
    made = nowhere.data("init", "--origin", "example.org/team")
    assert made["origin"] == "example.org/team"
    assert nowhere.data("verify", "--root", made["root_fingerprint"])["trust"] == "anchored"
    assert nowhere.data("verify")["trust"] == "self-asserted"
    nowhere.refuses_verification("verify", "--root", "0" * 64)


def test_init_seals_the_root_key_with_a_passphrase(nowhere: Baton, passphrase: Callable[..., int]) -> None:
    nowhere.refuses("USAGE", "init", "--sealed")
    nowhere("init", "--sealed", "--passphrase-fd", passphrase())
    nowhere.refuses("KEY_LOCKED", "agent", "add", "a")
    nowhere("agent", "add", "a", "--passphrase-fd", passphrase(), "--unprotected")
    nowhere("agent", "add", "rita", "--role", "human", "--passphrase-fd", passphrase(f"hers\n{PASSPHRASE}"))
    nowhere("key", "delegate", "--as", "a")
    assert nowhere.run("key", "delegate", "--as", "rita", "--passphrase-fd", passphrase("\udc00")).code == 2
    assert nowhere.run("key", "delegate", "--as", "rita", "--passphrase-fd", passphrase("hers")).code == 0


def test_agent_add_twice_is_refused(alone: Baton) -> None:
    alone("agent", "add", "a")
    alone.refuses("AGENT_EXISTS", "agent", "add", "a")
    alone.refuses("INVALID_FIELD", "agent", "add", "Not A Name")


def test_human_without_a_passphrase_is_refused_off_a_terminal(alone: Baton) -> None:
    error = alone.refuses("USAGE", "agent", "add", "rita", "--role", "human")
    assert "--passphrase-fd" in error["message"]
    assert "--unprotected" in error["message"]
    assert not (alone.home / "keys" / "rita.key").exists()


def test_sealed_key_signs_only_with_its_passphrase(alone: Baton, passphrase: Callable[..., int]) -> None:
    alone("agent", "add", "rita", "--role", "human", "--role", "reviewer", "--passphrase-fd", passphrase())
    alone("agent", "add", "a")
    alone("agent", "add", "b")
    alone("handoff", "create", "--id", "h1", "--as", "a", "--to", "b", "--title", "t", "--reviewer", "rita")
    alone.refuses("KEY_LOCKED", "handoff", "approve", "h1", "--as", "rita")
    said = alone.run("handoff", "approve", "h1", "--as", "rita", "--passphrase-fd", passphrase("wrong"))
    assert said.err.startswith("KEY_LOCKED: ")
    assert "approved" in alone("handoff", "approve", "h1", "--as", "rita", "--passphrase-fd", passphrase())


def test_unreadable_passphrase_descriptor_is_a_usage_error(alone: Baton) -> None:
    alone.refuses("USAGE", "agent", "add", "rita", "--role", "human", "--passphrase-fd", "987")


def test_agents_are_listed_and_shown(baton: Baton) -> None:
    listed = {one["name"]: one for one in baton.data("agent", "list")["agents"]}
    assert listed["rita"]["roles"] == ["human", "reviewer"]
    shown = baton.data("agent", "show", "a")
    assert shown["key"] == listed["a"]["key"]
    assert listed["a"]["key"][:16] in baton("agent", "list")
    baton.refuses("NOT_FOUND", "agent", "show", "nobody")


def test_admin_registers_agents(baton: Baton, fresh: Fresh) -> None:
    name = fresh("carl")
    added = baton.data("agent", "add", name, "--role", "agent", "--ai-id", "model-1", "--as", "ada")
    assert baton.data("show", added["index"])["author"] == "ada"
    assert baton.data("agent", "show", name)["ai_id"] == "model-1"
    baton.refuses("NOT_AUTHORIZED", "agent", "add", fresh("eve"), "--as", "a")


def test_root_registers_agents_when_nobody_is_named(baton: Baton, fresh: Fresh) -> None:
    added = baton.data("agent", "add", fresh("dora"))
    assert baton.data("show", added["index"])["author"] == "root"


def test_emitted_event_is_shown_by_index_id_prefix_and_digest(baton: Baton, fresh: Fresh) -> None:
    accepted = emit(baton, start(baton, fresh("show")), "shown")
    by_index = baton.data("show", accepted["index"])
    assert by_index["data"]["finding"] == "shown"
    assert by_index["id"] == accepted["id"]
    digits = accepted["id"].removeprefix("blake3:")
    for ref in (accepted["id"], digits, digits[:12], f"blake3:{digits[:12]}"):
        assert baton.data("show", ref) == by_index
    body_ref = baton.data("log", "--after", accepted["index"] - 1, "--limit", 1)["events"][0]["body_ref"]
    assert baton.data("show", body_ref) == by_index
    assert "shown" in baton("show", accepted["index"])


def test_show_refuses_what_is_not_there(baton: Baton) -> None:
    baton.refuses("NOT_FOUND", "show", 999_999)
    baton.refuses("NOT_FOUND", "show", "0" * 64)
    baton.refuses("NOT_FOUND", "show", "no/such/stream")


def test_receipt_verifies_offline(baton: Baton, fresh: Fresh) -> None:
    accepted = emit(baton, start(baton, fresh("receipt")))
    created = baton.data("show", 0)["data"]
    verifier = CheckpointVerifier(created["origin"], bytes.fromhex(created["checkpoint_key"]))
    answer = baton.data("show", accepted["index"], "--receipt")
    entry = base64.b64decode(answer["entry"])
    assert read_event(accepted["index"], entry).id == accepted["id"]
    checkpoint = Receipt.parse(answer["receipt"]).verify(leaf_hash(entry), verifier)
    assert checkpoint.size > accepted["index"]
    assert baton("show", accepted["index"], "--receipt").startswith("c2sp.org/tlog-proof@v1\nindex ")


def test_dsse_of_an_event_can_be_submitted_again_elsewhere(baton: Baton, fresh: Fresh, tmp_path: Path) -> None:
    accepted = emit(baton, start(baton, fresh("dsse")))
    envelope = baton("show", accepted["index"], "--dsse")
    assert json.loads(envelope)["payloadType"] == "application/vnd.baton.event.v1+json"
    file = tmp_path / "event.json"
    file.write_text(envelope)
    again = baton.data("submit", file)["accepted"]
    assert [(one["index"], one["id"], one["is_repeat"]) for one in again] == [(accepted["index"], accepted["id"], True)]


def test_submission_signed_elsewhere_is_appended(alone: Baton, tmp_path: Path) -> None:
    alone("agent", "add", "a")
    stream = start(alone, "s1")
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


def test_one_event_of_a_batch_is_exported_with_its_path(alone: Baton, tmp_path: Path) -> None:
    test_submission_signed_elsewhere_is_appended(alone, tmp_path)
    file = tmp_path / "one.json"
    file.write_text(alone("show", 4, "--dsse"))
    envelope = json.loads(file.read_text())
    batch = envelope["batonBatch"]
    assert (batch["index"], batch["size"], len(batch["path"])) == (1, 3, 2)


def test_log_pages_on_with_the_command_it_prints(baton: Baton, fresh: Fresh) -> None:
    stream = start(baton, fresh("pages"))
    wanted = [emit(baton, stream, f"number {number}")["index"] for number in range(5)]
    arguments = ["log", "--stream", stream, "--kind", "finding.logged", "--author", "a", "--limit", "2"]
    seen: list[int] = []
    while arguments:
        document = baton.document(*arguments)
        assert document["data"]["total"] == 5
        seen += [one["event_index"] for one in document["data"]["events"]]
        arguments = document.get("next", "").split()[1:]
    assert seen == wanted


def test_log_filters_and_says_when_nothing_fits(baton: Baton, fresh: Fresh) -> None:
    stream = start(baton, fresh("filter"))
    assert baton.data("log", "--stream", stream, "--author", "b")["events"] == []
    assert "(none)" in baton("log", "--stream", stream, "--author", "b")
    assert "unknown.logged" in baton.refuses("UNKNOWN_KIND", "log", "--kind", "finding.loged")["message"]


def test_followed_log_prints_one_document_a_line_until_it_is_interrupted(baton: Baton, fresh: Fresh) -> None:
    stream = start(baton, fresh("follow"))
    assert baton.place is not None
    server = ["--server", baton.place.server, "--as", "a"] if baton.place.server else []
    with Running("--home", baton.home, *server, "log", "--stream", stream, "--follow", "--json") as following:
        assert json.loads(following.line())["kind"] == "session.started"
        for number in range(2):
            index = emit(baton, stream, f"number {number}")["index"]
            event = json.loads(following.line())
            assert (event["index"], event["data"]["finding"]) == (index, f"number {number}")
        said = following.signal(signal.SIGINT)
    assert said.out == ""
    assert "Traceback" not in said.err
    assert said.code == 130


def test_why_walks_back_along_causes(baton: Baton, fresh: Fresh) -> None:
    stream = start(baton, fresh("why"))
    first = emit(baton, stream, "first")
    second = emit(baton, stream, "second", "--cause", first["id"])
    third = emit(baton, stream, "third", "--cause", second["id"])
    answer = baton.data("why", third["id"])
    assert [one["event_index"] for one in answer["causes"]] == [second["index"], first["index"]]
    assert [one["event_index"] for one in baton.data("why", first["id"])["effects"]] == [second["index"]]
    assert [len(line) - len(line.lstrip()) for line in baton("why", third["id"]).splitlines()] == [0, 2, 4]


def test_expected_version_and_idempotency_are_passed_on(baton: Baton, fresh: Fresh) -> None:
    stream = start(baton, fresh("idem"))
    first = emit(baton, stream, "once", "--idem", stream)
    again = emit(baton, stream, "once", "--idem", stream)
    assert (again["id"], again["is_repeat"]) == (first["id"], True)
    data = ["--stream", stream, "--as", "a", "--data", '{"finding":"other"}']
    baton.refuses("IDEMPOTENCY_CONFLICT", "emit", "finding.logged", *data, "--idem", stream)
    baton.refuses("STREAM_CONFLICT", "emit", "finding.logged", *data, "--expect", 9)


def test_data_comes_from_the_argument_a_file_or_standard_input(
    baton: Baton, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = start(baton, fresh("data"))
    file = tmp_path / "data.json"
    file.write_text('{"finding":"从文件"}', "utf-8")
    index = baton.data("emit", "finding.logged", "--stream", stream, "--as", "a", "--data", f"@{file}")["index"]
    assert baton.data("show", index)["data"]["finding"] == "从文件"
    monkeypatch.setattr("sys.stdin", file.open())
    index = baton.data("emit", "finding.logged", "--stream", stream, "--as", "a", "--data", "-")["index"]
    assert baton.data("show", index)["data"]["finding"] == "从文件"
    sys.stdin.close()


def test_acting_agent_comes_from_the_environment(baton: Baton, fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATON_AGENT", "b")
    stream = f"session/{fresh('environment')}"
    index = baton.data("emit", "session.started", "--stream", stream, "--data", "{}")["index"]
    assert baton.data("show", index)["author"] == "b"
    baton(
        "emit",
        "finding.logged",
        "--stream",
        start(baton, fresh("environment")),
        "--as",
        "a",
        "--data",
        '{"finding":"x"}',
    )


def test_ledger_is_found_in_a_parent_folder_and_by_the_environment(
    nowhere: Baton, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere("init")
    ledger = nowhere.data("show", 0)["ledger"]
    home = Path.cwd() / ".baton"
    below = Path.cwd() / "deep" / "down"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert nowhere.data("show", 0)["ledger"] == ledger
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATON_HOME", str(home))
    assert nowhere.data("show", 0)["ledger"] == ledger


def test_verify_says_what_was_verified(baton: Baton) -> None:
    answer = baton.data("verify")
    assert (answer["ok"], answer["trust"], answer["views"]) == (True, "self-asserted", False)
    assert answer["signatures"] == answer["size"]
    assert baton("verify").startswith("ok: ")


def test_verify_holds_the_log_against_an_earlier_checkpoint(alone: Baton, tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.write_text(alone("checkpoint"))
    alone("agent", "add", "a")
    assert alone.data("verify", "--checkpoint", note)["trust"] == "anchored"
    assert alone.data("verify", "--views")["views"] is True
    assert alone.data("fsck")["ok"] is True
    alone.refuses("NOT_FOUND", "verify", "--checkpoint", tmp_path / "nothing")


def test_checkpoint_of_another_ledger_fails_verification(alone: Baton, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert call("--home", other, "init").code == 0
    note = tmp_path / "note"
    note.write_text(call("--home", other, "checkpoint").out)
    report = alone.refuses_verification("verify", "--checkpoint", note)
    assert report["problems_total"] >= 1


def test_checkpoint_is_a_signed_note(baton: Baton) -> None:
    created = baton.data("show", 0)["data"]
    verifier = CheckpointVerifier(created["origin"], bytes.fromhex(created["checkpoint_key"]))
    note = baton("checkpoint")
    assert verify_checkpoint(note, verifier).size == baton.size()


def test_exported_bundle_verifies_and_a_changed_one_does_not(baton: Baton, fresh: Fresh, tmp_path: Path) -> None:
    emit(baton, start(baton, fresh("bundle")), "a finding to be changed")
    file = tmp_path / "bundle.tar"
    exported = baton.data("export", file)
    report = baton.data("verify", "--bundle", file)
    assert (report["ok"], report["size"], report["root"]) == (True, exported["size"], exported["root"])
    content = file.read_bytes()
    changed = tmp_path / "changed.tar"
    changed.write_bytes(content.replace(b"a finding to be changed", b"a finding to be chanGed"))
    assert baton.refuses_verification("verify", "--bundle", changed)["problems_total"] >= 1
    baton.refuses("USAGE", "verify", "--bundle", file, "--views")


def test_bundle_verifies_where_there_is_no_ledger(alone: Baton, tmp_path: Path) -> None:
    alone("agent", "add", "a")
    alone("export", tmp_path / "bundle.tar")
    empty = tmp_path / "elsewhere"
    empty.mkdir()
    said = call("verify", "--bundle", tmp_path / "bundle.tar", "--json", cwd=empty)
    assert json.loads(said.out)["data"]["size"] == 2


def test_bundle_of_one_stream_verifies(baton: Baton, fresh: Fresh, tmp_path: Path) -> None:
    stream = start(baton, fresh("one"))
    emit(baton, stream)
    file = tmp_path / "stream.tar"
    assert baton.data("export", file, "--stream", stream)["stream"] == stream
    report = baton.data("verify", "--bundle", file)
    assert (report["ok"], report["rules_replayed"]) == (True, False)
    baton.refuses("NOT_FOUND", "export", tmp_path / "other.tar", "--stream", "session/nobody-started-this")


def test_views_are_rebuilt_to_the_same_digests(alone: Baton) -> None:
    alone("agent", "add", "a")
    emit(alone, start(alone, "s1"))
    before = alone.data("project")
    assert before["position"] == 4
    assert alone.data("project", "--rebuild") == before
    assert alone.data("project", "--view", "agents", "--rebuild")["digests"].keys() == {"agents"}
    alone.refuses("NOT_FOUND", "project", "--view", "nothing")


def test_doctor_finds_a_sound_ledger_in_order(alone: Baton, passphrase: Callable[..., int]) -> None:
    checks = {one["name"]: one for one in alone.data("doctor")["checks"]}
    assert all(one["ok"] for one in checks.values())
    assert checks["gate"]["found"].startswith("open")
    assert "root" in checks["gate"]["found"]


def test_doctor_names_what_is_wrong_and_the_command_that_mends_it(alone: Baton) -> None:
    (alone.home / "keys" / "node.key").chmod(0o644)
    said = alone.run("doctor")
    assert said.code == 7
    assert "WRONG keys: others can read node.key" in said.out
    assert "chmod 600" in said.out
    assert alone.run("doctor", "--json").code == 7


def test_session_key_signs_until_it_is_revoked(alone: Baton) -> None:
    alone("agent", "add", "a")
    stream = start(alone, "s1")
    delegated = alone.data("key", "delegate", "--as", "a", "--ttl", "1h", "--kind", "finding.*")
    signed = emit(alone, stream)
    assert alone.data("show", signed["index"])["key"] == delegated["key"]
    listed = {one["key"]: one["state"] for one in alone.data("key", "list", "--agent", "a")["keys"]}
    assert listed[delegated["key"]] == "valid"
    alone("key", "revoke", delegated["key"][:16], "--as", "a", "--reason", "lost")
    listed = {one["key"]: one["state"] for one in alone.data("key", "list", "--agent", "a")["keys"]}
    assert listed[delegated["key"]] == "revoked"
    data = ["--stream", stream, "--as", "a", "--data", '{"finding":"x"}']
    error = alone.refuses("KEY_REVOKED", "emit", "finding.logged", *data)
    assert error["recoverable"] is False


def test_session_key_that_does_not_cover_a_kind_is_not_used(alone: Baton) -> None:
    alone("agent", "add", "a")
    identity = alone.data("agent", "show", "a")["key"]
    alone("key", "delegate", "--as", "a", "--kind", "reasoning.*")
    stream = start(alone, "s1")
    assert alone.data("show", emit(alone, stream)["index"])["key"] == identity


def test_key_verbs_refuse_what_they_cannot_do(baton: Baton) -> None:
    baton.refuses("USAGE", "key", "delegate", "--as", "a", "--ttl", "soon")
    baton.refuses("USAGE", "key", "delegate", "--ttl", "1h")
    baton.refuses("NOT_FOUND", "key", "revoke", "ffffffff", "--as", "a")
    baton.refuses("REF_AMBIGUOUS", "key", "revoke", "", "--as", "a")
