from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from deedbook.consumers.sdk.loopback import is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.255.255.254", "::1"])
def test_this_machine_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "example.com",
        "localhost.example.com",
        "127.0.0.1.example.com",
        "127.1",
        "2130706433",
        "0.0.0.0",
        "10.0.0.1",
        "::",
        "::2",
        "[::1]",
    ],
)
def test_another_host_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("url", ["http://LOCALHOST:1/", "http://[::1]:1/", "http://u@127.0.0.1/"])
def test_a_host_is_taken_as_urlsplit_gives_it(url: str) -> None:
    assert is_loopback(urlsplit(url).hostname or "")
