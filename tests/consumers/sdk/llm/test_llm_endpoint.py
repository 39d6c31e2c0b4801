"""The URL and the key of a model. The key comes from a file or a named variable, and is never shown."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deedbook.consumers.sdk.llm.model import read_endpoint
from deedbook.consumers.sdk.llm.settings import LlmSettings
from deedbook.ledger.errors import DeedbookError

KEY = "sk-0123456789abcdef"
BASE: dict[str, Any] = {"base_url": "https://llm.example.org/v1", "model": "some-model"}


def code_of(environment: dict[str, str] | None = None, **settings: Any) -> str:
    with pytest.raises(DeedbookError) as raised:
        read_endpoint(LlmSettings(**(BASE | settings)), (environment or {}).get).read_key()
    assert KEY not in raised.value.message
    return raised.value.code


def test_key_comes_from_the_named_variable() -> None:
    environment = {"MY_KEY": f" {KEY}\n", "OTHER": "x"}
    endpoint = read_endpoint(LlmSettings(**BASE, api_key_variable="MY_KEY"), environment.get)
    assert endpoint.url == "https://llm.example.org/v1/chat/completions"
    assert endpoint.read_key() == KEY
    assert KEY not in repr(endpoint)


def test_key_comes_from_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    file.chmod(0o600)
    endpoint = read_endpoint(LlmSettings(**BASE, api_key_file=str(file)), {}.get)
    assert endpoint.read_key() == KEY
    file.write_text("sk-renewed\n")
    assert endpoint.read_key() == "sk-renewed"  # the key is read at each call, so a renewed key needs no restart
    file.chmod(0o644)
    assert code_of(api_key_file=str(file)) == "KEY_FILE_MODE"
    assert code_of(api_key_file=str(tmp_path / "none")) == "KEY_FILE_MISSING"


@pytest.mark.parametrize("content", [b"", b"two\nlines", b"\xff\xfe", b"sp ace", "schlüssel".encode(), b"x" * 5_000])
def test_what_cannot_stand_in_a_header_is_no_key(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    file.chmod(0o600)
    assert code_of(api_key_file=str(file)) == "INVALID_FORMAT"


def test_variable_that_is_not_set_is_the_operators_to_set() -> None:
    assert code_of(api_key_variable="MY_KEY") == "LLM_UNAVAILABLE"
    assert code_of({"MY_KEY": ""}, api_key_variable="MY_KEY") == "LLM_UNAVAILABLE"


def test_key_is_named_once() -> None:
    assert code_of({"A": KEY}, api_key_variable="A", api_key_file="/key") == "INVALID_FIELD"


@pytest.mark.parametrize(
    "url",
    [
        "llm.example.org/v1",
        "file:///etc/passwd",
        "https://",
        "https://user:pass@llm.example.org/v1",
        "https://llm.example.org/v1?key=1",
        "https://llm.example.org/v1#x",
        "https://llm.example.org:0/v1",
        "https://llm.example.org:99999/v1",
        "https://llm.example.org/v 1",
        "https://llm.exämple.org/v1",
        "https://[::1/v1",
    ],
)
def test_url_that_is_no_plain_endpoint_is_refused(url: str) -> None:
    assert code_of(base_url=url) == "INVALID_FIELD"


def test_key_travels_in_the_clear_to_this_machine_only() -> None:
    environment = {"K": KEY}
    for host in ("localhost:8000", "127.0.0.1:8000", "[::1]:8000"):
        settings = LlmSettings(base_url=f"http://{host}/v1", model="m", api_key_variable="K")
        assert read_endpoint(settings, environment.get).read_key() == KEY
    for host in ("llm.example.org", "10.0.0.7:8000", "localhost.example.org", "127.0.0.1.example.org"):
        assert code_of(environment, base_url=f"http://{host}/v1", api_key_variable="K") == "INVALID_FIELD"
    assert read_endpoint(LlmSettings(base_url="http://10.0.0.7:8000/v1", model="m"), {}.get).read_key() is None


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"family": "openai"}, "https://api.openai.com/v1/chat/completions"),
        ({"family": "anthropic"}, "https://api.anthropic.com/v1/messages"),
        ({"base_url": "https://api.anthropic.com/v1/"}, "https://api.anthropic.com/v1/messages"),
        ({"base_url": "http://127.0.0.1:11434/v1"}, "http://127.0.0.1:11434/v1/chat/completions"),
        ({"base_url": "https://eu.example.org/x/v1", "family": "anthropic"}, "https://eu.example.org/x/v1/messages"),
    ],
)
def test_family_says_where_it_is_asked(settings: dict[str, Any], url: str) -> None:
    assert read_endpoint(LlmSettings(model="m", **settings), {}.get).url == url


def test_compatible_server_has_no_address_of_its_own() -> None:
    for settings in ({}, {"family": "openai-compatible"}):
        with pytest.raises(DeedbookError, match="base_url"):
            read_endpoint(LlmSettings(model="m", **settings), {}.get)


def test_settings_refuse_what_they_do_not_know() -> None:
    for wrong in ({"api_key": KEY}, {"timeout_s": 0}, {"attempts_max": 0}, {"api_key_variable": "A=B"}, {"model": ""}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(BASE | wrong, LlmSettings)


def test_every_example_of_the_page_is_an_endpoint() -> None:
    page = (Path(__file__).parents[4] / "deploy" / "README.md").read_text("utf-8")
    tables = [tomllib.loads(block) for block in re.findall(r"```toml\n(\[llm\].*?)```", page, re.DOTALL)]
    endpoints = [read_endpoint(msgspec.convert(table["llm"], LlmSettings), {}.get) for table in tables]
    assert [(endpoint.family, endpoint.url.partition("/v1")[0]) for endpoint in endpoints] == [
        ("openai-compatible", "http://127.0.0.1:11434"),
        ("openai", "https://api.openai.com"),
        ("anthropic", "https://api.anthropic.com"),
    ]
