"""Logs and bundles that a patched node can build: both verifiers name the same entries, and no others."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from bundle_tars import members_of, packed
from forge import SESSION, Forge
from forged_steps import DAY_S, FINDING, created, finding, registered, removed, role, stored
from judges import Judgement, alone, ours
from rule_stage import STEP
from test_left_out_events import of_stream
from wrong_redactions import erased

from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.authority import RoleGranted

if TYPE_CHECKING:
    from pathlib import Path

READ_MAX_S = 5.0  # processor time; quadratic or cubic reads took from one to some thousand seconds


def judged(
    forge: Forge, path: Path, stream: str | None = None, **options: Any
) -> tuple[str, dict[int | None, set[str]]]:
    """Return the verdict and the codes on which both verifiers agree."""
    bundle = forge.export(path / "log.tar", stream, **options)
    mine, other = ours(bundle), alone(bundle)
    assert (mine.word, mine.codes) == (other.word, other.codes), f"{mine.text}\n{other.text}"
    return mine.word, mine.codes


def unreadable(forge: Forge, author: str = "alice") -> int:
    """Append an entry whose kind nobody knows; return its index."""
    body = forge.body(author, SESSION, FINDING).replace(b"finding.logged", b"finding.guessed")
    forge.raw(author, body)
    return len(forge.entries) - 1


def test_entry_after_an_unreadable_one_is_not_blamed(tmp_path: Path) -> None:
    forge = Forge()
    finding(forge, "bob")  # refused: it precedes the unreadable entry, which therefore cannot excuse it
    index = unreadable(forge)
    finding(forge)
    finding(forge, "bob", corr="after it")
    codes = {index - 1: {"NOT_AUTHORIZED"}, index: {"UNKNOWN_KIND"}}
    assert judged(forge, tmp_path) == ("INVALID", codes)


def test_unreadable_entry_with_a_wrong_signature_has_both_faults(tmp_path: Path) -> None:
    forge = Forge()
    body = forge.body("alice", SESSION, FINDING).replace(b"finding.logged", b"finding.guessed")
    forge.raw("alice", body, sig=bytes(64))
    assert judged(forge, tmp_path)[1] == {len(forge.entries) - 1: {"UNKNOWN_KIND", "SIGNATURE_INVALID"}}


def test_batch_with_an_unreadable_event_is_signed_all_the_same(tmp_path: Path) -> None:
    forge = Forge()
    bodies = [forge.body("alice", SESSION, FINDING, corr=text) for text in "abc"]
    bodies[1] = bodies[1].replace(b"finding.logged", b"finding.guessed")
    first = len(forge.entries)
    for place, (body, key, sig) in enumerate(forge.batch("alice", *bodies)):
        forge.store(body, key, sig, (place, 3))
    assert judged(forge, tmp_path)[1] == {first + 1: {"UNKNOWN_KIND"}}


def findings(forge: Forge, *changes: dict[str, Any]) -> int:
    """Store a batch of findings, each with changes to its entry; return the index of the first."""
    bodies = [forge.body("alice", SESSION, FINDING, corr=f"batch {place}") for place, _ in enumerate(changes)]
    first = len(forge.entries)
    for place, (body, key, sig) in enumerate(forge.batch("alice", *bodies)):
        signed = {"body": body, "key": key, "sig": sig, "batch_index": place, "batch_size": len(bodies)}
        forge.store(**(signed | changes[place]))
    forge.clock.advance(0.001)
    return first


@pytest.mark.parametrize("stream", [None, SESSION])
def test_refused_entry_with_a_wrong_count_has_both_faults(stream: str | None, tmp_path: Path) -> None:
    forge = Forge()
    forge.raw("bob", forge.body("bob", SESSION, FINDING), stream_version=forge.streams[SESSION])
    index = len(forge.entries) - 1
    forge.streams[SESSION] -= 1
    finding(forge)
    codes = {index: {"VERIFICATION_FAILED", "NOT_AUTHORIZED"}}
    assert judged(forge, tmp_path, stream) == ("INVALID", codes)


@pytest.mark.parametrize("stream", [None, SESSION])
def test_refused_entry_with_a_wrong_time_has_both_faults(stream: str | None, tmp_path: Path) -> None:
    forge = Forge()
    finding(forge)
    forge.raw("bob", forge.body("bob", SESSION, FINDING), accepted_ms=forge.clock.now_ms + 40 * DAY_S * 1000)
    codes = {len(forge.entries) - 1: {"CLOCK_JUMPED", "NOT_AUTHORIZED"}}
    assert judged(forge, tmp_path, stream) == ("INVALID", codes)


@pytest.mark.parametrize("stream", [None, SESSION])
def test_time_of_the_last_entry_is_wrong_under_a_wrong_checkpoint_too(stream: str | None, tmp_path: Path) -> None:
    forge = Forge()
    finding(forge)
    forge.raw("alice", forge.body("alice", SESSION, FINDING), accepted_ms=forge.clock.now_ms + 40 * DAY_S * 1000)
    forge.checkpoint_with = forge.keys["bob"]
    codes = {len(forge.entries) - 1: {"CLOCK_JUMPED"}, None: {"VERIFICATION_FAILED"}}
    assert judged(forge, tmp_path, stream) == ("INVALID", codes)


def test_unconfirmed_remnant_of_a_refused_event_has_both_faults(tmp_path: Path) -> None:
    forge = Forge()
    finding(forge, "bob")
    index = len(forge.entries) - 1
    erased(index)(forge)
    codes = {index: {"NOT_AUTHORIZED", "VERIFICATION_FAILED"}}
    assert judged(forge, tmp_path) == judged(forge, tmp_path, SESSION) == ("INVALID", codes)


def test_batch_without_its_last_event_has_no_valid_signature_in_a_bundle_of_its_stream(tmp_path: Path) -> None:
    forge = Forge()
    first = findings(forge, {}, {}, {}, {})
    del forge.entries[-1]
    forge.streams[SESSION] -= 1
    assert judged(forge, tmp_path) == ("INVALID", {first: {"VERIFICATION_FAILED"}})
    codes: dict[int | None, set[str]] = {index: {"SIGNATURE_INVALID"} for index in range(first, first + 3)}
    assert judged(forge, tmp_path, SESSION) == ("INVALID", codes)


@pytest.mark.parametrize("stream", [None, SESSION])
def test_time_that_differs_from_its_batch_is_one_fault_of_an_entry_that_counts(
    stream: str | None, tmp_path: Path
) -> None:
    forge = Forge()
    first = findings(forge, {}, {}, {"accepted_ms": forge.clock.now_ms + 1})
    finding(forge, "bob")
    codes = {first + 2: {"VERIFICATION_FAILED"}, len(forge.entries) - 1: {"NOT_AUTHORIZED"}}
    assert judged(forge, tmp_path, stream) == ("INVALID", codes)


# The changes to the entries of a batch, and the codes at its positions.
WRONG_BATCHES: Final[dict[str, tuple[list[dict[str, Any]], dict[int, str]]]] = {
    "the first is unreadable": ([{"version": 2}, {}, {}], {0: "UNSUPPORTED_VERSION"}),
    "the second is unreadable": ([{}, {"version": 2}, {}], {1: "UNSUPPORTED_VERSION"}),
    "the last is unreadable": ([{}, {}, {"version": 2}], {2: "UNSUPPORTED_VERSION"}),
    "one has another signature": ([{}, {"sig": bytes(64)}, {}], {1: "SIGNATURE_INVALID"}),
    "the first has another signature": ([{"sig": bytes(64)}, {}, {}], {0: "SIGNATURE_INVALID"}),
    "no signature is right": ([{"sig": bytes(64)}] * 3, {0: "SIGNATURE_INVALID"}),
    "one has another position": ([{}, {"batch_index": 2}, {}], {1: "VERIFICATION_FAILED"}),
    "the last has another size": ([{}, {}, {"batch_size": 4}], {2: "VERIFICATION_FAILED"}),
    "its first is missing": (
        [{"batch_index": 1, "batch_size": 3}, {"batch_index": 2, "batch_size": 3}],
        {0: "VERIFICATION_FAILED"},
    ),
}


@pytest.mark.parametrize("name", WRONG_BATCHES)
def test_fault_in_a_batch_is_that_of_its_entry(name: str, tmp_path: Path) -> None:
    forge = Forge()
    changes, codes = WRONG_BATCHES[name]
    finding(forge)
    first = findings(forge, *changes)
    finding(forge, corr="after it")
    mine = judged(forge, tmp_path)[1]
    assert {index: found for index, found in mine.items() if index is not None} == {
        first + place: {code} for place, code in codes.items()
    }


def test_unreadable_entry_may_be_the_rest_of_a_batch(tmp_path: Path) -> None:
    forge = Forge()
    findings(forge, {}, {})
    forge.entries[-1] = b"\x99" + forge.entries[-1][1:]
    index = len(forge.entries) - 1
    finding(forge, corr="after it")
    assert judged(forge, tmp_path)[1][index] == {"INVALID_FORMAT"}
    assert index - 1 not in judged(forge, tmp_path)[1]


def test_body_above_its_limit_counts_for_nothing(tmp_path: Path) -> None:
    forge = Forge()
    body = forge.body("alice", "session/large", {"task": "x"}, kind="session.started")
    forge.raw("alice", body.ljust(48 * 1024 - 159))
    finding(forge, stream="session/large")
    assert judged(forge, tmp_path) == ("INVALID", {len(forge.entries) - 2: {"TOO_LARGE"}})


@pytest.mark.parametrize("counts", [{"stream_version": 9}, {"authority_version": 2}])
def test_wrong_count_is_one_fault_and_not_one_of_each_entry_after_it(counts: dict[str, int], tmp_path: Path) -> None:
    forge = Forge()
    stored(**counts)(forge)
    forge.streams[SESSION] = counts.get("stream_version", forge.streams[SESSION])
    forge.authority = counts.get("authority_version", forge.authority)
    index = len(forge.entries) - 1
    for text in "abc":
        finding(forge, corr=text)
    forge.register("eve")
    assert judged(forge, tmp_path) == ("INVALID", {index: {"VERIFICATION_FAILED"}})


@pytest.mark.parametrize("wrong_ms", [-60_000, 60_000])
def test_wrong_time_is_the_fault_of_its_entry_alone(wrong_ms: int, tmp_path: Path) -> None:
    forge = Forge()
    for text in "ab":
        finding(forge, corr=text)
    forge.clock.advance(90)
    finding(forge, corr="c")
    forge.raw("alice", forge.body("alice", SESSION, FINDING), accepted_ms=forge.clock.now_ms + wrong_ms)
    index = len(forge.entries) - 1
    for text in "de":
        finding(forge, corr=text)
    assert judged(forge, tmp_path) == ("INVALID", {index: {"VERIFICATION_FAILED"}})


def test_authority_that_a_missing_entry_of_authority_may_allow_is_not_blamed(tmp_path: Path) -> None:
    forge = Forge()
    forge.emit("ada", "agent/rita", RoleGranted(agent="rita", role="admin"))
    role(forge, "rita", "bob")  # as the admin that she became in the entry before
    removed(forge, "bob", "rita")
    missing = len(forge.entries) - 3
    word, codes = judged(forge, tmp_path, SESSION, leave_out={missing})
    assert (word, codes) == ("PARTIAL", {})
    assert judged(forge, tmp_path, SESSION) == ("VALID", {})


@pytest.mark.parametrize("stream", [None, SESSION])
def test_second_creation_of_the_ledger_changes_no_file_of_keys(stream: str | None, tmp_path: Path) -> None:
    forge = Forge()
    created(forge, root=forge.keys["bob"].public.hex())
    codes = {len(forge.entries) - 1: {"NOT_AUTHORIZED"}}
    assert judged(forge, tmp_path, stream) == ("INVALID", codes)


@pytest.mark.parametrize("stream", [None, SESSION])
def test_files_of_keys_are_not_compared_with_a_refused_registration(stream: str | None, tmp_path: Path) -> None:
    forge = Forge()
    registered(forge, "bob", "eve")
    path = forge.export(tmp_path / "log.tar", stream)
    members = dict(members_of(path))
    *others, _ = members["keys/agents.vkeys"].splitlines(keepends=True)
    path.write_bytes(packed([*(members | {"keys/agents.vkeys": b"".join(others)}).items()]))
    codes = {len(forge.entries) - 1: {"NOT_AUTHORIZED"}}
    assert ours(path).codes == alone(path).codes == codes


@pytest.mark.parametrize("author", ["alice", "bob"])
def test_entry_of_a_stream_whose_end_the_ledger_did_not_sign_is_wrong(author: str, tmp_path: Path) -> None:
    forge = Forge()
    forge.emit("alice", "session/more", {"task": "x"}, kind="session.started")
    finding(forge, author, stream="session/more")  # refused, if bob signs it
    index = len(forge.entries) - 1
    path = forge.export(tmp_path / "honest.tar", SESSION)
    members = dict(members_of(path))
    more = dict(members_of(forge.export(tmp_path / "more.tar", "session/more")))
    manifest = json.loads(members["manifest.json"])
    manifest["indexes"] = sorted({*of_stream(forge, SESSION), *of_stream(forge, "session/more")})
    entries = {name: data for name, data in (members | more).items() if name.startswith("entries/")}
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    members |= {"manifest.json": text.encode() + b"\n"}
    others = {name: data for name, data in members.items() if not name.startswith("entries/")}
    path.write_bytes(packed(sorted((others | entries).items())))
    mine, other = ours(path), alone(path)
    assert (mine.word, other.word) == ("INVALID", "INVALID")
    for judgement in (mine, other):
        assert "VERIFICATION_FAILED" in judgement.codes[index], judgement.text
    assert mine.codes.keys() == other.codes.keys() == {index}


@pytest.mark.parametrize("blobs", [{}, "", None])
def test_manifest_lists_its_blobs(blobs: object, tmp_path: Path) -> None:
    path = Forge().export(tmp_path / "log.tar")
    members = dict(members_of(path))
    manifest = json.loads(members["manifest.json"]) | {"blobs": blobs}
    members["manifest.json"] = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    path.write_bytes(packed([*members.items()]))
    assert (ours(path).word, alone(path).word) == ("INVALID", "INVALID")


def measured(forge: Forge, path: Path) -> list[Judgement]:
    """Return the judgements of the verifiers, after a check of their processor time."""
    bundle, judgements = forge.export(path / "log.tar"), []
    for judge in (ours, alone):
        start = time.process_time()
        judgements.append(judge(bundle))
        assert time.process_time() - start < READ_MAX_S, judge.__name__
    return judgements


def test_chain_of_steps_in_one_event_is_checked_soon(tmp_path: Path) -> None:
    forge = Forge()
    steps = [STEP | {"step_number": number, "content": "x"} for number in range(1, 701)]
    chain = {str(number): [number - 1] for number in range(2, 701)}
    for name in "abcdefgh":
        stream = f"reasoning/{name}"
        forge.submit(forge.sign("alice", Draft(stream=stream, kind="reasoning.started", data={"task": "x"})))
        extension = {"steps": steps, "dependencies": chain}
        forge.submit(forge.sign("alice", Draft(stream=stream, kind="reasoning.extended", data=extension)))
    assert [judgement.word for judgement in measured(forge, tmp_path)] == ["VALID", "VALID"]


@pytest.mark.parametrize("start", [b'{"finding":"', b"[" * 33 + b'"'])
def test_text_without_an_end_is_read_soon(start: bytes, tmp_path: Path) -> None:
    forge = Forge()
    head = forge.body("alice", SESSION, FINDING)
    forge.raw("alice", head + start + b'\\"' * 24_000)
    mine, other = measured(forge, tmp_path)
    assert mine.codes == other.codes


def test_bundle_without_an_entry_of_authority_lacks_it_even_if_the_files_of_keys_name_its_key(tmp_path: Path) -> None:
    path = Forge().export(tmp_path / "log.tar", SESSION)
    members = dict(members_of(path))
    manifest = json.loads(members["manifest.json"])
    for missing in manifest["indexes"][1:]:
        kept = {name: data for name, data in members.items() if not name.startswith(f"entries/{missing:020d}.")}
        indexes = [index for index in manifest["indexes"] if index != missing]
        text = json.dumps(manifest | {"indexes": indexes}, sort_keys=True, separators=(",", ":"))
        path.write_bytes(packed([*(kept | {"manifest.json": text.encode() + b"\n"}).items()]))
        assert (ours(path).word, alone(path).word) == ("PARTIAL", "PARTIAL"), ours(path).text
