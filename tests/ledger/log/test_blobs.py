"""A blob is stored once, in a file, and found by either hash; it is read back unchanged or not at all."""

from __future__ import annotations

import hashlib
import os
import stat
import tracemalloc
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import pytest
from blake3 import blake3
from building import refs_of, usage_of

from deedbook.consumers.auditor.fsck import fsck
from deedbook.ledger.bundle.archive import Bundle
from deedbook.ledger.bundle.export import export_bundle
from deedbook.ledger.bundle.restore import restore
from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.home.home import Home
from deedbook.ledger.limits import blob_chunk_bytes
from deedbook.ledger.log.blob_files import FOLDER, blob_name
from deedbook.ledger.log.blob_table import Usage
from deedbook.ledger.log.blobs import check_blob

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from building import Ledger

    from deedbook.ledger.log.blob_table import BlobRecord


def files_of(ledger: Ledger) -> list[str]:
    """Return the paths of all files of blobs and uploads."""
    return list(ledger.log.blobs.files.names())


def file_of(ledger: Ledger, record: BlobRecord) -> Path:
    """Return the path of a blob's file."""
    return ledger.home.path / FOLDER / blob_name(record.blake3)


def put(ledger: Ledger, content: bytes) -> BlobRecord:
    """Store a blob as alice and return its record."""
    record = ledger.log.blobs.find(ledger.put_blob("alice", content))
    assert record is not None
    return record


