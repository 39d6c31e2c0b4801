"""Uploads are signed, ordered, resumable and within a quota. Only unreferenced blobs are deleted."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from blake3 import blake3
from building import MAP_SIZE, Ledger, key_named, refs_of, usage_of
from faults import times

from deedbook.ledger.client.local import LocalClient, now_ms
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.authority import KeyRevoked
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.session import FindingLogged, ReportGenerated, SessionStarted
from deedbook.ledger.home.config import Config
from deedbook.ledger.home.quota import Quota
from deedbook.ledger.limits import blob_chunk_bytes, blob_overhead_bytes, blob_size_max_bytes, blob_unreferenced_max_s
from deedbook.ledger.log import expiry
from deedbook.ledger.log.blob_files import FOLDER, PART_NAME, blob_name
from deedbook.ledger.log.blob_table import Position, Usage
from deedbook.ledger.log.expiry import ExpiryResult, drop_unreferenced, read_references
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.uploads import UploadProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deedbook.ledger.format.envelope import Submission

CHUNK = blob_chunk_bytes


def later_ms() -> int:
    """Return a time at which all intents until now have expired. Call it within a test, after the intents are made."""
    return now_ms() + (blob_unreferenced_max_s + 60) * 1000


def content_of(name: str, chunks: int = 2) -> bytes:
    """Return content of ``chunks`` whole chunks and ten more bytes."""
    return (name.encode() * (chunks + 1) * CHUNK)[: chunks * CHUNK + 10]


def code_of(action: Callable[[], object]) -> str:
    """Return the code with which an action fails."""
    with pytest.raises(DeedbookError) as failed:
        action()
    return failed.value.code


def client_with(ledger: Ledger, **quota: int) -> LocalClient:
    """Return a client with other quotas."""
    settings = ledger.settings()
    config = msgspec.structs.replace(settings.config, quota=Quota(**quota))
    return LocalClient(msgspec.structs.replace(settings, config=config), log=ledger.log)


def begin(client: LocalClient, intent: Submission) -> UploadProgress:
    """Begin an upload."""
    return client.uploads.begin(client.check_intent(intent))


def refer(ledger: Ledger, ref: str) -> None:
    """Append an event of alice that references a blob."""
    ledger.emit("alice", "session/s1", SessionStarted())
    ledger.emit("alice", "session/s1", FindingLogged(finding="see the file", evidence=[ref]))


def test_upload_can_be_resumed_and_ends_with_its_last_chunk(ledger: Ledger) -> None:
    content = content_of("a")
    digest = blake3(content).digest()
    with ledger.client() as client:
        assert begin(client, ledger.intent("alice", content)) == (0, None)
        assert client.uploads.add("alice", digest, 0, content[:CHUNK]) == (CHUNK, None)
        assert client.uploads.add("alice", digest, 0, content[:CHUNK]) == (CHUNK, None)
        assert begin(client, ledger.intent("alice", content)) == (CHUNK, None)
        view = client.stat_blob("blake3:" + digest.hex())
        assert (view.received, view.size, view.sha256) == (CHUNK, len(content), "")
        client.uploads.add("alice", digest, 1, content[CHUNK : 2 * CHUNK])
        progress = client.uploads.add("alice", digest, 2, content[2 * CHUNK :])
        assert progress == (len(content), "blake3:" + digest.hex())
        assert client.get_blob("blake3:" + digest.hex()) == content


def test_chunk_of_a_wrong_number_or_size_is_refused(ledger: Ledger) -> None:
    content = content_of("a")
    digest = blake3(content).digest()
    with ledger.client() as client:
        add = client.uploads.add
        assert code_of(lambda: add("alice", digest, 0, content[:CHUNK])) == "CHUNK_MISPLACED"
        begin(client, ledger.intent("alice", content))
        assert code_of(lambda: add("alice", digest, 1, content[:CHUNK])) == "CHUNK_MISPLACED"
        assert code_of(lambda: add("bob", digest, 0, content[:CHUNK])) == "CHUNK_MISPLACED"
        assert code_of(lambda: add("alice", digest, 0, content[: CHUNK - 1])) == "INVALID_FIELD"
        assert code_of(lambda: add("alice", digest, 0, content[: CHUNK + 1])) == "TOO_LARGE"


def test_content_that_was_not_announced_is_refused_and_deleted(ledger: Ledger) -> None:
    content = content_of("a", 1)
    digest = blake3(content).digest()
    with ledger.client() as client:
        begin(client, ledger.intent("alice", content))
        client.uploads.add("alice", digest, 0, content[:CHUNK])
        assert code_of(lambda: client.uploads.add("alice", digest, 1, b"0123456789")) == "VERIFICATION_FAILED"
        assert usage_of(ledger.log.blobs, "alice") == Usage()
        assert code_of(lambda: client.put_blob(b"x", ledger.intent("alice", content))) == "INVALID_FIELD"
        wrong = ledger.intent("alice", content, size=5)
        assert code_of(lambda: client.put_blob(content, wrong)) == "INVALID_FIELD"
        client.put_blob(content, ledger.intent("alice", content))
        assert code_of(lambda: begin(client, wrong)) == "INVALID_FIELD"


def test_two_uploads_of_the_same_content_are_independent(ledger: Ledger) -> None:
    content = content_of("a", 1)
    digest = blake3(content).digest()
    with ledger.client() as client:
        for name in ("alice", "bob"):
            begin(client, ledger.intent(name, content))
        client.uploads.add("bob", digest, 0, b"b" * CHUNK)  # has another hash than announced
        client.uploads.add("alice", digest, 0, content[:CHUNK])
        progress = client.uploads.add("alice", digest, 1, content[CHUNK:])
        assert client.uploads.add("bob", digest, 1, content[CHUNK:]) == progress
        assert client.get_blob("blake3:" + digest.hex()) == content
        assert [owner.author for owner in client.stat_blob("blake3:" + digest.hex()).stored] == ["alice", "bob"]


@pytest.mark.parametrize("case", ["revoked", "stranger", "forged", "no intent", "other stream", "in the log"])
def test_intent_is_checked_like_an_event(ledger: Ledger, case: str) -> None:
    content = b"content"
    intent = ledger.intent("alice", content)
    code = {"revoked": "KEY_REVOKED", "stranger": "KEY_UNKNOWN", "forged": "SIGNATURE_INVALID"}.get(case, "")
    if case == "revoked":
        ledger.emit("alice", "agent/alice", KeyRevoked(key=ledger.keys["alice"].public.hex(), reason="lost"))
    if case == "stranger":
        intent = ledger.intent("alice", content, key=key_named("nobody"))
    if case == "forged":
        intent = msgspec.structs.replace(intent, sig=bytes(64))
    if case == "no intent":
        code = "INVALID_FORMAT"
        intent = ledger.sign("alice", *ledger_drafts())
    if case == "other stream":
        code = "INVALID_FIELD"
        intent = ledger.intent("alice", content, ref="blake3:" + "0" * 64)
    with ledger.client() as client:
        if case == "in the log":
            assert code_of(lambda: client.submit(intent)) == "TRANSITION_NOT_ALLOWED"
            return
        assert code_of(lambda: client.put_blob(content, intent)) == code
    assert refs_of(ledger.log.blobs) == []


def ledger_drafts() -> list[Any]:
    """Return the draft of an event that is not an intent."""
    from deedbook.ledger.client.author import Draft

    return [Draft(stream="session/s9", data=SessionStarted())]


def test_quota_ends_one_agents_uploads_and_nobody_elses(ledger: Ledger) -> None:
    cost = 1000 + blob_overhead_bytes
    with client_with(ledger, blob_bytes_unreferenced=2 * cost, blob_bytes=3 * cost) as client:
        refs = [client.put_blob(bytes([n]) * 1000, ledger.intent("alice", bytes([n]) * 1000)) for n in range(2)]
        third, fourth = b"3" * 1000, b"4" * 1000
        assert code_of(lambda: client.put_blob(third, ledger.intent("alice", third))) == "QUOTA_EXCEEDED"
        client.put_blob(refs[0].encode(), ledger.intent("bob", refs[0].encode()))
        client.put_blob(bytes([1]) * 1000, ledger.intent("alice", bytes([1]) * 1000))  # already counted
        refer(ledger, refs[0])
        assert read_references(ledger.log) == ledger.head()[0]
        assert usage_of(ledger.log.blobs, "alice") == Usage(2, 2 * cost, cost)
        client.put_blob(third, ledger.intent("alice", third))
        refer_again = [ref for ref in refs if ref != refs[0]]
        ledger.emit("alice", "session/s1", FindingLogged(finding="more", evidence=refer_again))
        read_references(ledger.log)
        with pytest.raises(DeedbookError) as full:
            client.put_blob(fourth, ledger.intent("alice", fourth))
        assert (full.value.code, full.value.details["setting"]) == ("QUOTA_EXCEEDED", "blob_bytes")


def test_unreferenced_blob_is_deleted_after_a_day(ledger: Ledger) -> None:
    referenced = ledger.put_blob("alice", b"kept")
    artifact = ledger.put_blob("alice", b"kept as an artifact")
    referenced_by_sha = ledger.put_blob("alice", b"kept by its other digest")
    lost = ledger.put_blob("alice", b"lost" * 50_000)
    record = ledger.log.blobs.find(referenced_by_sha)
    assert record is not None
    ledger.emit("alice", "session/s1", SessionStarted())
    sha = "sha256:" + record.sha256.hex()
    ledger.emit("alice", "session/s1", FindingLogged(finding="see", evidence=[referenced, sha]))
    ledger.emit("alice", "session/s1", FindingLogged(finding=f"report.txt (kept: {artifact})"))
    with ledger.client() as client:
        unfinished = content_of("u")
        begin(client, ledger.intent("bob", unfinished))
        client.uploads.add("bob", blake3(unfinished).digest(), 0, unfinished[:CHUNK])
        assert drop_unreferenced(ledger.log) == ExpiryResult(0, 0)
        assert drop_unreferenced(ledger.log, now_ms=later_ms()) == ExpiryResult(2, 200_000 + CHUNK)
        assert sorted(refs_of(ledger.log.blobs)) == sorted([referenced, artifact, referenced_by_sha])
        assert code_of(lambda: client.get_blob(lost)) == "NOT_FOUND"
        assert usage_of(ledger.log.blobs, "bob") == Usage()
        assert usage_of(ledger.log.blobs, "alice").unreferenced == 0
    assert len(list(ledger.log.blobs.files.names())) == 3
    assert ledger.log.blobs.used_bytes() == len(b"kept" + b"kept as an artifact" + b"kept by its other digest")


def test_blob_that_another_agent_stored_since_stays(ledger: Ledger) -> None:
    ref = ledger.put_blob("alice", b"shared")
    intent = ledger.log.blobs.intent("alice", bytes.fromhex(ref.partition(":")[2]))
    assert intent is not None
    with ledger.log.blobs.writing() as table:
        table.put_intent(msgspec.structs.replace(intent, accepted_ms=0))
    ledger.put_blob("bob", b"shared")
    assert drop_unreferenced(ledger.log) == ExpiryResult(0, 0)
    with ledger.client() as client:
        assert [owner.author for owner in client.stat_blob(ref).stored] == ["bob"]
        assert client.get_blob(ref) == b"shared"
    assert usage_of(ledger.log.blobs, "alice") == Usage()


@pytest.mark.parametrize("per_transaction", [1, 2, 256])
def test_progress_counts_each_examined_intent(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, per_transaction: int
) -> None:
    monkeypatch.setattr(expiry, "_intents_per_transaction", per_transaction)
    for number in range(5):
        ledger.put_blob("alice", b"%d" % number)
    examined = []
    drop_unreferenced(ledger.log, now_ms=later_ms(), progress=lambda done, _: examined.append(done))
    assert examined[-1] == 5
    assert refs_of(ledger.log.blobs) == []


def test_entries_that_came_during_the_search_are_not_read_under_the_lock_of_the_log(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = ledger.put_blob("alice", b"referenced late")
    ledger.put_blob("alice", b"lost")
    read_next, writing, held = expiry._next_references, ledger.log.writing, list[bool]()

    @contextlib.contextmanager
    def watched() -> Iterator[Any]:
        with writing() as opened:
            held.append(True)
            yield opened
            held.append(False)

    def read(*arguments: Any) -> Any:
        found = read_next(*arguments)
        assert held[-1:] != [True] or found is None
        return found

    monkeypatch.setattr(ledger.log, "writing", watched)
    monkeypatch.setattr(expiry, "_next_references", read)
    # When the search reports its progress, it has found both blobs unreferenced; then one gets a reference.
    result = drop_unreferenced(ledger.log, now_ms=later_ms(), progress=lambda *_: refer(ledger, ref))
    assert (result, refs_of(ledger.log.blobs)) == (ExpiryResult(1, 4), [ref])
    assert held[-2:] == [True, False]


def test_blob_stays_when_another_log_was_read_before_the_drop(ledger: Ledger) -> None:
    ref = ledger.put_blob("alice", b"content")

    def read_another_log(*_: int) -> None:
        refer(ledger, ref)
        with ledger.log.blobs.writing() as table:
            table.put_position(Position(10_000, bytes(32)))

    assert drop_unreferenced(ledger.log, now_ms=later_ms(), progress=read_another_log) == ExpiryResult(0, 0)
    assert refs_of(ledger.log.blobs) == [ref]


def test_references_are_read_again_from_another_log(ledger: Ledger) -> None:
    ref = ledger.put_blob("alice", b"content")
    refer(ledger, ref)
    read_references(ledger.log)
    with ledger.log.blobs.writing() as table:
        table.put_position(Position(3, bytes(32)))
        table.put_reference("blake3:" + "0" * 64, 0)
    with ledger.client() as client:
        assert client.stat_blob(ref).referenced_by == ledger.head()[0] - 1
    assert usage_of(ledger.log.blobs, "alice").unreferenced == 0


def test_event_whose_blob_is_gone_is_refused_by_the_gate(ledger: Ledger) -> None:
    content = "too long for an entry"
    long_text = {"path": "/x", "ref": "blake3:" + blake3(content.encode()).hexdigest()}
    from event_examples import EXAMPLES

    data = EXAMPLES["report.generated"] | {"long_texts": [long_text]}
    draft: dict[str, Any] = {"kind": "report.generated"}
    ledger.emit("alice", "session/s1", SessionStarted())
    with ledger.client() as client:
        from deedbook.ledger.client.author import Draft

        submission = ledger.sign("alice", Draft(stream="session/s1", data=data, **draft))
        with pytest.raises(Refused) as refused:
            client.submit(submission)
        assert (refused.value.code, refused.value.details["ref"]) == ("NOT_FOUND", long_text["ref"])
        ledger.put_blob("alice", content.encode())
        client.submit(submission)
        assert drop_unreferenced(ledger.log, now_ms=later_ms()) == ExpiryResult(0, 0)


PUT = """
import sys
from pathlib import Path
from building import Ledger
def chunks():
    yield b"k" * 100_000
    print("a part is there", flush=True)
    sys.stdin.read()
