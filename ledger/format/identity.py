"""Signing keys, key files, and proofs of possession.

A key file is JSON with mode 0600 (anything wider is refused) and contains either the seed in hex, or the seed sealed
with a passphrase (Argon2id + XSalsa20-Poly1305). The bus key of an agent (an nkey) is another key in another file: a
client signs any nonce that a server sends, so a hostile server could otherwise obtain the signature of an event.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from blake3 import blake3
from nacl import bindings, exceptions, pwhash, secret

from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.format.codec import UNREADABLE, decode_strict, json_decoder
from deedbook.ledger.format.forms import RESERVED_NAMES
from deedbook.ledger.limits import config_size_max_bytes
from deedbook.ledger.system.files import as_unavailable, create_exclusively, open_regular, read_all, write_whole

if TYPE_CHECKING:
    from nacl.secret import SecretBox

POSSESSION_TYPE = "application/vnd.deedbook.possession.v1"
JOINING_TYPE = "application/vnd.deedbook.joining.v1"
_names_shown_max: Final = 10
_KEY_SUFFIXES: Final = frozenset({".key", ".nkey"})


class Key:
    """An Ed25519 signing key in memory, derived from a 32-byte seed."""

    def __init__(self, seed: bytes) -> None:
        self.public, self._secret = bindings.crypto_sign_seed_keypair(seed)

    @classmethod
    def generate(cls) -> Key:
        """Return a new random key."""
        return cls(bindings.randombytes(bindings.crypto_sign_SEEDBYTES))

    def __repr__(self) -> str:
        return f"Key({self.public.hex()})"

    @property
    def seed(self) -> bytes:
        """The secret 32-byte seed."""
        return self._secret[: bindings.crypto_sign_SEEDBYTES]

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of ``message`` (RFC 8032)."""
        return bindings.crypto_sign(message, self._secret)[: bindings.crypto_sign_BYTES]

    def prove_possession(self, ledger: str, agent: str) -> str:
        """Return this key's proof of possession (hex): its signature over ``possession``.

        An event that registers the key for ``agent`` must contain it.
        """
        return self.sign(possession(ledger, agent, self.public)).hex()


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether ``signature`` by the key ``public`` over ``message`` is valid. Never raises on hostile input."""
    try:
        bindings.crypto_sign_open(signature + message, public)
    except (exceptions.CryptoError, ValueError):
        return False
    return len(signature) == bindings.crypto_sign_BYTES


def possession(ledger: str, agent: str, public: bytes) -> bytes:
    """Return the bytes that a key signs to be registered. They are bound to one ledger and one agent."""
    return _about_key(POSSESSION_TYPE, ledger, agent, public)


def joining(ledger: str, agent: str, public: bytes) -> bytes:
    """Return the bytes that an invitation's token signs, so that the key ``public`` may register itself."""
    return _about_key(JOINING_TYPE, ledger, agent, public)


def _about_key(type_: str, ledger: str, agent: str, public: bytes) -> bytes:
    body = f"{ledger}\n{agent}\n{public.hex()}".encode()
    return b"DSSEv1 %d %b %d %b" % (len(type_), type_.encode(), len(body), body)


def ledger_id(root: bytes) -> str:
    """Return the id of the ledger whose root key is ``root``: 32 hex digits."""
    return blake3(root).hexdigest(length=16)


class KeyFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of a key file.

    ``expires_at``, ``kinds`` and ``streams`` repeat the scope of a session key, so that a program can choose one.
    """

    deedbook_key: Literal[1] = 1
    ledger: str
    name: str
    public: str
    seed: str | None = None
    sealed: str | None = None
    salt: str | None = None
    expires_at: str | None = None
    kinds: list[str] = []
    streams: list[str] = []

    @property
    def protection(self) -> Literal["passphrase", "none"]:
        """How the key is stored, as its registration says it."""
        return "none" if self.sealed is None else "passphrase"


_decoder = json_decoder(KeyFile)


def write_key(path: Path, key: Key, *, ledger: str, name: str, passphrase: str | None = None) -> None:
    """Write a new key file; seal it when there is a passphrase. An existing file is never overwritten.

    Raises Refused: ``KEY_EXISTS``. Unavailable: ``STORE_UNAVAILABLE`` when it cannot be written.
    """
    write_private(path, encode_key(key, ledger=ledger, name=name, passphrase=passphrase))


def encode_key(key: Key, *, ledger: str, name: str, passphrase: str | None = None) -> bytes:
    """Return the content of a key file, sealed when there is a passphrase."""
    content = KeyFile(ledger=ledger, name=name, public=key.public.hex(), seed=key.seed.hex())
    if passphrase is not None:
        salt = bindings.randombytes(bindings.crypto_pwhash_SALTBYTES)
        sealed = _box(passphrase, salt).encrypt(key.seed)
        content = msgspec.structs.replace(content, seed=None, sealed=bytes(sealed).hex(), salt=salt.hex())
    return msgspec.json.encode(content) + b"\n"


def write_session_key(path: Path, content: KeyFile) -> None:
    """Write the file of a delegated key. It replaces an older file in one step.

    Raises Unavailable: ``STORE_UNAVAILABLE``.
    """
    with as_unavailable(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, msgspec.json.encode(content) + b"\n")


def read_key_file(path: Path) -> KeyFile:
    """Return the content of a key file, still sealed if it is.

    Raises Refused: as ``read_private`` and ``decode_strict``.
    """
    content = read_private(path)
    try:
        return decode_strict(content, _decoder)
    except Refused as refusal:
        message = f"{path} is not a valid key file ({refusal.message}): restore it from a copy"
        raise Refused(refusal.code, message, **refusal.details, file=str(path)) from refusal


def open_key(path: Path, passphrase: str | None = None) -> Key:
    """Return the key in a key file.

    Raises Refused: as ``read_key_file``, and ``KEY_LOCKED`` when the passphrase is missing or wrong.
    """
    content = read_key_file(path)
    try:
        if content.seed is not None:
            key = Key(bytes.fromhex(content.seed))
        elif passphrase is None:
            message = f"the key of {content.name} is sealed: enter its passphrase, or pass it with --passphrase-fd"
            raise Refused("KEY_LOCKED", message, name=content.name)
        else:
            box = _box(passphrase, bytes.fromhex(content.salt or ""))
            key = Key(box.decrypt(bytes.fromhex(content.sealed or "")))
    except ValueError as error:  # before CryptoError: PyNaCl raises both for a wrong length
        raise Refused("INVALID_FORMAT", f"{path} does not contain a key: {error}", path=str(path)) from error
    except exceptions.CryptoError as error:
        message = f"this is not the passphrase of the key of {content.name}"
        raise Refused("KEY_LOCKED", message, name=content.name) from error
    if key.public.hex() != content.public:
        raise Refused("INVALID_FORMAT", f"the seed in {path} does not match its public key", path=str(path))
    return key


class SealedFiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files under one passphrase: ``sealed`` (base64) holds a JSON object of their names and contents, in base64."""

    deedbook_sealed: Literal[1] = 1
    salt: str
    sealed: bytes


