"""`deed handoff show --history`: who signed each event with which key, checked from the entries themselves."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest
from building import Ledger, trusted
from calling import Deed, Place
from tampering import append_behind_the_gate, forged

from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.client import read_batch_path
from deedbook.ledger.events.handoff import HandoffTaskChecked, HandoffVerified
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.format.signatures import is_signed
from deedbook.ledger.lifecycle.gate_state import GateState
from deedbook.ledger.log.keys import index_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Fresh = Callable[[str], str]

BLIND = {"result": "sha256:" + "0" * 64}
PARTIES = ("--as", "a", "--to", "b", "--reviewer", "rita")


def life(deed: Deed, name: str) -> str:
    """Create, approve and claim a handoff, and tick its tasks in one signed batch."""
    deed("handoff", "create", name, "--title", "修復", "--task", "一", "--task", "二", *PARTIES)
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    deed("handoff", "claim", name, "--as", "b")
    deed("handoff", "check", name, "--all", "--as", "b")
    return name


@pytest.mark.served
def test_history_names_keys_and_verifies_each_signature(deed: Deed, fresh: Fresh) -> None:
    name = life(deed, fresh("signed"))
    deed("key", "delegate", "--as", "b", "--ttl", "1h")
    deed("handoff", "log", name, "進行中", "--as", "b")
    # A served ledger has a router, which may announce that the handoff is ready before it is claimed.
    told = deed.data("handoff", "show", name, "--history")["history"]
    history = [one for one in told if one["kind"] != "handoff.ready"]
    assert [(one["author"], one["kind"], one["key_type"]) for one in history] == [
        ("a", "handoff.created", "identity"),
        ("rita", "handoff.approved", "identity"),
        ("b", "handoff.claimed", "identity"),
        ("b", "handoff.task_checked", "identity"),
        ("b", "handoff.task_checked", "identity"),
        ("b", "handoff.logged", "session"),
    ]
    assert all(one["is_verified"] and one["problem"] is None for one in history)
    assert history[-1]["text"] == "進行中"
    assert history[2]["key"] == history[3]["key"] != history[5]["key"]
    text = deed("handoff", "show", name, "--history")
    assert f"identity key {history[0]['key'][:16]}: the signature fits" in text
    assert history[0]["key"][:16] in deed("agent", "list")
    assert history[0]["key"][:16] in deed("key", "list")
    assert text.count("the signature fits") == len(told)
    assert "history" not in deed.data("handoff", "show", name)
    (deed.home / "keys" / "b.session").unlink()


def test_gate_is_said_at_every_verdict_in_the_same_words(deed: Deed, fresh: Fresh) -> None:
    name = life(deed, fresh("gate"))
    found = deed.data("handoff", "show", name)["as_of"]["gate"]
    assert (found["state"], found["trial"]) == ("open", False)
    said = f"gate: {GateState(**found)}"
    assert said in deed("handoff", "show", name).splitlines()
    assert said in deed("doctor")
    assert deed("verify").splitlines()[1] == said
    assert deed.data("verify")["gate"] == found
    assert deed("fsck").splitlines()[1] == said


def test_gate_is_said_where_the_ledger_lies_elsewhere(
    served: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / ".deedbook" / "keys"
    keys.mkdir(parents=True)
    for file in ("a.key", "a.nkey"):
        shutil.copy(served.home / "keys" / file, keys)
    trusted(keys.parent)
    life(Deed(capsys, served), "elsewhere")
    away = Deed(capsys, Place(keys.parent, served.server))
    found = away.data("handoff", "show", "elsewhere", "--history", "--as", "a")
    assert found["as_of"]["gate"]["state"] == "open"
    assert all(one["is_verified"] for one in found["history"])
    assert "\ngate: open (" in away("handoff", "show", "elsewhere", "--as", "a")
    assert "gate: open (" in away("doctor", "--as", "a")


def test_forged_entry_is_refused_and_nothing_is_shown_of_it(alone: Deed) -> None:
    for agent, role in (("a", "agent"), ("b", "agent"), ("rita", "human")):
        alone("agent", "add", agent, "--role", role, "--unprotected")
    life(alone, "h")
    before = alone.data("handoff", "show", "h", "--history")["history"]
    approved = before[1]["index"]
    with Ledger(alone.home) as ledger, ledger.log.snapshot() as snapshot:
        stored = decode_entry(snapshot.entry(approved))
        signature = snapshot.entry(before[0]["index"])
    for another in (
        msgspec.structs.replace(stored, sig=decode_entry(signature).sig),
        msgspec.structs.replace(stored, key=bytes.fromhex(before[0]["key"])),
    ):
        with Ledger(alone.home) as ledger, ledger.log.tables.writing() as txn:
            txn.put(index_key(approved), another.encode(), db=ledger.log.tables.entries)
        for options in ((), ("--history",)):
            # The changed entry changes the tree, too, so the tree cannot identify it; `deed verify` can.
            error = alone.refuses("VERIFICATION_FAILED", "handoff", "show", "h", *options)
            assert "`deed verify`" in error["message"]


def test_entry_that_no_rule_admits_stands_in_the_history_with_the_reason(alone: Deed) -> None:
    for agent, role in (("a", "agent"), ("b", "agent"), ("rita", "human")):
        alone("agent", "add", agent, "--role", role, "--unprotected")
    life(alone, "h")
    with Ledger(alone.home) as ledger:
        ledger.keys["a"] = open_key(alone.home / "keys" / "a.key")
        index = append_behind_the_gate(ledger, forged(ledger, "a", "handoff/h", HandoffVerified(**BLIND)))
    shown = alone.data("handoff", "show", "h", "--history")
    assert shown["status"] == "in_progress"
    assert [(one["index"], one["is_verified"]) for one in shown["history"]][-1] == (index, False)
    text = alone("handoff", "show", "h", "--history")
    assert "NOT COUNTED: the event is for ledger" in text
    assert f"entry {index} counts for nothing" in text


def test_signature_of_a_batch_covers_every_event_of_it(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.approve("h", ledger.hand_over("h", tasks=["one", "two", "three"]))
        ledger.claim("h")
        first, _ = ledger.head()
        ticks = [Draft(stream="handoff/h", data=HandoffTaskChecked(position=number)) for number in range(3)]
        ledger.submit(ledger.sign("bob", *ticks))
        client = ledger.client()
        for number in range(3):
            index = first + number
            entry = decode_entry(client.entry(index))
            assert entry.batch_size == 3
            assert is_signed(entry, read_batch_path(client, index, entry))
            for change in ({"sig": bytes(64)}, {"batch_size": 2, "batch_index": 0}, {"batch_size": 9}):
                other = msgspec.structs.replace(entry, **change)
                assert not is_signed(other, read_batch_path(client, index, other))
