"""A stranger replays a log through a client and finds forged, moved, missing and unlawful events, by index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from building import Clock, Ledger, key_named
from tampering import (
    SESSION,
    append_behind_the_gate,
    changed,
    codes_at,
    entries_of,
    fill,
    finding,
    forged,
    named,
    overwrite,
    rebuilt,
)

from deedbook.consumers.auditor.fsck import fsck
from deedbook.consumers.auditor.verify import verify_log
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import AgentRegistered
from deedbook.ledger.events.handoff import HandoffApproved, HandoffClaimed
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.home.trust import fingerprint
from deedbook.ledger.lifecycle.handoff import compute_version
from deedbook.ledger.proof.checkpoint import Checkpoint, sign_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.consumers.auditor.report import AuditReport


def audit(ledger: Ledger, **options: str) -> AuditReport:
    """Verify a ledger as `deed verify` does: through a client that may read a log other than the trusted one."""
    with ledger.client(only_looks=True) as client:
        return verify_log(client, **options)


def test_honest_log_passes_and_is_self_asserted(ledger: Ledger) -> None:
    fill(ledger)
    report = audit(ledger)
    assert report.ok, report.problems
    gate = "gate: open (the keys of rita and root have no passphrase)"
    assert report.verdict == f"VALID: {report.size} entries, {report.size} signatures (self-asserted)"
    assert report.gate_line == gate
    assert report.tree_head == ledger.head()[1].hex()
    assert report.ledger == ledger.id
    assert report.root_fingerprint == fingerprint(ledger.keys["root"].public)
    assert sum(report.kinds.values()) == report.size == ledger.head()[0]


def test_progress_ends_at_the_size_of_the_log(ledger: Ledger) -> None:
    fill(ledger)
    seen: list[tuple[int, int]] = []
    with ledger.client() as client:
        verify_log(client, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (ledger.head()[0], ledger.head()[0])


@pytest.mark.parametrize("digits", [32, 40, 64])
def test_root_fingerprint_anchors_the_verdict(ledger: Ledger, digits: int) -> None:
    report = audit(ledger, root=fingerprint(ledger.keys["root"].public)[:digits].upper())
    assert report.ok
    assert report.trust == "anchored"


def test_too_short_a_fingerprint_anchors_nothing(ledger: Ledger) -> None:
    with pytest.raises(Refused, match="fingerprint"):
        audit(ledger, root=fingerprint(ledger.keys["root"].public)[:31])


def test_second_history_under_another_root_fails_against_the_fingerprint(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    other = Ledger.__new__(Ledger)
    real, mine = key_named("root"), key_named("a root of my own")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("building.key_named", lambda name: mine if name == "root" else key_named(name))
        other.__init__(tmp_path / "other")  # type: ignore[misc]
    with other:
        fill(other)
        assert audit(other).ok
        report = audit(other, root=fingerprint(real.public))
    assert codes_at(report, 0) == {"VERIFICATION_FAILED"}
    assert not report.anchored


def test_forged_signature_is_named(ledger: Ledger) -> None:
    fill(ledger)
    real = decode_entry(forged(ledger, "alice", SESSION, finding(1)))
    index = append_behind_the_gate(ledger, changed(real.encode(), sig=bytes([real.sig[0] ^ 1]) + real.sig[1:]))
    report = audit(ledger)
    assert named(report) == {index}
    assert codes_at(report, index) == {"SIGNATURE_INVALID"}


def test_event_signed_by_somebody_else_is_named(ledger: Ledger) -> None:
    fill(ledger)
    index = append_behind_the_gate(ledger, forged(ledger, "alice", SESSION, finding(1), key="bob"))
    assert codes_at(audit(ledger), index) == {"AUTHOR_MISMATCH"}


def test_event_of_an_unregistered_key_is_named(ledger: Ledger) -> None:
    ledger.keys["eve"] = key_named("eve")
    index = append_behind_the_gate(ledger, forged(ledger, "eve", "session/eve", SessionStarted(task="get in")))
    assert codes_at(audit(ledger), index) == {"KEY_UNKNOWN"}


def test_approval_by_one_who_is_no_reviewer_is_named(ledger: Ledger) -> None:
    data = ledger.hand_over("one")
    approval = HandoffApproved(version=compute_version("alice", data))
    index = append_behind_the_gate(ledger, forged(ledger, "bob", "handoff/one", approval))
    claim = append_behind_the_gate(ledger, forged(ledger, "bob", "handoff/one", HandoffClaimed()))
    for report in (audit(ledger), fsck(ledger.home.path)):
        assert codes_at(report, index) & {"SELF_APPROVAL", "NOT_AUTHORIZED"}
        assert "NOT_APPROVED" in codes_at(report, claim)
        assert not report.ok


def test_self_made_admin_is_named(ledger: Ledger) -> None:
    proof = key_named("eve").prove_possession(ledger.id, "eve")
    data = AgentRegistered(name="eve", key=key_named("eve").public.hex(), proof=proof, roles=["admin"])
    index = append_behind_the_gate(ledger, forged(ledger, "alice", "agent/eve", data))
    ledger.emit("alice", SESSION, SessionStarted())  # an entry after the forged one is no problem
    assert [(one.index, one.code) for one in audit(ledger).problems] == [(index, "NOT_AUTHORIZED")]


def test_dependency_of_which_no_entry_counts_is_missing(ledger: Ledger) -> None:
    ledger.approve("top", ledger.hand_over("top", depends_on=["ghost"]))
    ghost = forged(ledger, "rita", "handoff/ghost", HandoffApproved(version="sha256:" + "0" * 64))
    index = append_behind_the_gate(ledger, ghost, forged(ledger, "bob", "handoff/top", HandoffClaimed()))
    problems = [(one.index, one.code) for one in audit(ledger).problems]
    assert problems == [(index, "NOT_FOUND"), (index + 1, "DEPENDENCY_MISSING")]


def test_event_twice_in_the_log_is_named(ledger: Ledger) -> None:
    fill(ledger)
    entries = entries_of(ledger)
    index = append_behind_the_gate(ledger, changed(entries[13], accepted_ms=ledger.clock.now_ms))
    assert codes_at(audit(ledger), index) == {"PARTIAL_RETRY"}


def test_clock_that_goes_back_is_named(ledger: Ledger) -> None:
    fill(ledger)
    behind = changed(forged(ledger, "alice", SESSION, finding(98)), accepted_ms=ledger.clock.now_ms - 5)
    index = append_behind_the_gate(ledger, behind, forged(ledger, "alice", SESSION, finding(99)))
    report = audit(ledger)
    assert (named(report), codes_at(report, index)) == ({index}, {"VERIFICATION_FAILED"})


def test_clock_that_runs_ahead_blames_the_entry_that_is_ahead(ledger: Ledger) -> None:
    fill(ledger)
    ahead = changed(forged(ledger, "alice", SESSION, finding(98)), accepted_ms=ledger.clock.now_ms + 10**9)
    later = [forged(ledger, "alice", SESSION, finding(number)) for number in (99, 100)]
    index = append_behind_the_gate(ledger, ahead, *later)
    assert named(audit(ledger)) == {index}


def test_last_entry_behind_the_clock_is_named_with_the_one_before_it(ledger: Ledger) -> None:
    fill(ledger)
    behind = changed(forged(ledger, "alice", SESSION, finding(98)), accepted_ms=ledger.clock.now_ms - 5)
    index = append_behind_the_gate(ledger, behind)
    assert named(audit(ledger)) == {index - 1, index}


@pytest.mark.parametrize("field", ["stream_version", "authority_version"])
def test_wrong_version_in_the_tree_is_named_with_the_right_one_and_shifts_only_the_next(
    ledger: Ledger, tmp_path: Path, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(ledger)
    entries = entries_of(ledger)
    right = getattr(decode_entry(entries[14]), field)
    entries[14] = changed(entries[14], **{field: right + 1})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "stranger"))  # a first-time reader of this ledger
    with rebuilt(ledger, tmp_path / "copy", entries) as other:
        report = audit(other)
    assert [(one.index, one.code) for one in report.problems] == [
        (14, "VERIFICATION_FAILED"),
        (15, "VERIFICATION_FAILED"),
    ]
    assert f"{right + 1}" in report.problems[0].message
    assert f" {right}" in report.problems[0].message


def test_entry_in_another_form_is_named(ledger: Ledger) -> None:
    fill(ledger)
    entries = entries_of(ledger)
    lax = entries[12].replace(b"\x9a\x01", b"\x9a\xcc\x01", 1)
    assert lax != entries[12]
    overwrite(ledger, {12: lax})
    report = audit(ledger)
    assert codes_at(report, 12) == {"INVALID_FORMAT"}
    assert named(report) == {12}
    assert None in {one.index for one in report.problems}


def test_what_follows_a_lost_entry_is_a_note(ledger: Ledger) -> None:
    fill(ledger)
    created = next(index for index in range(30) if ledger.event(index).kind == "handoff.created")
    overwrite(ledger, {created: b"\x9a"})
    report = audit(ledger)
    assert named(report) == {created}
    assert any(one.code == "NOT_FOUND" for one in report.notes)


def test_removed_entry_is_named(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    entries = entries_of(ledger)
    with rebuilt(ledger, tmp_path / "cut", entries[:6] + entries[7:]) as other:
        assert 6 in named(audit(other))


def test_reordered_entries_are_named(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    entries = entries_of(ledger)
    with rebuilt(ledger, tmp_path / "turned", [*entries[:14], entries[15], entries[14], *entries[16:]]) as other:
        assert named(audit(other)) & {14, 15}


def test_swapped_entries_are_found_by_the_root_of_the_head(ledger: Ledger) -> None:
    fill(ledger, batch=2)
    entries = entries_of(ledger)
    overwrite(ledger, {13: entries[14], 14: entries[13]})
    report = audit(ledger)
    assert not report.ok
    assert report.tree_head != ledger.head()[1].hex()


@pytest.mark.parametrize("field", ["sig", "key", "batch_index", "batch_size", "accepted_ms", "body"])
def test_changed_member_of_a_batch_is_named(ledger: Ledger, field: str) -> None:
    fill(ledger)
    entries = entries_of(ledger)
    index = next(index for index, data in enumerate(entries) if decode_entry(data).batch_size == 12) + 5
    entry = decode_entry(entries[index])
    values = {
        "sig": bytes(64),
        "key": bytes(32),
        "batch_index": 7,
        "batch_size": 11,
        "accepted_ms": entry.accepted_ms + 1,
        "body": entry.body.replace(b"finding 5", b"finding 6"),
    }
    assert values["body"] != entry.body
    overwrite(ledger, {index: changed(entries[index], **{field: values[field]})})
    report = audit(ledger)
    places = {(one.index or 0, one.end or (one.index or 0) + 1) for one in report.problems if one.index is not None}
    assert any(start <= index < end for start, end in places), report.problems
    if field != "body":
        assert index in named(report)
    assert index in named(fsck(ledger.home.path))


def test_wrong_signature_of_the_first_of_a_batch_is_named_alone(ledger: Ledger) -> None:
    fill(ledger)
    entries = entries_of(ledger)
    first = next(index for index, data in enumerate(entries) if decode_entry(data).batch_size == 12)
    overwrite(ledger, {first: changed(entries[first], sig=bytes(64))})
    assert [one.index for one in audit(ledger).problems if one.code == "SIGNATURE_INVALID"] == [first]


def test_batch_cut_short_is_named(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    entries = entries_of(ledger)
    first = next(index for index, data in enumerate(entries) if decode_entry(data).batch_size == 12)
    with rebuilt(ledger, tmp_path / "short", entries[: first + 7]) as other:
        report = audit(other)
    assert codes_at(report, first) == {"VERIFICATION_FAILED"}


def checkpoint_of(ledger: Ledger, key_of: Ledger | None = None) -> str:
    """Return a signed checkpoint of a ledger as it is now."""
    size, root = ledger.head()
    key = (key_of or ledger).checkpoint_key
    return sign_checkpoint(Checkpoint(key.origin, size, root), key)


def test_trusted_checkpoint_anchors_a_log_that_grew(ledger: Ledger) -> None:
    kept = checkpoint_of(ledger)
    fill(ledger)
    report = audit(ledger, trusted_checkpoint=kept)
    assert report.ok
    assert report.anchored
    assert fsck(ledger.home.path, trusted_checkpoint=kept).anchored


def test_log_cut_off_behind_a_trusted_checkpoint_is_found(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    kept = checkpoint_of(ledger)
    with rebuilt(ledger, tmp_path / "old", entries_of(ledger)[:20]) as other:
        assert audit(other).ok
        report = audit(other, trusted_checkpoint=kept)
    assert codes_at(report, 20) == {"HISTORY_CHANGED"}
    assert report.outcome == "HISTORY_CHANGED"
    assert not report.anchored


def test_forked_log_is_found_by_a_trusted_checkpoint(ledger: Ledger, tmp_path: Path) -> None:
    common = entries_of(ledger)
    ledger.emit("alice", SESSION, SessionStarted(task="the true one"))
    kept = checkpoint_of(ledger)
    other_event = forged(ledger, "alice", "session/fork", SessionStarted(task="the other one"))
    with rebuilt(ledger, tmp_path / "fork", [*common, other_event]) as other:
        assert audit(other).ok
        report = audit(other, trusted_checkpoint=kept)
    assert not report.ok
    assert report.outcome == "HISTORY_CHANGED"
    assert not report.anchored


def test_checkpoint_of_another_key_anchors_nothing(ledger: Ledger) -> None:
    size, root = ledger.head()
    key = msgspec.structs.replace(ledger.checkpoint_key, seed=bytes(32))
    report = audit(ledger, trusted_checkpoint=sign_checkpoint(Checkpoint(key.origin, size, root), key))
    assert not report.ok
    assert not report.anchored


def test_text_that_is_no_checkpoint_is_refused(ledger: Ledger) -> None:
    with pytest.raises(Refused) as caught:
        audit(ledger, trusted_checkpoint="trust me")
    assert caught.value.code == "INVALID_FORMAT"


def test_cause_that_is_nowhere_is_a_note(ledger: Ledger) -> None:
    ledger.emit("alice", SESSION, SessionStarted(), causes=["event:" + "0" * 64])
    report = audit(ledger)
    assert report.ok
    assert [(one.index, one.code) for one in report.notes] == [(4, "NOT_FOUND")]


def test_problems_are_listed_up_to_a_limit_and_counted(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.consumers.auditor.report.problems_listed_max", 3)
    bad = [forged(ledger, "alice", "session/none", finding(number)) for number in range(10)]
    append_behind_the_gate(ledger, *bad)
    report = audit(ledger)
    assert (len(report.problems), report.problems_total) == (3, 10)


def test_clock_of_the_gate_may_stand_still(home: Path) -> None:
    with Ledger(home, clock=Clock(0)) as ledger:
        fill(ledger)
        assert audit(ledger).ok
