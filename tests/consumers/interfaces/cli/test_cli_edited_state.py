"""Somebody edits a derived record in LMDB: no verb acts on it, other verbs keep working, and a repair restores it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import inside
import msgspec
import pytest
from building import Ledger, key_named
from erasing import SECRET, files_with

from deedbook.ledger.admission import gate as gate_module
from deedbook.ledger.admission.rewriter import finish_erasures
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events.authority import KeyRevoked
from deedbook.ledger.events.handoff import HandoffAmended, HandoffCompleted
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.log import keys
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.record_codec import decode_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOST = key_named("bob's session")


class _Believing:
    """A gate that believes the tables without checks."""

    def check(self, _snapshot: object, _key: bytes, record: object) -> object:
        return record

    def learn(self, *_: object) -> None:
        return


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A pending handoff, a completed one, a session, and a revoked key."""
    with Ledger(tmp_path / ".deedbook") as ledger:
        ledger.write_keys()
        ledger.hand_over("pending")
        ledger.finish("done")
        ledger.emit("alice", "session/s1", SessionStarted(), idem="once")
        ledger.delegate("bob", LOST)
        ledger.emit("root", "agent/bob", KeyRevoked(key=LOST.public.hex()))
    return tmp_path / ".deedbook"


def edit(home: Path, key: bytes, change: Callable[[Any], Any]) -> None:
    """Change one record of the state table, as any process of this user can; None removes it."""
    with Log(home, map_size=64 * 1024**2) as log, log.tables.writing() as txn:
        stored = txn.get(key, db=log.tables.state)
        assert stored is not None
        record = change(decode_record(key, bytes(stored)))
        if record is None:
            txn.delete(key, db=log.tables.state)
        else:
            txn.put(key, encode_packed(record), db=log.tables.state)


def changed(**fields: Any) -> Callable[[Any], Any]:
    return lambda record: msgspec.structs.replace(record, **fields)


def of_life(**fields: Any) -> Callable[[Any], Any]:
    return lambda record: msgspec.structs.replace(record, state=msgspec.structs.replace(record.state, **fields))


def deed(home: Path, *arguments: str) -> inside.Said:
    return inside.deed("--home", home, *arguments)


PENDING, DONE = keys.stream_key("handoff/pending"), keys.stream_key("handoff/done")
CLAIM = ("handoff", "claim", "pending", "--as", "bob")
EDITS: dict[str, tuple[bytes, Callable[[Any], Any], tuple[str, ...]]] = {
    "approved": (PENDING, of_life(status="approved"), CLAIM),
    "another receiver": (PENDING, of_life(receiver="alice"), ("handoff", "claim", "pending", "--as", "alice")),
    "version": (PENDING, changed(version=9), CLAIM),
    "no record": (PENDING, lambda _: None, CLAIM),
    "verified": (DONE, of_life(status="approved"), ("handoff", "claim", "done", "--as", "bob")),
    "role": (
        keys.agent_key("bob"),
        lambda agent: msgspec.structs.replace(agent, roles=("admin", *agent.roles)),
        ("agent", "add", "eve", "--as", "bob"),
    ),
}


@pytest.mark.parametrize("edited", EDITS)
def test_edited_record_is_not_acted_on_and_a_repair_puts_it_right(home: Path, edited: str) -> None:
    key, change, verb = EDITS[edited]
    edit(home, key, change)
    said = deed(home, *verb)
    assert (said.code, said.err.partition(":")[0]) == (6, "CORRUPTED"), said
    assert "deed fsck --repair" in said.err
    others = [("handoff", "list"), ("log",), ("next",), ("session", "start", "--as", "alice")]
    for other in (*others, ("search", "pending"), ("prime",)) if edited == "approved" else ():
        assert deed(home, *other).code == 0, other
    assert deed(home, "fsck").code == 6
    assert deed(home, "fsck", "--repair").code == 0
    assert deed(home, "fsck").code == 0
    assert "CORRUPTED" not in deed(home, *verb).err
    assert deed(home, "verify", "--views").code == 0


