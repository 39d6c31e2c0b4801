"""Projects to set harnesses up in."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from building import trusted
from harness_place import Place

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A project with a ledger and an agent for each harness, made once and copied for each test."""
    return Place(tmp_path_factory.mktemp("pattern")).with_ledger("claude-code", "codex", "gemini")


@pytest.fixture
def place(pattern: Place, tmp_path: Path) -> Place:
    """A project with a ledger and an agent for each harness."""
    made = Place(tmp_path)
    subprocess.run(["cp", "-a", "--sparse=always", str(pattern.ledger), str(made.project)], check=True)
    trusted(made.project / ".deedbook")
    return made
