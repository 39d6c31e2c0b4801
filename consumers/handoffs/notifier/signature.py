"""Webhook signatures as Standard Webhooks 1.0.0 has them, so receivers check them with the libraries they have.

Source: https://github.com/standard-webhooks/standard-webhooks, ``spec/standard-webhooks.md``, "Signature scheme" and
"Webhook headers". The header ``webhook-id`` is the same for every attempt, ``webhook-timestamp`` is the attempt's own
in unix seconds, and ``webhook-signature`` is ``v1,`` and the base64 of HMAC-SHA256 over ``id.timestamp.body``. An id
of ours is hex, so it never contains the dot that separates the three.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final

from ledger.errors import Refused

# The specification asks for at least 192 bits; the upper bound is ours, for a variable that holds something else.
secret_min_bytes: Final = 24
secret_max_bytes: Final = 256
_PREFIX: Final = "whsec_"


class Secret:
    """A shared secret that does not show itself: only ``reveal`` returns its bytes."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        """Hold the bytes of a secret."""
        self._key = key

    def __repr__(self) -> str:
        """Show that there is a secret, not which."""
        return "Secret(…)"

    def reveal(self) -> bytes:
        """Return the bytes, for the one place that signs."""
        return self._key


def read_secret(text: str, variable: str, path: str) -> Secret:
    """Return the secret in a variable's text: ``whsec_`` and base64, or any other text as its own UTF-8 bytes.

    Raises:
        Refused: ``INVALID_FIELD`` naming the variable, never its content.
    """
    text = text.strip()
    try:
        encoded = text.removeprefix(_PREFIX)
        key = base64.b64decode(encoded, validate=True) if text.startswith(_PREFIX) else text.encode("utf-8")
    except (binascii.Error, ValueError):
        raise Refused("INVALID_FIELD", f"{variable} is not {_PREFIX} and base64", path=path) from None
    if not secret_min_bytes <= len(key) <= secret_max_bytes:
        message = f"the secret in {variable} must have {secret_min_bytes} to {secret_max_bytes} bytes"
        raise Refused("INVALID_FIELD", message, path=path)
    return Secret(key)


def signed_headers(message_id: str, timestamp_s: int, body: bytes, secret: Secret) -> dict[str, str]:
    """Return the three headers of one attempt to deliver ``body``.

    >>> key = Secret(b"0123456789abcdef01234567")
    >>> signed_headers("5f0c", 1674087231, b"{}", key)["webhook-signature"]
    'v1,lDWGVlZTeqQGMF43uU3L8N9eRhV8SelSktCJ0NU6qKI='
    """
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    signature = base64.b64encode(hmac.digest(secret.reveal(), signed, "sha256")).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": f"v1,{signature}",
    }
