"""The small witness cosigns only a log that contains the log it cosigned before, even after a kill at any time."""

from __future__ import annotations

import ast
import hashlib
import http.client
import json
import sqlite3
import subprocess
import sys
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from witnessing import PROGRAM, WitnessProcess, make, proof, root, run

from deedbook.ledger.format.merkle import leaf_hash, verify_consistency
from deedbook.ledger.proof.checkpoint import (
    COSIGNATURE_KEY,
    Checkpoint,
    CheckpointKey,
    CheckpointVerifier,
    parse_vkey,
    sign_checkpoint,
    vkey_of,
)
from deedbook.ledger.proof.policy import Witness

sys.path.insert(0, str(PROGRAM.parent))
import witness as program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEAVES: Final = [leaf_hash(b"%d" % number) for number in range(40)]
FORK: Final = [*LEAVES[:3], *(leaf_hash(b"otherwise %d" % number) for number in range(37))]
KEYS: Final = {
    name: CheckpointKey(f"log.example/{name}", bytes([number]) * 32)
    for number, name in enumerate(
        ("grows", "forks", "rolls", "races", "kills", "rate", "mixed", "limits", "shown", "empty"), 1
    )
}


def note_of(key: CheckpointKey, leaves: list[bytes]) -> str:
    return sign_checkpoint(Checkpoint(key.origin, len(leaves), root(leaves)), key)


def body(old: int, path: list[bytes], note: str) -> bytes:
    return (f"old {old}\n" + "".join(f"{b64encode(sibling).decode()}\n" for sibling in path) + "\n" + note).encode()


def request(key: CheckpointKey, leaves: list[bytes], old: int) -> bytes:
    return body(old, proof(leaves, old) if old <= len(leaves) else [], note_of(key, leaves))


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("witness") / "state"
    make(folder, *(key.verifier.vkey for key in KEYS.values()))
    return folder


@pytest.fixture(scope="module")
def witness(state: Path) -> Iterator[WitnessProcess]:
    with WitnessProcess(state) as process:
        yield process


def test_it_cosigns_a_log_that_grows(witness: WitnessProcess) -> None:
    key, last = KEYS["grows"], 0
    cosigner = Witness(*parse_vkey(witness.vkey, COSIGNATURE_KEY))
    for size in (1, 2, 7, 7, 8, 40):
        status, _, line = witness.ask(request(key, LEAVES[:size], last))
        assert status == 200, line
        [time_s] = cosigner.times(note_of(key, LEAVES[:size]) + line)
        assert abs(time_s - time.time()) < 3600
        last = size
    assert witness.ask(request(key, LEAVES, 7)) == (409, "text/x.tlog.size", "40\n")
    assert witness.ask(request(key, LEAVES, 0))[0] == 409


def test_a_fork_is_refused_and_stored_as_evidence(witness: WitnessProcess, state: Path) -> None:
    key = KEYS["forks"]
    assert witness.ask(request(key, LEAVES[:5], 0))[0] == 200
    assert witness.ask(body(5, proof(FORK, 5), note_of(key, FORK)))[0] == 422
    assert witness.ask(request(key, FORK[:5], 5))[0] == 422  # another log of the same size
    assert witness.ask(body(5, [], note_of(key, LEAVES)))[0] == 422
    assert witness.ask(body(5, [bytes(32)], note_of(key, LEAVES[:5])))[0] == 422
    assert witness.ask(request(key, LEAVES, 5))[0] == 200  # the honest log continues
    with sqlite3.connect(state / "witness.db") as database:
        notes = [row[0] for row in database.execute("SELECT note FROM evidence WHERE origin = ?", (key.origin,))]
    assert note_of(key, FORK) in notes[0]


def test_a_log_that_was_rolled_back_is_refused(witness: WitnessProcess) -> None:
    key = KEYS["rolls"]
    assert witness.ask(request(key, LEAVES[:9], 0))[0] == 200
    assert witness.ask(request(key, LEAVES[:4], 9))[0] == 400
    assert witness.ask(request(key, LEAVES[:4], 4)) == (409, "text/x.tlog.size", "9\n")
    assert witness.ask(request(key, LEAVES[:4], 0)) == (409, "text/x.tlog.size", "9\n")


