"""Recognizing addresses of this machine."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether ``host``, as ``urlsplit`` gives it (lower case, no brackets), is this machine.

    What is sent there in the clear is seen by nobody else. No name is looked up: ``localhost`` is loopback by RFC 6761
    §6.3, every other name is a stranger's.
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
