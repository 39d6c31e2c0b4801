"""The stream reader returns what signed entries prove, and refuses every change that a node makes to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from building import Ledger, key_named
from scripted_node import ScriptedNode
from tampering import append_behind_the_gate, changed, entries_of, forged

from deedbook.ledger.client import stream_reader as checked
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.events.authority import AgentRegistered, KeyRevoked, RoleRevoked
from deedbook.ledger.events.declared import KindDeclared
from deedbook.ledger.events.handoff import HandoffApproved, HandoffLogged
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.lifecycle.handoff import HandoffState, compute_version
from deedbook.ledger.trust.history import StreamPage, StreamRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

STREAM = "handoff/logs"


@pytest.fixture
def entries(ledger: Ledger) -> list[bytes]:
    """A log with an approved and claimed handoff, and other events before, within and after it."""
    data = ledger.hand_over("logs", title="Rotate logs", criteria=["nothing is lost"])
    ledger.emit("alice", "session/s", SessionStarted(task="something else"))
    ledger.register("carol", "reviewer")
    ledger.approve("logs", data)
    ledger.claim("logs")
    ledger.emit("alice", "session/s", FindingLogged(finding="the last one is of another stream"))
    return entries_of(ledger)


@pytest.fixture
def node(ledger: Ledger, entries: list[bytes]) -> ScriptedNode:
    return ScriptedNode(ledger.id, entries)


def own(entries: Sequence[bytes], stream: str = STREAM) -> list[int]:
    """Return the indexes of a stream's entries."""
    return [i for i, data in enumerate(entries) if msgspec.json.decode(decode_entry(data).body)["stream"] == stream]


def problem(node: ScriptedNode, stream: str = STREAM) -> str:
    """Return why the reader refuses the node's answer."""
    with pytest.raises(Corrupted) as refused:
        node.reader().read(stream)
    assert refused.value.code == "VERIFICATION_FAILED"
    return refused.value.message


def test_stream_has_its_entries_and_the_state_that_the_gate_stores(ledger: Ledger, entries: list[bytes]) -> None:
    with ledger.client() as client:
        checked = client.streams.read(STREAM)
        head = client.head()
    with ledger.log.snapshot() as snapshot:
        record = snapshot.record(b"s" + STREAM.encode())
    assert [index for index, _ in checked.entries] == own(entries)
    assert checked.state == record.state
    assert (checked.ignored, checked.head.size, checked.head.root) == ([], head.size, head.root)


@pytest.mark.parametrize("stream", ["session/s", "agent/carol", "ledger", "handoff/none"])
def test_streams_of_every_kind_are_read_and_a_missing_one_is_empty(
    node: ScriptedNode, entries: list[bytes], stream: str
) -> None:
    assert [index for index, _ in node.reader().read(stream).entries] == own(entries, stream)


@pytest.mark.parametrize("page_entries_max", [1, 2, 3])
def test_stream_is_the_same_in_whatever_pages_it_comes(node: ScriptedNode, page_entries_max: int) -> None:
    whole = node.reader().read(STREAM)
    node.page_entries_max = page_entries_max
    assert node.reader().read(STREAM) == whole


def test_events_of_a_signed_batch_are_checked_one_by_one(ledger: Ledger) -> None:
    drafts = [Draft(stream="session/b", data=SessionStarted(task="many"))]
    drafts += [Draft(stream="session/b", data=FindingLogged(finding=str(number))) for number in range(6)]
    ledger.submit(ledger.sign("alice", *drafts))
    with ledger.client() as client:
        assert len(client.streams.read("session/b").entries) == len(drafts)
    node = ScriptedNode(ledger.id, entries_of(ledger))
    node.edits = lambda page: with_entry(page, -1, batch_path=page.entries[0].path)
    assert "signature" in problem(node, "session/b")


def with_entry(page: StreamPage, at: int, **fields: object) -> StreamPage:
    entries = list(page.entries)
    entries[at] = msgspec.structs.replace(entries[at], **fields)
    return msgspec.structs.replace(page, entries=entries)


def edited(data: bytes) -> bytes:
    return data.replace(b"Rotate logs", b"Delete disk")


