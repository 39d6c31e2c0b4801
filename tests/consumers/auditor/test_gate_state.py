"""The state of the gate follows from the events of authority: both verifiers and every reader of a log agree on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import inside
import pytest
from building import AGENTS, Ledger, key_named
from faults import chances, times
from forge import SESSION, Forge
from forged_steps import finding
from judges import alone, ours, program
from msgspec.structs import replace

from deedbook.consumers.auditor.fsck import fsck
from deedbook.consumers.auditor.verify import verify_log
from deedbook.ledger.bundle import export_bundle
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import (
    AgentRemoved,
    KeyRevoked,
    KeyRotated,
    LedgerCreated,
    Protection,
    Role,
    RoleGranted,
    RoleRevoked,
)
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.lifecycle.gate_state import TRUSTED_ROLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVERYBODY: Final = (ROOT, *AGENTS)
UNKNOWN: Final = "not known (entries are missing or not valid, perhaps also some about keys and roles)"


class TrialLedger(Ledger):
    """A ledger for a first try."""

    def created(self) -> Draft:
        """Return the draft of entry 0."""
        draft = super().created()
        assert isinstance(draft.data, LedgerCreated)
        return replace(draft, data=replace(draft.data, trial=True))


def rotate(ledger: Ledger, name: str, protection: Protection, *, by: str | None = None) -> None:
    """Give an agent a new key."""
    key = key_named(f"{name} anew {ledger.head()[0]}")
    proof = key.prove_possession(ledger.id, name)
    data = KeyRotated(agent=name, key=key.public.hex(), proof=proof, protection=protection)
    ledger.emit(by or name, f"agent/{name}", data)
    ledger.keys[name] = key


def gate_of(ledger: Ledger, folder: Path) -> str:
    """Return the state of the gate as each verdict and answer has it. All must be the same."""
    stream = f"session/{ledger.head()[0]}"
    ledger.emit("alice", stream, SessionStarted())
    log, part = folder / "log.tar", folder / "part.tar"
    for path in (log, part):
        path.unlink(missing_ok=True)  # an export does not replace a file of another ledger or stream
    with ledger.client() as client:
        texts = {str(client.streams.gate_state()), str(verify_log(client).gate)}
        export_bundle(client, log)
        export_bundle(client, part, stream=stream)
    texts.add(str(fsck(ledger.home.path).gate))
    texts |= {str(judge(path).gate) for path in (log, part) for judge in (ours, alone)}
    assert len(texts) == 1, texts
    return texts.pop()


@pytest.mark.parametrize(
    ("sealed", "state"),
    [
        (EVERYBODY, "closed"),
        ((ROOT, "rita"), "closed"),  # an agent's key without a passphrase approves nothing
        ((ROOT,), "open (rita's key has no passphrase)"),
        (("rita",), "open (root's key has no passphrase)"),
        ((), "open (the keys of rita and root have no passphrase)"),
    ],
)
def test_gate_is_closed_if_root_and_approvers_have_passphrases(
    home: Path, tmp_path: Path, sealed: tuple[str, ...], state: str
) -> None:
    with Ledger(home, sealed=sealed) as ledger:
        assert gate_of(ledger, tmp_path) == state
    is_closed = state == "closed"
    assert program().main([str(tmp_path / "log.tar"), "--closed-gate"]) == (0 if is_closed else 6)
    said = inside.deed("--bundle", tmp_path / "log.tar", "verify", "--closed-gate")
    assert (said.code, "--closed-gate: the gate is not closed" in said.err) == ((0, False) if is_closed else (6, True))


def revoke(ledger: Ledger) -> None:
    """Let rita revoke her key."""
    ledger.emit("rita", "agent/rita", KeyRevoked(key=ledger.keys["rita"].public.hex()))


def remove(ledger: Ledger) -> None:
    """Remove rita."""
    ledger.emit(ROOT, "agent/rita", AgentRemoved(agent="rita"))


def demote(ledger: Ledger) -> None:
    """Take rita's roles from her."""
    for role in AGENTS["rita"]:
        ledger.emit(ROOT, "agent/rita", RoleRevoked(agent="rita", role=role))


def promote(ledger: Ledger, role: Role = "admin") -> None:
    """Make bob an admin, or grant him another role."""
    ledger.emit(ROOT, "agent/bob", RoleGranted(agent="bob", role=role))