def test_an_empty_log_has_one_root(witness: WitnessProcess) -> None:
    key = KEYS["empty"]
    wrong = sign_checkpoint(Checkpoint(key.origin, 0, bytes(32)), key)
    assert witness.ask(body(0, [], wrong))[0] == 422
    right = sign_checkpoint(Checkpoint(key.origin, 0, hashlib.sha256().digest()), key)
    assert witness.ask(body(0, [], right))[0] == 200


def test_unknown_logs_and_invalid_signatures_are_refused(witness: WitnessProcess) -> None:
    key = KEYS["mixed"]
    note = note_of(key, LEAVES[:3])
    assert witness.ask(request(CheckpointKey("log.example/none", bytes(32)), LEAVES[:3], 0))[0] == 404
    assert witness.ask(request(CheckpointKey(key.origin, bytes(32)), LEAVES[:3], 0))[0] == 403
    assert witness.ask(body(0, [], note.replace("\n3\n", "\n4\n")))[0] == 403
    assert witness.ask(body(0, [], note + "— stranger AAAAAAAA\n"))[0] == 200  # the witness ignores this line
    assert witness.ask(body(0, [], note + note.splitlines()[-1][:-6] + "AAAAA=\n"))[0] in {400, 403}


@pytest.mark.parametrize(
    "prefix",
    [
        b"",
        b"\n",
        b"old\n\n",
        b"old -1\n\n",
        b"old 01\n\n",
        b"old 1",
        b"old 0\n\nx\n",
        b"\xff\xfe",
        b"old 0\nx\n\n",
        b"old 99999999999999999999\n\n",
        b"new 0\n\n",
    ],
)
def test_a_malformed_request_is_refused(witness: WitnessProcess, prefix: bytes) -> None:
    note = note_of(KEYS["limits"], LEAVES[:2]).encode()
    assert witness.ask(prefix)[0] == 400
    assert witness.ask(prefix + note)[0] == 400
    many = body(0, [bytes(32)] * 64, note.decode())
    assert witness.ask(many)[0] == 400


@settings(max_examples=200)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.lists(
            st.sampled_from(
                ["old ", "0", "1", "\n", "\n\n", "— ", "log ", "A" * 43 + "=", "AAAAAAAA", " ", "\u2028", "x"]
            )
        ).map(lambda parts: "".join(parts).encode()),
    )
)
def test_any_bytes_are_a_valid_or_an_invalid_request(request_body: bytes) -> None:
    try:
        old_size, proof_, checkpoint = program.parse_request(request_body)
    except ValueError:
        return
    assert (old_size >= 0, checkpoint.size >= 0, len(checkpoint.root)) == (True, True, 32)
    assert all(len(sibling) == 32 for sibling in proof_)


def test_limits_of_size_length_and_path(witness: WitnessProcess) -> None:
    assert witness.ask(b"x" * (program.body_size_max_bytes + 1))[0] == 413
    assert witness.ask(b"x", "/other")[0] == 404
    assert witness.show("/")[0] == 404
    connection = http.client.HTTPConnection(witness.url.removeprefix("http://"), timeout=30)
    connection.request("POST", "/add-checkpoint", body=iter([b"old 0"]), headers={"Transfer-Encoding": "chunked"})
    assert connection.getresponse().status == 411
    connection.close()


def test_a_cosigned_checkpoint_is_shown_with_the_log_s_signature(witness: WitnessProcess) -> None:
    key = KEYS["shown"]
    path = f"/{hashlib.sha256(key.origin.encode()).hexdigest()}/checkpoint"
    assert witness.show(path)[0] == 404
    _, _, line = witness.ask(request(key, LEAVES[:6], 0))
    assert witness.show(path)[2] == note_of(key, LEAVES[:6]) + line


