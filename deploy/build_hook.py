"""Puts the commit into wheels and source distributions, so that ``deed --version`` shows it without git."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]  # the parameter is the configuration, which is not read
    """A hook of hatchling. A wheel that is built from a source distribution takes over the file that is there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file, unless this is an editable installation: its commit changes."""
        name = "deedbook/commit.txt"
        self._folder = tempfile.mkdtemp()
        file = Path(self.root, name)
        git = shutil.which("git")
        if not file.exists() and Path(self.root, ".git").exists() and git is not None:
            command = [git, "-C", self.root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
            answer = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - a fixed command
            if answer.returncode == 0:
                file = Path(self._folder, "commit.txt")
                file.write_bytes(answer.stdout)
        if version != "editable" and file.exists():
            build_data["force_include"][str(file)] = name

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the temporary file: the archive has it."""
        shutil.rmtree(self._folder)
