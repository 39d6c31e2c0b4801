"""Logs with correctly erased entries: both verifiers accept them, and name each entry, its eraser and the reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from bundle_tars import members_of, packed, with_these_blobs
from every_kind import live
from faults import chances, times
from forge import ORIGINAL, ORIGINAL_REF, SESSION, Forge
from forged_steps import FINDING, compromised, finding, imported
from judges import alone, ours
from tampering import append_behind_the_gate, entries_of, fill, forged, overwrite
from view_ledger import ViewLedger
from wrong_redactions import (
    TARGET,
    all_of,
    erased,
    hana,
    handed,
    proposed,
    put,
    redacted,
    redaction,
    remnant_at,
    revoked_role,
    secret,
)

from deedbook.consumers.auditor.bundle import verify_bundle
from deedbook.consumers.auditor.verify import verify_log
from deedbook.ledger.bundle import export_bundle
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import EntryRedacted, RedactionProposed, RoleRevoked
from deedbook.ledger.events.body import decode_body
from deedbook.ledger.events.handoff import HandoffApproved
from deedbook.ledger.events.remnant import ERASED, _erased_body, digest_of
from deedbook.ledger.format.envelope import Remnant, decode_entry, event_id, is_remnant
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.limits import batch_size_max_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from building import Ledger

    Step = Callable[[Forge], Any]


def approved(forge: Forge) -> None:
    """Approve the erased handoff: its remnant keeps the version."""
    version = json.loads(decode_entry(forge.entries[TARGET]).body)["version"]
    forge.emit("rita", "handoff/x", HandoffApproved(version=version))
    forge.claim("x")


def batch(forge: Forge) -> None:
    """Log three findings in one batch."""
    bodies = [forge.body("alice", SESSION, FINDING, corr=str(at)) for at in range(3)]
    for at, (body, public, sig) in enumerate(forge.batch("alice", *bodies)):
        forge.store(body, public, sig, (at, 3))


def largest_batch(forge: Forge) -> None:
    """Log a batch of the largest size whose texts have one letter each, and erase all of it."""
    count = 19
    size = batch_size_max_bytes // count
    data = {"finding": "a", "evidence": ["a"]}
    bodies = []
    for at in range(count):
        body = forge.body("alice", SESSION, data, kind="finding.logged", corr=str(10 + at))
        texts, rest = divmod(size - len(body), len(b'"a",'))
        body = body.replace(b'["a"', b'["a"' + b',"a"' * texts)
        bodies.append(body.replace(b'"finding":"', b'"finding":"' + b"a" * rest))
    assert batch_size_max_bytes - count < sum(map(len, bodies)) <= batch_size_max_bytes
    for at, (body, public, sig) in enumerate(forge.batch("alice", *bodies)):
        forge.store(body, public, sig, (at, count))
    for at in range(TARGET, TARGET + count):
        erased(at, "*")(forge)
    assert sum(len(decode_entry(forge.entries[at]).body) for at in range(TARGET, TARGET + count)) > batch_size_max_bytes
    for at in range(TARGET, TARGET + count):
        redacted(index=at)(forge)


def other_kind(forge: Forge) -> None:
    """Claim that the erased event was of another kind on its stream: verifiers trust root's statement on that."""
    data = redaction(forge)
    changed = remnant_at(forge, TARGET).replace(b'"finding":', b'"unknown":').replace(b"finding.", b"unknown.")
    changed = changed.replace(f'"evidence":["{ERASED}"],'.encode(), b"")
    put(forge, TARGET, changed)
    forge.emit(ROOT, "ledger", msgspec.structs.replace(data, remnant=digest_of(changed)))


def erased_record(forge: Forge) -> None:
    """Erase an imported record with the blob of its original."""
    forge.emit("alice", "record/x", imported())
    erased()(forge)
    redacted(blobs=[ORIGINAL_REF])(forge)


