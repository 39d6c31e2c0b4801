"""The format of sealed blobs: every content can be read back; a changed, cut or extended blob is refused."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.seal import sealed_blob
from deedbook.ledger.seal.key_files import KeyFiles
from deedbook.ledger.seal.reference import SealedReference, encode_texts, read_reference, text_at, with_references
from deedbook.ledger.seal.sealed_blob import message_size_bytes, read_header, seal, unseal

CLEAR = b"carol was born on 3 May"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyFiles:
    keys = KeyFiles(tmp_path_factory.mktemp("config"), "a")
    keys.create("carol")
    keys.create("dave")
    return keys


def sealed(keys: KeyFiles, content: bytes) -> bytes:
    return b"".join(seal(io.BytesIO(content), "carol", keys))


def opened(keys: KeyFiles, blob: bytes) -> bytes:
    return b"".join(unseal(io.BytesIO(blob), keys))


@pytest.mark.parametrize(
    "size", [0, 1, message_size_bytes - 1, message_size_bytes, message_size_bytes + 1, 3 * message_size_bytes]
)
def test_opens_what_was_sealed(keys: KeyFiles, size: int) -> None:
    content = bytes(n % 251 for n in range(size))
    blob = sealed(keys, content)
    assert opened(keys, blob) == content
    messages = max(1, -(-size // message_size_bytes))
    assert len(blob) == len(read_header(io.BytesIO(blob)).raw) + 24 + size + 17 * messages


def test_no_two_blobs_are_equal(keys: KeyFiles) -> None:
    assert sealed(keys, CLEAR) != sealed(keys, CLEAR)


def test_the_header_names_the_subject_and_nothing_of_the_content(keys: KeyFiles) -> None:
    blob = sealed(keys, CLEAR)
    assert blob.startswith(b"DEEDSEAL\x01\x05carol\x10")
    assert read_header(io.BytesIO(blob)).subject == "carol"
    assert CLEAR not in blob


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_changed_byte_is_found(keys: KeyFiles, data: st.DataObject) -> None:
    blob = bytearray(sealed(keys, CLEAR * 3))
    position = data.draw(st.integers(0, len(blob) - 1))
    blob[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DeedbookError) as error:
        opened(keys, bytes(blob))
    assert error.value.code in {
        "INVALID_FORMAT",
        "UNSUPPORTED_VERSION",
        "SUBJECT_KEY_MISSING",
        "SUBJECT_KEY_WRONG",
        "VERIFICATION_FAILED",
    }


@pytest.mark.parametrize("subject", ["../caro", "\0arol", "Carol", ""])
def test_a_header_that_names_no_subject_is_refused_before_a_file_is_looked_for(keys: KeyFiles, subject: str) -> None:
    named = bytes([len(subject)]) + subject.encode()
    with pytest.raises(Corrupted, match="its header names no subject"):
        opened(keys, sealed(keys, CLEAR).replace(b"\x05carol", named))


def test_a_newer_version_is_refused_with_the_advice_to_install_a_newer_deedbook(keys: KeyFiles) -> None:
    with pytest.raises(DeedbookError, match=r"UNSUPPORTED_VERSION: the sealed blob has version 2, .* a newer Deedbook"):
        opened(keys, sealed(keys, CLEAR).replace(b"DEEDSEAL\x01", b"DEEDSEAL\x02"))


def test_a_cut_is_found_everywhere(keys: KeyFiles) -> None:
    blob = sealed(keys, CLEAR)
    for size in range(len(blob)):
        with pytest.raises(DeedbookError):
            opened(keys, blob[:size])


def test_a_cut_between_two_messages_is_found(keys: KeyFiles) -> None:
    blob = sealed(keys, bytes(2 * message_size_bytes))
    first = len(blob) - message_size_bytes - (len(sealed(keys, b"x")) - len(sealed(keys, b"")) + 16)
    pieces = unseal(io.BytesIO(blob[:first]), keys)
    assert next(pieces) == bytes(message_size_bytes)
    with pytest.raises(Corrupted, match="it was cut"):
        next(pieces)


def test_appended_bytes_are_found(keys: KeyFiles) -> None:
    with pytest.raises(Corrupted):
        opened(keys, sealed(keys, CLEAR) + b"x")
    with pytest.raises(Corrupted):
        opened(keys, sealed(keys, bytes(message_size_bytes)) + b"x")


def test_exchanged_messages_are_found(keys: KeyFiles) -> None:
    blob = sealed(keys, bytes(message_size_bytes) + b"\x01" * message_size_bytes + b"end")
    size, start = message_size_bytes + 17, len(blob) - 2 * (message_size_bytes + 17) - 20
    exchanged = (
        blob[:start] + blob[start + size : start + 2 * size] + blob[start : start + size] + blob[start + 2 * size :]
    )
    assert len(exchanged) == len(blob)
    with pytest.raises(Corrupted):
        opened(keys, exchanged)


def test_a_header_of_another_subject_is_found(keys: KeyFiles) -> None:
    """Somebody who has both keys cannot pass off carol's content as dave's."""
    blob = sealed(keys, CLEAR)
    header = read_header(io.BytesIO(blob))
    data_key = keys.unwrap("carol", header.wrapped)
    forged = sealed_blob._encode_header("dave", keys.wrap("dave", data_key))
    with pytest.raises(Corrupted):
        opened(keys, forged + blob[len(header.raw) :])


def test_other_content_is_not_sealed(keys: KeyFiles) -> None:
    with pytest.raises(Refused, match="not sealed"):
        opened(keys, b"a plain blob")


def test_one_key_file_is_all_that_is_needed(tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path / "one", "a")
    keys.create("carol")
    blob = sealed(keys, CLEAR)
    other = KeyFiles(tmp_path / "two", "a")
    with pytest.raises(Refused, match="SUBJECT_KEY_MISSING"):
        opened(other, blob)
    other.insert("carol", keys.export("carol"))
    assert opened(other, blob) == CLEAR


REF = "blake3:" + "ab" * 32


def test_references_read_and_write_alike() -> None:
    reference = SealedReference("carol-1", REF, 12)
    assert str(reference) == f"sealed:carol-1:{REF}/12"
    assert read_reference(str(reference)) == reference
    assert (
        with_references(f"see {reference} and\n{reference}.", lambda found: found.subject)
        == "see carol-1 and\ncarol-1."
    )
    assert with_references("sealed: nothing", lambda _: "") == "sealed: nothing"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sealed",
        f"sealed:carol:{REF}",
        f"sealed:Carol:{REF}/0",
        f"sealed:carol:{REF}/00",
        f"sealed:carol:{REF}/0\n",
        f" sealed:carol:{REF}/0",
        f"sealed:carol:sha256:{'ab' * 32}/0",
        f"sealed:carol:{REF}/10000",
    ],
)
def test_other_texts_are_no_references(text: str) -> None:
    assert read_reference(text) is None


def test_texts_come_back_by_their_positions() -> None:
    content = encode_texts(["one", "zwei \U0001f98b"])
    assert text_at(content, SealedReference("carol", REF, 1)) == "zwei \U0001f98b"
    for wrong in (b"[]", b"{}", b"[1, 2]", b"\xff"):
        with pytest.raises(Corrupted, match="VERIFICATION_FAILED"):
            text_at(wrong, SealedReference("carol", REF, 1))