_sealed_decoder = json_decoder(SealedFiles)
_files_decoder = json_decoder(dict[str, bytes])


def seal_files(files: dict[str, bytes], passphrase: str) -> bytes:
    """Return files sealed with a passphrase (Argon2id and secretbox, like a key file)."""
    salt = bindings.randombytes(bindings.crypto_pwhash_SALTBYTES)
    box = _box(passphrase, salt)
    return msgspec.json.encode(SealedFiles(salt=salt.hex(), sealed=bytes(box.encrypt(msgspec.json.encode(files)))))


def open_sealed_files(content: bytes, passphrase: str) -> dict[str, bytes]:
    """Return the files that ``seal_files`` sealed.

    Raises Refused: ``KEY_LOCKED`` when the passphrase is wrong, ``INVALID_FORMAT`` when these are no sealed files.
    """
    try:
        archive = _sealed_decoder.decode(content)
        box = _box(passphrase, bytes.fromhex(archive.salt))
        return _files_decoder.decode(box.decrypt(archive.sealed))
    except (*UNREADABLE, ValueError) as error:
        raise Refused(
            "INVALID_FORMAT", "the sealed keys cannot be read: restore from another copy of the backup"
        ) from error
    except exceptions.CryptoError as error:
        raise Refused("KEY_LOCKED", "this is not the passphrase of the sealed files") from error


def write_private(path: Path, content: bytes) -> None:
    """Create a file that only its owner can read: whole, or not at all.

    Half a key would be useless and occupy its name forever. If we crash here, at most a hidden file remains beside it.
    Raises Refused: ``KEY_EXISTS``. Unavailable: ``STORE_UNAVAILABLE``.
    """
    with as_unavailable(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with create_exclusively(path) as file:
                file.write(content)
        except FileExistsError as error:
            raise Refused("KEY_EXISTS", f"the key file {path} already exists", path=str(path)) from error


def read_private(path: Path) -> bytes:
    """Return the content of a file that only its owner can read.

    Raises Refused: ``KEY_FILE_MISSING``, ``KEY_FILE_MODE``; ``INVALID_FORMAT`` if it is not a regular file;
    ``TOO_LARGE``. Unavailable: ``STORE_UNAVAILABLE``.
    """
    cannot = as_unavailable(path, "cannot be read")
    with cannot, suppress(FileNotFoundError), open_regular(path, follow=True) as descriptor:
        if (mode := stat.S_IMODE(os.fstat(descriptor).st_mode)) & 0o077:
            message = f"other users can read {path} (mode {mode:04o}): run `chmod 600 {path}`"
            raise Refused("KEY_FILE_MODE", message, path=str(path))
        return read_all(descriptor, path, config_size_max_bytes)
    similar = did_you_mean(near(path.stem, (file.stem for file in path.parent.glob(f"*{path.suffix}"))))
    only = (
        f": only its holder can act as {path.stem}, on the machine that has it; or restore it from a backup that was "
        "made with --keys, or register a new agent"
    )
    message = f"there is no key file {path}{similar or (only if path.suffix in _KEY_SUFFIXES else '')}"
    if names := names_of_agents(path.parent):
        message += f" (here are the keys of {names})"
    raise Refused("KEY_FILE_MISSING", message, path=str(path))


def names_of_agents(folder: Path) -> str:
    """Return the names of the agents whose keys are in a folder, with commas; empty if it has none."""
    names = sorted({path.stem for path in folder.glob("*.key")} - RESERVED_NAMES)
    return ", ".join([*names[:_names_shown_max], *(["…"] if len(names) > _names_shown_max else [])])


def _box(passphrase: str, salt: bytes) -> SecretBox:
    try:
        encoded = passphrase.encode()
    except UnicodeEncodeError:
        encoded = b""
    if passphrase and not encoded:  # raised outside of ``except``: Python's own error would contain the passphrase
        raise Refused("INVALID_FIELD", "the passphrase is not valid Unicode text")
    key = pwhash.argon2id.kdf(
        secret.SecretBox.KEY_SIZE,
        encoded,
        salt,
        opslimit=pwhash.argon2id.OPSLIMIT_MODERATE,
        memlimit=pwhash.argon2id.MEMLIMIT_MODERATE,
    )
    return secret.SecretBox(key)
