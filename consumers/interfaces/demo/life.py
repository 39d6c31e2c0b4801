"""The demo's past: a day and a half of work by several agents, so that the dashboard has something to show.

``life.json`` lists the people, and then the events, one a line: who did what, and how many minutes after the beginning.
Each event is signed with its author's own key (or the named ``key``) and decided by the gate as usual, with a clock
that starts in the past and ends at the present. A ledger's clock cannot be turned back, so this is played before
anything else. A text in a line's data that begins with ``@`` is resolved when the line is played: see ``_resolved``. A
line with an ``act`` instead of a ``kind`` is work of more than one event.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from deedbook.consumers.interfaces.families import family_hooks
from deedbook.consumers.reasoning.workers import CompressorWorker, ValidatorWorker
from deedbook.consumers.sdk.service import register_agent
from deedbook.consumers.sessions.report import publish_report
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.client.author import Author, Draft, draft_and_sign
from deedbook.ledger.client.creation import create_ledger
from deedbook.ledger.client.local import LocalClient, now_ms
from deedbook.ledger.events.authority import Role
from deedbook.ledger.format.envelope import Submission
from deedbook.ledger.format.identity import Key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.ledger.limits import map_size_bytes
from deedbook.projections.answers.reader import Reader

minute_ms: Final = 60_000
CAST: Final = ("claude-code", "kuro", "minimax", "alex")


class _Client(LocalClient):
    """A client whose gate and authors use the clock ``at_ms``."""

    def __init__(self, settings: Settings, at_ms: int) -> None:
        super().__init__(settings, views=Reader)
        self.at_ms = at_ms
        self._gate = Gate(self.log, clock_ms=lambda: self.at_ms)


class _Author(Author):
    client: _Client

    def sign(self, *drafts: Draft) -> Submission:
        at, key = clock_text(self.client.at_ms), self._key_for([])
        return draft_and_sign(drafts, key, ledger=self.client.ledger, author=self.name, at=at)


class Life:
    """Makes the ledger of ``settings`` and plays the story in it; ``tree`` has the evidence of reasonings.

    Without a past, it only registers the agents of ``CAST``.
    """

    def __init__(self, settings: Settings, tree: Path, passphrases: dict[str, str], *, has_past: bool = True) -> None:
        self.settings, self._home, self._tree = settings, Home(settings.home), tree
        self._passphrases = passphrases
        self._keys: dict[str, Key] = {}
        self._named: dict[str, Any] = {}
        self._story = msgspec.json.decode(
            files("deedbook.consumers.interfaces.demo").joinpath("life.json").read_bytes()
        )
        if not has_past:
            people = self._story["people"]
            self._story = {"minutes": 0, "people": {name: people[name] for name in CAST}, "lines": []}
        self._begin_ms = now_ms() - self._story["minutes"] * minute_ms

    def play(self, origin: str) -> dict[str, str]:
        """Play the whole story; return the keys (hex) of people and agents, without services, by name."""
        create_ledger(
            self._home, origin=origin, map_size=map_size_bytes, is_trial=True, clock_ms=lambda: self._begin_ms
        )
        with _Client(self.settings, self._begin_ms) as self.client:
            keys = {}
            for name, (roles, label) in self._story["people"].items():
                key = self.register(name, roles, label)
                if "service" not in roles:
                    keys[name] = key
            if self._story["lines"]:
                self._judge({})  # a validator that starts for the first time begins at the end of the log
            for line in self._story["lines"]:
                self.client.at_ms = self._begin_ms + round(line["at"] * minute_ms)
                getattr(self, f"_{line.get('act', 'event')}")(line)
        return keys

    def register(self, name: str, roles: Sequence[Role], label: str = "") -> str:
        """Register an agent, and return its key (hex)."""
        secret = self._passphrases.get(name)
        author = self.author(ROOT)
        registered, _ = register_agent(author, self._home, name, roles, ai_id=label, passphrase=secret)
        return registered.key

    def _key(self, name: str) -> Key:
        if name not in self._keys:
            is_own = self._home.key_file(name).exists()
            self._keys[name] = self._home.open(name, self._passphrases.get(name)) if is_own else Key.generate()
        return self._keys[name]

    def author(self, name: str, key: str = "") -> Author:
        """Return an agent of the story, who signs with their own key or the named one, at the time of the story."""
        return _Author(self.client, name, lambda _: self._key(key or name))

    def _event(self, line: dict[str, Any]) -> None:
        draft = Draft(stream=line["on"], kind=line["kind"], data=self._resolved(line["data"], line))
        [self._named[line.get("name", "")]] = self.author(line["by"], line.get("key", "")).emit(draft)

    def _report(self, line: dict[str, Any]) -> None:
        publish_report(self.author(line["by"]), self.client.view, line["on"].partition("/")[2])

    def _judge(self, _: dict[str, Any]) -> None:
        """Let the services brief and validate the reasonings that were concluded since their last run."""
        path, size, stop = self._home.path, self.client.head().size, threading.Event()
        with closing(Reader(self.client, self.settings)) as reader:
            worker = CompressorWorker(self.author("compressor"), reader, path / "compressor.db")
            worker.run(stop, until=size)
            ValidatorWorker(self.author("validator"), reader, path / "validator.db", self._tree).run(stop, until=size)

    def _families(self, _: dict[str, Any]) -> None:
        """Let each family play its part of the story."""
        for _name, play in family_hooks("demo"):
            play(self)

    def _resolved(self, value: Any, line: dict[str, Any]) -> Any:
        if isinstance(value, dict):
            return {name: self._resolved(member, line) for name, member in value.items()}
        if isinstance(value, list):
            return [self._resolved(item, line) for item in value]
        if not isinstance(value, str) or not value.startswith("@"):
            return value
        what, _, name = value[1:].partition(" ")
        match what:
            case "version" | "result":  # the version or result of the line's handoff
                return self.client.view("handoffs.show", {"id": line["on"].partition("/")[2]})[what]
            case "ref":  # the present state of a reasoning
                return self.client.view("reasoning.show", {"id": name})["ref"]
            case "id" | "index":  # the event of a named line
                return getattr(self._named[name], what)
            case "key":
                return self._key(name).public.hex()
            case "proof":  # the proof that the author holds this key
                return self._key(name).prove_possession(self.client.ledger, line["by"])
            case "minute":  # a time of the story
                return clock_text(self._begin_ms + int(name) * minute_ms)
            case _:  # a mistake in the story's data
                raise ValueError(value)
