"""The tests that every client of a ledger must pass, whether it opens LMDB or connects to a server.

A module that inherits ``ClientSuite`` defines a fixture ``client``, connected as alice to the ledger of the fixture
``ledger``. The tests emit the events of other agents through ``ledger``.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from bad_inputs import REPRESENTATIVES, BadInput, start_session
from blake3 import blake3
from building import ORIGIN, key_named
from credentials import GITHUB

from deedbook.ledger import limits
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.event_stream import follow
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import decode_entry, decode_submission, entry_leaf
from deedbook.ledger.log.blobs import check_blob
from deedbook.ledger.proof.checkpoint import CheckpointVerifier, open_stream_heads, verify_checkpoint
from deedbook.ledger.proof.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from building import Ledger

    from deedbook.ledger.client.client import Client
    from deedbook.ledger.format.envelope import Submission

SESSION = "session/s1"
REFUSED_AT_THE_GATE = [name for name in REPRESENTATIVES if not name.startswith("bytes:")]


def signed_finding(ledger: Ledger, text: str, stream: str = SESSION) -> Submission:
    """Return a submission of a finding, signed by alice."""
    return ledger.sign("alice", Draft(stream=stream, data=FindingLogged(finding=text)))


def put_blob(client: Client, content: bytes) -> str:
    """Store a blob as alice."""
    return Author(client, "alice", lambda _: key_named("alice")).put_blob(content)


def code_of(action: Callable[[], object]) -> str:
    """Return the code of the error that refuses an action."""
    with pytest.raises(Refused) as refused:
        action()
    return refused.value.code


class ClientSuite:
    """Tests of reading, writing, following and proving through a client."""

    @pytest.fixture(autouse=True)
    def _session(self, ledger: Ledger) -> None:
        start_session(ledger)

    def test_head_is_that_of_the_ledger(self, client: Client, ledger: Ledger) -> None:
        size, root = ledger.head()
        head = client.head()
        assert (client.ledger, head.ledger, head.size, head.root) == (ledger.id, ledger.id, size, root.hex())

    def test_submitted_event_is_read_back_as_it_was_signed(self, client: Client, ledger: Ledger) -> None:
        submission = signed_finding(ledger, "缓存")
        (accepted,) = client.submit(submission)
        event = read_event(accepted.index, client.entry(accepted.index))
        assert (event.id, event.data.finding, event.author) == (accepted.id, "缓存", "alice")
        assert event.accepted_ms == accepted.accepted_ms
        assert client.index_of(SESSION, accepted.id) == accepted.index
        assert client.head().size == accepted.index + 1

    def test_retry_is_marked_as_a_repeat(self, client: Client, ledger: Ledger) -> None:
        submission = signed_finding(ledger, "once")
        (first,) = client.submit(submission)
        (again,) = client.submit(submission)
        assert (again.index, again.id, again.accepted_ms) == (first.index, first.id, first.accepted_ms)
        assert (first.is_repeat, again.is_repeat) == (False, True)

    def test_batch_is_submitted_whole(self, client: Client, ledger: Ledger) -> None:
        texts = [f"f{number}" for number in range(limits.batch_events_max)]
        batch = ledger.sign("alice", *(Draft(stream=SESSION, data=FindingLogged(finding=text)) for text in texts))
        accepted = client.submit(batch)
        start = accepted[0].index
        assert [event.index for event in accepted] == list(range(start, start + limits.batch_events_max))
        page = client.entries(start)
        assert [read_event(index, data).data.finding for index, data in page.entries] == texts

    @pytest.mark.parametrize("name", REFUSED_AT_THE_GATE)
    def test_refusal_is_the_same_through_every_client(self, client: Client, ledger: Ledger, name: str) -> None:
        bad: BadInput = REPRESENTATIVES[name]
        if bad.arrange is not start_session:
            bad.arrange(ledger)
        before = client.head()
        assert code_of(lambda: client.submit(decode_submission(bad.build(ledger)))) == bad.code
        assert client.head() == before

    def test_refused_batch_names_every_bad_event(self, client: Client, ledger: Ledger) -> None:
        drafts = [
            Draft(stream=SESSION, data=FindingLogged(finding="good")),
            Draft(stream="session/none", data=FindingLogged(finding="bad")),
            Draft(stream=SESSION, data=FindingLogged(finding="stale"), expect=9),
        ]
        with pytest.raises(Refused) as refused:
            client.submit(ledger.sign("alice", *drafts))
        events = [(event["position"], event["code"]) for event in refused.value.details["events"]]
        assert events == [(1, "NOT_FOUND"), (2, "STREAM_CONFLICT")]

    @pytest.mark.parametrize("index", [-1, 99, 2**64])
    def test_missing_entry_is_refused(self, client: Client, index: int) -> None:
        assert code_of(lambda: client.entry(index)) in {"NOT_FOUND", "INVALID_FIELD", "INTEGER_OUT_OF_RANGE"}
        assert code_of(lambda: client.prove(index)) in {"NOT_FOUND", "INVALID_FIELD", "INTEGER_OUT_OF_RANGE"}

    def test_missing_event_has_no_index(self, client: Client, ledger: Ledger) -> None:
        (accepted,) = client.submit(signed_finding(ledger, "f"))
        assert client.index_of("session/s2", accepted.id) is None
        assert client.index_of(SESSION, "event:" + "0" * 64) is None

    @pytest.mark.parametrize("identity", ["", "blake3:zz", "sha256:" + "0" * 64, "blake3:" + "0" * 64 + "\n"])
    def test_text_that_is_no_event_id_is_refused(self, client: Client, identity: str) -> None:
        assert code_of(lambda: client.index_of(SESSION, identity)) == "INVALID_FIELD"

    def test_pages_cover_the_log_once_and_in_order(self, client: Client, ledger: Ledger) -> None:
        for number in range(20):
            ledger.submit(signed_finding(ledger, str(number)))
        indexes: list[int] = []
        position = 0
        while True:
            page = client.entries(position, limit=7)
            assert page.size == ledger.head()[0]
            indexes += [index for index, _ in page.entries]
            if page.next_index == position:
                break
            position = page.next_index
        assert indexes == list(range(ledger.head()[0]))

    def test_page_beyond_the_end_is_empty_and_stays_there(self, client: Client) -> None:
        size = client.head().size
        for start in (size, size + 5):
            page = client.entries(start)
            assert (page.entries, page.next_index, page.size) == ([], start, size)
        assert code_of(lambda: client.entries(-1)) == "INVALID_FIELD"

    def test_large_entries_make_short_pages_and_nothing_is_left_out(self, client: Client, ledger: Ledger) -> None:
        start = ledger.head()[0]
        for number in range(30):
            ledger.submit(signed_finding(ledger, f"{number} " + "x" * 39_000))
        page = client.entries(start)
        assert 1 < len(page.entries) < 30
        assert page.next_index == start + len(page.entries)
        assert client.entries(page.next_index).entries[0][0] == page.next_index

    def test_filtered_page_matches_kind_and_stream_and_names_the_next_index(
        self, client: Client, ledger: Ledger
    ) -> None:
        ledger.emit("bob", "session/s2", SessionStarted())
        ledger.submit(signed_finding(ledger, "one"))
        ledger.emit("bob", "session/s2", FindingLogged(finding="two"))
        size = ledger.head()[0]
        both = client.entries(0, kinds=["finding.logged"])
        assert [index for index, _ in both.entries] == [size - 2, size - 1]
        assert both.next_index == size
        assert [index for index, _ in client.entries(0, stream="session/s2").entries] == [size - 3, size - 1]
        filtered = client.entries(0, kinds=["finding.logged", "role.granted"], stream="session/s2")
        assert [index for index, _ in filtered.entries] == [size - 1]
        empty = client.entries(0, kinds=["role.granted"])
        assert (empty.entries, empty.next_index) == ([], size)

    def test_page_of_a_stream_passes_over_the_entries_of_others(self, client: Client, ledger: Ledger) -> None:
        """Every command reads the ledger's stream in this way, to find new redactions: it must not read all entries."""
        first = ledger.emit("bob", "session/s2", SessionStarted()).index
        for number in range(9):
            ledger.submit(signed_finding(ledger, str(number)))
        last = ledger.emit("bob", "session/s2", FindingLogged(finding="two")).index
        page = client.entries(0, limit=1, stream="session/s2")
        assert ([index for index, _ in page.entries], page.next_index) == ([first], last)
        rest = client.entries(page.next_index, limit=1, stream="session/s2")
        assert ([index for index, _ in rest.entries], rest.next_index) == ([last], rest.size)
        beyond = client.entries(rest.size + 1, stream="session/s2")
        assert (beyond.entries, beyond.next_index) == ([], rest.size + 1)

    def test_waiting_reader_is_woken_by_the_next_event(self, client: Client, ledger: Ledger) -> None:
        size = client.head().size
        timer = threading.Timer(0.1, lambda: ledger.submit(signed_finding(ledger, "news")))
        timer.start()
        page = client.entries(size, wait_s=20)
        timer.join()
        assert [index for index, _ in page.entries] == [size]

    def test_waiting_reader_gets_an_empty_page_when_nothing_happens(self, client: Client) -> None:
        size = client.head().size
        assert client.entries(size, wait_s=0.1).entries == []

    def test_following_leaves_no_gap_while_others_write(self, client: Client, ledger: Ledger) -> None:
        start, stop = client.head().size, threading.Event()

        def write() -> None:
            for number in range(60):
                drafts = [Draft(stream=SESSION, data=FindingLogged(finding=f"{number}.{part}")) for part in range(4)]
                ledger.submit(ledger.sign("alice", *drafts))

        writer = threading.Thread(target=write)
        writer.start()
        events: list[Event] = []
        positions: list[int] = []
        for item in follow(client, start, stop=stop, wait_s=0.2):
            if isinstance(item, Event):
                events.append(item)
                continue
            positions.append(item)
            if item >= start + 240:
                stop.set()
        writer.join()
        assert [event.index for event in events] == list(range(start, start + 240))
        assert [event.data.finding for event in events] == [
            f"{number}.{part}" for number in range(60) for part in range(4)
        ]
        assert positions == sorted(set(positions))

    def test_following_a_kind_moves_past_what_does_not_match(self, client: Client, ledger: Ledger) -> None:
        ledger.submit(signed_finding(ledger, "one"))
        ledger.emit("bob", "session/s2", SessionStarted())
        items = follow(client, 0, kinds=["finding.logged"], wait_s=0.1)
        event = next(items)
        assert isinstance(event, Event)
        assert event.data.finding == "one"
        assert next(items) == ledger.head()[0]

    def test_receipt_verifies_offline_with_the_vkey_alone(self, client: Client, ledger: Ledger) -> None:
        for number in range(9):
            ledger.submit(signed_finding(ledger, str(number)))
        verifier = CheckpointVerifier.from_vkey(ledger.checkpoint_key.verifier.vkey)
        for index in (0, 5, client.head().size - 1):
            receipt = Receipt.parse(client.prove(index).to_text())
            checkpoint = receipt.verify(entry_leaf(client.entry(index)), verifier)
            assert (receipt.index, checkpoint.origin) == (index, ORIGIN)
            assert index < checkpoint.size <= client.head().size
            with pytest.raises(Corrupted):
                receipt.verify(entry_leaf(client.entry(index) + b"x"), verifier)

    def test_checkpoint_is_signed_over_the_head(self, client: Client, ledger: Ledger) -> None:
        checkpoint = verify_checkpoint(client.checkpoint(), ledger.checkpoint_key.verifier)
        assert (checkpoint.size, checkpoint.root.hex()) == (client.head().size, client.head().root)

    def test_ends_of_streams_are_signed_for_any_size(self, client: Client, ledger: Ledger) -> None:
        ledger.submit(signed_finding(ledger, "0"))
        size, stream = client.head().size, SESSION
        ledger.submit(signed_finding(ledger, "1"))
        notes = [client.ends(at, [stream, "session/none"]) for at in (size, size + 1)]
        early, late = (open_stream_heads(note, ledger.checkpoint_key.verifier) for note in notes)
        assert (early.size, late.size, late.root) == (size, size + 1, client.head().root)
        assert late.streams == {stream: early.streams[stream] + 1, "session/none": 0}
        assert late.authority == decode_entry(client.entry(size)).authority_version
        with pytest.raises(Refused, match="NOT_FOUND"):
            client.ends(size + 9, [stream])

    def test_agents_are_listed_with_their_roles(self, client: Client) -> None:
        agents = {agent.name: agent.roles for agent in client.agents()}
        assert agents == {
            "root": ("admin",),
            "node": (),
            "alice": ("agent",),
            "bob": ("agent",),
            "rita": ("human", "reviewer"),
        }

    @pytest.mark.parametrize("size", [0, 1, 300_000])
    def test_blob_comes_back_as_it_was_put(self, client: Client, ledger: Ledger, size: int) -> None:
        content = bytes(index % 251 for index in range(size))
        ref = put_blob(client, content)
        check_blob(ref, content)
        assert client.get_blob(ref) == content
        assert put_blob(client, content) == ref
        assert ledger.log.blobs.get(ref) == content

    def test_blob_is_found_by_either_hash_or_not_at_all(self, client: Client, ledger: Ledger) -> None:
        record = ledger.log.blobs.find(put_blob(client, b"content"))
        assert record is not None
        assert client.get_blob("sha256:" + record.sha256.hex()) == b"content"
        assert code_of(lambda: client.get_blob("blake3:" + "0" * 64)) == "NOT_FOUND"
        assert code_of(lambda: client.get_blob("blake3:zz")) == "INVALID_FIELD"

    def test_blob_of_text_with_a_secret_is_refused(self, client: Client, ledger: Ledger) -> None:
        content = f"# Handoff\n\nClone with {GITHUB}.\n".encode()
        assert code_of(lambda: put_blob(client, content)) == "SECRET_DETECTED"
        assert ledger.log.blobs.find("blake3:" + blake3(content).hexdigest()) is None

    def test_blob_beyond_its_limit_is_refused(self, client: Client) -> None:
        assert code_of(lambda: put_blob(client, bytes(limits.blob_size_max_bytes + 1))) == "TOO_LARGE"
