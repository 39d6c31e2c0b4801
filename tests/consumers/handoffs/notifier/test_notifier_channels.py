"""Each channel gets the notices it asks for, however many waits and channels there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from notifying import Notifying, told
from waits import wait_for
from webhook_receiver import Receiver, Reply

if TYPE_CHECKING:
    from notifying import Hook


def test_channel_tells_only_its_agents_of_only_its_actions(scripted: Notifying, receiver: Receiver, hook: Hook) -> None:
    scripted.channels = [hook(agents=["bob"], actions=["claim"])]
    scripted.answer.items = [wait_for("bob", "claim", "a"), wait_for("bob", "approve", "b"), wait_for("rita", "claim")]
    scripted.catch_up()
    assert told(receiver) == [("bob", "claim", "a")]


def test_two_channels_are_told_with_one_id(scripted: Notifying, receiver: Receiver, hook: Hook) -> None:
    scripted.channels = [hook(name="one"), hook(name="two")]
    scripted.answer.items = [wait_for("bob", "claim")]
    scripted.catch_up()
    assert len(receiver.ids) == 2
    assert len(set(receiver.ids)) == 1


def test_waits_beyond_one_page_are_all_read(
    scripted: Notifying, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deedbook.ledger.client.client.rows_per_page", 10)
    scripted.answer.items = [wait_for("bob", "claim", f"h{number}") for number in range(31)]
    scripted.catch_up()
    scripted.catch_up()
    assert sorted(name for _, _, name in told(receiver)) == sorted(f"h{number}" for number in range(31))


def test_channel_that_is_gone_from_the_settings_leaves_dead_letters(scripted: Notifying, receiver: Receiver) -> None:
    receiver.script = [Reply(500)]
    scripted.answer.items = [wait_for("bob", "claim")]
    scripted.catch_up()
    scripted.channels = []
    scripted.catch_up()
    assert scripted.dead() == [(1, "the channel is not configured any more")]