@pytest.mark.parametrize(
    ("edited", "depends_on", "asked", "expected"),
    [
        pytest.param("middle", (), "middle", "CORRUPTED", id="an edge of the cycle is hidden"),
        pytest.param("pending", ("new",), "pending", "CORRUPTED", id="an edge is invented that closes one"),
        pytest.param("pending", (), "middle", "DEPENDENCY_CYCLE", id="an edited one beside a cycle"),
        pytest.param("pending", ("done",), "top", "CORRUPTED", id="an edited one where there is none"),
    ],
)
def test_cycle_is_judged_by_what_the_entries_say(
    home: Path, edited: str, depends_on: tuple[str, ...], asked: str, expected: str
) -> None:
    with Ledger(home) as ledger:
        ledger.hand_over("middle", depends_on=["pending", "new"])
        ledger.hand_over("top", depends_on=["pending", "done"])
    edit(home, keys.stream_key(f"handoff/{edited}"), of_life(depends_on=depends_on))
    with Ledger(home) as ledger:
        before = ledger.head()
        with pytest.raises(DeedbookError) as caught:
            ledger.hand_over("new", depends_on=[asked])
        assert (caught.value.code, ledger.head()) == (expected, before)


def test_wrong_number_of_dependents_hides_no_cycle_and_is_found(home: Path) -> None:
    with Ledger(home) as ledger:
        ledger.hand_over("middle", depends_on=["pending", "new"])
    edit(home, keys.dependents_key("new"), lambda _: 0)
    with Ledger(home) as ledger, pytest.raises(DeedbookError, match="DEPENDENCY_CYCLE"):
        ledger.hand_over("new", depends_on=["middle"])
    assert f"state key {keys.dependents_key('new').hex()} contradicts the entries" in deed(home, "fsck").err
    assert deed(home, "fsck", "--repair").code == 0
    assert deed(home, "fsck").code == 0


def test_number_of_dependents_follows_amendments(home: Path) -> None:
    with Ledger(home) as ledger:
        ledger.hand_over("middle", depends_on=["pending", "new"])
        ledger.emit("alice", "handoff/middle", HandoffAmended(title="m", to="bob", reviewer="rita", depends_on=["new"]))
        ledger.hand_over("top", depends_on=["new"])
        with ledger.log.snapshot() as snapshot:
            counts = {name: snapshot.record(keys.dependents_key(name)) for name in ("pending", "new", "done")}
    assert counts == {"pending": 0, "new": 2, "done": None}


def test_key_whose_revocation_was_edited_away_signs_nothing(home: Path) -> None:
    edit(home, keys.key_key(LOST.public.hex()), changed(ended_index=None, ended_as=None))
    with Ledger(home) as ledger:
        with pytest.raises(gate_module.Corrupted, match="a key of bob"):
            ledger.emit("bob", "session/s2", SessionStarted(), key=LOST)
        # One edited record fails no other event of the group.
        group = [ledger.sign("bob", Draft(stream="session/s2", data=SessionStarted()), key=LOST)]
        group += [ledger.sign("alice", Draft(stream="session/s3", data=SessionStarted()))]
        refused, accepted = ledger.gate.admit([gate_module.check(one) for one in group])
        assert isinstance(refused, gate_module.Corrupted)
        assert isinstance(accepted, list)


def test_idempotency_key_that_was_led_elsewhere_answers_nothing(home: Path) -> None:
    edit(home, keys.idempotency_key("alice", "once"), changed(index=2))
    with Ledger(home) as ledger, pytest.raises(gate_module.Corrupted, match="idempotency"):
        ledger.emit("alice", "session/s1", FindingLogged(finding="again"), idem="once")


def test_clock_edited_in_the_head_is_found(home: Path) -> None:
    with Log(home, map_size=64 * 1024**2) as log, log.tables.writing() as txn:
        head = log.tables.read_head(txn)
        assert head is not None
        later = msgspec.structs.replace(head, accepted_ms=head.accepted_ms + 10**9)
        txn.put(keys.HEAD_KEY, msgspec.msgpack.encode(later), db=log.tables.state)
    assert deed(home, "session", "start", "--as", "alice").code == 6
    assert deed(home, "fsck", "--repair").code == 0
    assert deed(home, "session", "start", "--as", "alice").code == 0


