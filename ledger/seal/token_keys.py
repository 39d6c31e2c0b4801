"""Subject keys in a PKCS#11 token: a hardware security module, a smart card, or SoftHSM in the tests.

Each subject key is an AES-256 secret key of the token, labelled ``deedbook/LEDGER/SUBJECT``. The token makes it, and it
is neither extractable nor readable: nobody can copy it, not even a program of the same user. The token encrypts data
keys (AES-GCM) and destroys the key itself. So, unlike with a file, no copy of the key remains, except backups that its
operator makes with the token's own tools. This relies on the maker of the token.

It needs the extra ``hsm``: python-pkcs11, which has a MIT licence and several releases a year. SoftHSM 2, the token of
the tests, has a BSD licence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.format.identity import read_private
from deedbook.ledger.packages import install_command
from deedbook.ledger.seal.keys import (
    SubjectKey,
    Wrapped,
    associated_data,
    key_exists,
    key_fixed,
    key_missing,
    key_wrong,
    wrapped_wrongly,
)

_IV_BYTES: Final = 12
_TAG_BITS: Final = 128
_KEY_BITS: Final = 256
_ID_BYTES: Final = 8


def _load() -> Any:
    try:
        import pkcs11  # noqa: PLC0415 - the extra ``hsm``
    except ImportError as error:
        message = f"keys in a token need an optional part: {install_command('hsm')}"
        raise Refused("EXTRA_MISSING", message, extra="hsm") from error
    return pkcs11


class TokenKeys:
    """A key service whose keys are in a PKCS#11 token (``keys.KeyService``)."""

    def __init__(self, module: Path, token: str, pin_file: Path, ledger: str) -> None:
        """Use the token with the label ``token``, through its maker's library ``module``.

        ``pin_file`` has the user's PIN, in one line. Only its owner may read it.
        """
        self._pkcs11 = _load()
        self._module = module
        self._token = token
        self._pin_file = pin_file
        self._ledger = ledger

    def create(self, subject: str) -> SubjectKey:
        with self._open(is_writing=True) as session:
            if self._find(session, subject):
                raise key_exists(subject)
            key_id = os.urandom(_ID_BYTES)
            session.generate_key(
                self._pkcs11.KeyType.AES,
                _KEY_BITS,
                label=self._label(subject),
                id=key_id,
                store=True,
                template={
                    self._pkcs11.Attribute.SENSITIVE: True,
                    self._pkcs11.Attribute.EXTRACTABLE: False,
                    self._pkcs11.Attribute.MODIFIABLE: False,
                },
            )
        return SubjectKey(subject, key_id.hex())

    def wrap(self, subject: str, data_key: bytes) -> Wrapped:
        with self._open() as session:
            key = self._key(session, subject)
            key_id, iv = key.id.hex(), os.urandom(_IV_BYTES)
            box = key.encrypt(data_key, **self._gcm(iv, subject, key_id))
        return Wrapped(key_id, iv + box)

    def unwrap(self, subject: str, wrapped: Wrapped) -> bytes:
        with self._open() as session:
            key = self._key(session, subject)
            if (key_id := key.id.hex()) != wrapped.key_id:
                raise key_wrong(subject, wrapped.key_id, key_id)
            iv, box = wrapped.data[:_IV_BYTES], wrapped.data[_IV_BYTES:]
            try:
                return bytes(key.decrypt(box, **self._gcm(iv, subject, key_id)))
            except (self._pkcs11.PKCS11Error, ValueError) as error:  # tokens use different codes for a wrong tag
                raise wrapped_wrongly(subject) from error

    def destroy(self, subject: str) -> bool:
        with self._open(is_writing=True) as session:
            keys = self._find(session, subject)
            for key in keys:
                key.destroy()
        return bool(keys)

    def subjects(self) -> list[SubjectKey]:
        with self._open() as session:
            return self._list(session)

    def export(self, subject: str) -> bytes:
        raise key_fixed(subject, "exported")

    def insert(self, subject: str, key: bytes) -> SubjectKey:
        raise key_fixed(subject, "imported")

    def _label(self, subject: str) -> str:
        return f"deedbook/{self._ledger}/{subject}"

    def _list(self, session: Any) -> list[SubjectKey]:
        prefix = self._label("")
        keys = session.get_objects({self._pkcs11.Attribute.CLASS: self._pkcs11.ObjectClass.SECRET_KEY})
        names = [(key.label.removeprefix(prefix), key.id.hex()) for key in keys if key.label.startswith(prefix)]
        return [SubjectKey(*name) for name in sorted(names)]

    def _find(self, session: Any, subject: str) -> list[Any]:
        attribute = self._pkcs11.Attribute
        wanted = {attribute.CLASS: self._pkcs11.ObjectClass.SECRET_KEY, attribute.LABEL: self._label(subject)}
        return list(session.get_objects(wanted))

    def _key(self, session: Any, subject: str) -> Any:
        keys = self._find(session, subject)
        if not keys:
            raise key_missing(subject, (key.subject for key in self._list(session)))
        return keys[0]

    def _gcm(self, iv: bytes, subject: str, key_id: str) -> dict[str, Any]:
        ad = associated_data(self._ledger, subject, key_id)
        parameters = self._pkcs11.GCMParams(iv, ad, _TAG_BITS)
        return {"mechanism": self._pkcs11.Mechanism.AES_GCM, "mechanism_param": parameters}

    @contextmanager
    def _open(self, *, is_writing: bool = False) -> Iterator[Any]:
        pin = read_private(self._pin_file).decode("utf-8", "replace").strip()
        try:
            token = self._pkcs11.lib(str(self._module)).get_token(token_label=self._token)
            with token.open(user_pin=pin, rw=is_writing) as session:
                yield session
        except (self._pkcs11.PKCS11Error, OSError) as error:
            why = str(error) or type(error).__name__
            message = f"the token {self._token} cannot be used ({why}): check [seal] in config.toml, and the token"
            raise Unavailable("KEY_SERVICE_UNAVAILABLE", message, token=self._token) from error
