"""Fixtures that build and call the agent in TypeScript."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import typescript_agent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def built() -> tuple[str, Path]:
    """The path of the program ``node``, and the folder of the compiled agents."""
    return typescript_agent.built()


@pytest.fixture(scope="session")
def ask(built: tuple[str, Path]) -> Callable[..., Any]:
    """A function that gives the agent a command and returns its answer."""
    assert built
    return typescript_agent.ask_agent