def test_one_of_several_concurrent_histories_is_cosigned(witness: WitnessProcess) -> None:
    key = KEYS["races"]
    forks = [[leaf_hash(b"%d %d" % (number, leaf)) for leaf in range(5)] for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda leaves: witness.ask(request(key, leaves, 0))[0], forks))
    assert sorted(answers) == [200, *[409] * 7]


def test_each_log_has_a_limited_number_of_answers_a_second(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    witness = program.Witness(state)
    for _ in range(program.cosignatures_per_s_max):
        witness._check_rate("one")
    with pytest.raises(program.Answer) as refused:
        witness._check_rate("one")
    assert refused.value.status == 429
    witness._check_rate("another")  # other logs are not affected
    now_s[0] += 2 / program.cosignatures_per_s_max
    witness._check_rate("one")


def test_after_a_kill_at_any_time_it_knows_what_it_has_signed(tmp_path: Path) -> None:
    key = KEYS["kills"]
    vkey = make(tmp_path / "state", key.verifier.vkey)
    size = 0
    for is_killed in (False, True, False):
        with WitnessProcess(tmp_path / "state") as process, ThreadPoolExecutor(1) as thread:
            assert process.vkey == vkey
            status, _, text = process.ask(request(key, LEAVES[:1], 0))
            assert status == 200 or text == f"{size}\n"
            size = 1 if status == 200 else size
            pending = thread.submit(process.ask, request(key, LEAVES[: size + 10], size))
            if is_killed:
                process.kill()  # before, during or after the request
            try:
                assert pending.result()[0] == 200
                size += 10
            except (OSError, http.client.HTTPException):  # killed before or during its answer
                assert is_killed
                with sqlite3.connect(tmp_path / "state" / "witness.db") as database:
                    [(stored,)] = database.execute("SELECT size FROM heads")
                assert stored in {size, size + 10}
                size = stored
    assert run("logs", tmp_path / "state").stdout == f"{size}\t{key.origin}\n"


def test_a_witness_whose_database_is_gone_does_not_begin_again(tmp_path: Path) -> None:
    make(tmp_path / "state")
    (tmp_path / "state" / "witness.db").unlink()
    assert run("serve", tmp_path / "state").returncode == 1
    assert run("init", tmp_path / "state", "--name", "witness.example/one").returncode == 1
    assert json.loads((tmp_path / "state" / "witness.key").read_text())["name"] == "witness.example/one"
    assert (tmp_path / "state" / "witness.key").stat().st_mode & 0o077 == 0


def test_logs_are_added_by_vkeys_of_logs_alone(tmp_path: Path) -> None:
    make(tmp_path / "state")
    for vkey in ("x", vkey_of("w", COSIGNATURE_KEY, bytes(32)), CheckpointVerifier("l", bytes(32)).vkey[:-4]):
        assert run("add", tmp_path / "state", vkey).returncode == 1
    assert run("init", tmp_path / "other", "--name", "a b").returncode == 1


def test_its_arithmetic_agrees_with_ours() -> None:
    """Two programs without shared code agree on valid and invalid proofs for every pair of sizes."""
    roots = [root(LEAVES[:size]) for size in range(34)]
    for new in range(34):
        for old in range(new + 1):
            path = proof(LEAVES[:new], old)
            cases = ((roots[old], path), (bytes(32), path), (roots[old], path[:-1]), (roots[old], [*path, bytes(32)]))
            for old_root, path_ in cases:
                expected = verify_consistency(old, old_root, new, roots[new], path_)
                if old == 0 and old_root != roots[0]:
                    continue  # the witness stores no root of an empty log
                assert program.is_grown(old, old_root, new, roots[new], path_) == expected, (old, new)


def test_the_program_needs_nothing_of_ours() -> None:
    script = (
        f"import runpy, sys; runpy.run_path({str(PROGRAM)!r}); print({{name.split('.')[0] for name in sys.modules}})"
    )
    result = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert not {"ledger", "projections", "consumers", "msgspec", "httpx"} & set(ast.literal_eval(result.stdout))