RIGHT: dict[str, tuple[Step, list[tuple[int, str]]]] = {
    "root erases": (all_of(secret, erased(), redacted(), finding), [(9, ROOT)]),
    "root erases before": (all_of(secret, redacted(), finding, erased()), [(9, ROOT)]),
    "with the short mark": (
        all_of(secret, erased(mark="*"), redacted()),
        [(9, ROOT)],
    ),
    "two humans erase": (all_of(hana, secret, proposed(index=10), erased(10), redacted("rita", 10)), [(10, "rita")]),
    "the other way around": (
        all_of(hana, secret, proposed("rita", index=10), erased(10), redacted("hana", 10)),
        [(10, "hana")],
    ),
    "the last proposal counts": (
        all_of(hana, secret, proposed("rita", 10), proposed(index=10), erased(10), redacted("rita", 10)),
        [(10, "rita")],
    ),
    "a handoff": (all_of(handed, erased(), redacted(), approved), [(9, ROOT)]),
    "an entry of authority": (all_of(revoked_role, erased(), redacted()), [(9, ROOT)]),
    "a redaction": (
        all_of(secret, erased(), redacted(), erased(10), redacted(index=10, reason="it names the secret")),
        [(9, ROOT), (10, ROOT)],
    ),
    "a proposal": (
        all_of(hana, secret, proposed(index=10), erased(10), redacted("rita", 10), erased(11), redacted(index=11)),
        [(10, "rita"), (11, ROOT)],
    ),
    "one event of a batch": (all_of(batch, erased(10), redacted(index=10)), [(10, ROOT)]),
    "all events of a batch": (
        all_of(batch, *(erased(at) for at in (9, 10, 11)), *(redacted(index=at) for at in (11, 9, 10))),
        [(9, ROOT), (10, ROOT), (11, ROOT)],
    ),
    "a batch of the largest size": (largest_batch, [(at, ROOT) for at in range(9, 28)]),
    "as another kind": (all_of(secret, other_kind), [(9, ROOT)]),
    "with a blob": (erased_record, [(9, ROOT)]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_log_is_valid_with_erasures_for_both(name: str, tmp_path: Path) -> None:
    step, entries = RIGHT[name]
    forge = Forge()
    step(forge)
    for stream in (None, SESSION, "handoff/open"):
        path = forge.export(tmp_path / "right.tar", stream)
        report, other = verify_bundle(path), alone(path)
        here = [(one.entry, one.by) for one in report.erased]
        assert here == entries if stream is None else {*here} <= {*entries}
        word = "VALID_WITH_ERASURES" if here else "VALID"
        assert (report.outcome, report.ok, other.word) == (word, True, word), (report.problems, other.text)
        for index, by in here:
            assert f"entry {index}: redacted by {by} on " in other.text
        if here:
            assert report.verdict.split(": ")[1] == other.text.splitlines()[-1].split(": ")[1]


def test_body_that_a_copy_kept_is_named(tmp_path: Path) -> None:
    forge = Forge()
    all_of(secret, secret, redacted(), redacted(index=TARGET + 1), erased(TARGET + 1))(forge)
    done = len(forge.entries) - 2
    said = f"the body of entry {TARGET} is here, although root erased it with entry {done}: this copy of the ledger"
    for stream, word in ((None, "VALID_WITH_ERASURES"), (SESSION, "VALID_WITH_ERASURES"), ("handoff/open", "VALID")):
        path = forge.export(tmp_path / "whole.tar", stream)
        report, other = verify_bundle(path), alone(path)
        assert (report.outcome, other.word) == (word, word)
        notes = [note.message for note in report.notes if note.code == "ERASED_BODY_SERVED"]
        assert notes == [line for line in other.text.splitlines() if "is here" in line]
        assert notes == ([] if stream == "handoff/open" else [f"{said} kept it"])


def test_more_than_twenty_erased_entries_are_counted(tmp_path: Path) -> None:
    forge = Forge()
    for at in range(23):
        finding(forge, corr=str(at))
    all_of(*(erased(TARGET + at) for at in range(23)), *(redacted(index=TARGET + at) for at in range(23)))(forge)
    path = forge.export(tmp_path / "many.tar")
    report, other = verify_bundle(path), alone(path)
    line = "the bodies of 23 entries were erased (9 by root, 10 by root, "
    for text in (report.verdict, other.text.splitlines()[-1]):
        assert text.startswith(f"VALID_WITH_ERASURES: {line}")
        assert " 28 by root and 3 more)" in text
    assert other.text.count("redacted by root") == 20


def test_erased_blob_must_not_be_in_the_bundle(tmp_path: Path) -> None:
    forge = Forge()
    erased_record(forge)
    path = forge.export(tmp_path / "with.tar")
    assert not any(name.startswith("blobs/") for name, _ in members_of(path))
    path.write_bytes(packed(with_these_blobs(members_of(path), {f"blobs/{ORIGINAL_REF.replace(':', '/')}": ORIGINAL})))
    mine, other = ours(path), alone(path)
    assert (mine.word, mine.codes) == (other.word, other.codes) == ("INVALID", {None: {"VERIFICATION_FAILED"}}), (
        f"{mine.text}\n{other.text}"
    )


def test_worse_verdicts_come_first(tmp_path: Path) -> None:
    forge = Forge()
    all_of(secret, erased(), redacted(), lambda f: compromised(f, "ada", "bob", 2), finding)(forge)
    forge.emit("ada", "agent/alice", RoleRevoked(agent="alice", role="agent"))
    compromised(forge, "ada", "alice", 6)
    path = forge.export(tmp_path / "suspect.tar")
    assert (ours(path).word, alone(path).word) == ("SUSPECT_KEY", "SUSPECT_KEY")
    assert "entry 9: redacted by root on " in alone(path).text


def test_page_says_who_erased_a_text_when_and_why(tmp_path: Path) -> None:
    forge = Forge()
    all_of(handed, erased(), redacted(reason="<b>it holds a password</b>"))(forge)
    page = dict(members_of(forge.export(tmp_path / "page.tar")))["index.html"].decode()
    assert "redacted by root on 2" in page
    assert "&lt;b&gt;it holds a password&lt;/b&gt;" in page
    assert "<h2>Erased entries (1)</h2>" in page
    assert "correct-horse" not in page


def test_every_kind_that_can_be_erased_is_and_both_verifiers_read_the_rest(tmp_path: Path) -> None:
    with ViewLedger(tmp_path / "ledger") as ledger:
        live(ledger)
        kinds, codes = set[str](), set[str]()
        erased_indexes = []
        for index in range(ledger.size):
            event = ledger.event(index)
            if event.kind in kinds or event.erased is not None:
                continue
            try:
                data = ledger.redaction(index)
            except Refused as refused:
                codes.add(refused.code)
                continue
            kinds.add(event.kind)
            erased_indexes.append(index)
            ledger.emit(ROOT, "ledger", data)
        with ledger.client(only_looks=True) as client:
            report = verify_log(client)
        path = exported(ledger, tmp_path / "whole.tar")
    assert report.outcome == "SUSPECT_KEY", report.problems  # a key was stolen in this story
    assert {one.entry for one in report.erased} >= {*erased_indexes}
    mine, other = ours(path), alone(path, "--accept", "PARTIAL")
    assert (mine.word, mine.codes) == ("SUSPECT_KEY", {})
    assert (other.word, other.codes) == ("PARTIAL", {}), other.text  # it has no rules of Tree of Thoughts
    assert len(kinds) > 40, kinds
    assert codes == {"NOTHING_CHANGED", "TRANSITION_NOT_ALLOWED"}


def exported(ledger: Ledger, path: Path) -> Path:
    """Export a ledger."""
    with ledger.client() as client:
        export_bundle(client, path)
    return path


def audit(ledger: Ledger, file: Path) -> Any:
    """Audit a log as `deed verify --resume` does."""
    with ledger.client(only_looks=True) as client:
        return verify_log(client, cache=file)


def test_resumed_audit_sees_what_was_erased_since(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    ledger.register("hana", "human")
    file = tmp_path / "state" / "kept.audit"
    secret_at = 12
    data = ledger.redaction(secret_at)
    ledger.emit("hana", "ledger", RedactionProposed(**msgspec.structs.asdict(data)))
    assert audit(ledger, file).outcome == "VALID"
    ledger.emit("rita", "ledger", data)
    report = audit(ledger, file)
    assert (report.outcome, report.resumed_at > secret_at) == ("VALID_WITH_ERASURES", True), report.problems
    assert [(one.entry, one.by, one.reason) for one in report.erased] == [(secret_at, "rita", data.reason)]
    again = audit(ledger, file)
    assert (again.outcome, again.resumed_at, again.erased) == ("VALID_WITH_ERASURES", again.size, report.erased)


@pytest.mark.parametrize("is_named", [True, False])
def test_resumed_audit_of_a_hostile_copy_finds_another_remnant(
    ledger: Ledger, tmp_path: Path, *, is_named: bool
) -> None:
    fill(ledger)
    index, file = 12, tmp_path / "state" / "kept.audit"
    if is_named:
        ledger.redact(index)
    assert audit(ledger, file).ok
    entry = decode_entry(entries_of(ledger)[index])
    forge_remnant = entry.body if is_named else remnant_of_entry(ledger, index)
    changed = forge_remnant.replace(ERASED.encode(), b"*")
    assert is_remnant(changed)
    overwrite(ledger, {index: msgspec.structs.replace(entry, body=changed).encode()})
    report = audit(ledger, file)
    assert (report.outcome, report.resumed_at) == ("INVALID", report.size)
    assert [(one.index, one.code) for one in report.problems] == [(index, "VERIFICATION_FAILED")]


def test_resumed_audit_of_a_hostile_copy_finds_words_of_others(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    ledger.register("carl", "agent")
    index = ledger.emit(ROOT, "agent/carl", RoleRevoked(agent="carl", role="agent", reason="she left")).index
    file = tmp_path / "state" / "kept.audit"
    assert audit(ledger, file).ok
    entry = decode_entry(entries_of(ledger)[index])
    changed = remnant_of_entry(ledger, index).replace(ERASED.encode(), b"I resign")
    overwrite(ledger, {index: msgspec.structs.replace(entry, body=changed).encode()})
    report = audit(ledger, file)
    assert report.outcome == "INVALID"
    assert (index, "INVALID_FORMAT") in [(one.index, one.code) for one in report.problems]


def test_resumed_audit_finds_what_is_left_of_another_event(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    ledger.register("hana", "human")
    index = ledger.emit(ROOT, "agent/bob", RoleRevoked(agent="bob", role="agent", reason="he left")).index
    file = tmp_path / "state" / "kept.audit"
    assert audit(ledger, file).ok
    entry, other = (decode_entry(entries_of(ledger)[at]) for at in (index, 12))
    finding = other.body.replace(b'"author":"alice"', b'"author":"root"')
    body, data = decode_body(finding)
    assert body.kind == "finding.logged"
    remnant = Remnant(event_id(entry.commitment), None, _erased_body(finding, data, ERASED)).encode()
    overwrite(ledger, {index: msgspec.structs.replace(entry, body=remnant).encode()})
    named = EntryRedacted(entry=index, event=event_id(entry.commitment), remnant=digest_of(remnant), reason="so")
    proposal = RedactionProposed(**msgspec.structs.asdict(named))
    for author, event in (("hana", proposal), ("rita", named)):
        append_behind_the_gate(ledger, forged(ledger, author, "ledger", event))
    report = audit(ledger, file)
    assert (report.outcome, report.resumed_at) == ("INVALID", report.size - 2)
    assert [(one.index, one.code) for one in report.problems] == [(index, "VERIFICATION_FAILED")]


def remnant_of_entry(ledger: Ledger, index: int) -> bytes:
    """Return the remnant that an entry of a ledger would leave."""
    forge = Forge(is_begun=False)
    forge.entries = entries_of(ledger)
    return remnant_at(forge, index)


def test_any_entries_of_an_honest_log_may_be_erased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, chance in enumerate(chances("erased honest logs", times(2, 30))):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"state{number}"))  # all of these logs have the same id
        with ViewLedger(tmp_path / f"ledger{number}") as ledger:
            fill(ledger, singles=6, batch=5)
            count = 0
            for _ in range(12):
                try:
                    data = ledger.redaction(chance.randrange(1, ledger.size))
                except Refused:
                    continue
                ledger.emit(ROOT, "ledger", data)
                count += 1
            path = exported(ledger, tmp_path / f"whole{number}.tar")
        mine, other = ours(path), alone(path)
        assert (mine.word, other.word) == ("VALID_WITH_ERASURES", "VALID_WITH_ERASURES"), f"{mine.text}\n{other.text}"
        assert f"the bodies of {count} entr" in mine.text
