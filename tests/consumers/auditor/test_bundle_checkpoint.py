"""A bundle compared with a checkpoint that its reader has from another source: both verifiers agree on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from bundles import run_alone, unpacked
from forge import SESSION, Forge
from judges import Judgement, alone, ours
from tampering import finding

from deedbook.ledger.events.authority import CheckpointKeyRotated
from deedbook.ledger.lifecycle.authority import CHECKPOINT

if TYPE_CHECKING:
    from pathlib import Path

ADDED = 3


class Case(NamedTuple):
    """A bundle of one state of the log, a checkpoint of a state that the reader has, and the verdict."""

    bundle: str
    checkpoint: str
    word: str
    text: str


@pytest.fixture
def states() -> dict[str, Forge]:
    """A log, the same log with more entries, and the same log with other entries instead of these."""
    states = {name: Forge() for name in ("old", "new", "fork")}
    for at in range(ADDED):
        states["new"].emit("alice", SESSION, finding(at))
        states["fork"].emit("alice", SESSION, finding(at + 9))
    return states


def both(path: Path, checkpoint: str) -> Judgement:
    """Return the judgement of both verifiers on a bundle and a checkpoint."""
    mine, other = ours(path, checkpoint), alone(path, "--checkpoint", checkpoint)
    assert (mine.word, mine.codes, mine.gate) == (other.word, other.codes, other.gate), f"{mine.text}\n{other.text}"
    return other


@pytest.mark.parametrize("stream", [None, SESSION])
@pytest.mark.parametrize(
    "case",
    [
        Case("old", "old", "VALID", "complete up to the checkpoint of {old} entries"),
        Case("new", "new", "VALID", "complete up to the checkpoint of {new} entries"),
        Case("new", "old", "VALID", "complete up to the checkpoint of {old} entries"),
        Case("old", "new", "PARTIAL", "missing the last 3 of {new} entries"),
        Case("new", "fork", "HISTORY_CHANGED", "do not match the checkpoint"),
    ],
    ids=lambda case: f"{case.bundle}-{case.checkpoint}",
)
def test_bundle_is_compared_with_a_checkpoint(
    states: dict[str, Forge], case: Case, stream: str | None, tmp_path: Path
) -> None:
    path = states[case.bundle].export(tmp_path / "bundle.tar", stream)
    checkpoint = states[case.checkpoint].checkpoint()
    verdict = both(path, checkpoint)
    sizes = {name: len(forge.entries) for name, forge in states.items()}
    if stream is not None and (case.bundle, case.checkpoint) == ("new", "old"):  # a stream's bundle has one root only
        assert verdict.word == "PARTIAL"
        assert f"missing a proof that the log continues the checkpoint of {sizes['old']} entries" in verdict.text
        return
    assert verdict.word == case.word
    assert case.text.format(**sizes) in verdict.text
    if verdict.word == "VALID":
        assert case.text.format(**sizes) in ours(path, checkpoint).text
        assert "self-asserted" not in verdict.text + ours(path, checkpoint).text
    if verdict.word == "PARTIAL":  # the missing entries may be about keys and roles
        assert str(verdict.gate).startswith("not known")


def test_checkpoint_of_another_key_makes_a_bundle_invalid(states: dict[str, Forge], tmp_path: Path) -> None:
    path = states["old"].export(tmp_path / "bundle.tar")
    for name in ("old", "new"):
        states[name].checkpoint_with = states[name].keys["alice"]
        assert both(path, states[name].checkpoint()).codes == {0: {"VERIFICATION_FAILED"}}


def test_checkpoint_counts_under_the_key_of_its_size(tmp_path: Path) -> None:
    forge = Forge()
    before, size = forge.checkpoint(), len(forge.entries)
    key = forge.new_key("another")
    proof = key.prove_possession(forge.id, CHECKPOINT)
    forge.emit("root", "ledger", CheckpointKeyRotated(key=key.public.hex(), proof=proof))
    stale = forge.checkpoint()
    forge.checkpoint_with = key
    path = forge.export(tmp_path / "bundle.tar")
    assert f"complete up to the checkpoint of {size} entries" in both(path, before).text
    assert both(path, forge.checkpoint()).word == "VALID"
    assert both(path, stale).codes == {0: {"VERIFICATION_FAILED"}}


def test_text_that_is_no_checkpoint_is_refused(states: dict[str, Forge], tmp_path: Path) -> None:
    folder = unpacked(states["old"].export(tmp_path / "bundle.tar"), tmp_path / "unpacked")
    (tmp_path / "letter").write_text("Dear auditor,\n\nno checkpoint is here.\n")
    for argument in (tmp_path / "letter", tmp_path / "absent"):
        answer = run_alone(folder, "--checkpoint", str(argument))
        assert (answer.returncode, answer.stdout) == (2, "")
        assert "not a checkpoint" in answer.stderr


def test_checkpoint_in_a_file_may_have_the_line_ends_of_a_mail(states: dict[str, Forge], tmp_path: Path) -> None:
    path = states["old"].export(tmp_path / "bundle.tar")
    note = tmp_path / "note"
    note.write_bytes(b"\r\n" + states["new"].checkpoint().replace("\n", "\r\n").encode() + b"\r\n")
    assert alone(path, "--checkpoint", str(note)).word == "PARTIAL"
