"""The clients of this process: one for each connection to a server, and one for all ledgers on the same folder."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Final

from deedbook.ledger.client.client import Client
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.client.reads import LogReads
from deedbook.ledger.errors import Unavailable
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.client.local_reader import OpenViews, Views
    from deedbook.ledger.home.config import Settings


class Clients:
    """The open clients of this process. LMDB's locks belong to a process, so ledgers on one folder share a client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[Path, tuple[Client, int]] = {}
        self._inherited: dict[Path, Client] = {}

    def open(self, settings: Settings, views: OpenViews | None = None) -> Client:
        """Return a new connection to a server, or the client of a folder, which is opened if it is not open yet.

        ``views`` opens the views of a folder (default: a ``Reader`` that writes its notices on standard error). Raises
        Unavailable: ``STORE_UNAVAILABLE`` in a fork of a process that had the folder open. Also raises as
        ``open_client``.
        """
        if settings.server is not None:
            return open_client(settings)
        folder = settings.home.resolve()
        with self._lock:
            if folder in self._inherited:
                message = f"this process was forked while the ledger in {folder} was open: fork before it is opened, \
or start processes anew (multiprocessing calls that `spawn`)"
                raise Unavailable("STORE_UNAVAILABLE", message, folder=str(folder))
            client, users = self._clients.get(folder, (None, 0))
            client = client or open_client(settings, views or _open_views)
            self._clients[folder] = client, users + 1
        return client

    def close(self, client: Client) -> None:
        """Close a client from ``open``; a folder's client is closed when its last user closes it."""
        with self._lock:
            # Search by the client and not by the path: a link in the path may lead elsewhere by now.
            folder = next((folder for folder, (shared, _) in self._clients.items() if shared is client), None)
            if folder is not None:
                _, users = self._clients.pop(folder)
                if users > 1:
                    self._clients[folder] = client, users - 1
                else:
                    client.close()
                return
        client.close()

    def forget(self) -> None:
        """In a fork, keep the parent's clients without using or closing them: LMDB would end the parent's reads."""
        self._lock = threading.Lock()
        self._inherited |= {folder: client for folder, (client, _) in self._clients.items()}
        self._clients = {}


def _open_views(client: LogReads, settings: Settings) -> Views:
    return Reader(client, settings, notice=_say)


def _say(notice: str) -> None:
    sys.stderr.write(f"{notice}\n")


clients: Final = Clients()
os.register_at_fork(after_in_child=clients.forget)
