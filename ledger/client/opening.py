"""Opening the client that the settings ask for."""

from __future__ import annotations

from deedbook.ledger.client.client import Client
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.client.local_reader import OpenViews
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.config import Settings


def open_client(settings: Settings, views: OpenViews | None = None) -> Client:
    """Return the client that the settings ask for: remote when they name a server, else local.

    ``views`` is what a local client answers view queries with, ``projections.Reader``; a server has its own. Raises
    Unavailable: ``NO_LEDGER``, ``BUS_UNAVAILABLE``.
    """
    if settings.server is None:
        return LocalClient(settings, views=views)
    if settings.agent is None:
        raise Refused("USAGE", "a server is asked as somebody: add --as NAME or set DEEDBOOK_AGENT")
    return RemoteClient(settings)
