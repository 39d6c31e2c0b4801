"""Recognises addresses of this machine."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether ``host``, as ``urlsplit`` gives it (lower case, no brackets), is this machine.

    Plain text that is sent there stays on this machine. No name is resolved: ``localhost`` is loopback by RFC 6761
    §6.3, and every other name counts as another machine.
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
