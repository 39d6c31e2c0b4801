"""The interface of a key service: it stores the subject keys of one ledger, and encrypts data keys with them.

A subject key never enters the ledger's folder, so no copy of that folder can open what is sealed. ``key_files`` stores
them as files of the user, ``token_keys`` in a PKCS#11 token, such as a hardware security module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from deedbook.ledger.errors import Corrupted, Refused, did_you_mean, near


class Wrapped(msgspec.Struct, frozen=True):
    """A data key that a subject key encrypted, and the id of the subject key. Useless without the subject key."""

    key_id: str
    data: bytes


class SubjectKey(msgspec.Struct, frozen=True):
    """A subject and the id of its key. The id says nothing about the key."""

    subject: str
    key_id: str


class KeyService(Protocol):
    """The subject keys of one ledger.

    Each call may also raise ``Unavailable``: ``STORE_UNAVAILABLE`` or ``KEY_SERVICE_UNAVAILABLE`` if the keys cannot be
    reached.
    """

    def create(self, subject: str) -> SubjectKey:
        """Make the key of a subject. Raises Refused: ``KEY_EXISTS``."""

    def wrap(self, subject: str, data_key: bytes) -> Wrapped:
        """Encrypt a data key. Raises Refused: ``SUBJECT_KEY_MISSING``."""

    def unwrap(self, subject: str, wrapped: Wrapped) -> bytes:
        """Return the data key.

        Raises Refused: ``SUBJECT_KEY_MISSING``; ``SUBJECT_KEY_WRONG`` if the subject has another key here. Corrupted:
        ``VERIFICATION_FAILED`` if this key did not wrap it for this ledger and subject.
        """

    def destroy(self, subject: str) -> bool:
        """Destroy the key of a subject; return whether there was one."""

    def subjects(self) -> list[SubjectKey]:
        """Return the subjects that have a key here, in order."""

    def export(self, subject: str) -> bytes:
        """Return the key of a subject, for another reader.

        Raises Refused: ``SUBJECT_KEY_MISSING``; ``SUBJECT_KEY_FIXED`` if the service gives no key away.
        """

    def insert(self, subject: str, key: bytes) -> SubjectKey:
        """Store an exported key. The same key again changes nothing.

        Raises Refused: ``KEY_EXISTS`` if the subject has another key here; ``SUBJECT_KEY_FIXED``.
        """


def associated_data(ledger: str, subject: str, key_id: str) -> bytes:
    """Return the data that a wrapped key is bound to: no other ledger or subject can use it."""
    return f"deedbook-seal-1\n{ledger}\n{subject}\n{key_id}".encode()


def key_missing(subject: str, present: Iterable[str]) -> Refused:
    """Return the refusal when a subject has no key here; ``present`` are the subjects that have one."""
    hint = did_you_mean(near(subject, present))
    message = (
        f"there is no key of the subject {subject} here{hint or '.'} A reader who has it runs "
        f"`deed seal export {subject} --to FILE`, and you `deed seal import FILE`. "
        f"`deed seal create {subject}` makes the key of a new subject."
    )
    return Refused("SUBJECT_KEY_MISSING", message, subject=subject)


def key_exists(subject: str) -> Refused:
    """Return the refusal to make or store a second key of a subject."""
    return Refused("KEY_EXISTS", f"the subject {subject} has a key here: `deed seal list` shows it", subject=subject)


def key_wrong(subject: str, wanted: str, present: str) -> Refused:
    """Return the refusal when the key here is not the one that sealed the content."""
    message = (
        f"this was sealed with the key {wanted} of {subject}, and the key here is {present}: "
        f"ask its author for `deed seal export {subject} --to FILE`"
    )
    return Refused("SUBJECT_KEY_WRONG", message, subject=subject, wanted=wanted, present=present)


def wrapped_wrongly(subject: str) -> Corrupted:
    """Return the error when a key did not wrap a data key for this ledger and subject."""
    message = (
        f"the header of this blob was not made with the key of {subject} for this ledger: it was changed or copied"
    )
    return Corrupted("VERIFICATION_FAILED", message, subject=subject)


def key_fixed(subject: str, what: str) -> Refused:
    """Return the refusal because this key service exports and imports no keys; ``what`` is "exported" or "imported"."""
    message = (
        f"the key of {subject} cannot be {what}: its key service keeps keys to itself. Give the reader access to it"
    )
    return Refused("SUBJECT_KEY_FIXED", message, subject=subject)
