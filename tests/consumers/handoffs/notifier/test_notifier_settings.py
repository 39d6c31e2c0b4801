"""A wrong table ``[[notify]]`` is refused with file and path; a right one becomes a channel that shows no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import trusted
from webhook_receiver import SECRET, VARIABLE

from deedbook.consumers.handoffs.notifier.settings import configured_channels, read_channels
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.config import Actions, Settings
from deedbook.ledger.home.settings import read_settings

if TYPE_CHECKING:
    from pathlib import Path

HOOK = {"agents": ["rita"], "webhook": "https://example.org/hook", "secret_variable": VARIABLE}
OTHER = HOOK | {"webhook": "https://example.org/other"}
RUN = {"agents": ["*"], "command": "true"}


def settings(home: Path, *tables: dict[str, Any]) -> Settings:
    return Settings(home=home, actions=Actions(notify=list(tables)))


def test_tables_of_the_file_become_channels(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        """
        [[notify]]
        agents = ["rita", "bob"]
        actions = ["approve", "verify"]
        webhook = "https://example.org/hook/0123456789"
        secret_variable = "NOTIFY_TEST_SECRET"

        [[notify]]
        name = "desktop"
        agents = ["*"]
        command = 'notify-send "$DEEDBOOK_TITLE" "$DEEDBOOK_TEXT"'
        timeout_s = 5
        """,
        "utf-8",
    )
    trusted(tmp_path)
    hook, desktop = configured_channels(read_settings(home=tmp_path, environment={}), {VARIABLE: SECRET}.get)
    assert (hook.target, desktop.target, desktop.name) == ("https://example.org", "a command", "desktop")
    assert hook.name.startswith("webhook-")
    assert [hook.takes("rita", "approve"), hook.takes("rita", "claim"), hook.takes("eve", "approve")] == [True, 0, 0]
    assert desktop.takes("eve", "claim")
    assert SECRET not in repr(hook)


def test_without_a_file_there_is_no_channel(tmp_path: Path) -> None:
    assert configured_channels(read_settings(home=trusted(tmp_path), environment={})) == ()


@pytest.mark.parametrize(
    ("table", "code", "path"),
    [
        (RUN | {"colour": "red"}, "UNKNOWN_FIELD", "$.notify[1]"),
        ({"command": "true"}, "INVALID_FIELD", "$.notify[1]"),
        (RUN | {"agents": []}, "INVALID_FIELD", "$.notify[1].agents"),
        (RUN | {"agents": ["../rita"]}, "INVALID_FIELD", "$.notify[1].agents[0]"),
        (RUN | {"agents": ["**"]}, "INVALID_FIELD", "$.notify[1].agents[0]"),
        (RUN | {"agents": "rita"}, "INVALID_FIELD", "$.notify[1].agents"),
        (RUN | {"actions": ["shout"]}, "INVALID_FIELD", "$.notify[1].actions[0]"),
        (RUN | {"timeout_s": 0.0}, "INVALID_FIELD", "$.notify[1].timeout_s"),
        (RUN | {"attempts_max": 0}, "INVALID_FIELD", "$.notify[1].attempts_max"),
        (RUN | {"command": "echo \x00"}, "INVALID_FIELD", "$.notify[1].command"),
        (RUN | {"allow_http": True}, "INVALID_FIELD", "$.notify[1]"),
        (RUN | {"secret_variable": VARIABLE}, "INVALID_FIELD", "$.notify[1]"),
        (RUN | {"webhook": "https://example.org"}, "INVALID_FIELD", "$.notify[1]"),
        ({"agents": ["*"]}, "INVALID_FIELD", "$.notify[1]"),
        ({"agents": ["*"], "webhook": "https://example.org/x"}, "INVALID_FIELD", "$.notify[1].secret_variable"),
        (HOOK | {"secret_variable": "1 WRONG"}, "INVALID_FIELD", "$.notify[1].secret_variable"),
        (OTHER | {"secret_variable": "SHORT"}, "INVALID_FIELD", "$.notify[1].secret_variable"),
        (OTHER | {"secret_variable": "ABSENT"}, "INVALID_FIELD", "$.notify[1].secret_variable"),
        (HOOK, "INVALID_FIELD", "$.notify[1].name"),  # the name is the same as the first table's target
    ],
)
def test_wrong_table_is_refused_with_its_file_and_path(
    tmp_path: Path, table: dict[str, Any], code: str, path: str
) -> None:
    environment = {VARIABLE: SECRET, "SHORT": "short"}
    with pytest.raises(Refused) as refused:
        configured_channels(settings(tmp_path, HOOK, table), environment.get)
    assert (refused.value.code, refused.value.details["path"]) == (code, path)
    assert str(tmp_path / "config.toml") in refused.value.message
    assert path in refused.value.message


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/private-part",
        "http://127.0.0.1.example.org/private-part",
        "http://10.0.0.1/private-part",
        "ftp://example.org/private-part",
        "https:///private-part",
        "https://user:private-part@example.org/",
        "https://example.org/#private-part",
        "https://example.org:99999/private-part",
        "https://example.org:0/private-part",
        "https://[::1/private-part",
        "https://example.org/private-part and more",
        "https://ex\u00e4mple.org/private-part",
        "https://example.org/private-part\r\nX: y",
        "private-part",
    ],
)
def test_address_that_cannot_be_used_is_refused_and_not_repeated(tmp_path: Path, url: str) -> None:
    with pytest.raises(Refused) as refused:
        read_channels(settings(tmp_path, HOOK | {"webhook": url}))
    assert refused.value.details["path"] == "$.notify[0].webhook"
    assert "private-part" not in f"{refused.value.message} {refused.value.details}"


@pytest.mark.parametrize(
    ("url", "more", "target"),
    [
        ("https://example.org/a?b=c", {}, "https://example.org"),
        ("http://127.0.0.1:8080/a", {}, "http://127.0.0.1:8080"),
        ("http://[::1]:8080/a", {}, "http://[::1]:8080"),
        ("http://localhost/a", {}, "http://localhost"),
        ("http://example.org/a", {"allow_http": True}, "http://example.org"),
    ],
)
def test_only_scheme_host_and_port_of_an_address_are_shown(
    tmp_path: Path, url: str, more: dict[str, Any], target: str
) -> None:
    (channel,) = read_channels(settings(tmp_path, HOOK | {"webhook": url} | more))
    assert channel.target == target


def test_channels_can_be_read_without_their_secrets(tmp_path: Path) -> None:
    (channel,) = read_channels(settings(tmp_path, HOOK), {}.get)
    assert channel.secret is None


def test_number_of_channels_is_limited(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        read_channels(settings(tmp_path, *(RUN | {"command": f"echo {number}"} for number in range(21))))
    assert refused.value.details["path"] == "$.notify"
