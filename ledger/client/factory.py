"""Opens a local or a remote client, as the settings say."""

from __future__ import annotations

from deedbook.ledger.client.client import Client
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.client.local_reader import OpenViews
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.home.config import Settings
from deedbook.ledger.packages import install_command


def open_client(settings: Settings, views: OpenViews | None = None) -> Client:
    """Return an open client: remote when the settings name a server, else local.

    ``views`` opens the views of a local ledger (``projections.answers.reader.Reader``); a server has its own. Raises
    Refused: ``USAGE`` for a server without an agent; as both clients. Unavailable: ``NO_LEDGER``, ``BUS_UNAVAILABLE``;
    ``EXTRA_MISSING`` without the extra ``bus``.
    """
    if settings.server is None:
        return LocalClient(settings, views=views)
    if settings.agent is None:
        raise Refused("USAGE", "a server needs to know the agent: add --as NAME, or set DEEDBOOK_AGENT")
    try:
        from deedbook.ledger.client.remote import RemoteClient  # noqa: PLC0415 - extra `bus`
    except ModuleNotFoundError as error:
        message = f"a ledger behind a server needs nats-py: {install_command('bus')}"
        raise Unavailable("EXTRA_MISSING", message, package=str(error.name), extra="bus") from error
    return RemoteClient(settings)