with Ledger(Path(sys.argv[1])) as ledger, ledger.client() as client:
    client.uploads.put(chunks(), client.check_intent(ledger.intent("alice", b"k" * 200_000)))
"""


def test_part_of_a_running_writer_stays_and_that_of_a_killed_one_is_swept(home: Path) -> None:
    content = b"k" * 200_000
    with Ledger(home):
        pass
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", PUT, str(home)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"a part")
        with Ledger(home) as ledger:
            assert drop_unreferenced(ledger.log, now_ms=later_ms()) == ExpiryResult(0, 0)
            (part,) = ledger.log.blobs.files.names()
            assert PART_NAME.fullmatch(part)
        process.kill()
    with Ledger(home) as ledger, ledger.client() as client:
        assert refs_of(ledger.log.blobs) == []
        assert usage_of(ledger.log.blobs, "alice") == Usage()
        drop_unreferenced(ledger.log)
        assert list(ledger.log.blobs.files.names()) == []
        ref = client.put_blob(content, ledger.intent("alice", content))
        assert client.get_blob(ref) == content


@pytest.mark.parametrize(("length", "received"), [(CHUNK + 7, CHUNK), (3 * CHUNK + 7, 2 * CHUNK), (5, 0)])
def test_upload_goes_on_after_whole_chunks_of_its_part(ledger: Ledger, length: int, received: int) -> None:
    content = content_of("a")
    digest = blake3(content).digest()
    with ledger.client() as client:
        begin(client, ledger.intent("alice", content))
        client.uploads.add("alice", digest, 0, content[:CHUNK])
        (part,) = ledger.log.blobs.files.names()
        (ledger.home.path / FOLDER / part).write_bytes((content + b"?" * CHUNK)[:length])
        assert begin(client, ledger.intent("alice", content)) == (received, None)
        for number in range(received // CHUNK, 3):
            progress = client.uploads.add("alice", digest, number, content[number * CHUNK : (number + 1) * CHUNK])
        assert client.get_blob(progress.ref or "") == content


def test_file_without_a_record_becomes_a_blob_if_an_entry_references_it_and_else_expires(ledger: Ledger) -> None:
    contents = {name: name.encode() for name in ("referenced", "by sha256", "lost", "changed")}
    refs = {name: ledger.put_blob("alice", content) for name, content in contents.items()}
    sha = "sha256:" + hashlib.sha256(contents["by sha256"]).hexdigest()
    ledger.emit("alice", "session/s1", SessionStarted())
    evidence = [refs["referenced"], sha, refs["changed"]]
    ledger.emit("alice", "session/s1", FindingLogged(finding="see", evidence=evidence))
    folder = ledger.home.path / FOLDER
    kept = {path: path.read_bytes() for path in folder.glob("*/*")}
    ledger.log.blobs.remove(refs.values())
    for path, content in kept.items():
        path.write_bytes(b"another" if content == contents["changed"] else content)
    (folder / "notes.txt").write_text("a strange file stays")
    expiry.sweep_files(ledger.log, 0)
    assert refs_of(ledger.log.blobs) == [refs["referenced"]]
    expiry.sweep_files(ledger.log)
    assert sorted(refs_of(ledger.log.blobs)) == sorted([refs["referenced"], refs["by sha256"]])
    assert len(list(ledger.log.blobs.files.names())) == 5
    drop_unreferenced(ledger.log, now_ms=later_ms())
    names = [blob_name(bytes.fromhex(refs[name].partition(":")[2])) for name in ("referenced", "by sha256")]
    assert sorted(ledger.log.blobs.files.names()) == sorted([*names, "notes.txt"])
    assert ledger.log.blobs.get(refs["by sha256"]) == contents["by sha256"]


APPEND = """
import sys
from pathlib import Path
from building import Ledger
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.session import SessionStarted
from event_examples import EXAMPLES
with Ledger(Path(sys.argv[1])) as ledger, ledger.client() as client:
    ledger.emit("alice", "session/s1", SessionStarted())
    for number in range(int(sys.argv[2])):
        sys.stdin.readline()
        ref = ledger.put_blob("alice", b"%d" % number)
        print(ref, flush=True)
        sys.stdin.readline()
        try:
            data = EXAMPLES["report.generated"] | {"long_texts": [{"path": "/x", "ref": ref}]}
            client.submit(ledger.sign("alice", Draft(stream="session/s1", kind="report.generated", data=data)))
        except Refused as refusal:
            assert refusal.code == "NOT_FOUND", refusal
        print(ref, flush=True)