CHANGES: Final[dict[str, tuple[Callable[[Ledger], None], str]]] = {
    "rita seals her key": (lambda ledger: rotate(ledger, "rita", "passphrase"), "closed since entry 4"),
    "rita makes another": (
        lambda ledger: rotate(ledger, "rita", "none"),
        "open (rita's key has no passphrase)",
    ),
    "root replaces a lost key": (lambda ledger: rotate(ledger, "rita", "passphrase", by=ROOT), "closed since entry 4"),
    "rita revokes her key": (revoke, "closed since entry 4"),
    "rita is removed": (remove, "closed since entry 4"),
    "rita loses her roles": (demote, "closed since entry 5"),
    "bob becomes an admin": (promote, "open (the keys of bob and rita have no passphrase)"),
    "bob becomes a human": (
        lambda ledger: promote(ledger, "human"),
        "open (the keys of bob and rita have no passphrase)",
    ),
    "root opens its key": (
        lambda ledger: rotate(ledger, ROOT, "none"),
        "open (the keys of rita and root have no passphrase)",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_gate_follows_the_present_keys_and_roles(home: Path, tmp_path: Path, change: str) -> None:
    make, state = CHANGES[change]
    with Ledger(home, sealed=(ROOT,)) as ledger:
        make(ledger)
        assert gate_of(ledger, tmp_path) == state


def test_gate_that_was_open_says_since_when_it_is_closed(home: Path, tmp_path: Path) -> None:
    with Ledger(home, sealed=EVERYBODY) as ledger:
        rotate(ledger, "rita", "none")
        assert gate_of(ledger, tmp_path) == "open (rita's key has no passphrase)"
        rotate(ledger, "rita", "passphrase")
        closing = ledger.head()[0] - 1
        assert gate_of(ledger, tmp_path) == f"closed since entry {closing}"


def test_gate_of_a_trial_is_open_for_ever(home: Path, tmp_path: Path) -> None:
    with TrialLedger(home, sealed=EVERYBODY) as ledger:
        assert gate_of(ledger, tmp_path) == "open (trial)"
        rotate(ledger, ROOT, "passphrase")
        assert gate_of(ledger, tmp_path) == "open (trial)"


def test_gate_is_not_known_of_a_part_without_all_of_authority(tmp_path: Path) -> None:
    forge = Forge()
    finding(forge)
    path = forge.export(tmp_path / "part.tar", SESSION, leave_out={3})
    for judge in (ours, alone):
        verdict = judge(path)
        assert (verdict.word, verdict.gate) == ("PARTIAL", UNKNOWN), verdict.text


def test_gate_is_not_known_if_an_event_of_authority_may_be_wrong(tmp_path: Path) -> None:
    forge = Forge()
    finding(forge)
    missing = len(forge.entries) - 1
    finding(forge)
    forge.emit("bob", "agent/alice", RoleRevoked(agent="alice", role="agent"))
    path = forge.export(tmp_path / "part.tar", SESSION, leave_out={missing})
    for judge in (ours, alone):
        verdict = judge(path)
        assert (verdict.word, verdict.gate) == ("PARTIAL", UNKNOWN), verdict.text


def test_gate_of_random_authority_is_what_a_list_of_keys_gives(home: Path, tmp_path: Path) -> None:
    for number, chance in enumerate(chances("gate states", times(3, 60))):
        with Ledger(home.with_name(f"ledger-{number}"), root=f"root {number}", sealed=EVERYBODY) as ledger:
            stored, roles = dict.fromkeys(EVERYBODY, "passphrase"), {name: {*of} for name, of in AGENTS.items()}
            roles[ROOT] = {"admin"}
            for _ in range(20):
                ledger.clock.advance(1)
                name, protection = chance.choice((ROOT, "bob", "rita")), chance.choice(("passphrase", "none"))
                role = chance.choice(("agent", "reviewer", "human", "admin", "service"))
                match chance.randrange(3):
                    case 0:
                        rotate(ledger, name, protection)
                        stored[name] = protection
                    case 1:
                        ledger.emit(ROOT, f"agent/{name}", RoleGranted(agent=name, role=role))
                        roles[name].add(role)
                    case _ if name != ROOT:
                        ledger.emit(ROOT, f"agent/{name}", RoleRevoked(agent=name, role=role))
                        roles[name].discard(role)
                    case _:  # nobody may revoke a role of root
                        with pytest.raises(Refused):
                            ledger.emit(ROOT, f"agent/{name}", RoleRevoked(agent=name, role=role))
                names = {name for name in EVERYBODY if stored[name] == "none" and roles[name] & TRUSTED_ROLES}
                with ledger.client() as client:
                    state = client.streams.gate_state()
                assert {*state.unprotected} == names
                assert state.state == ("open" if names else "closed")
            assert gate_of(ledger, tmp_path)
