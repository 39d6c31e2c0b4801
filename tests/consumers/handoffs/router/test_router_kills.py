"""minimax verifies, claude validates, gemini optimizes: over the bus, with the router killed twice on the way.

The router's position and the log are two stores. So each kill comes between the two writes: the new handoff is in the
log, and the router's position is still before the event that caused it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from building import Ledger, key_named
from chain_files import STORY
from faults import FAULTS
from forked_deed import ScriptProcess
from routed_ledger import wait_until
from served import public_key, write_bus_key
from serving import ServeProcess, remote

from deedbook.consumers.interfaces.cli.commands.router import read_state
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.events.authority import AgentRegistered
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.handoff import (
    HandoffApproved,
    HandoffClaimed,
    HandoffCompleted,
    HandoffCreated,
    HandoffCriterionChecked,
    HandoffVerified,
)
from deedbook.ledger.lifecycle.authority import NODE, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deedbook.ledger.client.remote import RemoteClient
    from deedbook.ledger.events.body import Event
    from deedbook.ledger.events.fields import EventData
    from deedbook.ledger.home.config import Settings

CAST: Final[dict[str, list[Any]]] = {
    "kuro": ["agent"],
    "minimax": ["agent"],
    "claude": ["agent"],
    "gemini": ["agent"],
    "alex": ["human", "reviewer"],
    "pilot": ["service"],
}
ROUTER: Final = "pilot"


@pytest.fixture
def settings(home: Path) -> Settings:
    """A ledger with the cast, all of whom may connect to the bus; alex reviews by default."""
    with Ledger(home) as ledger:
        for name, roles in CAST.items():
            key = ledger.keys.setdefault(name, key_named(name))
            proof = key.prove_possession(ledger.id, name)
            registered = AgentRegistered(
                name=name, key=key.public.hex(), proof=proof, roles=roles, nkey=public_key(name)
            )
            ledger.emit(ROOT, f"agent/{name}", registered)
        ledger.write_keys()
        for name in (NODE, *CAST):
            write_bus_key(ledger.home, name)
        (home / "config.toml").write_text('default_reviewer = "alex"\n', "utf-8")
        return ledger.settings()


@pytest.fixture
def node(settings: Settings) -> Iterator[ServeProcess]:
    """`deed serve` of that ledger."""
    process = ServeProcess(settings)
    yield process
    assert process.stop() == 0


@pytest.fixture
def start(settings: Settings, node: ServeProcess, tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Start a router process over the bus; an argument says whether it dies after it creates its next handoff."""
    program, children = Path(__file__).with_name("routing_program.py"), list[subprocess.Popen[bytes]]()
    chains = tmp_path / "story.toml"
    chains.write_bytes(STORY)

    def popen(deadly: str) -> subprocess.Popen[bytes]:
        arguments = (program, deadly, "--home", settings.home, "--server", node.url, "--as", ROUTER, "run", chains)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
        child = ScriptProcess(*arguments, env=environment)
        children.append(child)
        return child

    yield popen
    for child in children:
        if child.poll() is None:
            child.kill()
            child.wait()


class Work:
    """The steps that the cast takes over the bus."""

    def __init__(self, settings: Settings, url: str) -> None:
        self.clients: dict[str, RemoteClient] = {name: remote(settings, url, name) for name in CAST if name != ROUTER}

    def close(self) -> None:
        """Disconnect everybody."""
        for client in self.clients.values():
            client.close()

    def say(self, who: str, name: str, data: EventData) -> None:
        """Let somebody append an event to a handoff."""
        Author(self.clients[who], who, lambda _: key_named(who)).emit(Draft(stream=f"handoff/{name}", data=data))

    def events(self, kind: str) -> list[Event]:
        """Return all events of a kind."""
        found: list[Event] = []
        client, position = self.clients["alex"], 0
        while True:
            page = client.entries(position, kinds=[kind])
            found += [read_event(index, data) for index, data in page.entries]
            position = page.next_index
            if position >= page.size:
                return found

    def created(self, name: str) -> HandoffCreated | None:
        """Return a handoff's content once it is there."""
        return next((event.data for event in self.events("handoff.created") if event.name == name), None)

    def do(self, name: str) -> None:
        """Wait for a handoff, and take it through to verified."""
        data = wait_until(lambda: self.created(name), f"{name} is created")
        shown = self.clients["alex"].view("handoffs.show", {"id": name})
        self.say("alex", name, HandoffApproved(version=shown["version"]))
        wait_until(lambda: name in [one.name for one in self.events("handoff.ready")], f"{name} is announced")
        self.say(data.to, name, HandoffClaimed())
        for position in range(len(data.criteria)):
            self.say(data.to, name, HandoffCriterionChecked(position=position))
        self.say(data.to, name, HandoffCompleted(summary=f"{data.to} is done"))
        shown = self.clients["alex"].view("handoffs.facts", {"id": name})
        self.say("alex", name, HandoffVerified(result=shown["result"]))


@pytest.fixture
def work(settings: Settings, node: ServeProcess) -> Iterator[Work]:
    """The cast, connected."""
    made = Work(settings, node.url)
    yield made
    made.close()


def test_chain_of_three_agents_makes_one_handoff_a_step_though_its_router_is_killed_twice(
    settings: Settings, start: Callable[[str], subprocess.Popen[bytes]], work: Work
) -> None:
    store = settings.home / f"router-{ROUTER}.db"
    rounds = [f"tests-{number}" for number in range(FAULTS)]
    for name in rounds:
        router = start("deadly")
        wait_until(lambda: store.exists() and read_state(store)[0] is not None, "the router has begun")
        work.say("kuro", name, HandoffCreated(title=f"Tests of {name}", to="minimax", reviewer="alex"))
        work.do(name)
        assert router.wait(60) == -signal.SIGKILL
        router = start("deadly")
        work.do(f"{name}-validate-1")
        assert router.wait(60) == -signal.SIGKILL
        router = start("lively")
        work.do(f"{name}-validate-1-optimize-1")
        size = work.clients["alex"].head().size
        wait_until(lambda: (read_state(store)[0] or 0) >= size, "the router has handled everything")  # noqa: B023 - waited for
        router.terminate()
        assert router.wait(60) == 0
    made = [event for event in work.events("handoff.created") if event.author == ROUTER]
    expected = [f"{name}-validate-1{end}" for name in rounds for end in ("", "-optimize-1")]
    assert [event.name for event in made] == expected
    assert Counter(cause for event in made for cause in event.causes).most_common(1)[0][1] == 1
    verified = {event.id: event.name for event in work.events("handoff.verified")}
    assert [verified[event.causes[0]] for event in made] == [
        one for name in rounds for one in (name, f"{name}-validate-1")
    ]
    assert sorted(event.name for event in work.events("handoff.ready")) == sorted([*rounds, *expected])
    assert read_state(store)[1] == []
