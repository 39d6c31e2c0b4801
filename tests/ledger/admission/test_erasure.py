"""Erasing bodies: who may do it, and what stays in the log, in its copies, and in files: nowhere the body."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import tot_story
from building import Ledger, key_named
from checking import check_log
from erasing import SECRET, files_with
from event_examples import EXAMPLES, PROTO
from msgspec.structs import replace

from deedbook.consumers.thoughts.events import DecomposeTask
from deedbook.ledger import limits
from deedbook.ledger.admission import rewriter
from deedbook.ledger.admission.check import check
from deedbook.ledger.admission.follower import LogFollower
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.admission.replay import PartialReplay
from deedbook.ledger.admission.rewriter import finish_erasures
from deedbook.ledger.client.author import Draft, body_of, sign
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.events.authority import (
    AgentRemoved,
    CheckpointKeyRotated,
    HistoryReset,
    KeyRotated,
    RedactionProposed,
    RoleRevoked,
)
from deedbook.ledger.events.body import decode_body
from deedbook.ledger.events.handoff import HandoffCancelled
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.remnant import ERASED, _erased_body, read_stored
from deedbook.ledger.events.session import FindingLogged, SessionStarted, ToolUsed
from deedbook.ledger.format.envelope import decode_entry, is_remnant
from deedbook.ledger.home.quota import Quota
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.log.log import Log

if TYPE_CHECKING:
    from pathlib import Path


def entries_of(log: Log) -> list[bytes]:
    """Return all entries of a small log."""
    with log.snapshot() as snapshot:
        return snapshot.entries(0, limit=1000, size_max_bytes=2**22)


def records_of(log: Log) -> dict[bytes, bytes]:
    """Return the state of a log without the records that no replay rebuilds."""
    with log.tables.reading() as txn:
        return {key: value for key, value in log.tables.items(txn, log.tables.state, b"") if key[:1] not in b"wpqm"}


def replayed(entries: list[bytes]) -> PartialReplay:
    """Replay a whole log as a reader does, and return the replay."""
    part = PartialReplay()
    batch_path: list[bytes] = []
    for index, data in enumerate(entries):
        part.feed(index, data, batch_path, is_verified=True)
    part.finish()
    return part


def log_secret(ledger: Ledger) -> int:
    """Log a finding with a secret among other findings, and return its index."""
    ledger.emit("alice", "session/s", SessionStarted())
    ledger.emit("alice", "session/s", FindingLogged(finding="before"))
    secret = ledger.emit("alice", "session/s", FindingLogged(finding=f"the password is {SECRET}"))
    for number in range(40):
        ledger.emit("alice", "session/s", FindingLogged(finding=f"after {number} " + "x" * 300))
    return secret.index


def test_after_root_erased_a_finding_no_file_holds_it_and_every_proof_holds(ledger: Ledger) -> None:
    index = log_secret(ledger)
    with ledger.log.snapshot() as snapshot:
        size, root, path = snapshot.size, snapshot.root(), snapshot.inclusion_proof(index)
        entry = decode_entry(snapshot.entry(index))
    assert files_with(ledger.home.path, SECRET)
    ledger.redact(index)
    assert files_with(ledger.home.path, SECRET) == []
    with ledger.log.snapshot() as snapshot:
        erased = decode_entry(snapshot.entry(index))
        assert (snapshot.frontier(size).root(), snapshot.inclusion_proof(index, size)) == (root, path)
    assert (erased.commitment, erased.leaf(), erased.sig) == (entry.commitment, entry.leaf(), entry.sig)
    event = ledger.event(index)
    assert event.data == FindingLogged(finding=ERASED)
    assert (event.kind, event.stream, event.author, event.erased is not None) == (
        "finding.logged",
        "session/s",
        "alice",
        True,
    )
    ledger.emit("alice", "session/s", FindingLogged(finding="and the log goes on"))


def test_log_stays_valid_and_its_state_is_the_one_that_a_replay_gives(ledger: Ledger, tmp_path: Path) -> None:
    data = ledger.hand_over("h", task=f"use {SECRET}", criteria=["it works"])
    ledger.approve("h", data)
    ledger.claim("h")
    ledger.emit("alice", "handoff/h", HandoffCancelled(reason=f"because of {SECRET}"))
    version = ledger.handoff("h").version
    created, cancelled = (index_of(ledger, kind) for kind in ("handoff.created", "handoff.cancelled"))
    for index in (created, cancelled):
        ledger.redact(index)
    assert ledger.handoff("h").version == version
    assert ledger.handoff("h").reason == ERASED
    assert SECRET not in str(records_of(ledger.log))
    assert replayed(entries_of(ledger.log)).refused == {}
    (tmp_path / "copy").mkdir()
    with Log(tmp_path / "copy", create=True, map_size=2**26) as copy:
        LogFollower(copy).append(0, entries_of(ledger.log))
        assert records_of(copy) == records_of(ledger.log)


def index_of(ledger: Ledger, kind: str) -> int:
    """Return the index of the first event of a kind."""
    return next(index for index in range(ledger.head()[0]) if ledger.event(index).kind == kind)


@pytest.mark.parametrize("is_whole", [True, False], ids=["copied before", "copied after"])
def test_copy_of_the_log_erases_the_same(ledger: Ledger, tmp_path: Path, *, is_whole: bool) -> None:
    index = log_secret(ledger)
    before = entries_of(ledger.log)
    ledger.redact(index)
    entries = [*before, *entries_of(ledger.log)[len(before) :]] if is_whole else entries_of(ledger.log)
    (tmp_path / "copy").mkdir()
    with Log(tmp_path / "copy", create=True, map_size=2**26) as copy:
        assert LogFollower(copy).append(0, entries) == len(entries)
        finish_erasures(copy)
        assert entries_of(copy) == entries_of(ledger.log)
        assert records_of(copy) == records_of(ledger.log)
    assert files_with(tmp_path / "copy", SECRET) == []


def test_two_humans_erase_together_and_nobody_else(ledger: Ledger) -> None:
    index = log_secret(ledger)
    ledger.register("hana", "human")
    data = ledger.redaction(index)
    fields = msgspec.structs.asdict(data)
    proposal = RedactionProposed(**fields)
    for author in ("alice", "rita", "hana"):
        refused = ledger.refusal_of(lambda author=author: ledger.emit(author, "ledger", data))
        assert refused.code == "NOT_AUTHORIZED"
    assert ledger.refusal_of(lambda: ledger.emit("alice", "ledger", proposal)).code == "NOT_AUTHORIZED"
    ledger.emit("rita", "ledger", proposal)
    assert not is_remnant(decode_entry(entries_of(ledger.log)[index]).body)
    assert ledger.refusal_of(lambda: ledger.emit("rita", "ledger", data)).code == "NOT_AUTHORIZED"
    ledger.emit("hana", "ledger", data)
    assert is_remnant(decode_entry(entries_of(ledger.log)[index]).body)
    assert replayed(entries_of(ledger.log)).refused == {}


def test_humans_do_not_erase_an_entry_of_authority(ledger: Ledger) -> None:
    ledger.register("hana", "human")
    index = ledger.emit("root", "agent/bob", RoleRevoked(agent="bob", role="agent", reason=SECRET)).index
    data = ledger.redaction(index)
    proposal = RedactionProposed(**msgspec.structs.asdict(data))
    assert ledger.refusal_of(lambda: ledger.emit("rita", "ledger", proposal)).code == "NOT_AUTHORIZED"
    ledger.redact(index)
    assert files_with(ledger.home.path, SECRET) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"entry": 10_000}, "INVALID_FIELD"),
        ({"event": "event:" + "0" * 64}, "INVALID_FIELD"),
        ({"remnant": "sha256:" + "0" * 64}, "INVALID_FIELD"),
        ({"blobs": ["blake3:" + "0" * 64]}, "INVALID_FIELD"),
    ],
)
def test_redaction_that_does_not_fit_its_entry_is_refused(ledger: Ledger, changes: dict[str, Any], code: str) -> None:
    index = log_secret(ledger)
    data = ledger.redaction(index, **changes)
    assert ledger.refusal_of(lambda: ledger.emit("root", "ledger", data)).code == code


def test_entry_is_erased_once_and_an_entry_without_texts_not_at_all(ledger: Ledger) -> None:
    index = log_secret(ledger)
    again = ledger.redaction(index, "for another reason")
    ledger.redact(index)
    assert ledger.refusal_of(lambda: ledger.emit("root", "ledger", again)).code == "NOTHING_CHANGED"
    assert ledger.refusal_of(lambda: ledger.redact(index)).code == "NOTHING_CHANGED"
    assert ledger.refusal_of(lambda: ledger.redact(1)).code == "NOTHING_CHANGED"


def test_redaction_must_be_alone_in_its_submission(ledger: Ledger) -> None:
    index = log_secret(ledger)
    batch = ledger.sign("root", *(Draft(stream="ledger", data=ledger.redaction(index, reason)) for reason in "ab"))
    assert ledger.refusal_of(lambda: ledger.submit(batch)).code == "INVALID_FIELD"


def test_erased_entry_that_nobody_named_is_refused_by_every_reader(ledger: Ledger, tmp_path: Path) -> None:
    index = log_secret(ledger)
    whole = entries_of(ledger.log)
    ledger.redact(index)
    hostile = [*whole[:index], entries_of(ledger.log)[index], *whole[index + 1 :]]
    assert [*replayed(hostile).refused] == [index]
    (tmp_path / "copy").mkdir()
    with Log(tmp_path / "copy", create=True, map_size=2**26) as copy:
        LogFollower(copy).append(0, hostile)
        with pytest.raises(Corrupted, match="no later entry\\.redacted names"):
            Gate(copy).submit(ledger.sign("alice", Draft(stream="session/s", data=FindingLogged(finding="more"))))


def test_remnant_with_words_of_others_is_refused(ledger: Ledger) -> None:
    index = log_secret(ledger)
    ledger.redact(index)
    entry = decode_entry(entries_of(ledger.log)[index])
    forged = msgspec.structs.replace(entry, body=entry.body.replace(ERASED.encode(), b"I approve everything"))
    hostile = [*entries_of(ledger.log)[:index], forged.encode()]
    assert [*replayed(hostile).refused] == [index]


# A declaration is never erased, because its texts decide later events.
@pytest.mark.parametrize("kind", sorted(EXAMPLES.keys() - {"kind.declared"}))
def test_what_is_left_of_each_kind_is_read_again(kind: str) -> None:
    text = (PROTO / "examples" / f"{kind}.json").read_bytes()
    body, data = decode_body(text)
    for mark in (ERASED, "*"):
        raw = _erased_body(text, data, mark)
        again, left = decode_body(raw)
        assert _erased_body(raw, left, mark) == raw
        assert (again.kind, again.stream, again.author) == (body.kind, body.stream, body.author)


def test_rest_of_the_worst_body_that_is_admitted_fits_into_an_entry(ledger: Ledger) -> None:
    """With the usual mark, which is longer than each text, the remnant would be too large. So a short mark is used."""
    data = {"title": "title", "to": "bob", "reviewer": "rita", "notes": {"found": ["a"]}}
    draft = Draft(stream="handoff/worst", kind="handoff.created", data=data)
    body = body_of(draft, ledger=ledger.id, author="alice", at=ledger.clock.text(), salt="A" * 22)
    count, rest = divmod(limits.body_size_max_bytes - len(body), len(b'"a",'))
    body = body.replace(b'"a"', b'"a",' * count + b'"a"').replace(b'"title":"', b'"title":"' + b"t" * rest)
    assert len(body) == limits.body_size_max_bytes
    accepted = ledger.submit(sign([body], ledger.keys["alice"]))
    assert ledger.refusal_of(lambda: ledger.submit(sign([body + b" "], ledger.keys["alice"]))).code == "TOO_LARGE"
    version = ledger.handoff("worst").version
    ledger.redact(accepted[0].index)
    entry = decode_entry(entries_of(ledger.log)[accepted[0].index])
    assert limits.body_size_max_bytes < len(entry.body) <= limits.remnant_size_max_bytes
    assert ledger.event(accepted[0].index).data.title == "*"
    assert ledger.handoff("worst").version == version
    largest = msgspec.structs.replace(
        entry,
        batch_index=255,
        batch_size=256,
        accepted_ms=limits.clock_max_ms,
        stream_version=2**63,
        authority_version=2**63,
    )
    most = limits.remnant_size_max_bytes - len(entry.body)
    assert len(largest.encode()) + most <= limits.entry_size_max_bytes
    assert replayed(entries_of(ledger.log)).refused == {}


def test_nobody_submits_what_looks_like_the_rest_of_a_body(ledger: Ledger) -> None:
    index = log_secret(ledger)
    ledger.redact(index)
    left = decode_entry(entries_of(ledger.log)[index]).body
    for body in (left, b'{"redacted":"event:"}'):
        refused = ledger.refusal_of(lambda body=body: ledger.submit(sign([body], ledger.keys["alice"])))
        assert refused.code == "UNKNOWN_FIELD"


@pytest.mark.parametrize("kind", ["key.rotated", "checkpoint_key.rotated", "ledger.history_reset"])
def test_events_on_which_keys_and_histories_rest_are_never_erased(ledger: Ledger, kind: str) -> None:
    key = key_named("second")
    proof = key.prove_possession(ledger.id, "root" if kind == "key.rotated" else "checkpoint")
    data: Any = {
        "key.rotated": KeyRotated(agent="root", key=key.public.hex(), proof=proof, reason=SECRET),
        "checkpoint_key.rotated": CheckpointKeyRotated(key=key.public.hex(), proof=proof, reason=SECRET),
        "ledger.history_reset": HistoryReset(abandoned_size=9, abandoned_root="1" * 64, reason=SECRET),
    }[kind]
    index = ledger.emit("root", "agent/root" if kind == "key.rotated" else "ledger", data).index
    assert ledger.refusal_of(lambda: ledger.redaction(index)).code == "TRANSITION_NOT_ALLOWED"


def test_process_that_was_open_goes_on_with_the_rewritten_file(ledger: Ledger) -> None:
    index = log_secret(ledger)
    other_size = ledger.head()[0]
    ledger.redact(index)
    assert ledger.head()[0] == other_size + 1
    ledger.emit("alice", "session/s", FindingLogged(finding="more"))
    assert read_stored(decode_entry(entries_of(ledger.log)[index]).body).remnant is not None


def test_records_with_erased_texts_are_not_called_edited_before_the_log_is_rewritten(ledger: Ledger) -> None:
    ledger.hand_over("h")
    cancelled = ledger.emit("alice", "handoff/h", HandoffCancelled(reason=SECRET), idem="one")
    removed = ledger.emit(ROOT, "agent/bob", AgentRemoved(agent="bob", reason=SECRET))
    for index in (cancelled.index, removed.index):
        ledger.emit(ROOT, "ledger", ledger.redaction(index))
    other = Gate(ledger.log, clock_ms=ledger.clock)

    def codes() -> list[str]:
        again = ledger.sign("alice", Draft(stream="handoff/h", data=HandoffCancelled(reason="again")))
        by_bob = ledger.sign("bob", Draft(stream="session/b", data=SessionStarted()))
        return [ledger.refusal_of(partial(other.submit, each)).code for each in (again, by_bob)]

    retried = Draft(stream="handoff/h", data=HandoffCancelled(reason=SECRET), idem="one", corr="another salt")
    before = codes()
    assert before == ["TRANSITION_NOT_ALLOWED", "KEY_REVOKED"]
    assert other.submit(ledger.sign("alice", retried))[0].index == cancelled.index
    assert files_with(ledger.home.path, SECRET)
    finish_erasures(ledger.log)
    assert codes() == before
    assert files_with(ledger.home.path, SECRET) == []


def log_secrets(ledger: Ledger, count: int) -> list[int]:
    """Log ``count`` findings with secrets, and return their indexes."""
    ledger.emit("alice", "session/s", SessionStarted())
    return [
        ledger.emit("alice", "session/s", FindingLogged(finding=f"{SECRET} {number}")).index for number in range(count)
    ]


def begin_redaction(ledger: Ledger, index: int) -> None:
    """Redact an entry, but leave its body in the file of the log."""
    ledger.emit(ROOT, "ledger", ledger.redaction(index))


def test_writers_go_on_while_the_log_is_copied_and_nothing_of_theirs_is_lost(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriter, "range_events_max", 4)
    indexes = [log_secret(ledger), *log_secrets(ledger, 2)]
    begin_redaction(ledger, indexes.pop())
    added: list[int] = []

    def write(_done: int, _total: int) -> None:
        if len(added) < 40:  # otherwise the copying never ends
            data = FindingLogged(finding=f"meanwhile {len(added)}")
            added.append(ledger.emit("alice", "session/s", data).index)
            if indexes and len(added) > 8:  # a redaction restarts the copying
                begin_redaction(ledger, indexes.pop())

    assert finish_erasures(ledger.log, write)
    assert indexes == []
    assert len(added) > 20
    findings = [ledger.event(index).data for index in added]
    assert findings == [FindingLogged(finding=f"meanwhile {number}") for number in range(len(added))]
    assert files_with(ledger.home.path, SECRET) == []
    check_log(ledger.log)
    assert replayed(entries_of(ledger.log)).refused == {}
    assert not finish_erasures(ledger.log)


def test_redactions_without_end_leave_the_log_marked_and_say_so(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    indexes = log_secrets(ledger, rewriter.attempts_max + 1)
    begin_redaction(ledger, indexes.pop())
    with pytest.raises(Unavailable, match="redactions kept coming"):
        finish_erasures(ledger.log, lambda _done, _total: begin_redaction(ledger, indexes.pop()))
    assert pauses == sorted(pauses)
    assert len(pauses) == rewriter.attempts_max
    assert [path.name for path in ledger.home.path.iterdir()] == ["log"]
    assert finish_erasures(ledger.log)
    assert files_with(ledger.home.path, SECRET) == []


def test_next_writer_goes_on_with_the_log_that_a_stopped_process_left_and_does_not_wait_for_a_running_one(
    ledger: Ledger,
) -> None:
    (index,) = log_secrets(ledger, 1)
    ledger.write_keys()
    with ledger.client() as client:
        client.submit(ledger.sign(ROOT, Draft(stream="ledger", data=ledger.redaction(index))))
        with ledger.log.tables.rewriting() as is_ours:
            assert is_ours
            assert not finish_erasures(ledger.log, waits=False)
            client.submit(ledger.sign("alice", Draft(stream="session/s", data=FindingLogged(finding="more"))))
        assert files_with(ledger.home.path / "log", SECRET)
        client.submit(ledger.sign("alice", Draft(stream="session/s", data=FindingLogged(finding="and more"))))
        assert files_with(ledger.home.path / "log", SECRET) == []


def test_process_that_waited_for_another_to_rewrite_the_log_does_not_do_it_again(ledger: Ledger) -> None:
    (index,) = log_secrets(ledger, 1)
    begin_redaction(ledger, index)
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(finish_erasures(ledger.log)))

    def wait(_done: int, _total: int) -> None:
        if not waiting.is_alive():
            waiting.start()

    assert finish_erasures(ledger.log, wait)
    waiting.join()
    assert answers == [False]


def test_copy_of_a_log_compares_no_erased_texts_before_its_file_is_rewritten(ledger: Ledger, tmp_path: Path) -> None:
    tot_story.register(ledger)
    first = ledger.head()[0]
    (started,) = tot_story.play(ledger, tot_story.STORY[:1])
    before = entries_of(ledger.log)
    ledger.redact(first)
    asked = tot_story.STORY[1]
    assert isinstance(asked.data, DecomposeTask)
    other = replace(asked.data, payload=replace(asked.data.payload, problem="another problem"))
    draft = Draft(stream=f"tot/{tot_story.TASK}", data=other, causes=[started])
    ledger.submit(ledger.sign(tot_story.agent(asked.role), draft))
    (tmp_path / "copy").mkdir()
    with Log(tmp_path / "copy", create=True, map_size=2**26) as copy:
        follower = LogFollower(copy)
        follower.append(0, before)
        for index, entry in enumerate(entries_of(ledger.log)[len(before) :], len(before)):
            assert follower.append(index, [entry]) == 1
        finish_erasures(copy)
        assert records_of(copy) == records_of(ledger.log)


def test_refused_redaction_erases_nothing_with_the_commit_of_others(ledger: Ledger) -> None:
    index = log_secret(ledger)
    ledger.register("hana", "human")
    data = ledger.redaction(index)
    ledger.emit("rita", "ledger", RedactionProposed(**msgspec.structs.asdict(data)))
    limited = Gate(ledger.log, clock_ms=ledger.clock, quota=Quota(events_per_minute=1))
    limited.submit(ledger.sign("hana", Draft(stream="session/h", data=SessionStarted())))
    drafts = {"hana": Draft(stream="ledger", data=data), "bob": Draft(stream="session/b", data=SessionStarted())}
    refused, accepted = limited.admit([check(ledger.sign(author, draft)) for author, draft in drafts.items()])
    assert isinstance(refused, Unavailable)
    assert isinstance(accepted, list)
    assert not is_remnant(decode_entry(entries_of(ledger.log)[index]).body)


def test_each_message_of_a_search_can_be_erased(ledger: Ledger) -> None:
    tot_story.register(ledger)
    tot_story.play(ledger)
    before = ledger.head()[0]
    for index in range(before):
        if ledger.event(index).stream.startswith("tot/"):
            with contextlib.suppress(Refused):  # a message without texts cannot be erased
                ledger.emit("root", "ledger", ledger.redaction(index))
    finish_erasures(ledger.log)
    erased = [index for index in range(before) if ledger.event(index).erased]
    assert len(erased) > 10
    assert replayed(entries_of(ledger.log)).refused == {}


def test_blob_that_is_erased_with_an_entry_is_in_no_file(ledger: Ledger) -> None:
    ref = ledger.put_blob("alice", SECRET.encode() * 100)
    other = ledger.put_blob("alice", b"something else")
    ledger.emit("alice", "session/s", SessionStarted())
    for blob in (other, ref):
        used = ToolUsed(tool="cat", purpose=f"a file (kept: {blob})")
        index = ledger.emit("alice", "session/s", used).index
    assert files_with(ledger.home.path, SECRET)
    ledger.emit(ROOT, "ledger", ledger.redaction(index, blobs=[ref]))
    finish_erasures(ledger.log)
    assert files_with(ledger.home.path, SECRET) == []
    assert ledger.log.blobs.find(ref) is None
    assert ledger.log.blobs.get(other) == b"something else"


def test_blob_that_is_only_evidence_is_erased_with_its_entry_and_never_stored_again(ledger: Ledger) -> None:
    ref = ledger.put_blob("alice", SECRET.encode() * 100)
    ledger.emit("alice", "session/s", SessionStarted())
    index = ledger.emit("alice", "session/s", FindingLogged(finding="see the file", evidence=[ref])).index
    ledger.emit(ROOT, "ledger", ledger.redaction(index, blobs=[ref]))
    finish_erasures(ledger.log)
    assert ledger.log.blobs.find(ref) is None
    assert files_with(ledger.home.path, SECRET) == []
    refusal = ledger.refusal_of(lambda: ledger.put_blob("bob", SECRET.encode() * 100))
    assert refusal.code == "TRANSITION_NOT_ALLOWED"
    assert files_with(ledger.home.path, SECRET) == []


def test_imported_handoff_keeps_its_sender(ledger: Ledger) -> None:
    mapped = {"title": f"Use {SECRET}", "to": "bob", "reviewer": "rita", "task": SECRET, "criteria": [SECRET]}
    record = RecordImported(
        original="blake3:" + "1" * 64,
        source="h.md",
        format="handoff/v2",
        mapped_kind="handoff.created",
        mapped=mapped,
        claims={"status": "done"},
        claimed_author="Kuro",
        body=SECRET,
    )
    index = ledger.emit("alice", "handoff/h", record).index
    before = ledger.handoff("h")
    ledger.redact(index)
    assert ledger.handoff("h") == before
    assert before.sender == "Kuro"
    assert files_with(ledger.home.path, SECRET) == []
    assert replayed(entries_of(ledger.log)).refused == {}
