"""Looking at a dashboard without a browser: a ledger, and a viewer who came in by a launch link."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from building import Ledger
from starlette.testclient import TestClient

from deedbook.consumers.interfaces.dashboard.app import Dashboard
from deedbook.consumers.interfaces.dashboard.guard import Guard, launch_link
from deedbook.consumers.sdk.clients import clients
from deedbook.consumers.sdk.ledger import Ledger as Open
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.format.identity import Key, encode_key
from deedbook.ledger.home.config import Settings
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

SECRET = "s" * 40
PASSPHRASE = "correct horse 電池"
ORIGIN = "http://127.0.0.1:4280"


@cache
def sealed(seed: bytes, ledger: str, name: str) -> bytes:
    """Return the file of a key that opens with ``PASSPHRASE``; made once, because that takes most of a second."""
    return encode_key(Key(seed), ledger=ledger, name=name, passphrase=PASSPHRASE)


def seal(ledger: Ledger, name: str = "rita") -> None:
    """Seal the key of a human in its file."""
    ledger.home.key_file(name).write_bytes(sealed(ledger.keys[name].seed, ledger.id, name))


class Viewer:
    """A browser that was let in; ``ledger`` is what it looks at, and can be written to."""

    def __init__(self, ledger: Ledger, dashboard: Dashboard) -> None:
        self.ledger = ledger
        self.dashboard = dashboard
        self.open()

    def open(self) -> None:
        """Come to the dashboard as it is now, with a new browser."""
        self.client = TestClient(self.dashboard.application(), ORIGIN, follow_redirects=False)
        self.enter()

    def enter(self) -> httpx.Response:
        """Come in by a fresh launch link."""
        link = launch_link(SECRET, self.ledger.clock())
        return self.client.get("/launch", params={"token": link})

    def get(self, path: str, **query: Any) -> httpx.Response:
        """Get a page, whatever its status."""
        return self.client.get(path, params=query)

    def page(self, path: str, **query: Any) -> str:
        """Get a page that there is."""
        answer = self.get(path, **query)
        assert answer.status_code == 200, answer.text
        return answer.text

    def data(self, path: str, **query: Any) -> Any:
        """Get what a page shows, as JSON."""
        answer = self.get(f"{path}.json", **query)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        assert document["schema_version"] == 1
        return document["data"]

    def post(self, path: str, headers: dict[str, str] | None = None, **form: str) -> httpx.Response:
        """Send a form as a page of the dashboard would."""
        own = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
        return self.client.post(path, data=form, headers=own if headers is None else headers)


def look(folder: Path, *, human: str | None = "rita") -> Iterator[Viewer]:
    """Yield a viewer of a new ledger, by default as its human, rita."""
    with Ledger(folder) as ledger:
        # LMDB opens a folder once in a process: what the dashboard reads is the very log that the test writes to.
        ledger.write_keys()
        client = LocalClient(ledger.settings(), log=ledger.log, views=Reader)
        clients._clients[folder.resolve()] = client, 0
        with Open(settings=Settings(home=folder, agent=human)) as opened:
            dashboard = Dashboard(opened, Guard(SECRET, 4280), human=human, clock_ms=ledger.clock)
            viewer = Viewer(ledger, dashboard)
            yield viewer
            dashboard.close()
