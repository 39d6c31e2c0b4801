"""`--policy` and `deed doctor`: the cosignatures of witnesses, and the consequences of too few."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from building import trusted
from calling import emit_finding, start_session
from cosigning import Signer

from deedbook.ledger.home.location import WITNESSED_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Deed

ONE = Signer("witness.example/one", 1)


@pytest.fixture
def policy(alone: Deed, tmp_path: Path) -> Path:
    """A policy of one witness; its log is that of `alone`."""
    alone("agent", "add", "a")
    start_session(alone, "work")
    path = tmp_path / "policy"
    alone("receipt", 0, "-o", tmp_path / "r")
    vkey = alone.data("receipt", "verify", tmp_path / "r")["vkey"]
    path.write_text(f"log {vkey}\nwitness one {ONE.vkey} http://127.0.0.1:1\nquorum one\n")
    return path


def witness(deed: Deed, signer: Signer = ONE) -> None:
    """Cosign the present log, as a node does."""
    note = deed("checkpoint")
    (deed.home / WITNESSED_FILE).write_text(note + signer.line(note, int(time.time())))


def test_verify_demands_the_quorum_or_is_told_to_do_without(alone: Deed, policy: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar"
    for _ in ("without", "witnessed by another key"):
        alone("export", bundle)
        for words in (["verify"], ["verify", "--bundle", bundle]):
            error = alone.refuses("NOT_WITNESSED", *words, "--policy", policy)
            assert error["details"]["witnessed"]["of"] == 1
            assert "witnessed by 0 of 1" in alone(*words, "--policy", policy, "--fail-open")
            trust = "self-asserted" if "--bundle" in words else "anchored"
            assert alone.data(*words, "--policy", policy, "--fail-open")["trust"] == trust
        witness(alone, Signer(ONE.name, 2))
    witness(alone)
    alone("export", bundle)
    emit_finding(alone, "session/work", "later than the witness")
    for words in (["verify"], ["verify", "--bundle", bundle]):
        answer = alone.data(*words, "--policy", policy)
        assert (answer["trust"], answer["witnessed"]["by"]) == ("anchored", ["one"])
        assert answer["witnessed"]["size"] == 3
    alone.refuses("USAGE", "verify", "--fail-open")


def test_a_log_that_is_not_the_witnessed_one_is_found(alone: Deed, policy: Path, tmp_path: Path) -> None:
    """Witnesses cosigned another history under the log's own key: its root is not the one of this log."""
    other = tmp_path / "other"
    text = policy.read_text()
    policy.write_text(text.replace(text.split()[1], Signer(ONE.name, 3).vkey))
    alone.refuses("INVALID_FORMAT", "verify", "--policy", policy)
    policy.write_text("\n".join(text.split("\n")[1:]))  # a policy without a log line fits any log
    assert "witnessed by 0 of 1" in alone("verify", "--policy", policy, "--fail-open")
    alone.refuses("NOT_FOUND", "verify", "--policy", other)


def test_receipts_are_taken_and_checked_by_policy(alone: Deed, policy: Path, tmp_path: Path) -> None:
    witness(alone)
    path = tmp_path / "kept"
    alone("receipt", 2, "--policy", policy, "-o", path)
    said = alone("receipt", "verify", path, "--policy", policy)
    assert "VALID (anchored by the policy)" in said
    assert " by 1 of 1 (3 entries)" in said
    emit_finding(alone, "session/work", "not witnessed")
    path = tmp_path / "later"
    alone("receipt", 3, "-o", path)
    alone.refuses("NOT_WITNESSED", "receipt", "verify", path, "--policy", policy)
    assert "witnessed by 0 of 1" in alone("receipt", "verify", path, "--policy", policy, "--fail-open")


def test_doctor_and_whoever_reads_to_act_are_told_how_far_the_log_is_witnessed(alone: Deed, policy: Path) -> None:
    text = policy.read_text().replace("\n", "\\n")
    (alone.home / "config.toml").write_text(f'[witness]\nfail = "open"\npolicy = "{text}"\n')
    trusted(alone.home)
    assert "WRONG witnesses: witnessed by 0 of 1" in alone.run("doctor").out
    witness(alone)
    [good] = [one for one in alone.data("doctor")["checks"] if one["name"] == "witnesses"]
    assert good["ok"]
    assert good["found"].endswith("by 1 of 1 (3 entries); without them it fails open")
    alone("agent", "add", "rita", "--role", "reviewer", "--unprotected")
    alone("agent", "add", "b")
    alone("handoff", "create", "h", "--title", "t", "--as", "a", "--to", "b", "--reviewer", "rita")
    assert "entries with tree head" in alone("handoff", "show", "h").partition("; witnessed at 20")[0]
    assert " by 1 of 1 (3 entries)" in alone("handoff", "show", "h")
    assert alone.data("next", "--as", "rita")["as_of"]["witnessed"]["by"] == ["one"]
