"""Both verifiers follow keys through the log: lawful rotations pass, and a replaced key signs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from building import Ledger, key_named
from bundles import run_alone, unpacked
from tampering import append_behind_the_gate, codes_at, forged

from deedbook.consumers.auditor.bundle import verify_bundle
from deedbook.consumers.auditor.verify import verify_log
from deedbook.ledger.bundle import export_bundle
from deedbook.ledger.bundle.layout import fingerprint
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import AgentRemoved, CheckpointKeyRotated, KeyCompromised, KeyRotated
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.identity import Key
from deedbook.ledger.lifecycle.authority import CHECKPOINT, NODE, ROOT
from deedbook.ledger.proof.checkpoint import Checkpoint, CheckpointKey, sign_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

STREAM = "session/s1"


def rotation(ledger: Ledger, agent: str, key: Key) -> KeyRotated:
    return KeyRotated(agent=agent, key=key.public.hex(), proof=key.prove_possession(ledger.id, agent))


def rotate(ledger: Ledger, agent: str, *, by: str | None = None) -> Key:
    """Give an agent a new key and return the old one."""
    old, new = ledger.keys[agent], key_named(f"{agent} anew {ledger.head()[0]}")
    ledger.emit(by or agent, f"agent/{agent}", rotation(ledger, agent, new))
    ledger.keys[agent] = new
    return old


def rotate_checkpoint(ledger: Ledger) -> CheckpointKey:
    """Replace the checkpoint key, in its file too, and return the old one."""
    old, new = ledger.checkpoint_key, key_named("checkpoint anew")
    proof = new.prove_possession(ledger.id, CHECKPOINT)
    ledger.emit(ROOT, "ledger", CheckpointKeyRotated(key=new.public.hex(), proof=proof))
    ledger.keys[CHECKPOINT] = new
    ledger.home.key_file(CHECKPOINT).unlink(missing_ok=True)
    return old


def lived(ledger: Ledger) -> dict[str, Key]:
    """Replace every key, report one as compromised, and remove an agent; return the old keys."""
    ledger.emit("alice", STREAM, SessionStarted())
    old = {"alice": rotate(ledger, "alice"), ROOT: rotate(ledger, ROOT), NODE: rotate(ledger, NODE, by=ROOT)}
    ledger.emit("alice", STREAM, FindingLogged(finding="one"))
    rotate_checkpoint(ledger)
    ledger.emit(ROOT, "agent/bob", KeyCompromised(key=ledger.keys["bob"].public.hex(), since=0))
    old["bob"] = rotate(ledger, "bob", by=ROOT)
    ledger.delegate("alice", key_named("session"))
    ledger.emit("alice", STREAM, FindingLogged(finding="two"), key=key_named("session"))
    ledger.emit(ROOT, "agent/bob", AgentRemoved(agent="bob"))
    return old


def exported(ledger: Ledger, folder: Path, stream: str | None) -> Path:
    path = folder / "bundle.tar"
    with ledger.client() as client:
        export_bundle(client, path, stream=stream)
    return path


@pytest.mark.parametrize("stream", [None, STREAM])
def test_log_of_rotated_keys_passes_under_the_first_roots_fingerprint(
    ledger: Ledger, tmp_path: Path, stream: str | None
) -> None:
    first = fingerprint(ledger.keys[ROOT].public)
    lived(ledger)
    path = exported(ledger, tmp_path, stream)
    report = verify_bundle(path, root=first)
    assert (report.problems, report.trust) == ([], "anchored")
    answer = run_alone(unpacked(path, tmp_path / "unpacked"), "--root", first)
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stdout
    with ledger.client() as client:
        assert verify_log(client, root=first).problems == []
        assert not verify_log(client, root=fingerprint(ledger.keys[ROOT].public)).ok  # the key after a rotation


@pytest.mark.parametrize("stream", [None, STREAM])
def test_event_by_a_key_that_was_replaced_fails_in_both(ledger: Ledger, tmp_path: Path, stream: str | None) -> None:
    old = lived(ledger)
    at = ledger.head()[0]
    ledger.keys["gone"] = old["alice"]
    append_behind_the_gate(ledger, forged(ledger, "alice", STREAM, FindingLogged(finding="late"), key="gone"))
    path = exported(ledger, tmp_path, stream)
    assert codes_at(verify_bundle(path), at) == {"KEY_REVOKED"}
    answer = run_alone(unpacked(path, tmp_path / "unpacked"))
    assert answer.returncode == 6
    named = f"entry {at}: KEY_REVOKED: finding.logged by alice on {STREAM}: the key of alice ended at entry"
    assert named in answer.stdout


@pytest.mark.parametrize(
    ("author", "key", "code"),
    [("bob", "bob", "NOT_AUTHORIZED"), (ROOT, "gone", "KEY_REVOKED"), (NODE, NODE, "NOT_AUTHORIZED")],
)
@pytest.mark.parametrize("stream", [None, STREAM])
def test_rotation_by_who_may_not_fails_in_both(
    ledger: Ledger, tmp_path: Path, stream: str | None, author: str, key: str, code: str
) -> None:
    ledger.emit("alice", STREAM, SessionStarted())
    ledger.keys["gone"] = rotate(ledger, ROOT)
    at = ledger.head()[0]
    data = rotation(ledger, "alice", key_named("mallory"))
    append_behind_the_gate(ledger, forged(ledger, author, "agent/alice", data, key=key))
    path = exported(ledger, tmp_path, stream)
    assert codes_at(verify_bundle(path), at) == {code}
    answer = run_alone(unpacked(path, tmp_path / "unpacked"))
    assert answer.returncode == 6
    assert f"entry {at}: " in answer.stdout


def test_checkpoint_counts_under_the_key_of_its_size(ledger: Ledger, tmp_path: Path) -> None:
    ledger.emit("alice", STREAM, SessionStarted())

    def note(key: CheckpointKey) -> str:
        size, root = ledger.head()
        return sign_checkpoint(Checkpoint(key.origin, size, root), key)

    before = note(ledger.checkpoint_key)
    old = rotate_checkpoint(ledger)
    after, stolen = note(ledger.checkpoint_key), note(old)
    ledger.emit("alice", STREAM, FindingLogged(finding="one"))
    with ledger.client() as client:
        assert verify_log(client, trusted_checkpoint=before).trust == "anchored"
        assert verify_log(client, trusted_checkpoint=after).trust == "anchored"
        assert not verify_log(client, trusted_checkpoint=stolen).ok
    path = exported(ledger, tmp_path, None)
    folder = unpacked(path, tmp_path / "unpacked")
    assert run_alone(folder).returncode == 0
    (folder / "checkpoint").write_text(note(old))
    answer = run_alone(folder)
    assert answer.returncode == 6
    assert "not signed by a checkpoint key that is valid at its size" in answer.stdout


def test_replayed_bytes_of_a_replaced_key_are_its_first_answer_and_new_ones_refused(ledger: Ledger) -> None:
    sent = ledger.sign("alice", Draft(stream=STREAM, data=SessionStarted()))
    ledger.submit(sent)
    old = rotate(ledger, "alice")
    assert ledger.submit(sent)[0].is_repeat
    with pytest.raises(Refused) as refused:
        ledger.emit("alice", STREAM, FindingLogged(finding="late"), key=old)
    assert refused.value.code == "KEY_REVOKED"