def test_entry_that_got_past_the_gate_is_skipped_and_every_verb_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(home, PENDING, of_life(status="approved"))
    with monkeypatch.context() as patch, Ledger(home) as ledger:
        patch.setattr(ledger.gate, "_verifier", _Believing())
        bad = ledger.claim("pending").index
        ledger.emit("bob", "handoff/pending", HandoffCompleted())
    for verb in (
        ("handoff", "list"),
        ("next",),
        ("session", "list"),
        ("session", "start", "--as", "alice"),
        ("prime",),
        ("search", "pending"),
        ("handoff", "show", "pending"),
        ("agent", "list"),
        ("project",),
    ):
        assert deed(home, *verb).code == 0, (verb, deed(home, *verb))
    assert "[skipped: NOT_APPROVED]" in deed(home, "log").out
    checks = json.loads(deed(home, "doctor", "--json").out)["error"]["details"]["checks"]
    (entries,) = [one for one in checks if one["name"] == "entries"]
    assert (entries["ok"], f"{bad} (NOT_APPROVED)" in entries["found"]) == (False, True)

    before = json.loads(deed(home, "handoff", "show", "pending", "--json").out)["data"]["status"]
    done = json.loads(deed(home, "fsck", "--repair", "--json").out)["data"]
    assert ([one["index"] for one in done["skipped"]], before) == ([bad, bad + 1], "pending")
    # The history contains it for good, and verifying reports it; the handoff continues from its last valid state.
    report = json.loads(deed(home, "verify", "--json").out)["error"]["details"]["report"]
    assert [one["index"] for one in report["problems"]] == [bad, bad + 1]
    assert [
        one["index"] for one in json.loads(deed(home, "fsck", "--json").out)["error"]["details"]["report"]["problems"]
    ] == [bad, bad + 1]
    version = json.loads(deed(home, "handoff", "show", "pending", "--json").out)["data"]["version"]
    for act in (["approve", "pending", "--as", "rita", "--version", version], ["claim", "pending", "--as", "bob"]):
        assert deed(home, "handoff", *act).code == 0


def test_log_with_an_entry_that_no_rule_admits_is_rewritten_once_a_repair_skipped_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(home, PENDING, of_life(status="approved"))
    with monkeypatch.context() as patch, Ledger(home) as ledger:
        patch.setattr(ledger.gate, "_verifier", _Believing())
        bad = ledger.claim("pending").index
        secret = ledger.emit("alice", "session/s1", FindingLogged(finding=SECRET)).index
        ledger.emit("root", "ledger", ledger.redaction(secret))
        with pytest.raises(DeedbookError, match=f"entry {bad} is not valid"):
            finish_erasures(ledger.log)
    assert files_with(home / "log")
    assert deed(home, "fsck", "--repair").code == 0
    with Ledger(home) as ledger:
        assert finish_erasures(ledger.log)
        with ledger.log.snapshot() as snapshot:
            assert snapshot.is_skipped(bad)
    assert files_with(home / "log") == []


def test_repair_refuses_a_log_that_is_damaged_itself_and_changes_nothing(home: Path) -> None:
    with Log(home, map_size=64 * 1024**2) as log, log.tables.writing() as txn:
        data = bytes(txn.get(keys.index_key(4), db=log.tables.entries) or b"")
        txn.put(keys.index_key(4), data[:-80] + bytes([data[-80] ^ 1]) + data[-79:], db=log.tables.entries)
    edit(home, PENDING, of_life(status="approved"))
    said = deed(home, "fsck", "--repair")
    assert (said.code, "nothing was changed" in said.err or "restore a backup" in said.err) == (6, True)
    with Log(home, map_size=64 * 1024**2) as log, log.snapshot() as snapshot:
        assert snapshot.record(PENDING).state.status == "approved"
