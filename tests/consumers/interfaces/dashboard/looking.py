"""A dashboard without a browser: a ledger, and a viewer who logged in with a launch link."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from building import AGENTS, Ledger
from nacl.pwhash import argon2id
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
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import httpx

    from deedbook.ledger.events.authority import Role

SECRET = "s" * 40
PASSPHRASE = "correct horse 電池"
ORIGIN = "http://127.0.0.1:4280"


@cache
def sealed(seed: bytes, ledger: str, name: str, passphrase: str, _cost: int) -> bytes:
    """Return the file of a key with a passphrase; made once for each cost, because it takes most of a second."""
    return encode_key(Key(seed), ledger=ledger, name=name, passphrase=passphrase)


def seal(ledger: Ledger, name: str = "rita", passphrase: str = PASSPHRASE) -> None:
    """Seal the key of a human in its file."""
    ledger.home.key_file(name).write_bytes(
        sealed(ledger.keys[name].seed, ledger.id, name, passphrase, argon2id.OPSLIMIT_MODERATE)
    )


class Viewer:
    """A client that logged in with a link of ``name``; a test can write to ``ledger``, which the dashboard shows."""

    def __init__(self, ledger: Ledger, dashboard: Dashboard, name: str = "rita") -> None:
        self.ledger = ledger
        self.dashboard = dashboard
        self.name = name
        self.open()

    def open(self) -> None:
        """Open the dashboard as it is now, in a new browser."""
        self.client = TestClient(self.dashboard.application(), ORIGIN, follow_redirects=False)
        self.enter()

    def enter(self, link: str = "", **headers: str) -> httpx.Response:
        """Log in with a launch link, by default a new one for the viewer's own name."""
        return self.client.get("/launch", params={"token": link or self.link()}, headers=headers)

    def link(self) -> str:
        """Return the token of a fresh launch link."""
        return launch_link(SECRET, self.name, self.ledger.clock())

    def get(self, path: str, **query: Any) -> httpx.Response:
        """Get a page, whatever its status."""
        return self.client.get(path, params=query)

    def page(self, path: str, **query: Any) -> str:
        """Get a page; it must exist."""
        answer = self.get(path, **query)
        assert answer.status_code == 200, answer.text
        return answer.text

    def data(self, path: str, **query: Any) -> Any:
        """Return the data of a page, as JSON."""
        answer = self.get(f"{path}.json", **query)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        assert document["schema_version"] == 1
        return document["data"]

    def post(self, path: str, headers: dict[str, str] | None = None, **form: str) -> httpx.Response:
        """Send a form as a page of the dashboard would."""
        own = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
        return self.client.post(path, data=form, headers=own if headers is None else headers)


def form_of(viewer: Viewer, word: str, path: str = "/h/x", **written: str) -> dict[str, str]:
    """Return the form of a page as a browser sends it when the button with ``word`` is pressed."""
    form = viewer.data(path)["form"]
    (button,) = [one for one in form["choices"] if one["word"] == word]
    return {**form["fields"], "decision": button["value"], "note": "", **written}


def token_of(page: str, path: str) -> str:
    """Return the token in the form that a page sends to ``path``."""
    return page.partition(f'action="{path}"')[2].partition('name="csrf" value="')[2].partition('"')[0]


def look(folder: Path, *, human: str = "rita", agents: Mapping[str, Sequence[Role]] = AGENTS) -> Iterator[Viewer]:
    """Yield a viewer of a new ledger, by default as its human, rita."""
    with Ledger(folder, agents=agents) as ledger:
        # LMDB opens a folder once in a process, so the dashboard reads the same open log that the test writes to.
        ledger.write_keys()
        client = LocalClient(ledger.settings(), log=ledger.log, views=Reader)
        clients._clients[folder.resolve()] = client, 0
        with Open(settings=Settings(home=folder, agent=human)) as opened:
            dashboard = Dashboard(opened, Guard(SECRET, 4280), clock_ms=ledger.clock)
            viewer = Viewer(ledger, dashboard, human)
            yield viewer
            dashboard.close()
