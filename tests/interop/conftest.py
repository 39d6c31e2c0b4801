"""The agent in TypeScript, as fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import typescript_agent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def built() -> tuple[str, Path]:
    """Node, and the folder of the compiled agents."""
    return typescript_agent.built()


@pytest.fixture(scope="session")
def ask(built: tuple[str, Path]) -> Callable[..., Any]:
    """Give the agent one command."""
    assert built
    return typescript_agent.ask_agent
