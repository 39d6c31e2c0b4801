"""Subject keys as files of the user: ``CONFIG/seals/LEDGER/SUBJECT.key``, beside the list of trusted folders.

Each file has mode 0600. ``destroy`` overwrites the key in the file, syncs, deletes the file and syncs the folder. On a
disk that writes in place the key is then gone. An SSD, a file system that copies on write (btrfs, ZFS, a snapshot), a
backup of the home folder and swapped memory may keep an old copy: encrypt the disk, leave the folder out of backups,
or store the keys in a token (``token_keys``), which destroys them itself.

Every program of the same user can read these files, as it can read unsealed signing keys.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

import msgspec
from blake3 import blake3
from nacl import bindings, exceptions

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import decode_strict, json_decoder
from deedbook.ledger.format.identity import read_private, write_private
from deedbook.ledger.seal.keys import (
    SubjectKey,
    Wrapped,
    associated_data,
    key_exists,
    key_missing,
    key_wrong,
    wrapped_wrongly,
)
from deedbook.ledger.system.files import as_unavailable, open_regular, sync_folder

KEY_BYTES: Final = bindings.crypto_aead_xchacha20poly1305_ietf_KEYBYTES
FOLDER: Final = "seals"
_NONCE_BYTES: Final = bindings.crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
_SUFFIX: Final = ".key"


class SubjectKeyFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file: the key in hex, and what it is for."""

    deedbook_subject_key: Literal[1] = 1
    ledger: str
    subject: str
    key: str


_decoder: Final = json_decoder(SubjectKeyFile)


def encode_key(ledger: str, subject: str, key: bytes) -> bytes:
    """Return the content of a key file."""
    return msgspec.json.encode(SubjectKeyFile(ledger=ledger, subject=subject, key=key.hex())) + b"\n"


def decode_key(content: bytes) -> tuple[str, str, bytes]:
    """Return the ledger, the subject and the key of a key file. Raises Refused: ``INVALID_FORMAT``."""
    try:
        file = decode_strict(content, _decoder)
        key = bytes.fromhex(file.key)
    except (Refused, ValueError) as error:
        raise Refused("INVALID_FORMAT", "this is no key of a subject: export it again") from error
    if len(key) != KEY_BYTES:
        raise Refused("INVALID_FORMAT", f"a subject's key has {KEY_BYTES} bytes, not {len(key)}: export it again")
    return file.ledger, file.subject, key


def key_id_of(key: bytes) -> str:
    """Return the public id of a key: a hash from which nobody can compute the key."""
    return blake3(key, derive_key_context="deedbook 2026 id of a subject key").hexdigest(length=8)


class KeyFiles:
    """A key service whose keys are files (``keys.KeyService``)."""

    def __init__(self, config: Path, ledger: str) -> None:
        """Use the keys of a ledger (its id) in the user's configuration folder ``config``."""
        self._folder = config / FOLDER / ledger
        self._ledger = ledger

    def create(self, subject: str) -> SubjectKey:
        return self._write(subject, bindings.randombytes(KEY_BYTES))

    def wrap(self, subject: str, data_key: bytes) -> Wrapped:
        key = self.export(subject)
        key_id = key_id_of(key)
        nonce = bindings.randombytes(_NONCE_BYTES)
        ad = associated_data(self._ledger, subject, key_id)
        return Wrapped(key_id, nonce + bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(data_key, ad, nonce, key))

    def unwrap(self, subject: str, wrapped: Wrapped) -> bytes:
        key = self.export(subject)
        if (key_id := key_id_of(key)) != wrapped.key_id:
            raise key_wrong(subject, wrapped.key_id, key_id)
        nonce, box = wrapped.data[:_NONCE_BYTES], wrapped.data[_NONCE_BYTES:]
        ad = associated_data(self._ledger, subject, key_id)
        try:
            return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(box, ad, nonce, key)
        except (exceptions.CryptoError, ValueError) as error:  # ValueError: too short
            raise wrapped_wrongly(subject) from error

    def destroy(self, subject: str) -> bool:
        path = self._path(subject)
        with as_unavailable(path, "cannot be destroyed"):
            try:
                with open_regular(path, flags=os.O_RDWR) as descriptor:
                    # If we crash in between, the file is empty or deleted, and in both cases the key is destroyed.
                    os.pwrite(descriptor, os.urandom(os.fstat(descriptor).st_size), 0)
                    os.fsync(descriptor)
            except FileNotFoundError:
                return False
            path.unlink()
            sync_folder(self._folder)
        return True

    def subjects(self) -> list[SubjectKey]:
        return [SubjectKey(name, key_id_of(self.export(name))) for name in self._names()]

    def export(self, subject: str) -> bytes:
        path = self._path(subject)
        try:
            content = read_private(path)
        except Refused as refusal:
            if refusal.code != "KEY_FILE_MISSING":
                raise
            raise key_missing(subject, self._names()) from refusal
        try:
            ledger, name, key = decode_key(content)
        except Refused as error:
            message = (
                f"{path} is no key of a subject: import it again, or run `deed erase {subject}` again if it was erased"
            )
            raise Refused("INVALID_FORMAT", message, path=str(path)) from error
        if (ledger, name) != (self._ledger, subject):
            raise Refused("INVALID_FORMAT", f"{path} is the key of another subject or ledger", path=str(path))
        return key

    def insert(self, subject: str, key: bytes) -> SubjectKey:
        if self._path(subject).exists():
            if self.export(subject) == key:
                return SubjectKey(subject, key_id_of(key))
            raise key_exists(subject)
        return self._write(subject, key)

    def _write(self, subject: str, key: bytes) -> SubjectKey:
        try:
            write_private(self._path(subject), encode_key(self._ledger, subject, key))
        except Refused as refusal:
            raise key_exists(subject) from refusal
        return SubjectKey(subject, key_id_of(key))

    def _names(self) -> list[str]:
        return sorted(path.stem for path in self._folder.glob(f"*{_SUFFIX}"))

    def _path(self, subject: str) -> Path:
        return self._folder / f"{subject}{_SUFFIX}"