@pytest.mark.parametrize(
    "size", [0, 1, blob_chunk_bytes - 1, blob_chunk_bytes, blob_chunk_bytes + 1, 70 * blob_chunk_bytes + 5]
)
def test_blob_comes_back_by_either_hash(ledger: Ledger, size: int) -> None:
    content = (b"content %d " % size * (size // 8 + 1))[:size]
    record = put(ledger, content)
    refs = ("blake3:" + blake3(content).hexdigest(), "sha256:" + hashlib.sha256(content).hexdigest())
    assert (record.ref, record.size) == (refs[0], size)
    for ref in refs:
        assert ledger.log.blobs.get(ref) == content
    sizes = [len(ledger.log.blobs.chunk(record, number)) for number in range(record.chunk_count)]
    assert sizes[:-1] == [blob_chunk_bytes] * (len(sizes) - 1)


def test_same_content_is_stored_once(ledger: Ledger) -> None:
    first = put(ledger, b"x" * 200_000)
    assert put(ledger, b"x" * 200_000) == first
    assert files_of(ledger) == [blob_name(first.blake3)]
    assert stat.S_IMODE(file_of(ledger, first).stat().st_mode) == 0o600
    assert list(refs_of(ledger.log.blobs)) == [first.ref]


def test_blob_changes_nothing_of_the_log(ledger: Ledger) -> None:
    before = ledger.head()
    put(ledger, b"content")
    assert ledger.head() == before


@pytest.mark.parametrize("algorithm", ["blake3", "sha256"])
def test_missing_blob_is_not_found(ledger: Ledger, algorithm: str) -> None:
    ref = f"{algorithm}:{'0' * 64}"
    assert ledger.log.blobs.find(ref) is None
    with pytest.raises(Refused) as refused:
        ledger.log.blobs.get(ref)
    assert refused.value.code == "NOT_FOUND"


@pytest.mark.parametrize("ref", ["", "blake3:", "blake3:zz", "md5:" + "0" * 64, "0" * 64, "blake3:" + "0" * 2000])
def test_ref_of_another_form_is_refused(ledger: Ledger, ref: str) -> None:
    with pytest.raises(Refused) as refused:
        ledger.log.blobs.get(ref)
    assert refused.value.code == "INVALID_FIELD"


def test_large_blob_is_stored_checked_exported_and_restored_in_little_memory(ledger: Ledger, tmp_path: Path) -> None:
    size, limit = 24 * 1024**2, 8 * 1024**2
    with TemporaryFile() as file, TemporaryFile() as copy:
        for number in range(size // 1024**2):
            file.write(number.to_bytes() * 1024**2)
        with ledger.client() as client:
            tracemalloc.start()
            author = Author(client, "alice", lambda _: ledger.keys["alice"])
            ref = author.put_blob(file)
            copy.writelines(client.blob_chunks(ref))
            ledger.emit("alice", "session/s1", SessionStarted(resumes=ref))
            assert export_bundle(client, tmp_path / "bundle.tar").manifest.blobs == [ref]
        with Bundle(tmp_path / "bundle.tar") as bundle:
            check_blob(ref, bundle.chunks(f"blobs/blake3/{ref.removeprefix('blake3:')}"))
        restore(tmp_path / "bundle.tar", Home(tmp_path / "restored"))
        assert fsck(tmp_path / "restored").problems == []
        assert tracemalloc.get_traced_memory()[1] < limit
        tracemalloc.stop()
        assert copy.tell() == size


def damage_missing(file: Path, _: Path) -> None:
    file.unlink()


def damage_changed(file: Path, _: Path) -> None:
    file.write_bytes(b"b" * file.stat().st_size)


def damage_cut(file: Path, _: Path) -> None:
    os.truncate(file, 5)


def damage_longer(file: Path, _: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"more")


def damage_link(file: Path, elsewhere: Path) -> None:
    file.rename(elsewhere)
    file.symlink_to(elsewhere)


def damage_link_of_folder(file: Path, elsewhere: Path) -> None:
    file.parent.rename(elsewhere)
    file.parent.symlink_to(elsewhere)


def damage_link_of_all(file: Path, elsewhere: Path) -> None:
    file.parent.parent.rename(elsewhere)
    file.parent.parent.symlink_to(elsewhere)


def damage_folder(file: Path, _: Path) -> None:
    file.unlink()
    file.mkdir()


def damage_pipe(file: Path, _: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    "damage",
    [
        damage_missing,
        damage_changed,
        damage_cut,
        damage_longer,
        damage_link,
        damage_link_of_folder,
        damage_link_of_all,
        damage_folder,
        damage_pipe,
    ],
)
def test_file_that_is_missing_or_was_replaced_is_damage(
    ledger: Ledger, damage: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    record = put(ledger, b"a" * (2 * blob_chunk_bytes))
    damage(file_of(ledger, record), tmp_path / "elsewhere")
    for read in (ledger.log.blobs.get, lambda _: list(ledger.log.blobs.chunks(record))):
        with pytest.raises(Corrupted, match="restore it from a backup") as damaged:
            read(record.ref)
        assert damaged.value.code == "CORRUPTED"
    assert ledger.log.blobs.is_whole(record.ref) == (damage is damage_changed)


def test_lost_file_comes_back_when_the_same_content_is_stored(ledger: Ledger) -> None:
    record = put(ledger, b"content")
    file_of(ledger, record).unlink()
    assert put(ledger, b"content") == record
    assert ledger.log.blobs.get(record.ref) == b"content"


def test_removed_blob_leaves_nothing_and_can_be_removed_and_stored_again(ledger: Ledger) -> None:
    content = b"c" * (2 * blob_chunk_bytes)
    record = put(ledger, content)
    other, part = put(ledger, b"another"), b"unfinished" * blob_chunk_bytes
    with ledger.client() as client:
        client.uploads.begin(client.check_intent(ledger.intent("bob", part)))
        client.uploads.add("bob", blake3(part).digest(), 0, part[:blob_chunk_bytes])
    before = usage_of(ledger.log.blobs, "alice")
    for _ in range(2):
        ledger.log.blobs.remove([record.refs[1], "blake3:" + blake3(part).hexdigest(), "sha256:" + "0" * 64])
        assert (files_of(ledger), refs_of(ledger.log.blobs)) == ([blob_name(other.blake3)], [other.ref])
        assert ledger.log.blobs.used_bytes() == other.size
        assert usage_of(ledger.log.blobs, "bob") == Usage()
    assert usage_of(ledger.log.blobs, "alice").blobs == 1
    assert put(ledger, content) == record
    assert usage_of(ledger.log.blobs, "alice") == before


def test_interrupted_upload_is_invisible_and_the_next_one_completes_it(ledger: Ledger) -> None:
    content = b"c" * (3 * blob_chunk_bytes)
    with ledger.client() as client:
        begun = client.uploads.begin(client.check_intent(ledger.intent("alice", content)))
        assert begun == (0, None)
        digest = blake3(content).digest()
        assert client.uploads.add("alice", digest, 0, content[:blob_chunk_bytes]) == (blob_chunk_bytes, None)
        assert ledger.log.blobs.find("blake3:" + digest.hex()) is None
        assert refs_of(ledger.log.blobs) == []
        assert client.get_blob(put(ledger, content).ref) == content
