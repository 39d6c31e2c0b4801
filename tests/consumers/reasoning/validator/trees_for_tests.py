"""Trees for the validator's tests: files written in one call, and a git repository without any user's settings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from graphs import graph

from deedbook.projections.reasoning.memory import ReasoningMemory

SAMPLE = Path(__file__).parents[4] / "consumers" / "interfaces" / "demo" / "sample_project"


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Write files below a folder and return it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, with a placeholder author and without any user's settings."""
    who = {f"GIT_{role}_{part}": "t@example.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"} | who
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.strip()


def commit(folder: Path, files: dict[str, str | bytes] | None = None) -> str:
    """Write files, commit everything (creating the repository first if there is none), and return the commit's id."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet", "--initial-branch=main")
    write(folder, files or {})
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=next")
    return git(folder, "rev-parse", "HEAD")


def citing(*references: str, **changes: Any) -> ReasoningMemory:
    """Return a sound graph of an observation that cites these references, and a conclusion from it."""
    steps = [
        {"step": 1, "type": "observation", "content": "It is so", "evidence": list(references)},
        {"step": 2, "type": "conclusion", "content": "Act on it", "confidence": 0.9},
    ]
    values = {"task": "t", "conclusion": "Act on it", "steps": steps, "dependencies": {"2": [1]}}
    return graph(values | {"confidence_in_reasoning": 0.9} | changes)
