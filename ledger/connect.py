"""Choosing the client: a folder on this machine, or a server on the bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.errors import Refused

if TYPE_CHECKING:
    from ledger.client import Client
    from ledger.config import Settings
    from ledger.local import OpenViews


def open_client(settings: Settings, views: OpenViews | None = None) -> Client:
    """Return the client that the settings ask for: remote when they name a server, else local.

    ``views`` is what a local client answers view queries with, ``projections.Reader``; a server has its own.

    Raises:
        Unavailable: ``NO_LEDGER``, ``BUS_UNAVAILABLE``.
    """
    if settings.server is None:
        from ledger.local import LocalClient  # noqa: PLC0415 - loads lmdb, which remote work does not need

        return LocalClient(settings, views=views)
    if settings.agent is None:
        raise Refused("USAGE", "a server is asked as somebody: add --as NAME or set BATON_AGENT")
    from ledger.bus.remote import RemoteClient  # noqa: PLC0415 - loads nats, which local work does not need

    return RemoteClient(settings)
