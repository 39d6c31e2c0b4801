"""A node deceives clients whose answers come from signed entries: it edits or omits entries, or sends an old tree."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

import msgspec
import pytest
from building import ORIGIN
from erasing import SECRET, files_with
from served import Served, failure_of

from deedbook.ledger import limits
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.events.authority import AgentRemoved
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.handoff import HandoffAmended, HandoffLogged
from deedbook.ledger.events.remnant import ERASED, remnant_of
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.home.location import VIEWS_FILE
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.proof.checkpoint import open_stream_heads, sign_stream_heads
from deedbook.ledger.trust.history import StreamRequest
from deedbook.projections.answers.checked import ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from deedbook.ledger.client.client import Client
    from deedbook.ledger.trust.history import StreamPage

GOOD = {"title": "Rotate logs", "task": "gzip the old ones"}
BAD = {"title": "Delete production", "task": "rm -rf /"}


def show(client: Client) -> dict[str, object]:
    return ask(client, "handoffs.show", {"id": "logs"})


def lie(served: Served, monkeypatch: pytest.MonkeyPatch, edits: Callable[[StreamPage], StreamPage]) -> None:
    """Let the node apply ``edits`` to its pages of signed streams."""
    honest = served.local.signed_stream

    def signed_stream(request: StreamRequest) -> StreamPage:
        return edits(honest(request))

    monkeypatch.setattr(served.local, "signed_stream", signed_stream)


def test_node_with_an_edited_view_shows_a_reviewer_what_was_signed(served: Served) -> None:
    served.ledger.hand_over("logs", **BAD)
    served.reader.answer("handoffs.list", {})
    with contextlib.closing(sqlite3.connect(served.ledger.home.path / VIEWS_FILE)) as db, db:
        db.execute("UPDATE handoffs SET title = ?, task = ?", (GOOD["title"], GOOD["task"]))
        for key, data in db.execute("SELECT key, data FROM deedbook_states_handoffs").fetchall():
            state = msgspec.msgpack.decode(data)
            content = next(part for part in state if isinstance(part, dict) and "title" in part)
            content |= GOOD
            db.execute(
                "UPDATE deedbook_states_handoffs SET data = ? WHERE key = ?", (msgspec.msgpack.encode(state), key)
            )
    client = served.client("bob")
    assert client.view("handoffs.show", {"id": "logs"})["title"] == GOOD["title"]
    row = show(client)
    assert {name: row[name] for name in BAD} == BAD


def test_node_that_leaves_an_entry_out_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.ledger.hand_over("logs", **GOOD)
    served.ledger.emit("alice", "handoff/logs", HandoffAmended(to="bob", reviewer="rita", **BAD))
    served.ledger.emit("alice", "handoff/logs", HandoffLogged(text="and more"))
    client = served.client("bob")
    with monkeypatch.context() as patch:
        lie(served, patch, lambda page: msgspec.structs.replace(page, entries=[*page.entries[:-2], page.entries[-1]]))
        assert failure_of(lambda: show(client)).code == "VERIFICATION_FAILED"
    assert show(client)["title"] == BAD["title"]


def test_node_that_shows_an_old_tree_again_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.ledger.hand_over("logs", **GOOD)
    client = served.client("bob")
    old = served.local.signed_stream(StreamRequest("handoff/logs"))  # signed, and true at that time
    served.ledger.emit("alice", "handoff/logs", HandoffAmended(to="bob", reviewer="rita", **BAD))
    assert show(client)["title"] == BAD["title"]
    served.ledger.emit("alice", "handoff/logs", HandoffLogged(text="so it is read again"))
    with monkeypatch.context() as patch:
        lie(served, patch, lambda _: old)
        error = failure_of(lambda: show(client))
        assert (type(error), error.code) == (Corrupted, "HISTORY_CHANGED")


def without(served: Served, page: StreamPage, hidden: int, **fields: object) -> StreamPage:
    """Return the page without the last ``hidden`` entries of the log."""
    size = served.ledger.head()[0] - hidden
    return msgspec.structs.replace(page, entries=[entry for entry in page.entries if entry.index < size], **fields)


@pytest.mark.parametrize("hidden", [1, 2], ids=["its last entry", "all of it"])
def test_node_that_withholds_the_end_of_a_stream_is_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch, hidden: int
) -> None:
    served.ledger.hand_over("logs", **GOOD)
    served.ledger.emit("alice", "handoff/logs", HandoffAmended(to="bob", reviewer="rita", **BAD))
    client = served.client("bob")
    other = served.local.signed_stream(StreamRequest("handoff/none")).ends
    for note in ({}, {"ends": ""}, {"ends": "no note\n"}, {"ends": other}):
        with monkeypatch.context() as patch:
            lie(served, patch, lambda page, note=note: without(served, page, hidden, **note))
            assert failure_of(lambda: client.streams.read("handoff/logs")).code == "VERIFICATION_FAILED"
    assert show(client)["title"] == BAD["title"]


def test_node_that_signs_for_less_than_there_is_has_convicted_itself(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.ledger.hand_over("logs", **GOOD)
    served.ledger.emit("alice", "handoff/logs", HandoffAmended(to="bob", reviewer="rita", **BAD))
    client = served.client("bob")
    page = served.local.signed_stream(StreamRequest("handoff/logs"))
    key = served.ledger.home.checkpoint_key(ORIGIN, served.local.checkpoint_keys())
    honest = open_stream_heads(page.ends, key.verifier)
    lied = sign_stream_heads(msgspec.structs.replace(honest, streams={"handoff/logs": 1}), key)
    lie(served, monkeypatch, lambda page: without(served, page, 1, ends=lied))
    row = show(client)
    assert (row["title"], row["as_of"]["size"], row["as_of"]["ends"]) == (GOOD["title"], honest.size, lied)
    # The signed note contradicts the hidden entry, which belongs to the same head: this proves the lie. Also, a reader
    # who approves the handoff names the version that they read, and the ledger knows that there is a later one.
    assert (honest.root, honest.streams) == (page.consistency_proof.root, {"handoff/logs": 2})


def test_head_that_was_read_is_remembered_when_the_client_goes(served: Served) -> None:
    served.ledger.hand_over("logs", **GOOD)
    client = served.client("bob")
    served.ledger.emit("alice", "handoff/logs", HandoffLogged(text="after it connected"))
    show(client)
    client.close()
    remembered = client._greeter.history.trust_store.load()
    assert remembered is not None
    assert remembered.trusted.size == served.ledger.head()[0]


def test_node_serves_one_stream_to_whoever_asks_page_by_page(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.ledger.hand_over("logs", **GOOD)
    for number in range(5):
        served.ledger.emit("alice", "handoff/logs", HandoffLogged(text=str(number)))
    monkeypatch.setattr(limits, "range_events_max", 2)
    checked = served.client("bob").streams.read("handoff/logs")
    kinds = [read_event(index, data).kind for index, data in checked.entries]
    assert kinds == ["handoff.created", *["handoff.logged"] * 5]


def test_node_that_keeps_an_erased_body_and_sends_it_is_named_and_nothing_of_it_is_shown(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.ledger.emit("alice", "session/s", SessionStarted())
    index = served.ledger.emit("alice", "session/s", FindingLogged(finding=f"the password is {SECRET}")).index
    with served.ledger.log.snapshot() as snapshot:
        body = snapshot.entry(index)
    client = served.client("bob")
    assert SECRET in str(client.streams.read("session/s"))  # the reader caches what it checked
    served.ledger.redact(index)

    def with_body(page: StreamPage) -> StreamPage:
        entries = [msgspec.structs.replace(it, data=body) if it.index == index else it for it in page.entries]
        return msgspec.structs.replace(page, entries=entries)

    failure = failure_of(lambda: client.streams.check_not_erased(index))  # reading a single entry calls this
    assert failure.code == "ERASED_BODY_SERVED"
    client.streams.check_not_erased(index - 1)
    with monkeypatch.context() as patch:
        lie(served, patch, with_body)
        for reader in (client, served.client("alice")):
            failure = failure_of(lambda reader=reader: reader.streams.read("session/s"))
            assert failure.code == "ERASED_BODY_SERVED"
            assert (failure.details["index"], failure.details["source"]) == (index, f"the node at {served.url}")
            assert SECRET not in str(failure.to_dict())
    assert ERASED in str(client.streams.read("session/s"))
    assert SECRET not in str(client.streams.read("session/s"))


def test_node_that_erases_a_body_by_itself_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.ledger.emit("alice", "session/s", SessionStarted())
    index = served.ledger.emit("alice", "session/s", FindingLogged(finding=SECRET)).index
    with served.ledger.log.snapshot() as snapshot:
        entry = decode_entry(snapshot.entry(index))
    left = msgspec.structs.replace(entry, body=remnant_of(entry, None)).encode()

    def without_body(page: StreamPage) -> StreamPage:
        entries = [msgspec.structs.replace(it, data=left) if it.index == index else it for it in page.entries]
        return msgspec.structs.replace(page, entries=entries)

    with monkeypatch.context() as patch:
        lie(served, patch, without_body)
        assert failure_of(lambda: served.client("bob").streams.read("session/s")).code == "VERIFICATION_FAILED"


def test_reader_forgets_an_erased_text_of_authority_also_in_its_file(served: Served) -> None:
    served.ledger.register("carl")
    reason = f"it knew {SECRET}"
    index = served.ledger.emit(ROOT, "agent/carl", AgentRemoved(agent="carl", reason=reason)).index
    client = served.client("bob")
    assert client.streams.identity("carl")[0].removed_because == reason
    file = client.trust_store.authority_file
    assert SECRET.encode() in file.read_bytes()
    served.ledger.redact(index)
    assert client.streams.identity("carl")[0].removed_because == ERASED
    assert SECRET.encode() not in file.read_bytes()
    assert files_with(file.parent) == []
