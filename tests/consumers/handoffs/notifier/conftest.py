"""A receiver, channels to it, a clock that is moved by hand, and notifiers that a test drives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import Clock, Ledger
from notifying import Notifying
from waits import Waits
from webhook_receiver import SECRET, VARIABLE, Receiver

from deedbook.consumers.handoffs.notifier.settings import Channel, configured_channels
from deedbook.ledger.home.config import Actions, Settings
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from notifying import Hook

    from deedbook.ledger.client.local import LocalClient


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def channels_of(tmp_path: Path) -> Callable[..., tuple[Channel, ...]]:
    """Returns the channels of ``[[notify]]`` tables, each for everybody unless it says otherwise."""

    def make(*tables: dict[str, Any]) -> tuple[Channel, ...]:
        notify = [{"agents": ["*"]} | table for table in tables]
        settings = Settings(home=tmp_path / ".deedbook", actions=Actions(notify=notify))
        return configured_channels(settings, {VARIABLE: SECRET}.get)

    return make


@pytest.fixture
def hook(receiver: Receiver, channels_of: Callable[..., tuple[Channel, ...]]) -> Callable[..., Channel]:
    """Returns a channel to the receiver."""

    def make(**more: Any) -> Channel:
        return channels_of({"webhook": receiver.url, "secret_variable": VARIABLE} | more)[0]

    return make


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notifier" / "notifier.db"


@pytest.fixture
def reader(ledger: Ledger, local_client: LocalClient) -> Iterator[Reader]:
    with Reader(local_client, ledger.settings()) as made:
        yield made


@pytest.fixture
def notifying(ledger: Ledger, local_client: LocalClient, reader: Reader, path: Path, hook: Hook) -> Notifying:
    """A notifier on the real views, started once while nothing waits."""
    made = Notifying(ledger, local_client, reader.answer, path, [hook()])
    made.catch_up()
    return made


@pytest.fixture
def scripted(ledger: Ledger, local_client: LocalClient, path: Path, hook: Hook) -> Notifying:
    """A notifier on views that a test says, started once while nothing waits."""
    made = Notifying(ledger, local_client, Waits(), path, [hook()])
    made.catch_up()
    return made
