"""A remote client learns the ledger's keys from its log, starting at its id, and never trusts a replaced key again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from building import Ledger, key_named
from invitations import checkpoint_key_of, invitation_of, invite, join, registration

from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.reads import Page
from deedbook.ledger.client.remote_history import RemoteHistory
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.events.authority import AgentRemoved, CheckpointKeyRotated, KeyRotated
from deedbook.ledger.format.envelope import ED25519, ENTRY_VERSION, Entry
from deedbook.ledger.lifecycle.authority import CHECKPOINT, ROOT
from deedbook.ledger.proof.checkpoint import Checkpoint, CheckpointKey, sign_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deedbook.ledger.client.local import LocalClient
    from deedbook.ledger.trust.store import ConsistencyProof


class Node:
    """A node that answers from a real log, signs heads with ``signs``, and may hide entries of a kind."""

    def __init__(self, client: LocalClient, signs: CheckpointKey, hides: str = "") -> None:
        self.client, self.signs, self.hides = client, signs, hides

    def consistency(self, old_size: int) -> ConsistencyProof:
        consistency_proof = self.client.consistency(old_size)
        checkpoint = Checkpoint(self.signs.origin, consistency_proof.size, bytes.fromhex(consistency_proof.root))
        return msgspec.structs.replace(consistency_proof, checkpoint=sign_checkpoint(checkpoint, self.signs))

    def entries(self, start: int, *, kinds: Any = (), **options: Any) -> Page:
        page = self.client.entries(start, kinds=kinds, **options)
        return Page([], page.next_index, page.size) if self.hides in kinds else page

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> RemoteHistory:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return RemoteHistory(ledger.id, ledger.settings())


@pytest.fixture
def client(ledger: Ledger) -> Iterator[LocalClient]:
    with ledger.client() as made:
        yield made


def rotate_checkpoint(ledger: Ledger, key: Any = None) -> tuple[CheckpointKey, CheckpointKey]:
    """Replace the checkpoint key, signed by root's ``key``; return the old and the new one."""
    new = key_named("checkpoint anew")
    data = CheckpointKeyRotated(key=new.public.hex(), proof=new.prove_possession(ledger.id, CHECKPOINT))
    old = ledger.checkpoint_key
    ledger.emit(ROOT, "ledger", data, key=key)
    return old, CheckpointKey(old.origin, new.seed)


def test_client_follows_a_rotation_and_goes_back_to_no_key_that_was_replaced(
    ledger: Ledger, client: LocalClient, history: RemoteHistory
) -> None:
    history.greet(Node(client, ledger.checkpoint_key))  # type: ignore[arg-type] # Node has the needed methods
    old, new = rotate_checkpoint(ledger)
    history.greet(Node(client, new))  # type: ignore[arg-type]
    with pytest.raises(Corrupted):
        history.greet(Node(client, old))  # type: ignore[arg-type]
    with pytest.raises(Corrupted) as refused:  # also if the node hides the rotation
        history.greet(Node(client, old, hides="checkpoint_key.rotated"))  # type: ignore[arg-type]
    assert "hides entries" in refused.value.message
    history.greet(Node(client, new))  # type: ignore[arg-type]


def key_of_node(ledger: Ledger, name: str) -> CheckpointKey:
    """Return the key with which another node signs checkpoints."""
    return CheckpointKey(ledger.checkpoint_key.origin, checkpoint_key_of(name).seed)


def test_client_follows_any_node_that_root_let_in_until_it_is_removed(
    ledger: Ledger, client: LocalClient, history: RemoteHistory
) -> None:
    first = Node(client, ledger.checkpoint_key)
    history.greet(first)  # type: ignore[arg-type] # Node has the needed methods
    join(ledger, invite(ledger, "n2", "node"))
    ledger.emit(ROOT, "agent/n3", registration(invitation_of(ledger, "n3", "node"), token_proof=None))
    second, third = (Node(client, key_of_node(ledger, name)) for name in ("n2", "n3"))
    for node in (second, third, first):
        history.greet(node)  # type: ignore[arg-type]
    ledger.emit(ROOT, "agent/n2", AgentRemoved(agent="n2"))
    join(ledger, invite(ledger, "n4", "node"))
    history.greet(Node(client, key_of_node(ledger, "n4")))  # type: ignore[arg-type] # tells it that n2 was removed
    with pytest.raises(Corrupted):
        history.greet(second)  # type: ignore[arg-type]
    with pytest.raises(Corrupted, match="hides entries"):
        history.greet(Node(client, key_of_node(ledger, "n2"), hides="agent.removed"))  # type: ignore[arg-type]


def test_key_that_a_node_names_without_root_is_followed_by_nobody(
    ledger: Ledger, client: LocalClient, history: RemoteHistory
) -> None:
    # A thief of the log's disk wrote this validly signed entry, which no gate admits.
    invitation = invite(ledger, "n2", "node")
    join(ledger, invitation)
    stranger = key_named("stranger")
    entries_of_client = client.entries
    forged = registration(invitation_of(ledger, "n9", "node"), stranger)
    entry = entry_of(ledger, "n9", forged, stranger)

    def entries(start: int, *, kinds: Any = (), **options: Any) -> Page:
        page = entries_of_client(start, kinds=kinds, **options)
        return Page([*page.entries, (page.size, entry)], page.next_index, page.size)

    node = Node(client, key_of_node(ledger, "n9"))
    node.entries = entries  # type: ignore[method-assign,assignment]
    with pytest.raises(Corrupted):
        history.greet(node)  # type: ignore[arg-type]


def entry_of(ledger: Ledger, author: str, data: Any, key: Any) -> bytes:
    """Return a validly signed entry that no gate admitted."""
    submission = ledger.sign(author, Draft(stream=f"agent/{author}", data=data), key=key)
    return Entry(
        version=ENTRY_VERSION,
        body=submission.bodies[0],
        key=key.public,
        alg=ED25519,
        sig=submission.sig,
        batch_index=0,
        batch_size=1,
        accepted_ms=ledger.clock.now_ms,
        stream_version=1,
        authority_version=1,
    ).encode()


def test_rotation_by_the_root_that_replaced_the_first_one_is_followed(
    ledger: Ledger, client: LocalClient, history: RemoteHistory
) -> None:
    fresh = key_named("root anew")
    proof = fresh.prove_possession(ledger.id, ROOT)
    ledger.emit(ROOT, "agent/root", KeyRotated(agent=ROOT, key=fresh.public.hex(), proof=proof))
    _, new = rotate_checkpoint(ledger, key=fresh)
    history.greet(Node(client, new))  # type: ignore[arg-type]
    assert history.trusted is not None
    assert history.trusted.size == client.head().size
