# Sample data for the demo: nothing imports it.
"""Password hashing of the sample service."""

from __future__ import annotations

import hashlib

SALT_BYTES = 16
SCRYPT_COST = 16384


def digest(password: str, salt: bytes) -> bytes:
    """Return the digest that is stored for a password."""
    return hashlib.scrypt(password.encode(), salt=salt, n=SCRYPT_COST, r=8, p=1)
