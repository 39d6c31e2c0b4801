"""The vendor's double, and clients of it that do not really wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from llm_stub import API_KEY, Vendor

from deedbook.consumers.sdk.llm.model import LlmClient, read_endpoint
from deedbook.consumers.sdk.llm.settings import LlmSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    made = Vendor()
    yield made
    made.close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that a client made between its attempts, in seconds."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        if seconds:
            made.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", pause)
    return made


@pytest.fixture
def client_of(waits: list[float]) -> Callable[..., LlmClient]:
    def make(url: str, **settings: Any) -> LlmClient:
        given = {"base_url": url, "model": "stub-model", "api_key_variable": "STUB_KEY", "timeout_s": 20.0} | settings
        return LlmClient(read_endpoint(LlmSettings(**given), {"STUB_KEY": API_KEY}.get))

    return make


@pytest.fixture
def client(vendor: Vendor, client_of: Callable[..., LlmClient]) -> LlmClient:
    return client_of(vendor.url)