LIES: dict[str, tuple[Callable[[StreamPage], StreamPage], str]] = {
    "an entry differs from the one in the tree": (
        lambda page: with_entry(page, 4, data=edited(page.entries[4].data)),
        "is not in the tree",
    ),
    "an entry has another index": (lambda page: with_entry(page, 4, index=6), "is not in the tree"),
    "two entries are swapped": (
        lambda page: msgspec.structs.replace(page, entries=[*page.entries[:5], *page.entries[:4:-1]]),
        "left out",
    ),
    "an entry comes twice": (
        lambda page: msgspec.structs.replace(page, entries=[*page.entries, page.entries[-1]]),
        "was not requested",
    ),
    "an entry is of another stream": (
        lambda page: msgspec.structs.replace(page, entries=[*page.entries, page.last]),
        "was not requested",
    ),
    "the last entry is replaced": (
        lambda page: msgspec.structs.replace(page, last=page.entries[0]),
        "as the last of",
    ),
    "the head is replaced": (
        lambda page: msgspec.structs.replace(
            page, consistency_proof=msgspec.structs.replace(page.consistency_proof, root="00" * 32)
        ),
        "is not in the tree",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_page_that_fails_a_check_is_refused(node: ScriptedNode, lie: str) -> None:
    node.edits, expected = LIES[lie]
    assert expected in problem(node)


def test_every_entry_left_out_before_the_last_is_detected(ledger: Ledger, entries: list[bytes]) -> None:
    whole = ScriptedNode(ledger.id, entries)
    needed = [proven.index for proven in whole.stream(StreamRequest(STREAM)).entries]
    for hidden in needed[:-1]:
        assert "left out" in problem(ScriptedNode(ledger.id, entries, hides=[hidden]))


def test_stream_without_its_last_entries_names_its_head(ledger: Ledger, entries: list[bytes]) -> None:
    older = ScriptedNode(ledger.id, entries[:-2]).reader().read(STREAM)
    assert isinstance(older.state, HandoffState)
    assert older.state.status == "approved"
    assert older.head.size == len(entries) - 2
    # The node can also hide the claim in a log of the current size. Then the claim is missing, and the head alone does
    # not show it.
    hidden = ScriptedNode(ledger.id, entries, hides=own(entries)[-1:]).reader().read(STREAM)
    assert (hidden.state, hidden.head.size) == (older.state, len(entries))


def test_authority_left_out_at_the_end_of_the_log_is_detected(ledger: Ledger) -> None:
    ledger.hand_over("logs")
    ledger.emit("root", "agent/rita", RoleRevoked(agent="rita", role="reviewer"))
    ledger.emit("alice", "session/s", SessionStarted(task="after it"))
    entries = entries_of(ledger)
    assert "entries of authority" in problem(ScriptedNode(ledger.id, entries, hides=own(entries, "agent/rita")[-1:]))


def test_approval_with_a_key_that_its_holder_registered_has_no_effect(ledger: Ledger) -> None:
    content = ledger.hand_over("logs", title="Delete production")
    ledger.keys["mallory"] = key_named("mallory")
    proof = ledger.keys["mallory"].prove_possession(ledger.id, "rita")
    key = ledger.keys["mallory"].public.hex()
    version = compute_version("alice", content)
    first = append_behind_the_gate(
        ledger,
        forged(ledger, "alice", "agent/rita", AgentRegistered(name="rita", key=key, proof=proof, roles=["reviewer"])),
        forged(ledger, "rita", STREAM, HandoffApproved(version=version), key="mallory"),
    )
    with ledger.client() as client:
        checked = client.streams.read(STREAM)
    assert isinstance(checked.state, HandoffState)
    assert checked.state.status == "pending"
    assert [(entry.index, entry.code) for entry in checked.ignored] == [(first + 1, "KEY_UNKNOWN")]


def test_invalid_signature_is_refused_though_the_tree_includes_the_entry(ledger: Ledger, entries: list[bytes]) -> None:
    last = own(entries)[-1]
    entries[last] = changed(entries[last], sig=decode_entry(entries[-1]).sig)
    assert "signature" in problem(ScriptedNode(ledger.id, entries))


def test_event_that_the_rules_refuse_is_ignored_and_named(ledger: Ledger, entries: list[bytes]) -> None:
    first = append_behind_the_gate(
        ledger,
        forged(ledger, "alice", STREAM, HandoffApproved(version="sha256:" + "0" * 64)),
        forged(ledger, "bob", STREAM, HandoffLogged(text="goes on")),
    )
    with ledger.client() as client:
        checked = client.streams.read(STREAM)
    assert [entry.index for entry in checked.ignored] == [first]
    assert [index for index, _ in checked.entries] == [*own(entries), first + 1]


def test_another_ledger_is_refused_under_any_name(ledger: Ledger, tmp_path: Path) -> None:
    with Ledger(tmp_path / "other", root="another root") as other:
        other.hand_over("logs", title="something else")
        entries = entries_of(other)
    assert "not of" in problem(ScriptedNode(ledger.id, entries))


def test_key_is_checked_against_the_authority_at_its_entry(ledger: Ledger, entries: list[bytes]) -> None:
    bob = ledger.keys["bob"].public.hex()
    ledger.emit("root", "agent/bob", KeyRevoked(key=bob, reason="lost"))
    with ledger.client() as client:
        for _ in range(2):  # in the second read, the reader already knows all events of authority
            checked = client.streams.read(STREAM)
            assert [index for index, _ in checked.entries] == own(entries)  # bob claimed before the revocation


def test_authority_is_checked_once_and_stored_in_a_file(node: ScriptedNode, tmp_path: Path) -> None:
    file = tmp_path / "stored.authority"
    whole = node.reader(file).read(STREAM)
    again = node.reader(file)
    assert again.read(STREAM) == whole
    assert (node.requests[0].authority_start, node.requests[-1].authority_start) == (0, again.authority.start)
    assert again.authority.start > 0


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x95\x02\xa0\x80\x90\x80"])
def test_damaged_file_of_authority_costs_only_time(node: ScriptedNode, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "stored.authority"
    file.write_bytes(content)
    file.chmod(0o600)
    assert node.reader(file).read(STREAM) == node.reader().read(STREAM)
    assert file.read_bytes() != content


def test_damaged_bit_in_the_file_of_authority_is_not_blamed_on_the_ledger(node: ScriptedNode, tmp_path: Path) -> None:
    file = tmp_path / "stored.authority"
    whole = node.reader(file).read(STREAM)
    written = file.read_bytes()
    for position in range(0, len(written), 29):
        file.write_bytes(written[:position] + bytes([written[position] ^ 1]) + written[position + 1 :])
        assert node.reader(file).read(STREAM) == whole
        assert file.read_bytes() == written


def test_file_of_another_history_is_not_used(ledger: Ledger, entries: list[bytes], tmp_path: Path) -> None:
    file = tmp_path / "stored.authority"
    ScriptedNode(ledger.id, entries).reader(file).read(STREAM)
    ledger.register("dora")
    shorter = ScriptedNode(ledger.id, entries[:-3])
    reader = shorter.reader(file)
    assert reader.read(STREAM).head.size == len(entries) - 3
    assert [request.authority_start > 0 for request in shorter.requests] == [True, False]


def test_reader_continues_after_a_false_answer(node: ScriptedNode) -> None:
    reader = node.reader()
    whole = reader.read(STREAM)
    node.edits = LIES["an entry has another index"][0]
    with pytest.raises(Corrupted):
        node.reader().read(STREAM)
    node.edits = lambda page: page
    assert reader.read(STREAM) == whole


def test_stream_at_a_size_is_the_stream_of_a_log_of_that_size(node: ScriptedNode, entries: list[bytes]) -> None:
    reader = node.reader()
    for size in range(6, len(entries) + 1):  # from 6 on, because no log ends within a batch
        past = reader.read(STREAM, size)
        whole = ScriptedNode(node.ledger, entries[:size]).reader().read(STREAM)
        assert past == whole, size


def past_of_another_log(page: StreamPage) -> StreamPage:
    return msgspec.structs.replace(
        page, consistency_proof=msgspec.structs.replace(page.consistency_proof, root="ab" * 32)
    )


def past_of_another_size(page: StreamPage) -> StreamPage:
    return msgspec.structs.replace(
        page, consistency_proof=msgspec.structs.replace(page.consistency_proof, size=page.consistency_proof.size - 1)
    )


def past_with_another_end(page: StreamPage) -> StreamPage:
    last = msgspec.structs.replace(page.last, data=changed(page.last.data, accepted_ms=1))
    return msgspec.structs.replace(page, last=last)


def past_with_an_earlier_end(page: StreamPage) -> StreamPage:
    return msgspec.structs.replace(page, last=msgspec.structs.replace(page.last, index=page.last.index - 1))


@pytest.mark.parametrize(
    "edit", [past_of_another_log, past_of_another_size, past_with_another_end, past_with_an_earlier_end]
)
def test_stream_at_a_size_that_fails_a_check_is_refused(
    node: ScriptedNode, entries: list[bytes], edit: Callable[[StreamPage], StreamPage]
) -> None:
    size = len(entries) - 2
    node.edits = lambda page: edit(page) if node.requests[-1].size == size else page
    with pytest.raises(Corrupted) as refused:
        node.reader().read(STREAM, size)
    assert refused.value.code == "VERIFICATION_FAILED"


def test_stream_at_a_size_is_refused_if_the_node_withholds_present_authority(
    node: ScriptedNode, entries: list[bytes]
) -> None:
    node.hides = frozenset({2})  # an event of authority; the last entry has the number of these events
    with pytest.raises(Corrupted):
        node.reader().read(STREAM, len(entries) - 1)


@pytest.mark.parametrize("cached_max", [0, checked.streams_cached_max_bytes])
def test_stream_read_again_from_its_new_entries_equals_the_whole_stream(
    ledger: Ledger, entries: list[bytes], monkeypatch: pytest.MonkeyPatch, cached_max: int
) -> None:
    monkeypatch.setattr(checked, "streams_cached_max_bytes", cached_max)
    ledger.register("dora", "reviewer")
    ledger.emit("bob", STREAM, HandoffLogged(text="going on"))
    entries = entries_of(ledger)
    node = ScriptedNode(ledger.id, entries)
    reader, sizes = node.reader(), range(own(entries)[0] + 1, len(entries) + 1)
    results = []
    for size in sizes:
        node.entries = entries[:size]
        results.append(reader.read(STREAM))
        reader.read("agent/carol")  # this reads events of authority, too
    starts = [request.start for request in node.requests if request.stream == STREAM]
    assert starts == ([0, *sizes[:-1]] if cached_max else [0] * len(sizes))
    assert results == [ScriptedNode(ledger.id, entries[:size]).reader().read(STREAM) for size in sizes]


def test_entry_withheld_from_a_cached_stream_is_detected_by_the_next_entry(
    ledger: Ledger, entries: list[bytes]
) -> None:
    ledger.emit("bob", STREAM, HandoffLogged(text="going on"))
    node = ScriptedNode(ledger.id, entries, hides=own(entries)[-1:])
    reader = node.reader()
    reader.read(STREAM)
    node.entries, node.hides = entries_of(ledger), frozenset()
    with pytest.raises(Corrupted, match="left out"):
        reader.read(STREAM)
    assert len(reader.read(STREAM).entries) == len(own(node.entries))


def test_cached_stream_of_another_history_is_read_whole(ledger: Ledger, entries: list[bytes]) -> None:
    node = ScriptedNode(ledger.id, entries)
    reader = node.reader()
    reader.read(STREAM)
    node.entries = entries[:-2]
    assert reader.read(STREAM) == node.reader().read(STREAM)


def test_cache_of_streams_is_limited(node: ScriptedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "streams_cached_max_bytes", 14_000)
    reader = node.reader()
    for stream in (STREAM, "session/s", STREAM, "agent/carol", STREAM, "session/s"):
        reader.read(stream)
    assert [request.start == 0 for request in node.requests] == [True, True, False, True, False, True]


DEPLOYED: dict[str, Any] = {
    "type": "object",
    "properties": {"service": {"type": "string", "maxLength": 20}},
    "required": ["service"],
    "additionalProperties": False,
}


def test_own_events_are_checked_by_the_declaration_of_their_time(ledger: Ledger) -> None:
    declared = KindDeclared(name="x.deploy.finished", stream="x.deploy", roles=["agent"], schema=DEPLOYED)
    stream, kind = "x.deploy/1", f"kind/{declared.name}"
    first = append_behind_the_gate(
        ledger,
        forged(ledger, "alice", stream, {"service": "early"}, kind=declared.name),
        forged(ledger, "root", kind, declared),
        forged(ledger, "alice", stream, {"service": "api"}, kind=declared.name),
        forged(ledger, "alice", stream, {"service": 7}, kind=declared.name),
        forged(ledger, "root", kind, msgspec.structs.replace(declared, title="again")),
    )
    with ledger.client() as client:
        for _ in range(2):  # in the second read, the reader already knows all events of authority
            events, declarations = client.streams.read(stream), client.streams.read(kind)
            assert [index for index, _ in events.entries] == [first + 2]
            ignored = [(entry.index, entry.code) for entry in [*events.ignored, *declarations.ignored]]
            assert ignored == [
                (first, "UNKNOWN_KIND"),
                (first + 3, "INVALID_FIELD"),
                (first + 4, "KIND_EXISTS"),
            ]
