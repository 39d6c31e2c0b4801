"""Opening a ledger for one call from Python: by the settings of the environment, or by what is given.

Locally the log and its views are opened, with a server the client alone; both are closed again when the call ends.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ledger.author import Author
from ledger.client import open_client
from ledger.config import read_settings
from ledger.errors import Refused
from ledger.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.client import Ask, Client
    from ledger.config import Settings
    from ledger.local import Views


class Opened(NamedTuple):
    """A ledger that is open: its settings, the client, and what answers view queries."""

    settings: Settings
    client: Client
    answer: Ask

    def author(self) -> Author:
        """Return the author who signs: the acting agent.

        Raises:
            Refused: ``USAGE`` when none was named.
        """
        name = self.settings.agent
        if name is None:
            raise Refused("USAGE", "somebody must sign this: give agent=NAME, or set BATON_AGENT")
        home = Home(self.settings.home)
        return Author(self.client, name, lambda kinds: home.signing_key(name, kinds))


@contextlib.contextmanager
def open_ledger(
    home: Path | str | None = None, *, agent: str | None = None, server: str | None = None
) -> Iterator[Opened]:
    """Open a ledger: ``home`` is the ledger's folder itself, as ``BATON_HOME`` takes it.

    Raises:
        Unavailable: ``NO_LEDGER``, ``STORE_UNAVAILABLE``, ``BUS_UNAVAILABLE``. Refused: a setting is wrong.
    """
    settings = read_settings(home=None if home is None else Path(home), server=server, agent=agent)
    with open_client(settings, _open_views) as client:
        yield Opened(settings, client, client.view)


def _open_views(client: Client, settings: Settings) -> Views:
    from projections.reader import Reader  # noqa: PLC0415 - opens sqlite, which remote work does not need

    return Reader(client, settings)