"""


def test_events_and_dropping_in_two_processes_leave_no_entry_without_its_blob(home: Path) -> None:
    """In each round, one process appends an event that references a blob while another deletes unreferenced blobs."""
    rounds = times(24, each=40)
    with Ledger(home):
        pass
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        subprocess.Popen(
            [sys.executable, "-c", APPEND, str(home), str(rounds)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        Log(home, map_size=MAP_SIZE, blobs_size_max=MAP_SIZE) as log,
    ):
        assert process.stdout is not None

        def start_next_step() -> None:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

        for number in range(rounds):
            start_next_step()
            ref = process.stdout.readline().strip()
            start_next_step()
            time.sleep(0.0005 * (number % 8))  # different delays, so that either process may be first
            drop_unreferenced(log, now_ms=later_ms())
            assert process.stdout.readline().strip() == ref
            with log.snapshot() as snapshot:
                last = read_event(snapshot.size - 1, snapshot.entry(snapshot.size - 1))
            is_accepted = isinstance(last.data, ReportGenerated) and last.data.long_texts[0].ref == ref
            assert (ref in refs_of(log.blobs)) == is_accepted, number
    assert process.returncode == 0


def test_quota_of_every_agent_has_room_for_the_largest_blob() -> None:
    assert (
        blob_size_max_bytes + blob_overhead_bytes < Config().quota.blob_bytes_unreferenced < Config().quota.blob_bytes
    )
