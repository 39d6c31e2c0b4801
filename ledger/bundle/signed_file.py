"""A bundle of one stream as one text file that a version control system can compare line by line.

It is JSON. Each entry is one line, with the unchanged bytes that its author signed (``body``), so that a diff shows
which event was added. The inclusion paths of all entries share their hashes (``merkle.shared_hashes``). Everything else
that a bundle contains follows from these: reading a signed file makes the members of the bundle, and the auditor
verifies them as those of a tar. It contains small blobs that are templates of handoffs or imported records; the verdict
reports all other blobs as missing. A body with several lines, or nested too deeply to be part of another document, is
stored as a JSON string.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

import msgspec

from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.bundle import layout
from deedbook.ledger.bundle.page import PAGE, BundlePage
from deedbook.ledger.bundle.program import schemas, verify_program
from deedbook.ledger.errors import Corrupted, Refused, message_of
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.codec import (
    UNREADABLE,
    check_depth,
    decode_base64,
    decode_strict,
    encode_base64,
    encode_sorted,
    json_decoder,
)
from deedbook.ledger.format.envelope import ED25519, ENTRY_VERSION, Entry, decode_entry, entry_leaf, head_of, is_remnant
from deedbook.ledger.format.merkle import shared_hashes, shared_paths
from deedbook.ledger.format.signatures import is_signed
from deedbook.ledger.limits import json_depth_max
from deedbook.ledger.proof.checkpoint import parse_checkpoint
from deedbook.ledger.proof.receipt import Receipt
from deedbook.ledger.trust.history import ProvenEntry

signed_file_size_max_bytes: Final = 8 * 1024**2
blob_included_max_bytes: Final = 1024**2
BEGINNING: Final = b'{"format":"deedbook-signed-'
_levels_around: Final = 4

Hex32 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Base64 = Annotated[str, msgspec.Meta(max_length=128 * 1024)]


class _Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The position of an event in its signed batch, the number of its events, and the path to the batch's root."""

    index: int
    size: int
    path: list[Base64]


class _SignedEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """An entry (``envelope.Entry``) and its index in the log."""

    index: Annotated[int, msgspec.Meta(ge=0)]
    accepted_ms: int
    stream_version: int
    authority_version: int
    key: Hex32
    sig: Base64
    batch: _Batch | None = None
    body: msgspec.Raw


class SignedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of a signed file.

    ``checkpoint`` and ``ends`` are the two signed notes of a bundle of a stream, as lists of lines: the head of the
    log, and the lengths of the streams that the bundle needs. A blob is the list of its lines with their endings, or
    base64 if it is not UTF-8.
    """

    format: Literal["deedbook-signed-1"]
    ledger: str
    stream: str
    checkpoint: list[str]
    ends: list[str]
    hashes: list[Base64]
    blobs: dict[str, list[str] | str]
    entries: list[_SignedEntry]


_decoder = json_decoder(SignedFile)


def _decoded(content: bytes) -> SignedFile:
    layout.check_format(content[: len(BEGINNING) + 5])
    return decode_strict(content, _decoder)


def encode_signed_file(
    ledger: str,
    stream: str,
    *,
    checkpoint: str,
    ends: str,
    entries: Sequence[ProvenEntry],
    get_blob: Callable[[str], bytes | None],
) -> bytes:
    """Return the signed file of a stream: ``entries`` are all entries of a bundle of it, each with its proof.

    ``get_blob`` returns None for blobs that it leaves out. Raises Refused: ``TOO_LARGE``: export such a stream as a
    tar.
    """
    lines, wanted = list[bytes](), set[str]()
    for proven in entries:
        lines.append(_entry_line(proven.index, decode_entry(proven.data), proven.batch_path))
        with suppress(*UNREADABLE, Refused):
            wanted |= {*_texts_of(read_event(proven.index, proven.data).data)}
    blobs = [(ref, blob) for ref in sorted(wanted) if (blob := get_blob(ref)) is not None]
    hashes = shared_hashes({proven.index: proven.path for proven in entries}, parse_checkpoint(checkpoint).size)
    parts = [
        BEGINNING + b'1",',
        b'"ledger":%b,"stream":%b,' % (encode_sorted(ledger), encode_sorted(stream)),
        b'"checkpoint":%b,' % encode_sorted(checkpoint.split("\n")),
        b'"ends":%b,' % encode_sorted(ends.split("\n")),
        _list_of(b'"entries":', lines) + b",",
        _list_of(b'"hashes":', [encode_sorted(encode_base64(value)) for value in hashes]) + b",",
        b'"blobs":{' + b",".join(_blob_lines(ref, blob) for ref, blob in blobs) + b"}}\n",
    ]
    content = b"\n".join(parts)
    if len(content) > signed_file_size_max_bytes:
        message = f"{stream} would take more than {signed_file_size_max_bytes} bytes as text: export it as a tar"
        raise Refused("TOO_LARGE", message, limit=signed_file_size_max_bytes)
    return content


def _list_of(name: bytes, items: list[bytes]) -> bytes:
    # The commas are at the beginning of lines, so that a new item changes no line before it.
    return name + (b"[\n" + b"\n,".join(items) + b"\n]" if items else b"[]")


def _entry_line(index: int, entry: Entry, batch_path: list[bytes]) -> bytes:
    batch = None
    if entry.batch_size > 1:
        batch = _Batch(entry.batch_index, entry.batch_size, [encode_base64(value) for value in batch_path])
    line = _SignedEntry(
        index=index,
        accepted_ms=entry.accepted_ms,
        stream_version=entry.stream_version,
        authority_version=entry.authority_version,
        key=entry.key.hex(),
        sig=encode_base64(entry.sig),
        batch=batch,
        body=msgspec.Raw(entry.body if _is_plain(entry.body) else encode_sorted(entry.body.decode())),
    )
    return msgspec.json.encode(line)


def _is_plain(body: bytes) -> bool:
    try:
        check_depth(body, json_depth_max - _levels_around)
    except Refused:
        return False
    return body.startswith(b"{") and body.endswith(b"}") and not {*body} & {*b"\r\n\t"}


def _texts_of(data: EventData) -> list[str]:
    """Return the refs of the blobs that are the text of an event: its template, or the imported record."""
    return blobs_of(data)[:1] if type(data).blob_path in (("template",), ("original",)) else []


def _blob_lines(ref: str, content: bytes) -> bytes:
    try:
        lines = [encode_sorted(line) for line in content.decode().split("\n")]
    except UnicodeDecodeError:
        return b"\n" + encode_sorted(ref) + b":" + encode_sorted(encode_base64(content))
    return b"\n" + _list_of(encode_sorted(ref) + b":", lines)


def read_signed_file(content: bytes) -> tuple[layout.Manifest, dict[str, bytes]]:
    """Return the manifest and the members of the bundle that a signed file represents. Nothing is verified yet."""
    file = _decoded(content)
    try:
        return _members_of(file)
    except (Refused, UnicodeEncodeError) as error:
        raise _damaged(error) from error


class SignedEntries(msgspec.Struct, frozen=True):
    """The entries of a signed file by index, its ledger and stream, and the size of its checkpoint; not verified."""

    ledger: str
    stream: str
    size: int
    entries: dict[int, bytes]

    @property
    def last_index(self) -> int:
        """The index of the last entry of the stream; -1 without one."""
        return max(self._own, default=-1)

    @property
    def erased_count(self) -> int:
        """The number of entries of the stream whose body was erased."""
        return sum(is_remnant(decode_entry(self.entries[index]).body) for index in self._own)

    @property
    def _own(self) -> list[int]:
        return [index for index, data in self.entries.items() if _stream_of(data) == self.stream]


def read_signed_entries(content: bytes) -> SignedEntries:
    """Return the entries of a signed file, to compare it with another one. Raises as ``read_signed_file``."""
    file = _decoded(content)
    try:
        size = parse_checkpoint("\n".join(file.checkpoint)).size
        return SignedEntries(file.ledger, file.stream, size, {line.index: _entry_of(line) for line in file.entries})
    except (Refused, UnicodeEncodeError) as error:
        raise _damaged(error) from error


def unsigned_entries(content: bytes) -> list[tuple[int, int]]:
    """Return the entries of a signed file whose signature is not valid, as (index, line of the file).

    One changed entry breaks the shared proof of all of them, so an auditor alone cannot name it. Raises as
    ``read_signed_entries``.
    """
    unsigned: list[tuple[int, int]] = []
    for line in _decoded(content).entries:
        path = [] if line.batch is None else [decode_base64(value, "hash") for value in line.batch.path]
        try:
            is_valid = is_signed(decode_entry(_entry_of(line)), path)
        except (Refused, UnicodeEncodeError):
            is_valid = False
        if not is_valid:
            at = content.find(b'{"index":%d,' % line.index)
            unsigned.append((line.index, content.count(b"\n", 0, max(at, 0)) + 1))
    return unsigned


def _stream_of(data: bytes) -> str:
    try:
        return head_of(decode_entry(data).body).stream
    except (*UNREADABLE, Refused):
        return ""


def _damaged(error: Exception) -> Corrupted:
    return Corrupted("CORRUPTED", f"the signed file is damaged: {message_of(error)}")


def _members_of(file: SignedFile) -> tuple[layout.Manifest, dict[str, bytes]]:
    note = "\n".join(file.checkpoint)
    checkpoint = parse_checkpoint(note)
    entries = {line.index: _entry_of(line) for line in file.entries}
    if [*entries] != sorted(entries) or len(entries) != len(file.entries):
        raise Refused("INVALID_FORMAT", "its entries are out of order")
    blobs = {ref: _blob_of(blob) for ref, blob in file.blobs.items()}
    program = verify_program()
    manifest = layout.Manifest(
        format=layout.FORMAT,
        ledger=file.ledger,
        origin=checkpoint.origin,
        size=checkpoint.size,
        root=checkpoint.root.hex(),
        content="stream",
        stream=file.stream,
        indexes=[*entries],
        blobs=sorted(blobs),
        verify_py=sha256(program).hexdigest(),
        files={},
    )
    hashes = [decode_base64(value, "hash") for value in file.hashes]
    paths = shared_paths({index: entry_leaf(data) for index, data in entries.items()}, checkpoint.size, hashes)
    members = {layout.blob_name(ref): blob for ref, blob in blobs.items()}
    members |= {"checkpoint": note.encode(), "ends": "\n".join(file.ends).encode()}
    page, authority = BundlePage(), list[tuple[int, str, EventData]]()
    for line in file.entries:
        data = entries[line.index]
        batch = b"".join(decode_base64(value, "hash") for value in line.batch.path) if line.batch else None
        receipt = Receipt(line.index, tuple(paths[line.index]), note, batch or None)
        members |= zip(layout.entry_names(line.index), (data, receipt.to_text().encode()), strict=True)
        page.add(line.index, data)
        with suppress(*UNREADABLE, Refused):  # a verifier reports it
            event = read_event(line.index, data)
            if event.kind in AUTHORITY_KINDS:
                authority.append((line.index, event.author, event.data))
    members |= layout.key_members(authority)
    members |= {"manifest.json": manifest.encode(), "schemas.json": schemas(), "verify.py": program}
    members[PAGE] = page.encode(manifest)
    return manifest, {name: members[name] for name in layout.member_names(manifest) if name in members}


def _entry_of(line: _SignedEntry) -> bytes:
    body = bytes(line.body)
    if body.startswith(b'"'):
        text: Any = msgspec.json.decode(body)
        body = text.encode()
    batch = line.batch or _Batch(0, 1, [])
    sig, key = decode_base64(line.sig, "signature"), bytes.fromhex(line.key)
    entry = Entry(
        *(ENTRY_VERSION, body, key, ED25519, sig, batch.index, batch.size),
        *(line.accepted_ms, line.stream_version, line.authority_version),
    )
    return entry.encode()


def _blob_of(blob: list[str] | str) -> bytes:
    return decode_base64(blob, "blob") if isinstance(blob, str) else "\n".join(blob).encode()
