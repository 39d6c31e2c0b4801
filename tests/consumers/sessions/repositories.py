"""Git repositories for the tests of the report stores, made by the real git without user settings; and reports."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

WHO = {f"GIT_{role}_{part}": "t@example.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str, data: str = "") -> str:
    """Run git in a folder and return its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"} | WHO
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        input=data,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def repository(folder: Path, *, commits: int = 1, bare: bool = False) -> Path:
    """Make a repository with some commits."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main", *(["--bare"] if bare else []))
    for _ in range(commits):
        commit(folder)
    return folder


def commit(folder: Path) -> str:
    """Make an empty commit and return its id."""
    git(folder, "-c", "commit.gpgSign=false", "commit", "--quiet", "--allow-empty", "--message=next")
    return git(folder, "rev-parse", "HEAD")


def refs(folder: Path, root: str = "refs/notes/") -> dict[str, str]:
    """Return all refs below a root and the commits they point to."""
    lines = git(folder, "for-each-ref", "--format=%(refname) %(objectname)", root).splitlines()
    return dict(line.split(" ") for line in lines)


def history(folder: Path, ref: str) -> list[str]:
    """Return the commits of a ref, newest first."""
    return git(folder, "rev-list", ref).splitlines()


def a_report(session_id: str = "s1", version: int = 1, **changes: Any) -> dict[str, Any]:
    """Return a report of the shape of ``reports.show``."""
    compact = {"s": session_id[:8], "ai": "claude-code", "task": f"version {version}", "findings": ["知识"]}
    return {
        "session_id": session_id,
        "report_id": f"blake3:{version:064x}",
        "event_index": version,
        "ai_id": "claude-code",
        "author": "al",
        "timestamp": f"2026-01-02T03:04:{version:02d}.500Z",
        "markdown": f"# Epistemic Handoff Report\n\nVersion {version}: 知识\n",
        "compressed_json": json.dumps(compact, ensure_ascii=False, separators=(",", ":")),
    } | changes


def on_path(folder: Path, script: str) -> Path:
    """Write a program ``git`` that tests put in front of the real one."""
    folder.mkdir(parents=True)
    (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "git").chmod(0o755)
    return folder
