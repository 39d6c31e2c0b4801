"""``BundleLedger``: the events, blobs and views of a bundle, also of one with few entries of a long log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from building import Ledger
from tampering import SESSION, finding

from deedbook.consumers.auditor.bundle_ledger import BundleLedger
from deedbook.ledger.bundle import export_bundle
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.limits import blob_chunk_bytes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a stream that has one entry at each end of a log of three thousand entries."""
    path = tmp_path_factory.mktemp("sparse") / "sparse.tar"
    with Ledger(tmp_path_factory.mktemp("long") / ".deedbook") as ledger:
        ledger.emit("alice", SESSION, SessionStarted(task="audit"))
        ledger.emit("bob", "session/long", SessionStarted(task="fill the log"))
        for start in range(0, 3_000, 200):
            drafts = [Draft(stream="session/long", data=finding(start + number)) for number in range(200)]
            ledger.submit(ledger.sign("bob", *drafts))
        ledger.emit("alice", SESSION, finding(3_000))
        ledger.emit("bob", "session/long", finding(3_001))
        with ledger.client() as client:
            export_bundle(client, path, stream=SESSION)
    return path


def test_views_skip_the_entries_that_a_bundle_of_one_stream_lacks(sparse: Path) -> None:
    with BundleLedger(sparse) as ledger:
        size, indexes = ledger.client.head().size, [event.index for event in ledger.events()]
        assert indexes[-1] == size - 2 > 3_000
        assert len(indexes) < 20
        for _ in range(2):  # the views are folded once; the second query reuses them
            shown = ledger.ask("sessions.show", id=SESSION.partition("/")[2])
            assert shown["counts"]["findings"] == 1
        assert [row["id"] for row in ledger.ask("sessions.list")["items"]] == [SESSION.partition("/")[2]]
        assert ledger.get(indexes[-1]).index == indexes[-1]


def test_pages_of_entries_reach_the_end_of_the_log(sparse: Path) -> None:
    with BundleLedger(sparse) as ledger:
        client, start, indexes = ledger.client, 0, list[int]()
        while start < client.head().size:
            page = client.entries(start, limit=2)
            indexes += [index for index, _ in page.entries]
            start = page.next_index
        assert indexes == [event.index for event in ledger.events()]


def test_blobs_are_read_and_checked(whole: Path) -> None:
    with BundleLedger(whole) as ledger:
        refs = ledger.client.bundle.manifest.blobs  # type: ignore[attr-defined]
        assert refs
        for ref in refs:
            content = ledger.get_blob(ref)
            assert ledger.client.blob_chunk(ref, 0) == (len(content), content[:blob_chunk_bytes])
        with pytest.raises(Refused) as refused:
            ledger.get_blob("blake3:" + "0" * 64)
        assert refused.value.code == "NOT_FOUND"


def test_nothing_is_written_to_a_bundle(whole: Path) -> None:
    with BundleLedger(whole, agent="alice") as ledger, pytest.raises(Refused) as refused:
        ledger.publish(SESSION, finding(1))
    assert refused.value.code in {"NOT_TRUSTED", "USAGE", "KEY_FILE_MISSING"}
